//! Services and methods, and where their descriptions come from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use prost::{DecodeError, Message};
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use prost_reflect::{
    Cardinality, DescriptorError, DescriptorPool, Kind, MessageDescriptor, MethodDescriptor,
};
use protox::Compiler;

/// Name of a method, such as `helloworld.Greeter/SayHello`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodName {
    /// Name of the service, with its package.
    pub service: String,
    /// Name of the method in the service.
    pub method: String,
}

impl MethodName {
    /// Returns the path of a call (`:path`).
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{self}")
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

impl FromStr for MethodName {
    type Err = String;

    /// Reads `package.Service/Method`. A slash before the name is allowed.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_identifier = |name: &str| {
            let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.chars().all(is_legal) && name.starts_with(|c: char| !c.is_ascii_digit())
        };
        let name = text.strip_prefix('/').unwrap_or(text);
        match name.split_once('/') {
            Some((service, method))
                if service.split('.').all(is_identifier) && is_identifier(method) =>
            {
                Ok(MethodName {
                    service: service.to_owned(),
                    method: method.to_owned(),
                })
            }
            _ => Err(format!(
                "\"{text}\" is not the name of a gRPC method; write package.Service/Method"
            )),
        }
    }
}

/// The reason why descriptions cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProtoError {
    /// An import of a `.proto` file does not exist in any directory.
    #[error("{0}")]
    MissingImport(String),
    /// A `.proto` file is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The bytes are not a descriptor set.
    #[error("{0}")]
    NotASet(#[from] DecodeError),
    /// The files of a descriptor set contradict each other, or an imported file is missing.
    #[error("{0}")]
    DescriptorSet(#[from] DescriptorError),
    /// A description is not supported.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedDescription),
}

/// A description for which `prost-reflect` would panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedDescription {
    /// A file uses a syntax other than `proto2` or `proto3`, such as editions.
    #[error("{file}: unsupported syntax \"{syntax}\", expected proto2 or proto3")]
    Syntax {
        /// Name of the file.
        file: String,
        /// The syntax.
        syntax: String,
    },
    /// A message is marked as a map entry, but does not have one key and one value, or its key has
    /// an invalid type. No `.proto` compiler creates such an entry. Contains the name of the
    /// message.
    #[error("the map entry {0} is invalid")]
    MapEntry(String),
}

/// Checks the syntax of a file.
pub(crate) fn check_syntax(file: &FileDescriptorProto) -> Result<(), UnsupportedDescription> {
    match file.syntax.as_deref() {
        None | Some("proto2" | "proto3") => Ok(()),
        Some(syntax) => Err(UnsupportedDescription::Syntax {
            file: file.name().to_owned(),
            syntax: syntax.to_owned(),
        }),
    }
}

/// Returns whether a map entry has one key and one value.
fn is_valid_entry(entry: &MessageDescriptor) -> bool {
    let single = |number| {
        let field = entry.get_field(number);
        field.filter(|field| field.cardinality() != Cardinality::Repeated)
    };
    single(MAP_KEY).is_some_and(|key| is_key(&key.kind())) && single(MAP_VALUE).is_some()
}

/// Field numbers of the key and the value in a map entry.
const MAP_KEY: u32 = 1;
const MAP_VALUE: u32 = 2;

/// Returns whether the keys of a map can have this type.
fn is_key(kind: &Kind) -> bool {
    let is_fraction = matches!(kind, Kind::Double | Kind::Float);
    let is_composite = matches!(kind, Kind::Bytes | Kind::Message(_) | Kind::Enum(_));
    !is_fraction && !is_composite
}

/// The reason why a method cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// The descriptions do not contain the service.
    #[error("unknown service \"{name}\"")]
    UnknownService {
        /// Name of the service.
        name: String,
        /// Names of all services.
        known: Vec<String>,
    },
    /// The service does not have the method.
    #[error("service \"{service}\" has no method \"{name}\"")]
    UnknownMethod {
        /// Name of the service.
        service: String,
        /// Name of the method.
        name: String,
        /// Names of the service's methods.
        known: Vec<String>,
    },
    /// The method is a streaming method.
    #[error("{name} is a {} method", kind(*.client, *.server))]
    Streaming {
        /// Name of the method.
        name: MethodName,
        /// Whether the client sends a stream of messages.
        client: bool,
        /// Whether the server sends a stream of messages.
        server: bool,
    },
}

