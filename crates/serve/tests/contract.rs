//! The workload contracts, asked of the real server over real sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use floodmark_serve::Workload;
use support::{Answer, Server};

fn assert_refusal(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.body.starts_with("{\"error\": \""), "{answer:?}");
    assert!(answer.body.ends_with("\"}"), "{answer:?}");
    assert!(!answer.body.contains('\n'));
}

#[test]
fn hello_and_json_answer_exactly_and_keep_the_connection() {
    let cases = [
        (Workload::Hello, "text/plain", "Hello World"),
        (
            Workload::Json,
            "application/json",
            "{\"message\":\"Hello, World!\"}",
        ),
    ];
    for (workload, kind, body) in cases {
        let server = Server::of(workload);
        let mut client = server.connect();
        for _ in 0..3 {
            let answer = client.get(workload.path());
            assert_eq!((answer.status, answer.body.as_str()), (200, body));
            assert!(answer.head.starts_with("HTTP/1.1 200 OK\r\n"));
            assert_eq!(answer.header("content-type"), Some(kind));
            let length = body.len().to_string();
            assert_eq!(answer.header("content-length"), Some(length.as_str()));
            assert_eq!(answer.header("connection"), None);
            assert_eq!(answer.header("transfer-encoding"), None);
        }
        assert_eq!(server.stop().answered, 3);
    }
}

#[test]
fn a_query_does_not_change_the_path() {
    let server = Server::of(Workload::Hello);
    assert_eq!(server.connect().get("/?a=b").body, "Hello World");
}

#[test]
fn connection_close_is_honoured_by_the_server() {
    let server = Server::of(Workload::Dispatcher);
    for expected in 1..=20 {
        let mut client = server.connect();
        client.send("GET /dispatcher HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = client.answer();
        assert_eq!(answer.body, expected.to_string());
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(client.is_closed());
    }
    assert_eq!(server.stop().next_number, Some(21));
}

#[test]
fn http_1_0_is_answered_and_closed() {
    let server = Server::of(Workload::Hello);
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().body, "Hello World");
    assert!(client.is_closed());
}

#[test]
fn unknown_paths_and_methods_are_refused_and_use_no_number_up() {
    for workload in Workload::ALL {
        let server = Server::of(workload);
        let mut client = server.connect();
        assert_refusal(&client.get("/nowhere"), 404);
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            client.send(format!(
                "{method} {} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd",
                workload.path()
            ));
            let answer = client.answer();
            assert_refusal(&answer, 405);
            let allow = if workload == Workload::Dispatcher {
                "GET"
            } else {
                "GET, HEAD"
            };
            assert_eq!(answer.header("allow"), Some(allow));
        }
        assert_eq!(client.get(workload.path()).status, 200, "still kept");
        if workload == Workload::Dispatcher {
            assert_eq!(server.stop().next_number, Some(2));
        }
    }
}

#[test]
fn head_has_the_head_of_get_and_takes_no_number() {
    let server = Server::of(Workload::Hello);
    let mut client = server.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = client.head_answer();
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("11"))
    );
    assert_eq!(
        client.get("/").body,
        "Hello World",
        "no body was in the way"
    );

    let server = Server::of(Workload::Dispatcher);
    let mut client = server.connect();
    client.send("HEAD /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.head_answer().status, 405);
    assert_eq!(client.get("/dispatcher").body, "1");
}

#[test]
fn bodies_up_to_the_limit_are_read_and_longer_ones_refused() {
    let server = Server::of(Workload::Dispatcher);
    let mut client = server.connect();
    let post = |length: usize| {
        format!(
            "GET /dispatcher HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{}",
            "b".repeat(length)
        )
    };
    client.send(post(64 * 1024));
    assert_eq!(client.answer().body, "1");
    client.send(post(64 * 1024 + 1));
    assert_refusal(&client.answer(), 413);
    assert!(client.is_closed());

    // A client that sends all of a long body first must still get to read the refusal, not a reset.
    let mut client = server.connect();
    client.send(post(900_000));
    assert_refusal(&client.answer(), 413);

    let mut client = server.connect();
    client.send("POST /dispatcher HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..17 {
        client.send(format!("1000\r\n{}\r\n", "c".repeat(4096)));
    }
    assert_refusal(&client.answer(), 413);
    assert_eq!(server.stop().next_number, Some(2));
}

#[test]
fn expect_100_continue_is_answered_only_for_a_body_that_is_wanted() {
    let server = Server::of(Workload::Hello);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("abc");
    assert_eq!(client.answer().body, "Hello World");
    client
        .send("GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 70000\r\n\r\n");
    assert_refusal(&client.answer(), 413);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::of(Workload::Dispatcher);
    let mut client = server.connect();
    client.send("GET /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500));
    for expected in 1..=500 {
        assert_eq!(client.answer().body, expected.to_string());
    }
}

#[test]
fn ipv6_is_served_too() {
    let mut settings = support::settings(Workload::Hello);
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: no IPv6 on this machine");
        return;
    }
    settings.listen = "[::1]:0".parse().unwrap();
    assert_eq!(Server::start(settings).connect().get("/").status, 200);
}
