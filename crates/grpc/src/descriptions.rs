//! Services and methods, and where their descriptions come from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use prost_reflect::{DescriptorError, DescriptorPool, MethodDescriptor};
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
    /// The bytes are not a descriptor set, or a file that it imports is missing.
    #[error("{0}")]
    DescriptorSet(#[from] DescriptorError),
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
        compile().map(Descriptions).map_err(|error: protox::Error| {
            // The debug format contains file, line and column.
            let text = format!("{error:?}").replace('\n', " ");
            if error.is_file_not_found() {
                ProtoError::MissingImport(text)
            } else {
                ProtoError::Invalid(text)
            }
        })
    }

    /// Reads a descriptor set (`google.protobuf.FileDescriptorSet`).
    ///
    /// # Errors
    /// The bytes are not a descriptor set, or it lacks an imported file.
    pub fn from_set(bytes: &[u8]) -> Result<Self, ProtoError> {
        let mut pool = DescriptorPool::new();
        pool.decode_file_descriptor_set(bytes)?;
        Ok(Descriptions(pool))
    }

    pub(crate) fn from_pool(pool: DescriptorPool) -> Self {
        Descriptions(pool)
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
