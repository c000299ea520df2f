//! Tests of request bytes, and of which responses count as ok.

use std::io::{Read, Seek, Write};
use std::sync::{Arc, Mutex};

use floodmark_truth::Scenario;
use floodmark_truth::scenario::{FaultShare, ResponseFault};

use crate::support::hostile::{Listener, answer_each};
use crate::support::{PythonServer, Serve, load, start_load_as, text, truth};

/// Starts a server that records the bytes of its first connection.
fn recorder() -> (Listener, Arc<Mutex<Vec<u8>>>) {
    let seen = Arc::<Mutex<Vec<u8>>>::default();
    let kept = Arc::clone(&seen);
    let listener = Listener::start(move |mut stream| {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            kept.lock().unwrap().extend_from_slice(&buffer[..n]);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    (listener, seen)
}

#[test]
fn sends_method_headers_and_body() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    std::fs::write(&file, [0, 13, 10, 255]).unwrap();
    let file = file.to_str().unwrap();
    let cases: [(&[&str], &str, &[u8]); 4] = [
        (&["-X", "HEAD"], "HEAD /a?b=c HTTP/1.1\r\n", b""),
        (
            &["-b", "héllo"],
            "POST /a?b=c HTTP/1.1\r\n",
            "héllo".as_bytes(),
        ),
        (
            &["--body-file", file],
            "POST /a?b=c HTTP/1.1\r\n",
            &[0, 13, 10, 255],
        ),
        (
            &[
                "-X",
                "PUT",
                "-b",
                "x",
                "-H",
                "Accept: text/html",
                "-H",
                "X-A: 1",
                "-H",
                "X-A: 2",
            ],
            "PUT /a?b=c HTTP/1.1\r\n",
            b"x",
        ),
    ];
    for (arguments, line, body) in cases {
        let (listener, seen) = recorder();
        let mut all = vec!["-n", "1", "-c", "1"];
        all.extend_from_slice(arguments);
        let load = load(&format!("{}a?b=c", listener.url), &all);
        load.ends_with(0);
        let seen = seen.lock().unwrap();
        let end = seen.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(seen[..end].to_vec()).unwrap();
        assert!(head.starts_with(line), "{head}");
        assert_eq!(&seen[end..], body);
        assert_eq!(load.run().bytes.sent, seen.len() as u64);
        assert_eq!(head.matches("Host: 127.0.0.1:").count(), 1);
        if !body.is_empty() {
            assert!(
                head.contains(&format!("Content-Length: {}\r\n", body.len())),
                "{head}"
            );
        }
        for header in arguments.iter().filter(|a| a.contains(": ")) {
            assert!(head.contains(&format!("{header}\r\n")), "{head}");
        }
        assert_eq!(head.matches("Accept: ").count(), 1, "{head}");
    }
}

#[test]
fn encodes_the_target_of_a_request() {
    let (listener, seen) = recorder();
    let server = listener.url.trim_end_matches('/');
    for (url, line) in [
        (
            format!("{}/x?to=http://y/", server.trim_start_matches("http://")),
            "GET /x?to=http://y/ HTTP/1.1",
        ),
        (format!("{server}?x=1"), "GET /?x=1 HTTP/1.1"),
        (format!("{server}/a b/ü"), "GET /a%20b/%C3%BC HTTP/1.1"),
        (server.replace("127.0.0.1", "0.0.0.0"), "GET / HTTP/1.1"),
    ] {
        seen.lock().unwrap().clear();
        load(&url, &["-n", "1"]).ends_with(0);
        let seen = text(&seen.lock().unwrap());
        assert_eq!(seen.lines().next(), Some(line), "{url}");
    }
}

#[test]
fn sends_the_credentials_of_a_url_and_shows_them_nowhere() {
    let listener = Listener::start(|stream| {
        answer_each(stream, |head| {
            // Command: printf me:s3cret | base64
            let is_known = head.contains("\r\nAuthorization: Basic bWU6czNjcmV0");
            let status = if is_known {
                "200 OK"
            } else {
                "401 Unauthorized"
            };
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into()
        })
    });
    let url = listener.url.replace("http://", "http://me:s3cret@");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (mix, html) = (file("mix.toml"), file("page.html"));
    std::fs::write(&mix, "[[request]]\nname = \"n\"\npath = \"/{seq}\"\n").unwrap();
    for more in [&[][..], &["--agents", "local:2"], &["--mix", &mix]] {
        let load = load(
            &url,
            &[
                &[
                    "-n",
                    "20",
                    "-c",
                    "2",
                    "--html",
                    &html,
                    "--label",
                    "by=me:x@y",
                ],
                more,
            ]
            .concat(),
        );
        load.ends_with(0);
        assert_eq!(load.counts().ok, 20);
        let mut shown = text(&load.output.stdout) + &load.stderr();
        shown.push_str(&std::fs::read_to_string(&html).unwrap());
        for entry in std::fs::read_dir(load.directory.path().join("result")).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        assert!(!shown.contains("s3cret") && !shown.contains("bWU6"));
        let command = &load.record.tool.command;
        assert!(command[2].starts_with("http://…@127.0.0.1"), "{command:?}");
        // The value of another flag is kept.
        assert!(command.contains(&"by=me:x@y".to_owned()), "{command:?}");
    }
}

#[test]
fn a_result_contains_only_the_hash_of_a_long_body() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    let body: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&file, &body).unwrap();
    let sent = body.clone();
    let listener = Listener::start(move |mut stream| {
        let mut received = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            received.extend_from_slice(&buffer[..n]);
            if received.ends_with(&sent) {
                received.clear();
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            }
        }
    });
    let load = load(
        &listener.url,
        &["-n", "20", "-c", "2", "--body-file", file.to_str().unwrap()],
    );
    load.ends_with(0);
    assert_eq!(load.counts().ok, 20);
    assert!(load.run().bytes.sent > 20_000_000);
    let recorded = &load.run().plan.request.body;
    assert_eq!(recorded, &body.into());
    assert_eq!(recorded.bytes(), None);
    let events = std::fs::metadata(load.events()).unwrap().len();
    assert!(events < 100_000, "{events} bytes");
}

