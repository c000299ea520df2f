//! Tests of targets: unix sockets, `--resolve`, and host names with several addresses.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use floodmark_record::plan::Address;

use crate::support::{Load, Serve, code, load, run, text, valid};

/// A server on a unix socket that records the request heads it receives, line by line.
struct Unix {
    directory: tempfile::TempDir,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Unix {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, heads) = (stream.unwrap(), Arc::clone(&kept));
                thread::spawn(move || {
                    let mut last = false;
                    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                        let Ok(line) = line else { return };
                        last |= line.eq_ignore_ascii_case("connection: close");
                        let over = line.is_empty();
                        heads.lock().unwrap().push(line);
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        if over && (stream.write_all(answer).is_err() || last) {
                            return;
                        }
                    }
                });
            }
        });
        Unix { directory, heads }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Returns the number of requests that contained this line.
    fn had(&self, line: &str) -> usize {
        let heads = self.heads.lock().unwrap();
        heads.iter().filter(|one| *one == line).count()
    }
}

/// Returns stderr as a single line.
fn unwrapped(load: &Load) -> String {
    let printed = load.stderr();
    printed.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn utf8(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn loads_a_unix_socket() {
    let server = Unix::start();
    let path = server.path();
    let mut requests = 0;
    for backend in ["uring", "epoll"] {
        for more in [
            &[][..],
            &["--fresh"],
            &["--fresh", "--close-first", "client", "-r", "500"],
        ] {
            let mut arguments = vec!["-n", "100", "-c", "5", "--backend", backend];
            arguments.extend(["--unix-socket", utf8(&path)]);
            arguments.extend_from_slice(more);
            // The host name in the URL must not be resolved.
            let load = load("http://app.invalid:81/a?b=c", &arguments);
            load.ends_with(0);
            requests += 100;
            assert_eq!(load.counts().ok, 100, "{arguments:?}");
            assert_eq!(server.had("Host: app.invalid:81"), requests);
            assert_eq!(server.had("GET /a?b=c HTTP/1.1"), requests);
            let run = load.run();
            assert_eq!(run.plan.target.address, Address::Unix(path.clone()));
            assert_eq!(run.plan.target.resolve_us, None);
            assert_eq!(
                run.connections.ports_per_source, None,
                "a unix socket uses no ports"
            );
            assert_eq!(run.connections.addresses[0].opened, run.connections.opened);
            let printed = unwrapped(&load);
            assert!(
                printed.contains("through unix:") && !printed.contains("TIME_WAIT"),
                "{printed}"
            );
        }
    }
}

#[test]
fn refuses_invalid_unix_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("record.json");
    let refused = |path: &str, more: &[&str], expected: i32, words: &[&str]| {
        let mut all = vec!["load", "http://a/", "--unix-socket", path];
        all.extend_from_slice(more);
        let output = run(&all);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), expected, "{printed}");
        assert!(printed.lines().count() <= 8, "{printed}");
        for word in words {
            assert!(printed.contains(word), "{word}: {printed}");
        }
    };
    let absent = directory.path().join("absent");
    refused(
        utf8(&absent),
        &["--json", utf8(&json)],
        3,
        &["absent", "start the server"],
    );
    // The record is written despite the error.
    let record = valid(serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap());
    assert!(record.skipped[0].contains("--unix-socket"));
    refused(utf8(&json), &[], 2, &["not a socket"]);
    refused(&"x".repeat(200), &[], 2, &["--unix-socket"]);
    let deserted = directory.path().join("deserted");
    drop(UnixListener::bind(&deserted).unwrap());
    refused(
        utf8(&deserted),
        &["-n", "5", "-q"],
        3,
        &["unix:", "connection refused", "check the path"],
    );
    refused(
        utf8(&deserted),
        &["--fresh", "--close-first", "reset"],
        2,
        &["--close-first client"],
    );
    for other in [["--resolve", "a:127.0.0.1"], ["--sources", "127.0.0.2"]] {
        refused(utf8(&deserted), &other, 2, &["--unix-socket", other[0]]);
    }
}

/// Returns the server's port, and a URL with `name` as the host.
fn under(name: &str, server: &Serve) -> (String, String) {
    let port = server.url.trim_end_matches('/').rsplit(':').next().unwrap();
    (port.to_owned(), format!("http://{name}:{port}/"))
}

