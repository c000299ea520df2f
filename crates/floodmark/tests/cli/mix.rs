//! Tests of `--mix`: the documented example, per-request figures, and invalid files.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use floodmark_record::events::EndReason;

use crate::support::hostile::Listener;
use crate::support::{Serve, code, load, run, text};

/// Starts a server for the documented mix. The server records each request.
fn shop() -> (Listener, Arc<Mutex<Vec<String>>>) {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&log);
    let listener = Listener::start(move |mut stream| {
        while let Some(request) = read(&mut stream) {
            let answer: &[u8] = match request.split_once(' ').map(|(method, _)| method) {
                Some("HEAD") => b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n",
                Some("POST") => {
                    b"HTTP/1.1 201 Created\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nok"
                }
                _ => b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
            };
            kept.lock().unwrap().push(request);
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    (listener, log)
}

fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 2048];
    loop {
        if let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let length = text
                .lines()
                .find_map(|l| l.strip_prefix("Content-Length: "));
            if bytes.len() == head + 4 + length.map_or(0, |l| l.parse().unwrap()) {
                return Some(text);
            }
        }
        match stream.read(&mut piece) {
            Ok(n @ 1..) => bytes.extend_from_slice(&piece[..n]),
            _ => return None,
        }
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/mix.toml")
}

#[test]
fn names_text_that_only_looks_like_a_template() {
    let listener = Listener::answering(b"HTTP/1.1 204 No Content\r\n\r\n");
    let (_directory, path) = file(
        "[[request]]\nname = \"a\"\npath = \"/\"\nheaders = [\"X-A: {{b}}\", \"X-C: {token}\"]\n",
    );
    let load = load(&listener.url, &["--mix", &path, "-n", "1"]);
    load.ends_with(0);
    let printed = load.stderr();
    let remark = format!("--mix {path}:4: {{token}} is sent unchanged; templates are {{seq}},");
    assert_eq!(printed.matches("is sent unchanged").count(), 1, "{printed}");
    assert!(printed.contains(&remark), "{printed}");
}

/// Writes a mix and its data file to a new directory. Returns the mix file's path.
fn with_feed(mix: &str, csv: &[u8]) -> (tempfile::TempDir, String) {
    let (directory, path) = file(mix);
    std::fs::write(directory.path().join("users.csv"), csv).unwrap();
    (directory, path)
}

/// Each request takes a path, a header value and a body from a data file.
fn sign_in(take: &str) -> String {
    format!(
        r#"
[[feed]]
file = "users.csv"
take = "{take}"
[[request]]
name = "sign-in"
path = "/u/{{user}}?n={{seq}}"
headers = ["X-Team: {{team}}"]
body = '{{"user": "{{user}}", "literal": "{{{{user}}}}"}}'
[[request]]
name = "page"
path = "{{raw:page}}"
"#
    )
}

const USERS: &[u8] =
    "\u{feff}user,team,page\r\na b,\"x, y\",/1?q={team}\r\nc/d,z,/2\r\n".as_bytes();

