//! Tests the contracts of the workloads over real sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::net::Shutdown;
use std::time::{Duration, Instant};

use floodmark_serve::NativeWorkload;
use support::{TestResponse, TestServer};

fn assert_refusal(response: &TestResponse, status: u16) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.body.starts_with("{\"error\": \""), "{response:?}");
    assert!(response.body.ends_with("\"}"), "{response:?}");
    assert!(!response.body.contains('\n'));
}

#[test]
fn hello_and_json_respond_exactly_and_keep_the_connection() {
    let cases = [
        (NativeWorkload::Hello, "text/plain", "Hello World"),
        (
            NativeWorkload::Json,
            "application/json",
            "{\"message\":\"Hello, World!\"}",
        ),
    ];
    for (workload, kind, body) in cases {
        let server = TestServer::of(workload);
        let mut client = server.connect();
        for _ in 0..3 {
            let response = client.get(workload.path());
            assert_eq!((response.status, response.body.as_str()), (200, body));
            assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"));
            assert_eq!(response.header("content-type"), Some(kind));
            let length = body.len().to_string();
            assert_eq!(response.header("content-length"), Some(length.as_str()));
            assert_eq!(response.header("connection"), None);
            assert_eq!(response.header("transfer-encoding"), None);
        }
        assert_eq!(server.stop().answered, 3);
    }
}

#[test]
fn a_query_does_not_change_the_path() {
    let server = TestServer::of(NativeWorkload::Hello);
    assert_eq!(server.connect().get("/?a=b").body, "Hello World");
}

#[test]
fn honors_connection_close() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    for expected in 1..=20 {
        let mut client = server.connect();
        client.send("GET /dispatcher HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let response = client.response();
        assert_eq!(response.body, expected.to_string());
        assert_eq!(response.header("connection"), Some("close"));
        assert!(client.is_closed());
    }
    assert_eq!(server.stop().next_number, Some(21));
}

#[test]
fn a_last_response_and_its_fin_need_one_packet() {
    let server = TestServer::of(NativeWorkload::Hello);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().body, "Hello World");
    assert!(client.is_closed());
    // SYN-ACK, ACK of the request, response with FIN.
    assert!(client.received_segments() <= 3);
}

#[test]
fn closes_after_an_http_1_0_response() {
    let server = TestServer::of(NativeWorkload::Hello);
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().body, "Hello World");
    assert!(client.is_closed());
}

#[test]
fn refuses_unknown_paths_and_methods_without_taking_numbers() {
    for workload in support::get_workloads() {
        let server = TestServer::of(workload);
        let mut client = server.connect();
        assert_refusal(&client.get("/nowhere"), 404);
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            client.send(format!(
                "{method} {} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd",
                workload.path()
            ));
            let response = client.response();
            assert_refusal(&response, 405);
            assert_eq!(response.header("allow"), Some("GET, HEAD"));
        }
        assert_eq!(client.get(workload.path()).status, 200, "still kept");
        if workload == NativeWorkload::Dispatcher {
            assert_eq!(server.stop().next_number, Some(2));
        }
    }
}

#[test]
fn head_returns_the_head_of_get_and_takes_no_number() {
    for workload in support::get_workloads() {
        let server = TestServer::of(workload);
        let mut client = server.connect();
        for _ in 0..3 {
            client.send(format!(
                "HEAD {} HTTP/1.1\r\nHost: x\r\n\r\n",
                workload.path()
            ));
            let head = client.head_response();
            // A following GET would fail if the HEAD response had a body.
            let get = client.get(workload.path());
            assert_eq!((head.status, get.status), (200, 200), "{workload}");
            assert_eq!(head.header("content-type"), get.header("content-type"));
            let length = match workload {
                NativeWorkload::Dispatcher => None,
                _ => get.header("content-length"),
            };
            assert_eq!(head.header("content-length"), length, "{workload}");
        }
        if workload == NativeWorkload::Dispatcher {
            assert_eq!(server.stop().next_number, Some(4));
        }
    }
}

#[test]
fn refuses_requests_without_exactly_one_valid_host() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    let mut client = server.connect();
    for host in [
        "",
        "Host: x\r\nHost: x\r\n",
        "Host: x y\r\n",
        "Host: user@x\r\n",
    ] {
        client.send(format!("GET /dispatcher HTTP/1.1\r\n{host}\r\n"));
        assert_refusal(&client.response(), 400);
    }
    // A request with a body is refused after the body, so the connection is kept.
    client.send("GET /dispatcher HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
    assert_refusal(&client.response(), 400);
    assert_eq!(client.get("/dispatcher").body, "1");
}

#[test]
fn refuses_malformed_bodies_before_closing() {
    let server = TestServer::of(NativeWorkload::Hello);
    for chunk in [
        "g\r\n",
        "\r\n",
        "-1\r\nx\r\n",
        "0x3\r\nabc\r\n",
        "3\r\nabcd\r\n",
        "3;\n",
        "10000000000000000\r\n",
    ] {
        let mut client = server.connect();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
        ));
        let response = client.response();
        assert_refusal(&response, 400);
        assert_eq!(response.header("connection"), Some("close"), "{chunk:?}");
        assert!(client.is_closed(), "{chunk:?}");
    }
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_refusal(&client.response(), 400);
}

#[test]
fn reads_bodies_up_to_the_limit_and_refuses_longer_ones() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    let mut client = server.connect();
    let post = |length: usize| {
        format!(
            "GET /dispatcher HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{}",
            "b".repeat(length)
        )
    };
    client.send(post(64 * 1024));
    assert_eq!(client.response().body, "1");
    client.send(post(64 * 1024 + 1));
    assert_refusal(&client.response(), 413);
    assert!(client.is_closed());

    // A client that sends the whole body first must receive the refusal rather than a reset.
    let mut client = server.connect();
    client.send(post(900_000));
    assert_refusal(&client.response(), 413);

    let mut client = server.connect();
    client.send("POST /dispatcher HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..17 {
        client.send(format!("1000\r\n{}\r\n", "c".repeat(4096)));
    }
    assert_refusal(&client.response(), 413);
    assert_eq!(server.stop().next_number, Some(2));
}

#[test]
fn sends_100_continue_only_for_an_accepted_body() {
    let server = TestServer::of(NativeWorkload::Hello);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.response().status, 100);
    client.send("abc");
    assert_eq!(client.response().body, "Hello World");
    client
        .send("GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 70000\r\n\r\n");
    assert_refusal(&client.response(), 413);
}

#[test]
fn sends_100_continue_at_once_before_the_last_response() {
    let server = TestServer::of(NativeWorkload::Hello);
    let waits = (0..5).map(|_| {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
        let began = Instant::now();
        assert_eq!(client.response().status, 100);
        let waited = began.elapsed();
        client.send("abc");
        assert_eq!(client.response().body, "Hello World");
        waited
    });
    // The kernel holds back an incomplete packet for up to 200 ms (tcp(7), TCP_CORK).
    assert!(waits.min() < Some(Duration::from_millis(100)));
}

#[test]
fn responds_to_pipelined_requests_in_order() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    let mut client = server.connect();
    client.send("GET /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500));
    for expected in 1..=500 {
        assert_eq!(client.response().body, expected.to_string());
    }
}

#[test]
fn serves_ipv6() {
    let mut settings = support::settings(NativeWorkload::Hello);
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: no IPv6 on this host");
        return;
    }
    settings.listen = "[::1]:0".parse().unwrap();
    assert_eq!(TestServer::start(settings).connect().get("/").status, 200);
}