#[test]
fn reads_a_body_from_stdin() {
    let (listener, seen) = recorder();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"{}").unwrap();
    file.rewind().unwrap();
    let load = start_load_as(&listener.url, &["-n", "1", "--body-file", "-"], |command| {
        command.stdin(file);
    });
    load.end().ends_with(0);
    assert!(
        seen.lock()
            .unwrap()
            .ends_with(b"\r\nContent-Length: 2\r\n\r\n{}")
    );
}

#[test]
fn reads_no_body_after_head() {
    let server = Serve::start(&["hello"]);
    let load = load(&server.url, &["-X", "HEAD", "-n", "200", "-c", "3"]);
    load.ends_with(0);
    assert_eq!(load.counts().statuses.get(&200), Some(&200));
    assert_eq!(load.counts().ok, 200);
}

#[test]
fn evaluates_expectations() {
    let body = Scenario {
        body: r#"{"a": [1, 2]}"#.to_owned(),
        ..Scenario::default()
    };
    for (expect, ok) in [
        ("status=200", true),
        ("status=201", false),
        (r#"body={"a": [1, 2]}"#, true),
        (r#"body={"a":[1,2]}"#, false),
        (r#"json={"a":[1,2]}"#, true),
        (r#"json={"a":[2,1]}"#, false),
        ("json:$.a[1]=2", true),
        ("json:$.a[1]=3", false),
        ("json:$.b=absent", true),
        ("contains:[1, 2]", true),
        ("contains:[2", false),
        (r"regex:\d, \d\]", true),
        (r"regex:^\d", false),
    ] {
        let (server, url) = truth(body.clone());
        let load = load(&url, &["-n", "50", "-c", "2", "--expect", expect]);
        let expected = if ok { (50, 0) } else { (0, 50) };
        assert_eq!(
            (load.counts().ok, load.counts().wrong),
            expected,
            "{expect}"
        );
        assert_eq!(server.stop().unwrap().totals.requests, 50);
    }
}

#[test]
fn counts_every_unexpected_and_rejected_response() {
    let share = |share, fault| FaultShare { share, fault };
    let faults = vec![
        share(0.2, ResponseFault::Status { code: 503 }),
        share(0.2, ResponseFault::Status { code: 500 }),
        share(0.1, ResponseFault::WrongBody),
        share(0.1, ResponseFault::TruncatedBody),
        share(0.1, ResponseFault::ResetBefore),
    ];
    let (server, url) = truth(Scenario {
        faults,
        ..Scenario::default()
    });
    let load = load(
        &url,
        &[
            "-n",
            "1000",
            "-c",
            "4",
            "--fresh",
            "--expect",
            "body=Hello, World!",
        ],
    );
    let log = server.stop().unwrap();
    let counts = load.counts();
    let count = |fault| log.count(Some(fault));
    assert_eq!(counts.sent, log.totals.requests);
    assert_eq!(
        counts.rejected + counts.wrong,
        [503, 500]
            .map(|code| count(ResponseFault::Status { code }))
            .iter()
            .sum::<u64>()
            + count(ResponseFault::WrongBody)
    );
    assert_eq!(counts.statuses.get(&503).copied(), Some(counts.rejected));
    assert_eq!(counts.malformed, count(ResponseFault::TruncatedBody));
    assert_eq!(counts.reset, count(ResponseFault::ResetBefore));
    assert_eq!(counts.ok, log.count(None));
}

#[test]
fn keeps_the_first_body_of_each_status_that_is_not_ok() {
    const SERVER: &str = r"
import socket, threading, time
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    n = 0
    while request := connection.recv(65536):
        n += 1
        if b'/pieces' in request:
            for piece in b'HTTP/1.1 500 X\r\nContent-Length: 6\r\n\r\n', b'bro', b'ken':
                connection.sendall(piece)
                time.sleep(0.05)
        elif b'/split' in request:
            for piece in b'HTTP/1.1 500 X\r\n', b'Content-Length: 6\r\n\r\nbro', b'ken':
                connection.sendall(piece)
                time.sleep(0.05)
        elif b'/close' in request:
            connection.sendall(b'HTTP/1.1 404 X\r\n\r\nabsent')
            return connection.close()
        else:
            status = 200 if n == 1 else 503
            connection.sendall(b'HTTP/1.1 %d X\r\nContent-Length: 306\r\n\r\n<b>\x1b %d%s' % (status, n, b'x' * 300))
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";
    let server = PythonServer::start(SERVER, &[]);
    let long = format!("<b>\\u{{1b}} 2{}…", "x".repeat(194));
    for (path, expect, status, body) in [
        ("/", "status=200", 503, long.as_str()),
        ("/", "body=2", 503, &long),
        ("/pieces", "status=200", 500, "broken"),
        ("/pieces", "body=2", 500, "broken"),
        ("/close", "status=200", 404, "absent"),
    ] {
        let url = format!("{}{path}", server.url);
        let load = load(&url, &["-n", "3", "-c", "1", "--expect", expect]);
        let responses = &load.run().not_ok_responses;
        let kept = responses
            .last()
            .map(|one| (one.status.http, one.body.as_str()));
        assert_eq!(kept, Some((status, body)), "{path} {expect}");
        // The first response to `/` has status 200, but the wrong body.
        assert_eq!(
            responses.len(),
            if (path, expect) == ("/", "body=2") {
                2
            } else {
                1
            }
        );
    }
    // A body whose start is not kept is not shown.
    let split = load(&format!("{}/split", server.url), &["-n", "3", "-c", "1"]);
    assert_eq!(split.run().not_ok_responses, []);
}
