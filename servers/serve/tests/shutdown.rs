//! Tests what happens to connections during shutdown.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_serve::{Limits, NativeWorkload, Settings};
use support::{TestServer, settings};

#[test]
fn idle_connections_do_not_delay_shutdown() {
    let server = TestServer::start(Settings {
        limits: Limits {
            grace: Duration::from_secs(60),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Hello)
    });
    let mut silent = server.connect();
    let mut kept = server.connect();
    assert_eq!(kept.get("/").status, 200);
    let began = Instant::now();
    let summary = server.stop();
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!((summary.accepted, summary.cut_at_end), (2, 0));
    assert!(silent.is_closed());
    assert!(kept.is_closed());
}

#[test]
fn responds_with_connection_close_to_a_request_in_flight() {
    let server = TestServer::of(NativeWorkload::Hello);
    let address = server.address;
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
    client.wait_until_read();
    let ending = server.begin_stop();
    let until = Instant::now() + Duration::from_secs(4);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < until, "still accepts");
        thread::sleep(Duration::from_millis(10));
    }
    client.send("cd");
    let response = client.response();
    assert_eq!(
        (response.status, response.body.as_str()),
        (200, "Hello World")
    );
    assert_eq!(response.header("connection"), Some("close"));
    assert!(client.is_closed());
    assert_eq!(ending.join().unwrap().unwrap().cut_at_end, 0);
}

#[test]
fn cuts_off_requests_after_the_grace() {
    let server = TestServer::start(Settings {
        limits: Limits {
            grace: Duration::from_millis(300),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Hello)
    });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
    client.wait_until_read();
    let began = Instant::now();
    let summary = server.stop();
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(summary.cut_at_end, 1);
    assert!(client.try_response(true).is_none());
}

#[test]
fn an_incomplete_head_delays_shutdown_by_a_second() {
    let server = TestServer::start(Settings {
        limits: Limits {
            request: Duration::from_secs(60),
            grace: Duration::from_secs(60),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Hello)
    });
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nX: ");
    client.wait_until_read();
    let began = Instant::now();
    let ending = server.begin_stop();
    thread::sleep(Duration::from_millis(500));
    client.send("single bytes do not extend the time");
    assert_eq!(ending.join().unwrap().unwrap().cut_at_end, 1);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(client.try_response(true).is_none());
}

#[test]
fn responds_to_a_request_that_arrives_shortly_after_the_shutdown() {
    let server = TestServer::of(NativeWorkload::Hello);
    let fresh = server.connect();
    let mut kept = server.connect();
    assert_eq!(kept.get("/").status, 200);
    let ending = server.begin_stop();
    thread::sleep(Duration::from_millis(300));
    for mut client in [fresh, kept] {
        let response = client.get("/");
        assert_eq!(response.header("connection"), Some("close"));
        assert!(client.is_closed());
    }
    assert_eq!(ending.join().unwrap().unwrap().cut_at_end, 0);
}

#[test]
fn serves_the_accept_queue_before_the_end() {
    let server = TestServer::start(Settings {
        limits: Limits {
            connections: NonZeroUsize::new(1),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Dispatcher)
    });
    let mut kept = server.connect();
    assert_eq!(kept.get("/dispatcher").body, "1");
    let mut queued: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for client in &mut queued {
        client.send("GET /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    let summary = server.stop();
    for client in &mut queued {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!((summary.next_number, summary.cut_at_end), (Some(22), 0));
}

/// Opens fresh connections until the server no longer accepts them. Returns the number of
/// responses, or the error of an established connection.
fn request_over_fresh_connections(address: SocketAddr) -> Result<usize, String> {
    let mut responses = 0;
    while let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        let mut response = String::new();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .and_then(|()| stream.read_to_string(&mut response))
            .map_err(|error| error.to_string())?;
        if !response.ends_with("Hello World") {
            return Err(format!("incomplete response {response:?}"));
        }
        responses += 1;
    }
    Ok(responses)
}

#[test]
fn shutdown_resets_no_fresh_connection() {
    for round in 0..12 {
        let server = TestServer::start(Settings {
            threads: NonZeroUsize::new(1 + round % 2),
            ..settings(NativeWorkload::Hello)
        });
        let address = server.address;
        let clients: Vec<_> = (0..16)
            .map(|_| thread::spawn(move || request_over_fresh_connections(address)))
            .collect();
        thread::sleep(Duration::from_millis(20 + 7 * round as u64));
        let summary = server.stop();
        let responses = clients.into_iter().map(|client| client.join().unwrap());
        let responses: Result<Vec<usize>, String> = responses.collect();
        let responses: usize = responses
            .unwrap_or_else(|e| panic!("round {round}: {e}"))
            .iter()
            .sum();
        assert_eq!(summary.answered, responses as u64, "round {round}");
        assert_eq!(summary.cut_at_end, 0, "round {round}");
    }
}

#[test]
fn shutdown_under_load_loses_no_response_or_number() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    let (responses, responded) = mpsc::channel();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = server.connect();
            let responses = responses.clone();
            thread::spawn(move || {
                let mut numbers = Vec::new();
                loop {
                    let request = b"GET /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n";
                    if client.stream.write_all(request).is_err() {
                        return numbers;
                    }
                    let Some(response) = client.try_response(true) else {
                        return numbers;
                    };
                    numbers.push(response.body.parse::<u64>().unwrap());
                    let _ = responses.send(());
                }
            })
        })
        .collect();
    for _ in 0..800 {
        responded.recv().unwrap();
    }
    let summary = server.stop();
    let mut all: Vec<u64> = clients
        .into_iter()
        .flat_map(|c| c.join().unwrap())
        .collect();
    all.sort_unstable();
    let expected: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!(all, expected, "every number handed out was received");
    assert_eq!(summary.next_number, Some(all.len() as u64 + 1));
    assert_eq!(summary.cut_at_end, 0);
}
