//! A gRPC server with reflection, built on the crate `h2`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use h2::RecvStream;
use h2::server::SendResponse;
use hyper::body::Bytes;
use hyper::http::{HeaderMap, Request, Response};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::h2_server;

/// Description of the server's methods.
const GREETER: &str = r#"
syntax = "proto3";
package helloworld;
import "common/place.proto";

message HelloRequest {
    string name = 1;
    int32 age = 2;
    common.Place place = 3;
}
message HelloReply { string message = 1; }

service Greeter {
    rpc SayHello(HelloRequest) returns (HelloReply);
    rpc Fail(HelloRequest) returns (HelloReply);
    rpc Watch(HelloRequest) returns (stream HelloReply);
    rpc Chat(stream HelloRequest) returns (stream HelloReply);
}
"#;

const PLACE: &str = r#"
syntax = "proto3";
package common;
message Place { string city = 1; }
"#;

/// The requests that a server received.
#[derive(Debug, Default)]
pub struct Seen {
    /// Number of calls by path and message, excluding reflection calls.
    pub calls: BTreeMap<(String, Vec<u8>), u64>,
    /// Headers of the latest call.
    pub headers: HeaderMap,
    /// Value of `:authority` in the latest call.
    pub authority: String,
    /// Number of reflection requests.
    pub questions: u32,
    /// Number of further health checks that report NOT_SERVING; `None` without a health service.
    pub unhealthy_checks: Option<u32>,
}

/// A server that runs until the test process ends.
pub struct Greeter {
    pub url: String,
    pub seen: Arc<Mutex<Seen>>,
    directory: tempfile::TempDir,
}

impl Greeter {
    /// Starts a server that supports these versions of the reflection protocol, such as `v1alpha`.
    pub fn start(reflection: &'static [&'static str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("greeter.proto", GREETER);
        write("imports/common/place.proto", PLACE);
        let include = [
            directory.path().join("imports"),
            directory.path().to_owned(),
        ];
        let mut compiler = protox::Compiler::new(include).unwrap();
        compiler.include_imports(true);
        compiler
            .open_file(directory.path().join("greeter.proto"))
            .unwrap();
        let set = compiler.file_descriptor_set();
        std::fs::write(directory.path().join("greeter.pb"), set.encode_to_vec()).unwrap();
        let files = set
            .file
            .iter()
            .map(|file| (file.name().to_owned(), file.encode_to_vec()));
        let files = Arc::new(BTreeMap::from_iter(files));

        let seen = Arc::<Mutex<Seen>>::default();
        let log = Arc::clone(&seen);
        let address = h2_server::start(move |socket| {
            let (log, files) = (Arc::clone(&log), Arc::clone(&files));
            h2_server::answer_all(socket, move |request, respond| {
                answer(request, respond, reflection, files.clone(), log.clone())
            })
        });
        Greeter {
            url: format!("http://{address}"),
            seen,
            directory,
        }
    }

    /// Returns the path of a file: `greeter.proto`, which imports a file below `imports`, or
    /// `greeter.pb`, a descriptor set.
    pub fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.file(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

async fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    reflection: &[&str],
    files: Arc<BTreeMap<String, Vec<u8>>>,
    log: Arc<Mutex<Seen>>,
) {
    let (head, body) = request.into_parts();
    let message = h2_server::receive(body).await;
    let path = head.uri.path().to_owned();
    let reflects = reflection
        .iter()
        .any(|version| path.starts_with(&format!("/grpc.reflection.{version}.")));
    if reflects {
        log.lock().unwrap().questions += 1;
        return send(respond, Some(&reflect(&message, &files)), "0", "");
    }
    if path == "/grpc.health.v1.Health/Check"
        && let Some(left) = &mut log.lock().unwrap().unhealthy_checks
    {
        let status = [8, if *left == 0 { 1 } else { 2 }];
        *left = left.saturating_sub(1);
        return send(respond, Some(&status), "0", "");
    }
    if path.starts_with("/helloworld.") {
        let mut seen = log.lock().unwrap();
        *seen.calls.entry((path.clone(), message)).or_default() += 1;
        seen.headers = head.headers;
        seen.authority = head.uri.authority().unwrap().to_string();
    }
    match path.as_str() {
        "/helloworld.Greeter/SayHello" => send(respond, Some(b"\x0a\x05hello"), "0", ""),
        "/helloworld.Greeter/Fail" => send(respond, None, "5", "no%20such%20<user>"),
        _ => send(respond, None, "12", "unknown method"),
    }
}

/// Sends a message, if there is one, and a status.
fn send(mut respond: SendResponse<Bytes>, message: Option<&[u8]>, status: &str, text: &str) {
    let trailers = h2_server::status_fields(status, text);
    let mut head = Response::builder().status(200).body(()).unwrap();
    let Some(message) = message else {
        *head.headers_mut() = trailers;
        drop(respond.send_response(head, true));
        return;
    };
    if let Ok(mut stream) = respond.send_response(head, false) {
        let prefix = [&[0][..], &(message.len() as u32).to_be_bytes()].concat();
        let _ = stream.send_data([&prefix, message].concat().into(), false);
        let _ = stream.send_trailers(trailers);
    }
}

/// Answers a reflection request. Symbols are looked up in the first file only.
fn reflect(question: &[u8], files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    // After the 5-byte prefix: the field's tag, its length (one byte, below 128) and its text.
    let (field, text) = (question[5] >> 3, &question[7..]);
    let text = std::str::from_utf8(text).unwrap();
    let file = match field {
        3 => files.get(text),
        4 if text == "helloworld.Greeter" => files.get("greeter.proto"),
        _ => None,
    };
    match (field, file) {
        (_, Some(file)) => nested(4, &nested(1, file)),
        (7, _) => nested(6, &nested(1, &nested(1, b"helloworld.Greeter"))),
        _ => nested(7, &[b"\x08\x05".to_vec(), nested(2, b"not found")].concat()),
    }
}

/// Encodes a field with bytes.
fn nested(tag: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(tag, WireType::LengthDelimited, &mut out);
    encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}