#[test]
fn takes_values_from_a_data_file() {
    for (model, backend) in [("-n", "uring"), ("-n", "epoll"), ("--burst", "auto")] {
        let (listener, log) = shop();
        let (_directory, path) = with_feed(&sign_in("in-turn"), USERS);
        let within: &[&str] = if model == "--burst" {
            &["--within", "200ms"]
        } else {
            &["-c", "4"]
        };
        let arguments = [
            "--mix",
            &path,
            "-t",
            "2",
            model,
            "200",
            "--backend",
            backend,
        ];
        let load = load(&listener.url, &[&arguments, within].concat());
        load.ends_with(0);
        let log = log.lock().unwrap();
        let (posts, gets): (Vec<_>, Vec<_>) = log.iter().partition(|r| r.starts_with("POST "));
        assert_eq!((posts.len(), gets.len()), (100, 100));
        for post in posts {
            let (_, number) = post.split_once("?n=").unwrap();
            let number: u64 = number.split_once(' ').unwrap().0.parse().unwrap();
            let (encoded, team, user) = match number % 2 {
                1 => ("a%20b", "x, y", "a b"),
                _ => ("c%2Fd", "z", "c/d"),
            };
            assert!(
                post.starts_with(&format!("POST /u/{encoded}?n={number} ")),
                "{post}"
            );
            assert!(post.contains(&format!("X-Team: {team}\r\n")), "{post}");
            let body = format!(r#"{{"user": "{user}", "literal": "{{user}}"}}"#);
            assert!(post.ends_with(&body), "{post}");
        }
        let known = ["GET /1?q={team} ", "GET /2 "];
        assert!(
            gets.iter()
                .all(|get| known.iter().any(|known| get.starts_with(known)))
        );
        // A record contains no values, which can be secret.
        let record = std::fs::read_to_string(load.events()).unwrap();
        assert!(record.contains("users.csv") && !record.contains("a%20b"));
        assert_eq!(load.run().plan.mix.as_ref().unwrap().feeds[0].rows, 2);
    }
}

#[test]
fn a_load_ends_when_all_unique_rows_are_used() {
    let csv = |rows: u32| {
        let rows = (1..=rows).map(|row| format!("user {row},t,/page\n"));
        ["user,team,page\n".to_owned()]
            .into_iter()
            .chain(rows)
            .collect::<String>()
    };
    for arguments in [
        &["-d", "20s", "-c", "4", "-t", "2"][..],
        &["-d", "20s", "-c", "4", "--attempts", "3"],
        &["--agents", "local:2", "-d", "20s", "-c", "4"],
    ] {
        let (listener, log) = shop();
        let (_directory, path) = with_feed(&sign_in("unique"), csv(400).as_bytes());
        let load = load(&listener.url, &[&["--mix", &path], arguments].concat());
        load.ends_with(0);
        let run = load.run();
        assert_eq!(run.ended.reason, EndReason::RowsUsedUp, "{arguments:?}");
        assert!(
            load.stderr().contains("has too few rows"),
            "{}",
            load.stderr()
        );
        assert_eq!(load.record.runs.len(), 1);
        let log = log.lock().unwrap();
        let users: Vec<&str> = log
            .iter()
            .filter(|r| r.starts_with("POST "))
            .map(|r| &r[..20])
            .collect();
        assert_eq!(users.iter().collect::<BTreeSet<_>>().len(), users.len());
        assert_eq!(log.len() as u64, run.requests.sent);
        assert!((380..=400).contains(&log.len()), "{}", log.len());
    }
    let (listener, _log) = shop();
    let (_directory, path) = with_feed(&sign_in("unique"), csv(10).as_bytes());
    let exact = ["--mix", &path, "-n", "5", "--attempts", "2"];
    load(&listener.url, &exact).ends_with(0);
    for arguments in [
        &["-n", "11"][..],
        &["-n", "6", "--attempts", "2"],
        &["--rate", "11", "-d", "1s"],
    ] {
        let output = run(&[&["load", &listener.url, "--mix", &path], arguments].concat());
        assert_eq!(code(&output), 2);
        let printed = text(&output.stderr);
        assert!(printed.contains("has only 10 rows, but 1"), "{printed}");
    }
    let search = [
        "capacity",
        &listener.url,
        "--mix",
        &path,
        "--slo",
        "p99 < 5ms",
    ];
    let output = run(&search);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("set take = \"in-turn\""));
}

#[test]
fn names_the_place_of_an_invalid_data_file() {
    let url = "http://127.0.0.1:1/";
    let refused = |mix: &str, csv: &[u8]| {
        let (_directory, path) = with_feed(mix, csv);
        let output = run(&["load", url, "--mix", &path, "-n", "1"]);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        printed
    };
    let mix = sign_in("in-turn");
    for (csv, words) in [
        (
            &b"user,team,page\n1,2\n"[..],
            "users.csv:2: 2 values for 3 columns",
        ),
        (
            b"user,team,page\n1,\"2\n\",/\n",
            "users.csv:2: the value of \"team\" contains a line break",
        ),
        (
            b"user,team,page\n1,2,3\n",
            "users.csv:2: the value of \"page\" does not start with",
        ),
        (b"user,team,page\n\n", "users.csv: the file has no rows"),
    ] {
        let printed = refused(&mix, csv);
        assert!(printed.contains(words), "{printed}");
        assert!(printed.contains("mix.toml:3: file /"), "{printed}");
    }
    for (change, words) in [
        (("users.csv", "none.csv"), "none.csv: No such file"),
        (("in-turn", "sometimes"), "in-turn"),
        (("file = ", "path = "), "file"),
        (
            ("{user}?", "{usr}?"),
            "contains a brace that is not part of a template",
        ),
    ] {
        let printed = refused(&mix.replacen(change.0, change.1, 1), USERS);
        assert!(printed.contains(words), "{printed}");
    }
}