#[test]
fn resolve_replaces_the_resolver() {
    let server = Serve::start(&["hello"]);
    let (port, url) = under("app.invalid", &server);
    for backend in ["uring", "epoll"] {
        for given in [
            "APP.invalid:127.0.0.1",
            &format!("app.invalid:{port}:127.0.0.1"),
        ] {
            let load = load(
                &url,
                &["-n", "100", "--resolve", given, "--backend", backend],
            );
            load.ends_with(0);
            assert_eq!(load.counts().ok, 100);
            let target = &load.run().plan.target;
            assert_eq!(target.address.to_string(), format!("127.0.0.1:{port}"));
            assert_eq!(target.resolve_us, None);
            assert_eq!(target.authority, format!("app.invalid:{port}"));
        }
    }
}

/// Expects `n` requests that all went to 127.0.0.1.
fn all_connections_succeed(load: &Load, n: u64) {
    load.ends_with(0);
    assert_eq!(load.counts().ok, n, "{}", load.stderr());
    assert_eq!(load.run().errors.len(), 0);
    for one in &load.run().connections.addresses {
        let served = one.address.to_string().starts_with("127.0.0.1:");
        assert_eq!(one.opened > 0, served, "{one:?}");
        assert_eq!(one.left_out.is_none(), served, "{one:?}");
    }
}

#[test]
fn uses_the_addresses_that_accept() {
    let server = Serve::start(&["hello"]);
    let (_, url) = under("app.invalid", &server);
    for backend in ["uring", "epoll"] {
        for more in [&[][..], &["--fresh"]] {
            let mut arguments = vec!["-n", "200", "--backend", backend];
            arguments.extend(["--resolve", "app.invalid:[::1],127.0.0.1"]);
            arguments.extend_from_slice(more);
            let load = load(&url, &arguments);
            all_connections_succeed(&load, 200);
            let printed = unwrapped(&load);
            for word in [
                "to 2 addresses",
                "accepted no connection: [::1]:",
                "used instead: 127.0.0.1:",
            ] {
                assert!(printed.contains(word), "{word}: {printed}");
            }
            assert_eq!(load.run().plan.target.further_addresses.len(), 1);
        }
    }
}

#[test]
fn finds_localhost_on_ipv4_and_ipv6() {
    let server = Serve::start(&["hello"]);
    let load = load(&under("localhost", &server).1, &["-n", "200"]);
    all_connections_succeed(&load, 200);
    assert!(load.run().plan.target.resolve_us.is_some());
}

#[test]
fn skips_addresses_of_another_family_with_a_notice() {
    let server = Serve::start(&["hello"]);
    let (port, url) = under("app.invalid", &server);
    let given = "app.invalid:[::1],127.0.0.1";
    let load = load(
        &url,
        &[
            "-n",
            "50",
            "--resolve",
            given,
            "--sources",
            "127.0.0.2-127.0.0.3",
        ],
    );
    load.ends_with(0);
    let run = load.run();
    assert_eq!(run.requests.ok, 50);
    assert_eq!(
        run.plan.target.show_addresses(),
        format!("127.0.0.1:{port}")
    );
    let told = run
        .missing
        .iter()
        .any(|line| line.contains("same family as --sources"));
    assert!(told, "{:?}", run.missing);
}

#[test]
fn refuses_invalid_resolve_flags() {
    for (given, url, words) in [
        ("a", "http://a/", &["HOST:PORT:ADDR"][..]),
        ("a:::1", "http://a/", &["brackets"]),
        (
            "b:127.0.0.1",
            "http://a/",
            &["--resolve b:127.0.0.1", "a:80"],
        ),
        ("a:81:127.0.0.1", "http://a/", &["a:80"]),
        (
            "a:127.0.0.1,192.0.2.1",
            "http://a/",
            &["192.0.2.1", "--public"],
        ),
        ("a:[2001:db8::1]", "http://a/", &["2001:db8::1", "--public"]),
    ] {
        let output = run(&["load", url, "--resolve", given]);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{printed}");
        for word in words {
            assert!(printed.contains(word), "{given}: {word}: {printed}");
        }
    }
}
