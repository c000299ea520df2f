//! gRPC calls to servers built on the crate `h2`.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;
#[path = "common/h2_server.rs"]
mod h2_server;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use common::http2::http2;
use common::plans::closed_plan;
use common::run;
use floodmark_load::call::{CallError, CallTarget, call};
use floodmark_record::Counts;
use floodmark_record::grpc::{GrpcStatus, ResponseStatus};
use floodmark_record::outcome::NotOkResponse;
use floodmark_record::plan::{Address, Backend, Expect, Plan};
use h2::server::SendResponse;
use hyper::body::Bytes;
use hyper::http::{Request, Response};

on_both_backends! {
    counts_statuses
    judges_responses
    reads_messages_in_pieces
}

/// What a server answers.
#[derive(Debug, Clone, Copy)]
struct Answer {
    http: u16,
    /// Parts of the body, each in its own frame.
    body: &'static [&'static [u8]],
    /// `grpc-status` and `grpc-message`.
    status: Option<(&'static str, &'static str)>,
    /// Whether the status is in the head, and there are no trailers.
    in_head: bool,
}

/// The message `ab`.
const MESSAGE: &[u8] = b"\0\0\0\0\x02ab";

/// A successful call.
const OK: Answer = Answer {
    http: 200,
    body: &[MESSAGE],
    status: Some(("0", "")),
    in_head: false,
};

/// Starts a server, which answers the requests in turn. Checks each request.
fn serve(answers: &'static [Answer]) -> SocketAddr {
    h2_server::start(move |socket| {
        let mut answers = answers.iter().cycle();
        h2_server::answer_all(socket, move |request, respond| {
            respond_to(request, respond, *answers.next().unwrap())
        })
    })
}

