//! Tests of experiments over HTTP/2.

use super::ExperimentDirectory;
use floodmark_record::plan::Http;

/// A server that speaks only HTTP/2, with prior knowledge. It responds to GET requests with status
/// 200.
const HTTP2_ONLY: &str = r#"
import socket, sys, threading

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, PING = 1, 4, 6
ACK, END_OF_HEADERS_AND_STREAM = 1, 5

def frame(kind, flags, stream, payload=b""):
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload

def serve(client):
    stream = client.makefile("rb")
    if stream.read(len(PREFACE)) == PREFACE:
        client.sendall(frame(SETTINGS, 0, 0))
        while head := stream.read(9):
            kind, flags = head[3], head[4]
            payload = stream.read(int.from_bytes(head[:3], "big"))
            if kind in (SETTINGS, PING) and not flags & ACK:
                client.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            elif kind == HEADERS:
                identifier = int.from_bytes(head[5:], "big")
                status_200 = b"\x88"
                client.sendall(frame(HEADERS, END_OF_HEADERS_AND_STREAM, identifier, status_200))
    client.shutdown(socket.SHUT_RDWR)

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"#;

fn experiment(http: &str) -> ExperimentDirectory {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nhttp = \"{http}\"\nconnections = 2\nrequests = 40\n\
         [[trial]]\nname = \"h2\"\ncommand = \"python3 server.py {{port}}\"\nready = \"GET /\"\n\
         ready-within = \"2s\"\n"
    ));
    std::fs::write(lab.0.path().join("server.py"), HTTP2_ONLY).unwrap();
    lab
}

#[test]
fn measures_a_server_that_speaks_only_http2() {
    let (code, record, printed) = experiment("2").run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.runs[0].requests.ok, 40);
    assert!(matches!(record.runs[0].plan.http, Http::V2(_)));
    let (code, _, printed) = experiment("1.1").run(&[]);
    assert_ne!(code, 0, "{printed}");
    assert!(printed.contains("closed without a response"), "{printed}");
}

#[test]
fn checks_the_responses_to_requests_with_bodies() {
    let lab = ExperimentDirectory::new(
        "question = \"?\"\n[load]\nhttp = \"2\"\nconnections = 4\nrequests = 400\ncheck = \"scoring\"\n\
         [[trial]]\nsystem = \"native\"\nworkload = \"scoring\"\n",
    );
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let run = &record.runs[0];
    assert!(matches!(run.plan.http, Http::V2(_)));
    assert_eq!((run.requests.ok, run.checks[0].held), (400, Some(true)));
}
