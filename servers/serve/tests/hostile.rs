//! Tests that hostile and broken clients do not affect other clients.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::io::Write;
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_serve::{Limits, NativeWorkload, ServeError, Settings, serve};
use support::{TestClient, TestServer, settings};

fn with_limits(limits: Limits) -> TestServer {
    TestServer::start(Settings {
        limits,
        ..settings(NativeWorkload::Hello)
    })
}

fn assert_serves(server: &TestServer) {
    assert_eq!(server.connect().get("/").body, "Hello World");
}

#[test]
fn responds_400_to_garbage_and_closes() {
    let server = TestServer::of(NativeWorkload::Hello);
    for garbage in [
        "\0\u{1}\u{2}garbage\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(garbage);
        assert_eq!(client.response().status, 400, "{garbage:?}");
        assert!(client.is_closed(), "{garbage:?}");
    }
    assert_serves(&server);
}

#[test]
fn responds_431_to_large_heads_and_closes() {
    let server = TestServer::of(NativeWorkload::Hello);
    let long = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(20_000)
    );
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(101));
    // The request exceeds the socket buffers. The client must still receive the response.
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "z".repeat(800_000));
    for head in [long, many, endless] {
        let mut client = server.connect();
        client.send(&head);
        assert_eq!(client.response().status, 431, "{} bytes", head.len());
        assert!(client.is_closed());
    }
    let fits = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(16_000)
    );
    let mut client = server.connect();
    client.send(fits);
    assert_eq!(client.response().status, 200);
}

#[test]
fn cuts_off_slow_requests_and_idle_connections() {
    let server = with_limits(Limits {
        request: Duration::from_millis(400),
        idle: Duration::from_millis(900),
        ..Limits::default()
    });
    let began = Instant::now();
    let mut idle = server.connect();
    let mut answered = server.connect();
    assert_eq!(answered.get("/").status, 200);
    let drips: Vec<_> = [
        "GET / HTTP/1.1\r\nX: ",
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nX: ",
    ]
    .into_iter()
    .map(|start| {
        let mut client = server.connect();
        let began = Instant::now();
        client.send(start);
        thread::spawn(move || {
            // Single bytes must not extend the time limit.
            while began.elapsed() < Duration::from_secs(30) {
                if client.stream.write_all(b"a").is_err() {
                    return began.elapsed();
                }
                thread::sleep(Duration::from_millis(50));
            }
            panic!("never cut off");
        })
    })
    .collect();
    assert!(idle.try_response(true).is_none());
    assert!(answered.try_response(true).is_none());
    assert!(began.elapsed() > Duration::from_millis(900));
    assert!(began.elapsed() < Duration::from_secs(30));
    for drip in drips {
        let cut_after = drip.join().unwrap();
        assert!(cut_after > Duration::from_millis(400), "{cut_after:?}");
    }
    assert_serves(&server);
}

#[test]
fn responds_after_the_client_closes_its_sending_direction() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    let mut client = server.connect();
    client.send("GET /dispatcher HTTP/1.1\r\nHost: x\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.response().body, "1");
    assert!(client.is_closed());
}

#[test]
fn bytes_after_the_last_request_do_not_discard_its_response() {
    let server = TestServer::of(NativeWorkload::Hello);
    for _ in 0..20 {
        let mut client = server.connect();
        let mut bytes = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec();
        bytes.resize(32 * 1024, b'x');
        client.send(bytes);
        assert_eq!(client.response().body, "Hello World");
    }
}

#[test]
fn survives_connections_that_close_at_any_point() {
    let server = TestServer::of(NativeWorkload::Hello);
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for cut in 0..=request.len() {
        let mut client = server.connect();
        client.send(&request[..cut]);
    }
    assert_serves(&server);
    let summary = server.stop();
    assert_eq!(summary.accepted, request.len() as u64 + 2);
    assert_eq!(summary.cut_at_end, 0);
}

#[test]
fn cuts_off_a_client_that_never_reads() {
    let server = with_limits(Limits {
        idle: Duration::from_millis(500),
        ..Limits::default()
    });
    let mut client = server.connect();
    let requests = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    let began = Instant::now();
    // Writing fails after the server has cut off the connection.
    while client.stream.write_all(requests.as_bytes()).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(30), "never cut off");
    }
    assert_serves(&server);
}

#[test]
fn connections_beyond_the_limit_wait_for_a_slot() {
    let server = with_limits(Limits {
        connections: NonZeroUsize::new(10),
        ..Limits::default()
    });
    let mut kept: Vec<TestClient> = (0..10).map(|_| server.connect()).collect();
    for client in &mut kept {
        assert_eq!(client.get("/").header("connection"), None);
    }
    let mut waiting: Vec<TestClient> = (0..300).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    // The server makes room after a response, and only if it knows that connections wait.
    let client = &mut kept[0];
    while client.get("/").header("connection").is_none() {}
    assert!(client.is_closed());
    for client in &mut waiting {
        assert_eq!(client.response().body, "Hello World");
    }
    drop((kept, waiting));
    let mut client = server.connect();
    assert_eq!(client.get("/").header("connection"), None);
    assert_eq!(server.stop().accepted, 311);
}

#[test]
fn idle_connections_make_room_for_waiting_ones() {
    let server = with_limits(Limits {
        connections: NonZeroUsize::new(2),
        idle: Duration::from_millis(300),
        ..Limits::default()
    });
    let _silent = server.connect();
    let mut kept = server.connect();
    assert_eq!(kept.get("/").status, 200);
    assert_serves(&server);
}

#[test]
fn busy_connections_make_room_for_waiting_ones() {
    const CLIENTS: usize = 30;
    let server = TestServer::start(Settings {
        threads: NonZeroUsize::new(2),
        limits: Limits {
            connections: NonZeroUsize::new(4),
            ..Limits::default()
        },
        ..settings(NativeWorkload::Hello)
    });
    let (address, served) = (server.address, Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let served = Arc::clone(&served);
            thread::spawn(move || {
                let began = Instant::now();
                let mut responses = 0;
                while served.load(Ordering::SeqCst) < CLIENTS {
                    assert!(
                        began.elapsed() < Duration::from_secs(30),
                        "not all are served"
                    );
                    let mut client = TestClient::connect(address);
                    while served.load(Ordering::SeqCst) < CLIENTS {
                        let response = client.get("/");
                        responses += 1;
                        if responses == 5 {
                            served.fetch_add(1, Ordering::SeqCst);
                        }
                        if response.header("connection") == Some("close") {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn refuses_impossible_settings_with_the_fix() {
    let refused = |change: fn(&mut Settings)| -> ServeError {
        let mut settings = settings(NativeWorkload::Hello);
        change(&mut settings);
        serve(settings, std::future::pending(), |_| panic!("started")).unwrap_err()
    };
    let error = refused(|s| s.limits.connections = NonZeroUsize::new(usize::MAX));
    assert!(error.to_string().contains("use at most"), "{error}");
    let error = refused(|s| s.state = Some("state".into()));
    assert!(
        error.to_string().contains("hello keeps no state"),
        "{error}"
    );
    let error = refused(|s| s.listen = "192.0.2.1:0".parse().unwrap());
    assert!(
        error.to_string().contains("address of this host"),
        "{error}"
    );

    let server = TestServer::of(NativeWorkload::Hello);
    let mut taken = settings(NativeWorkload::Hello);
    taken.listen = server.address;
    let error = serve(taken, std::future::pending(), |_| panic!("started")).unwrap_err();
    assert!(
        error.to_string().contains("another process uses this port"),
        "{error}"
    );
}