async fn respond_to(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    answer: Answer,
) {
    assert_eq!(request.uri().path(), "/test.Test/Call");
    assert_eq!(request.headers()["te"], "trailers");
    assert_eq!(h2_server::receive(request.into_body()).await, MESSAGE);
    let mut head = Response::builder().status(answer.http).body(()).unwrap();
    let fields = answer
        .status
        .map(|(status, message)| h2_server::status_fields(status, message))
        .unwrap_or_default();
    if answer.in_head {
        *head.headers_mut() = fields;
        let _ = respond.send_response(head, true);
        return;
    }
    let Ok(mut stream) = respond.send_response(head, false) else {
        return;
    };
    for part in answer.body {
        let _ = stream.send_data(Bytes::from_static(part), false);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    match answer.status {
        Some(_) => drop(stream.send_trailers(fields)),
        None => drop(stream.send_data(Bytes::new(), true)),
    }
}

/// Calls a server `n` times on one connection.
fn calls(
    server: SocketAddr,
    n: u64,
    expect: &[&str],
    backend: Backend,
) -> floodmark_record::WorkerEnd {
    let mut plan = Plan {
        expect: expect
            .iter()
            .map(|text| text.parse::<Expect>().unwrap())
            .collect(),
        ..closed_plan(1, n)
    };
    plan.request.method = "POST".to_owned();
    plan.request.headers = vec![("te".to_owned(), "trailers".to_owned())];
    plan.request.body = MESSAGE.to_vec().into();
    plan.request.is_grpc = true;
    let mut plan = http2(plan, 1, server, backend);
    plan.target.path = "/test.Test/Call".to_owned();
    run(plan).end
}

fn outcomes(counts: &Counts) -> [u64; 4] {
    [counts.ok, counts.rejected, counts.wrong, counts.malformed]
}

fn counts_statuses(backend: Backend) {
    const NOT_FOUND: Answer = Answer {
        body: &[],
        status: Some(("5", "no%20user%20%C3%A9")),
        in_head: true,
        ..OK
    };
    const UNAVAILABLE: Answer = Answer {
        body: &[],
        status: Some(("14", "")),
        ..OK
    };
    const PROXY: Answer = Answer {
        http: 502,
        body: &[b"bad gateway"],
        status: None,
        in_head: false,
    };
    let server = serve(&[OK, OK, NOT_FOUND, UNAVAILABLE, PROXY]);
    let end = calls(server, 50, &[], backend);
    assert_eq!(outcomes(&end.counts), [20, 10, 20, 0]);
    assert_eq!(end.counts.statuses, [(200, 40), (502, 10)].into());
    let statuses = [
        (GrpcStatus::Ok, 20),
        (GrpcStatus::NotFound, 10),
        (GrpcStatus::Unavailable, 10),
    ];
    assert_eq!(end.counts.grpc_statuses, statuses.into());
    let grpc = |status| ResponseStatus {
        http: 200,
        grpc: Some(status),
    };
    assert_eq!(
        end.not_ok_responses,
        [
            NotOkResponse::new(grpc(GrpcStatus::NotFound), "no user é".as_bytes()),
            NotOkResponse::new(grpc(GrpcStatus::Unavailable), b""),
            NotOkResponse::new(502, b"bad gateway"),
        ]
    );
    let accepted = calls(
        server,
        50,
        &["grpc-status=0", "grpc-status=NOT_FOUND"],
        backend,
    );
    assert_eq!(outcomes(&accepted.counts), [30, 10, 10, 0]);
    let containing = calls(server, 50, &["contains:ab"], backend);
    assert_eq!(outcomes(&containing.counts), [20, 10, 20, 0]);
}

fn judges_responses(backend: Backend) {
    const CASES: [(&str, Answer); 8] = [
        ("grpc_no_status", Answer { status: None, ..OK }),
        (
            "grpc_invalid_status",
            Answer {
                status: Some(("x", "")),
                ..OK
            },
        ),
        ("grpc_no_message", Answer { body: &[], ..OK }),
        (
            "grpc_no_message",
            Answer {
                in_head: true,
                ..OK
            },
        ),
        (
            "grpc_compressed",
            Answer {
                body: &[b"\x01\0\0\0\x01a"],
                ..OK
            },
        ),
        (
            "grpc_truncated_message",
            Answer {
                body: &[b"\0\0\0\0\x03ab"],
                ..OK
            },
        ),
        (
            "grpc_second_message",
            Answer {
                body: &[MESSAGE, MESSAGE],
                ..OK
            },
        ),
        (
            "grpc_invalid_flag",
            Answer {
                body: &[b"<html>"],
                status: None,
                ..OK
            },
        ),
    ];
    for (name, answer) in CASES {
        let end = calls(serve(Box::leak(Box::new([OK, answer]))), 10, &[], backend);
        assert_eq!(outcomes(&end.counts), [5, 0, 0, 5], "{name}");
        assert_eq!(end.errors.get(name), Some(&5), "{:?}", end.errors);
    }
}

fn reads_messages_in_pieces(backend: Backend) {
    const PIECES: Answer = Answer {
        body: &[b"\0\0", b"\0\0\x02", b"a", b"b"],
        ..OK
    };
    let end = calls(serve(&[PIECES]), 10, &[], backend);
    assert_eq!(outcomes(&end.counts), [10, 0, 0, 0]);
}

#[test]
fn calls_once_before_a_load() {
    let once = |answer: Answer| {
        let refusing = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let server = serve(Box::leak(Box::new([answer])));
        let addresses: [Address; 2] = [refusing.into(), server.into()];
        let headers = [("te".to_owned(), "trailers".to_owned())];
        let target = CallTarget {
            addresses: &addresses,
            tls: None,
            authority: "localhost",
            headers: &headers,
            timeout: Duration::from_secs(5),
        };
        call(&target, "/test.Test/Call", MESSAGE)
    };
    assert_eq!(once(OK).unwrap(), b"ab");
    let failed = Answer {
        status: Some(("12", "not%20here")),
        in_head: true,
        ..OK
    };
    let error = once(failed).unwrap_err();
    assert!(matches!(
        error,
        CallError::Status(GrpcStatus::Unimplemented, _)
    ));
    assert_eq!(error.to_string(), "UNIMPLEMENTED: \"not here\"");
    let proxy = Answer { http: 404, ..OK };
    assert!(matches!(once(proxy), Err(CallError::Http(404))));
    let torn = Answer { body: &[], ..OK };
    assert_eq!(
        once(torn).unwrap_err().to_string(),
        "the response has status OK, but no message"
    );
}

#[test]
fn a_call_ends_if_the_server_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses: [Address; 1] = [listener.local_addr().unwrap().into()];
    let target = CallTarget {
        addresses: &addresses,
        tls: None,
        authority: "localhost",
        headers: &[],
        timeout: Duration::from_millis(200),
    };
    let error = call(&target, "/a.B/C", MESSAGE).unwrap_err();
    assert!(matches!(error, CallError::TimedOut(_)), "{error}");
    drop(listener);
    let error = call(&target, "/a.B/C", MESSAGE).unwrap_err();
    assert!(matches!(error, CallError::Io(_)), "{error}");
}