#[test]
fn the_documented_mix_works() {
    let (listener, log) = shop();
    let example = example();
    let arguments = [
        "--mix",
        example.to_str().unwrap(),
        "-n",
        "1000",
        "-t",
        "2",
        "-c",
        "4",
    ];
    let more = [
        "--attempts",
        "2",
        "-H",
        "X-All: 1",
        "--fail-if",
        "search: errors > 0%",
    ];
    let load = load(&listener.url, &[&arguments[..], &more].concat());
    load.ends_with(0);
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 2000);
    assert!(log.iter().all(|request| request.contains("X-All: 1\r\n")));
    assert!(
        !log.iter().any(|request| request.contains("Cookie")),
        "cookies are not sent back"
    );
    let orders: Vec<&String> = log
        .iter()
        .filter(|r| r.starts_with("POST /orders "))
        .collect();
    let numbers: BTreeSet<u64> = orders
        .iter()
        .map(|order| {
            let (_, body) = order.split_once("\r\n\r\n").unwrap();
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert!((1..=500).contains(&body["items"][0]["id"].as_u64().unwrap()));
            body["number"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(
        numbers.len(),
        200,
        "each number is unique across both attempts"
    );
    assert!(numbers.iter().all(|number| (1..=2000).contains(number)));
    let keys: BTreeSet<&str> = orders
        .iter()
        .filter_map(|order| {
            order
                .lines()
                .find_map(|l| l.strip_prefix("Idempotency-Key: "))
        })
        .collect();
    assert_eq!(keys.len(), 200);
    for attempt in &load.record.runs {
        let groups = &attempt.groups;
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["search", "item", "order"]);
        let sent: Vec<u64> = groups.iter().map(|group| group.requests.ok).collect();
        assert_eq!(sent, [700, 200, 100]);
        assert!(
            groups
                .iter()
                .all(|g| g.response_time_us.count == g.requests.ok)
        );
        let throughput: f64 = groups.iter().filter_map(|g| g.throughput_per_s).sum();
        assert!((throughput / attempt.throughput_per_s.unwrap() - 1.0).abs() < 1e-9);
        let bytes: u64 = groups.iter().map(|group| group.bytes.sent).sum();
        assert_eq!(bytes, attempt.bytes.sent);
        assert_eq!(attempt.workload, "mix.toml");
        let notes = attempt.validity.notes.join("\n");
        assert!(notes.contains("redirected 700 requests (302)"), "{notes}");
    }
    let printed = load.stderr();
    assert!(
        printed.contains("a mix of 3 requests (mix.toml)"),
        "{printed}"
    );
    assert!(printed.contains("\norder "), "{printed}");
}

/// Writes a mix file into a temporary directory.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mix.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

const TWO: &str = "[[request]]\nname = \"good\"\npath = \"/good\"\n[[request]]\nname = \"bad\"\npath = \"/bad\"\n";

#[test]
fn evaluates_a_threshold_of_one_request() {
    let listener = Listener::start(|stream| {
        crate::support::hostile::answer_each(stream, |head| {
            let status = if head.starts_with("GET /bad") {
                "500 No"
            } else {
                "200 OK"
            };
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        });
    });
    let (directory, path) = file(TWO);
    let csv = directory.path().join("series.csv");
    for (condition, expected) in [("good: errors > 0%", 0), ("bad: errors > 99%", 1)] {
        let load = load(
            &listener.url,
            &[
                "--mix",
                &path,
                "-n",
                "100",
                "-c",
                "2",
                "--csv",
                csv.to_str().unwrap(),
                "--fail-if",
                condition,
            ],
        );
        load.ends_with(expected);
        let run = load.run();
        assert!(!run.validity.is_lower_bound(), "{:?}", run.validity);
        assert_eq!(
            [run.groups[0].requests.ok, run.groups[1].requests.wrong],
            [50, 50]
        );
    }
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.lines().any(|line| line.ends_with(",good")), "{csv}");
    assert!(csv.lines().any(|line| line.ends_with(",bad")), "{csv}");
}

