//! Tests of `floodmark serve`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use floodmark_record::plan::Http;

use crate::support::tls::{Authority, Valid};
use crate::support::{Serve, code, load, run, signal, text};

fn dispatcher(state: &Path) -> Serve {
    Serve::start(&[
        "dispatcher",
        "--state",
        state.to_str().unwrap(),
        "--reserve",
        "64",
    ])
}

/// Requests the next number over a fresh connection.
fn next(server: &Serve) -> u64 {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream
        .write_all(b"GET /dispatcher HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
        .split_once("\r\n\r\n")
        .unwrap()
        .1
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn the_dispatcher_passes_the_sequence_check() {
    let directory = tempfile::tempdir().unwrap();
    let server = dispatcher(&directory.path().join("state"));
    let url = format!("{}/dispatcher", server.url);
    let load = load(&url, &["--check", "sequence", "--fresh", "-n", "2000"]);
    load.ends_with(0);
    assert_eq!(load.counts().ok, 2000);
    let check = &load.run().checks[0];
    assert_eq!(check.held, Some(true), "{}", check.detail);
    assert_eq!(next(&server), 2001);
}

#[test]
fn repeats_no_number_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let mut server = dispatcher(&state);
        for _ in 0..100 {
            let number = next(&server);
            assert!(seen.insert(number), "{number} twice");
            assert_eq!(seen.last(), Some(&number));
        }
        server.kill();
    }
}

#[test]
fn serves_https_over_the_version_that_alpn_selects() {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"], Valid::Now);
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let cacert = write("ca.pem", &authority.pem());
    let (cert, key) = (
        write("cert.pem", &identity.pem),
        write("key.pem", &identity.key_pem),
    );
    let bundle = write("bundle.pem", &(identity.key_pem + &identity.pem));
    for files in [&["--cert", &cert, "--key", &key][..], &["--cert", &bundle]] {
        let mut server = Serve::start(&[&["hello"], files].concat());
        assert!(
            server.url.starts_with("https://127.0.0.1:"),
            "{}",
            server.url
        );
        for (http, is_http2) in [("1.1", false), ("2", true), ("auto", true)] {
            for backend in ["auto", "epoll"] {
                let flags = ["-n", "200", "-c", "2", "--http", http, "--backend", backend];
                let load = load(&server.url, &[&flags[..], &["--cacert", &cacert]].concat());
                load.ends_with(0);
                assert_eq!(load.counts().ok, 200);
                assert_eq!(load.run().plan.http != Http::V1, is_http2, "{http}");
            }
        }
        signal(server.pid(), libc::SIGTERM);
        assert_eq!(server.wait().code(), Some(0));
    }
    // The port answers plain HTTP with an error that names the fix.
    let server = Serve::start(&["hello", "--cert", &bundle]);
    let plain = load(&server.url.replace("https", "http"), &["-n", "10"]);
    assert_eq!(plain.counts().ok, 0);
    assert!(
        plain.stderr().contains("use an https URL"),
        "{}",
        plain.stderr()
    );
}

#[test]
fn exits_cleanly_on_sigterm() {
    let mut server = Serve::start(&["hello"]);
    signal(server.pid(), libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn refuses_a_port_in_use() {
    let first = Serve::start(&["hello"]);
    let address = first.url.strip_prefix("http://").unwrap();
    let output = run(&["serve", "hello", "--listen", address]);
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(
        printed.contains(address) && printed.contains("another port"),
        "{printed}"
    );
}

#[test]
fn refuses_invalid_usage() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing/state");
    let missing = missing.to_str().unwrap();
    for (arguments, words) in [
        (&["serve", "helo"][..], &["did you mean \"hello\"?"][..]),
        (
            &["serve", "hello", "--listen", "8080"],
            &["--listen", "127.0.0.1:8080"],
        ),
        (
            &["serve", "hello", "--listen", "localhost:8080"],
            &["--listen", "127.0.0.1:8080"],
        ),
        (&["serve", "hello", "--idle", "5"], &["--idle", "5s"]),
        (&["serve", "hello", "--state", "/tmp"], &["keeps no state"]),
        (
            &[
                "serve",
                "dispatcher",
                "--listen",
                "127.0.0.1:0",
                "--state",
                missing,
            ],
            &[missing],
        ),
        (
            &["serve", "dispatcher", "--reserve", "0"],
            &["--reserve", "at least 1"],
        ),
        (
            &["serve", "hello", "--max-wait", "1s"],
            &["--journal <JOURNAL>|--store <STORE>"],
        ),
        (
            &["serve", "hello", "--threads", "99999999999"],
            &["--threads", "must be from 1 to 1,024"],
        ),
        (&["serve", "bars"], &["add --store embedded:PATH"]),
        (
            &["serve", "bars", "--store", "bars.redb"],
            &["--store", "write embedded:PATH"],
        ),
        (
            &["serve", "bars", "--store", "postgresql://bars@127.0.0.1"],
            &["--store: no database is given; write postgresql://"],
        ),
        (
            &["serve", "hello", "--store", "embedded:bars.redb"],
            &["hello has no store"],
        ),
        (
            &[
                "serve",
                "bars",
                "--listen",
                "127.0.0.1:0",
                "--store",
                "embedded:/dev/null",
            ],
            &["/dev/null: a device, not a regular file"],
        ),
        (
            &["serve", "hello", "--key", "key.pem"],
            &["--key needs --cert; add --cert FILE"],
        ),
        (&["serve"], &["WORKLOAD"]),
    ] {
        let output = run(arguments);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{arguments:?}: {printed}");
        for word in words {
            assert!(
                printed.contains(word),
                "{arguments:?} lacks {word:?}: {printed}"
            );
        }
    }
}

#[test]
fn prints_no_password_of_a_store() {
    for (store, status) in [
        ("postgresql://bars:s3cret@127.0.0.1:1/bars", 3),
        ("postgresql://bars:s3cret@127.0.0.1:x/bars", 2),
        ("postgresql://bars:s3c@s3cret@127.0.0.1/bars", 2),
        ("postgresql:host=127.0.0.1 user=bars password=a s3cret", 2),
        ("postgresq://bars:s3cret@127.0.0.1/bars", 2),
    ] {
        let output = run(&["serve", "bars", "--listen", "127.0.0.1:0", "--store", store]);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), status, "{printed}");
        assert!(!printed.is_empty() && !printed.contains("s3c"), "{printed}");
    }
}