/// Returns the kind of a method, given whether the client and the server send streams of messages.
fn kind(client: bool, server: bool) -> &'static str {
    match (client, server) {
        (true, true) => "bidirectional streaming",
        (true, false) => "client streaming",
        (false, true) => "server streaming",
        (false, false) => "unary",
    }
}

/// Descriptions of services and their messages.
#[derive(Debug, Clone)]
pub struct Descriptions(DescriptorPool);

impl Descriptions {
    /// Reads a `.proto` file and its imports, which are relative to its directory or to one of the
    /// `include` directories.
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub fn from_proto(path: &Path, include: &[PathBuf]) -> Result<Self, ProtoError> {
        let directory = match path.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        let path = directory.join(path.file_name().unwrap_or_default());
        let include = include.iter().map(PathBuf::as_path).chain([directory]);
        let compile = || {
            let mut compiler = Compiler::new(include)?;
            compiler.open_file(&path)?;
            Ok(compiler.descriptor_pool())
        };
        let pool = compile().map_err(|error: protox::Error| {
            // The debug format contains file, line and column.
            let text = format!("{error:?}").replace('\n', " ");
            if error.is_file_not_found() {
                ProtoError::MissingImport(text)
            } else {
                ProtoError::Invalid(text)
            }
        })?;
        Ok(Self::from_pool(pool)?)
    }

    /// Reads a descriptor set (`google.protobuf.FileDescriptorSet`).
    ///
    /// # Errors
    /// The bytes are not a descriptor set, an imported file is missing, or a description
    /// is not supported.
    pub fn from_set(bytes: &[u8]) -> Result<Self, ProtoError> {
        let set = FileDescriptorSet::decode(bytes)?;
        set.file.iter().try_for_each(check_syntax)?;
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_set(set)?;
        Ok(Self::from_pool(pool)?)
    }

    /// Returns the descriptions in a pool.
    ///
    /// # Errors
    /// A map entry is invalid.
    pub(crate) fn from_pool(pool: DescriptorPool) -> Result<Self, UnsupportedDescription> {
        let mut entries = pool.all_messages().filter(MessageDescriptor::is_map_entry);
        match entries.find(|entry| !is_valid_entry(entry)) {
            Some(entry) => Err(UnsupportedDescription::MapEntry(
                entry.full_name().to_owned(),
            )),
            None => {
                drop(entries);
                Ok(Descriptions(pool))
            }
        }
    }

    /// Returns whether the descriptions contain a service.
    #[must_use]
    pub fn has_service(&self, name: &str) -> bool {
        self.0.get_service_by_name(name).is_some()
    }

    /// Returns a unary method.
    ///
    /// # Errors
    /// The method does not exist or is a streaming method.
    pub fn method(&self, name: &MethodName) -> Result<Method, MethodError> {
        let Some(service) = self.0.get_service_by_name(&name.service) else {
            let known = self.0.services();
            return Err(MethodError::UnknownService {
                name: name.service.clone(),
                known: known.map(|of| of.full_name().to_owned()).collect(),
            });
        };
        let Some(method) = service.methods().find(|of| of.name() == name.method) else {
            let known = service.methods();
            return Err(MethodError::UnknownMethod {
                service: name.service.clone(),
                name: name.method.clone(),
                known: known.map(|of| of.name().to_owned()).collect(),
            });
        };
        let (client, server) = (method.is_client_streaming(), method.is_server_streaming());
        if client || server {
            return Err(MethodError::Streaming {
                name: name.clone(),
                client,
                server,
            });
        }
        Ok(Method(method))
    }
}

