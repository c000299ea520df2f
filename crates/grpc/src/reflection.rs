//! Reads descriptions from a server (the gRPC Server Reflection Protocol). The method is streaming,
//! but floodmark sends one request per call, and reads one response.

use std::collections::{BTreeMap, BTreeSet};

use floodmark_wire::grpc::frame;
use prost::Message;
use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::{DescriptorError, DescriptorPool};

use crate::descriptions::check_syntax;
use crate::{Descriptions, MethodError, MethodName, UnsupportedDescription};

/// Paths of the method by protocol version, latest first.
const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Maximum number of reflection requests, which bounds the number of files.
const MAX_QUESTIONS: usize = 1000;

/// Maximum total length of the encoded descriptions, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 8 << 20;

/// The reason why a server does not describe a method. `E` is the error of a call.
#[derive(Debug, thiserror::Error)]
pub enum ReflectionError<E> {
    /// The server does not support reflection.
    #[error("the server does not support reflection")]
    NoReflection,
    /// A call failed.
    #[error("reflection failed: {0}")]
    Call(E),
    /// The server's response does not answer the reflection request.
    #[error("reflection failed: the server sent an invalid response")]
    InvalidResponse,
    /// The server answered with an error.
    #[error("reflection failed: {0:?}")]
    Server(String),
    /// The descriptions have too many files.
    #[error("reflection failed: the service imports more than {MAX_QUESTIONS} files")]
    TooManyFiles,
    /// The descriptions are too long.
    #[error("reflection failed: the descriptions have more than {} MiB", MAX_DESCRIPTION_BYTES >> 20)]
    TooLong,
    /// The descriptions contradict each other.
    #[error("reflection failed: {0}")]
    Descriptor(#[from] DescriptorError),
    /// A description is not supported.
    #[error("reflection failed: {0}")]
    Unsupported(#[from] UnsupportedDescription),
    /// The server has no such service.
    #[error(transparent)]
    Method(#[from] MethodError),
}

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(oneof = "Subject", tags = "3, 4, 7")]
    subject: Option<Subject>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Subject {
    /// A file with this name.
    #[prost(string, tag = "3")]
    File(String),
    /// The file that contains this symbol.
    #[prost(string, tag = "4")]
    Symbol(String),
    /// The names of all services. The value is ignored.
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(oneof = "Content", tags = "4, 6, 7")]
    content: Option<Content>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Content {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Error(ErrorAnswer),
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    /// Encoded `FileDescriptorProto`s.
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceName {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorAnswer {
    /// A gRPC status code.
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// gRPC status code for a symbol or file that does not exist.
const NOT_FOUND: i32 = 5;

/// Result of a call that reached the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The message, without its prefix.
    Message(Vec<u8>),
    /// The server does not implement the method.
    Unimplemented,
    /// The call failed with status NOT_FOUND, with which some servers answer requests for unknown
    /// symbols.
    NotFound,
}

/// Asks a server for the descriptions that a method needs. `call` makes a call with the given path
/// and body.
///
/// # Errors
/// The server does not support reflection or has no such service, or a call fails.
pub fn describe<E>(
    method: &MethodName,
    mut call: impl FnMut(&str, &[u8]) -> Result<Reply, E>,
) -> Result<Descriptions, ReflectionError<E>> {
    let mut version = None;
    let mut ask = |subject: Subject| {
        let question = Question {
            subject: Some(subject),
        };
        let body = frame(&question.encode_to_vec()).unwrap_or_default();
        let known = version;
        let is_possible = |path: &&str| known.is_none_or(|known| known == *path);
        for path in PATHS.into_iter().filter(is_possible) {
            let content = match call(path, &body).map_err(ReflectionError::Call)? {
                Reply::Unimplemented => continue,
                Reply::NotFound => Some(Content::Error(ErrorAnswer {
                    code: NOT_FOUND,
                    message: String::new(),
                })),
                Reply::Message(message) => Answer::decode(&message[..])
                    .ok()
                    .and_then(|answer| answer.content),
            };
            version = Some(path);
            return content.ok_or(ReflectionError::InvalidResponse);
        }
        Err(ReflectionError::NoReflection)
    };
    let first = match ask(Subject::Symbol(method.service.clone()))? {
        Content::Files(files) => files,
        Content::Error(error) if error.code == NOT_FOUND => {
            let Content::Services(of) = ask(Subject::Services(String::new()))? else {
                return Err(ReflectionError::InvalidResponse);
            };
            let known = of.services.into_iter().map(|of| of.name).collect();
            let name = method.service.clone();
            return Err(MethodError::UnknownService { name, known }.into());
        }
        Content::Error(error) => return Err(ReflectionError::Server(error.message)),
        Content::Services(_) => return Err(ReflectionError::InvalidResponse),
    };
    let mut files = BTreeMap::new();
    let mut left = MAX_DESCRIPTION_BYTES;
    add(&mut files, first, &mut left)?;
    let well_known = DescriptorPool::global();
    for _ in 0..MAX_QUESTIONS {
        let Some(missing) = missing(&files) else {
            files.values().try_for_each(check_syntax)?;
            let mut pool = DescriptorPool::new();
            pool.add_file_descriptor_protos(files.into_values())?;
            return Ok(Descriptions::from_pool(pool)?);
        };
        if let Some(file) = well_known.get_file_by_name(&missing) {
            files.insert(missing, file.file_descriptor_proto().clone());
            continue;
        }
        match ask(Subject::File(missing.clone()))? {
            Content::Files(more) => add(&mut files, more, &mut left)?,
            Content::Error(error) => return Err(ReflectionError::Server(error.message)),
            Content::Services(_) => return Err(ReflectionError::InvalidResponse),
        }
        if !files.contains_key(&missing) {
            return Err(ReflectionError::InvalidResponse);
        }
    }
    Err(ReflectionError::TooManyFiles)
}

/// Adds files by name. `left` is the number of bytes that the files may have in total.
fn add<E>(
    files: &mut BTreeMap<String, FileDescriptorProto>,
    of: Files,
    left: &mut usize,
) -> Result<(), ReflectionError<E>> {
    for bytes in of.files {
        let rest = left.checked_sub(bytes.len());
        *left = rest.ok_or(ReflectionError::TooLong)?;
        let file = FileDescriptorProto::decode(&bytes[..]);
        let file = file.map_err(|_| ReflectionError::InvalidResponse)?;
        files.insert(file.name().to_owned(), file);
    }
    Ok(())
}

/// Returns the name of an imported file that is missing.
fn missing(files: &BTreeMap<String, FileDescriptorProto>) -> Option<String> {
    let imports: BTreeSet<&String> = files.values().flat_map(|file| &file.dependency).collect();
    imports
        .into_iter()
        .find(|name| !files.contains_key(*name))
        .cloned()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use floodmark_wire::grpc::PREFIX_BYTES;

    use super::*;

    /// Files of a server, in encoded form.
    fn files() -> Vec<Vec<u8>> {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write(
            "a.proto",
            "syntax = \"proto3\"; package a; import \"b.proto\"; \
             import \"google/protobuf/empty.proto\"; \
             service A { rpc Do(b.B) returns (google.protobuf.Empty); }",
        );
        write(
            "b.proto",
            "syntax = \"proto3\"; package b; message B { string name = 1; }",
        );
        let mut compiler = protox::Compiler::new([directory.path()]).unwrap();
        compiler
            .open_file(directory.path().join("a.proto"))
            .unwrap();
        let pool = compiler.descriptor_pool();
        ["a.proto", "b.proto"]
            .map(|name| pool.get_file_by_name(name).unwrap().encode_to_vec())
            .into()
    }

    /// Answers a reflection request. Each answer contains at most one file.
    fn answer(files: &[Vec<u8>], body: &[u8]) -> Content {
        let one = |index: usize| {
            Content::Files(Files {
                files: vec![files[index].clone()],
            })
        };
        match Question::decode(&body[PREFIX_BYTES..])
            .unwrap()
            .subject
            .unwrap()
        {
            Subject::Symbol(name) if name == "a.A" => one(0),
            Subject::File(name) if name == "b.proto" => one(1),
            Subject::Services(_) => Content::Services(Services {
                services: vec![ServiceName {
                    name: "a.A".to_owned(),
                }],
            }),
            Subject::Symbol(_) | Subject::File(_) => Content::Error(ErrorAnswer {
                code: NOT_FOUND,
                message: "not found".to_owned(),
            }),
        }
    }

    /// Describes a method of a server that supports the last `versions` entries of `PATHS`. With
    /// `fails`, requests for unknown symbols fail.
    fn described(
        method: &str,
        versions: usize,
        fails: bool,
    ) -> (Result<Descriptions, ReflectionError<Infallible>>, usize) {
        let files = files();
        let mut calls = 0;
        let result = describe(&method.parse().unwrap(), |path, body| {
            calls += 1;
            let is_supported = PATHS[PATHS.len() - versions..].contains(&path);
            Ok(match answer(&files, body) {
                _ if !is_supported => Reply::Unimplemented,
                Content::Error(_) if fails => Reply::NotFound,
                content => {
                    let content = Some(content);
                    Reply::Message(Answer { content }.encode_to_vec())
                }
            })
        });
        (result, calls)
    }

    #[test]
    fn asks_for_missing_imports() {
        for (versions, expected) in [(2, 2), (1, 3)] {
            let (result, calls) = described("a.A/Do", versions, false);
            let method = "a.A/Do".parse().unwrap();
            let method = result.unwrap().method(&method).unwrap();
            assert!(method.request(br#"{"name": "x"}"#).is_ok());
            assert_eq!(calls, expected);
        }
    }

    #[test]
    fn names_what_a_server_lacks() {
        let (result, calls) = described("a.A/Do", 0, false);
        assert!(matches!(result, Err(ReflectionError::NoReflection)));
        assert_eq!(calls, 2);
        for fails in [false, true] {
            let (result, _) = described("a.B/Do", 2, fails);
            let Err(ReflectionError::Method(MethodError::UnknownService { known, .. })) = result
            else {
                panic!("{result:?}");
            };
            assert_eq!(known, ["a.A"]);
        }
    }

    #[test]
    fn invalid_responses_are_errors() {
        let describe = |message: &[u8]| {
            let message = message.to_vec();
            let name = "a.A/Do".parse().unwrap();
            describe(&name, |_, _| {
                Ok::<_, Infallible>(Reply::Message(message.clone()))
            })
        };
        let wrong = Answer {
            content: Some(Content::Files(Files {
                files: vec![b"\xff".to_vec()],
            })),
        };
        for message in [&b""[..], b"\xff\xff", &wrong.encode_to_vec()] {
            let error = describe(message).unwrap_err();
            assert!(matches!(error, ReflectionError::InvalidResponse), "{error}");
        }
    }
}