/// Over HTTP/2, the `Host` header becomes `:authority`.
#[test]
fn hosts_from_a_data_file_are_valid_over_http2() {
    let server = Serve::start(&["hello"]);
    let mix = sign_in("in-turn").replace("X-Team: {team}", "Host: {team}");
    let load = |http: &str, team: &str| {
        let csv = format!("user,team,page\n1,{team},/\n");
        let (_directory, path) = with_feed(&mix, csv.as_bytes());
        let output = run(&[
            "load",
            &server.url,
            "--mix",
            &path,
            "-n",
            "2",
            "-c",
            "1",
            "--http",
            http,
        ]);
        (code(&output), text(&output.stderr))
    };
    for team in ["a b", "u@a", "\u{e4}", "\"\""] {
        let (code, printed) = load("2", team);
        assert_eq!((code, printed.lines().count()), (2, 1), "{printed}");
        let words = "users.csv:2: the value of \"team\" is not a valid host, which HTTP/2";
        assert!(printed.contains(words), "{printed}");
        let (code, printed) = load("1.1", team);
        assert_eq!(code, 0, "{printed}");
    }
    let (code, printed) = load("2", "a:80");
    assert_eq!(code, 0, "{printed}");
}

#[test]
fn refuses_invalid_mixes_in_one_line() {
    let request = "[[request]]\nname = \"a\"\n";
    let of = |lines: &str| format!("{request}{lines}");
    let url = "http://127.0.0.1:1/";
    let search = of("path = \"/\"\n");
    type Case<'a> = (&'a str, String, &'a [&'a str], &'a str);
    let cases: [Case<'_>; 11] = [
        (
            url,
            of("paht = \"/\"\n"),
            &[],
            "mix.toml:3: unknown key \"paht\" in [request]; did you mean \"path\"?",
        ),
        (
            url,
            of("path = \"/{sequ}\"\n"),
            &[],
            "mix.toml:3: the request \"a\": path \"/{sequ}\" contains a brace",
        ),
        (
            url,
            of("path = \"/{rand:9-1}\"\n"),
            &[],
            "mix.toml:3: the request \"a\": invalid template \"{rand:9-1}\"; write two integers",
        ),
        (
            url,
            of("\npath = \"a\"\n"),
            &[],
            "mix.toml:4: the request \"a\": path \"a\" does not start",
        ),
        (
            url,
            of("path = \"/\"\nheaders = [\"A b: c\"]\n"),
            &[],
            "mix.toml:4: the request \"a\": header name \"A b\"",
        ),
        (
            url,
            of("path = \"/\"\nmethod = \"CONNECT\"\n"),
            &[],
            "mix.toml:4: the request \"a\": method CONNECT",
        ),
        (
            url,
            of("path = \"/\"\nbody = \"{rand:}\"\n"),
            &[],
            "mix.toml:4: the request \"a\": invalid template \"{rand:}\"",
        ),
        (url, String::new(), &[], "mix.toml:1: no request"),
        (
            "http://127.0.0.1:1/x",
            search.clone(),
            &[],
            "name only the server, such as http://127.0.0.1:1/",
        ),
        (
            url,
            search.clone(),
            &["--fail-if", "b: p99 > 1ms"],
            "the mix has no request \"b\"",
        ),
        (
            url,
            search,
            &["--fail-if", "aa: p99 > 1ms"],
            "did you mean \"a\"?",
        ),
    ];
    for (url, text_of_file, more, expected) in cases {
        let (_directory, path) = file(&text_of_file);
        let output = run(&[&["load", url, "--mix", &path][..], more].concat());
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(
            printed.starts_with("floodmark: ") && printed.contains(expected),
            "{printed}\n{expected}"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("mix.toml");
    let missing = missing.to_str().unwrap();
    let output = run(&["load", url, "--mix", missing]);
    let printed = text(&output.stderr);
    assert!(
        printed.starts_with(&format!("floodmark: --mix {missing}: No such file")),
        "{printed}"
    );
    let output = run(&["load", url, "--fail-if", "a: p99 > 1ms"]);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("only requests in a --mix have names"));
    for flag in [&["-X", "PUT"][..], &["-b", "x"], &["--check", "sequence"]] {
        let output = run(&[&["load", url, "--mix", "mix.toml"][..], flag].concat());
        assert_eq!(code(&output), 2, "{flag:?}");
        assert!(
            text(&output.stderr).contains("cannot be used with"),
            "{flag:?}"
        );
    }
}