/// A unary method.
#[derive(Debug, Clone)]
pub struct Method(pub(crate) MethodDescriptor);

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const GREETER: &str = r#"
        syntax = "proto3";
        package helloworld;
        import "common/place.proto";
        message HelloRequest { string name = 1; common.Place place = 2; }
        message HelloReply { string message = 1; }
        service Greeter {
            rpc SayHello(HelloRequest) returns (HelloReply);
            rpc Watch(HelloRequest) returns (stream HelloReply);
            rpc Upload(stream HelloRequest) returns (HelloReply);
            rpc Chat(stream HelloRequest) returns (stream HelloReply);
        }
    "#;

    /// Writes `helloworld/greeter.proto` and, below `imports`, `common/place.proto`.
    fn written(imports: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("helloworld/greeter.proto", GREETER);
        write(
            &format!("{imports}/common/place.proto"),
            "syntax = \"proto3\"; package common; message Place { string city = 1; }",
        );
        directory
    }

    fn name(text: &str) -> MethodName {
        text.parse().unwrap()
    }

    #[test]
    fn reads_names() {
        let parsed = name("/a.b.C/D_1");
        assert_eq!(
            (parsed.service.as_str(), parsed.method.as_str()),
            ("a.b.C", "D_1")
        );
        assert_eq!(parsed.path(), "/a.b.C/D_1");
        for wrong in [
            "", "Say", "a.B.C", "a/b/c", "a../b", "a/1b", "a b/c", "/a", "a/",
        ] {
            let error = wrong.parse::<MethodName>().unwrap_err();
            assert!(error.contains("write package.Service/Method"), "{error}");
        }
    }

    #[test]
    fn imports_are_relative_to_the_file_or_to_given_directories() {
        let beside = written("helloworld");
        let path = beside.path().join("helloworld/greeter.proto");
        assert!(Descriptions::from_proto(&path, &[]).is_ok());

        let elsewhere = written("imports");
        let path = elsewhere.path().join("helloworld/greeter.proto");
        let imports = [elsewhere.path().join("imports")];
        assert!(Descriptions::from_proto(&path, &imports).is_ok());
        let error = Descriptions::from_proto(&path, &[]).unwrap_err();
        assert!(matches!(error, ProtoError::MissingImport(_)));
        let text = error.to_string();
        assert!(
            text.contains("greeter.proto:4:") && text.contains("common/place.proto"),
            "{text}"
        );

        std::fs::write(&path, "syntax = \"proto3\";\nmessage A { int33 b = 1; }").unwrap();
        let text = Descriptions::from_proto(&path, &[])
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("greeter.proto:2:") && text.contains("int33"),
            "{text}"
        );
    }

    #[test]
    fn names_methods_that_cannot_be_called() {
        let directory = written("helloworld");
        let path = directory.path().join("helloworld/greeter.proto");
        let all = Descriptions::from_proto(&path, &[]).unwrap();
        assert!(all.method(&name("helloworld.Greeter/SayHello")).is_ok());
        for (method, kind) in [
            ("Watch", "a server streaming method"),
            ("Upload", "a client streaming method"),
            ("Chat", "a bidirectional streaming method"),
        ] {
            let error = all.method(&name(&format!("helloworld.Greeter/{method}")));
            assert!(error.unwrap_err().to_string().ends_with(kind));
        }
        let error = all.method(&name("helloworld.Greter/SayHello")).unwrap_err();
        assert_eq!(
            error,
            MethodError::UnknownService {
                name: "helloworld.Greter".to_owned(),
                known: vec!["helloworld.Greeter".to_owned()],
            }
        );
        let error = all.method(&name("helloworld.Greeter/Say")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "service \"helloworld.Greeter\" has no method \"Say\""
        );
    }

    /// Calls all methods with messages that use all kinds of values.
    fn encode_messages(Descriptions(pool): &Descriptions) {
        for method in pool
            .services()
            .flat_map(|of| of.methods().collect::<Vec<_>>())
        {
            for json in [
                r#"{}"#,
                r#"{"a": {"x": 1}, "b": {"1": {"a": {"y": 2}}}, "c": ["RED", 1], "d": "1970-01-01T00:00:05Z"}"#,
                r#"{"a": {"true": "x"}, "b": {"x": null}, "c": "RED", "d": {"seconds": 5}}"#,
                r#"{"a": [{"x": 1}], "b": {"": {}}, "c": {"x": 1}, "d": [5]}"#,
            ] {
                // The messages need not fit.
                let _ = Method(method.clone()).request(json.as_bytes());
            }
        }
    }

    #[test]
    fn no_descriptor_set_causes_a_panic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.proto");
        let text = r#"
            syntax = "proto3";
            package a;
            import "google/protobuf/timestamp.proto";
            enum Color { NONE = 0; RED = 1; }
            message A {
                map<string, int32> a = 1;
                map<int32, A> b = 2;
                repeated Color c = 3;
                oneof time { google.protobuf.Timestamp d = 4; string e = 5; }
            }
            service S { rpc Do(A) returns (A); }
        "#;
        std::fs::write(&path, text).unwrap();
        let mut compiler = Compiler::new([directory.path()]).unwrap();
        compiler.include_imports(true).open_file(&path).unwrap();
        let set = compiler.encode_file_descriptor_set();
        encode_messages(&Descriptions::from_set(&set).unwrap());
        let mut valid = 0;
        for position in 0..set.len() {
            let byte = set[position];
            for other in [0, 1, 3, byte ^ 1, byte ^ 2, byte.wrapping_add(1), 0x7f] {
                let mut set = set.clone();
                set[position] = other;
                if let Ok(descriptions) = Descriptions::from_set(&set) {
                    encode_messages(&descriptions);
                    valid += 1;
                }
            }
        }
        assert!(valid > 1000, "{valid}");
    }

    #[test]
    fn refuses_invalid_map_entries() {
        use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
        use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, MessageOptions};
        let field = |number, of: Type, label: Label| FieldDescriptorProto {
            name: Some(format!("f{number}")),
            number: Some(number),
            label: Some(label.into()),
            r#type: Some(of.into()),
            ..FieldDescriptorProto::default()
        };
        let read = |fields: &[FieldDescriptorProto]| {
            let entry = DescriptorProto {
                name: Some("Entry".to_owned()),
                field: fields.to_vec(),
                options: Some(MessageOptions {
                    map_entry: Some(true),
                    ..MessageOptions::default()
                }),
                ..DescriptorProto::default()
            };
            let file = FileDescriptorProto {
                name: Some("a.proto".to_owned()),
                message_type: vec![entry],
                ..FileDescriptorProto::default()
            };
            let mut pool = DescriptorPool::new();
            pool.add_file_descriptor_proto(file).unwrap();
            Descriptions::from_pool(pool).map(|_| ())
        };
        let invalid = Err(UnsupportedDescription::MapEntry("Entry".to_owned()));
        let (one, many) = (Label::Optional, Label::Repeated);
        let value = field(2, Type::Double, one);
        for key in [Type::Int32, Type::Fixed64, Type::Bool, Type::String] {
            assert_eq!(read(&[field(1, key, one), value.clone()]), Ok(()));
            assert_eq!(read(&[field(1, key, many), value.clone()]), invalid);
            assert_eq!(read(&[field(1, key, one), field(2, key, many)]), invalid);
            assert_eq!(read(&[field(1, key, one), field(3, key, one)]), invalid);
        }
        for key in [Type::Double, Type::Float, Type::Bytes] {
            assert_eq!(read(&[field(1, key, one), value.clone()]), invalid);
        }
        assert_eq!(read(&[value]), invalid);
        assert_eq!(read(&[]), invalid);
    }

    #[test]
    fn refuses_editions() {
        let file = FileDescriptorProto {
            name: Some("a.proto".to_owned()),
            syntax: Some("editions".to_owned()),
            ..FileDescriptorProto::default()
        };
        let set = FileDescriptorSet { file: vec![file] };
        let error = Descriptions::from_set(&set.encode_to_vec()).unwrap_err();
        let expected = "a.proto: unsupported syntax \"editions\", expected proto2 or proto3";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn reads_descriptor_sets() {
        let directory = written("helloworld");
        let path = directory.path().join("helloworld/greeter.proto");
        let Descriptions(pool) = Descriptions::from_proto(&path, &[]).unwrap();
        let read = Descriptions::from_set(&pool.encode_to_vec()).unwrap();
        assert!(read.method(&name("helloworld.Greeter/SayHello")).is_ok());
        assert!(Descriptions::from_set(b"syntax = \"proto3\";").is_err());
    }
}
