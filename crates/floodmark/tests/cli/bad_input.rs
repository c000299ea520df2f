//! Bad input: one clear line that names the place and the mend, the documented code, no panic, no hang, nothing left behind.

use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use crate::support::{code, finish, floodmark, run, text, valid};

/// A port of loopback where nobody listens.
fn refusing() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    format!("http://{}/", address.unwrap())
}

/// Runs `floodmark load` with wrong usage; the whole of stderr.
fn refused(arguments: &[&str]) -> String {
    let mut all = vec!["load"];
    all.extend_from_slice(arguments);
    let output = run(&all);
    let said = text(&output.stderr);
    assert_eq!(code(&output), 2, "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    said
}

/// One line of floodmark's own that holds each of `words`.
fn one_line(arguments: &[&str], words: &[&str]) {
    let said = refused(arguments);
    assert!(said.starts_with("floodmark: "), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    holds(&said, arguments, words);
}

/// What clap says: its error in the first line, a few lines in all.
fn few_lines(arguments: &[&str], words: &[&str]) {
    let said = refused(arguments);
    assert!(said.starts_with("error: "), "{arguments:?}: {said}");
    assert!(said.lines().count() <= 8, "{arguments:?}: {said}");
    holds(&said, arguments, words);
}

fn holds(said: &str, arguments: &[&str], words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{arguments:?} lacks {word:?}: {said}");
    }
}

#[test]
fn wrong_urls() {
    for (url, word) in [
        ("localhost:8080", "scheme is missing"),
        ("ftp://127.0.0.1/", "ftp"),
        ("http://127.0.0.1:0/", "port 0"),
        ("http://127.0.0.1:65536/", "port"),
        ("http://127.0.0.1:http/", "port"),
        ("http://me:secret@127.0.0.1/", "-H"),
        ("http://", "http://127.0.0.1:8080/path"),
        ("http://127.0.0.1/a b", "http://127.0.0.1:8080/path"),
        ("http://127.0.0.1/ä", "percent-encoded"),
        ("", "http://127.0.0.1:8080/path"),
    ] {
        one_line(&[url], &[word]);
    }
}

#[test]
fn an_escape_sequence_in_a_url_does_not_reach_the_terminal() {
    let said = refused(&["http://127.0.0.1/\u{1b}[31m"]);
    assert!(
        !said.contains('\u{1b}') && said.contains("\\u{1b}"),
        "{said}"
    );
}

#[test]
fn wrong_values() {
    let url = refusing();
    for (flag, value, word) in [
        ("--duration", "5", "5s"),
        ("--duration", "5 parsecs", "unknown unit"),
        ("--duration", "0s", "longer than nothing"),
        ("--timeout", "5", "5s"),
        ("--timeout", "0ms", "longer than nothing"),
        ("--warmup", "5", "or auto"),
        ("--deadline", "soon", "10s"),
        ("--requests", "0", "at least 1"),
        ("--requests", "many", "whole number"),
        ("--requests", "99999999999999999999", "too large"),
        ("--connections", "1.5", "whole number"),
        ("--rate", "0", "rate"),
        ("--rate", "fast", "2.5k"),
        ("--attempts", "0", "at least 1"),
        ("--attempts", "10001", "10000"),
        ("--sources", "127.0.0.9-127.0.0.2", "not above the last"),
        ("--sources", "127.0.0.2-::1", "family"),
        ("--sources", "127.0.0.2-200", "127.0.0.2-127.0.0.200"),
        ("--sources", "10.0.0.0-11.0.0.0", "million"),
        ("--header", "no colon", "Name: value"),
        ("--expect", "200", "status=200"),
        ("--expect", "status=2xx", "three digits"),
        ("--expect", "json={", "JSON"),
        ("--expect", "header=x", "json=VALUE"),
        ("--fail-if", "p99", "p99 > 50ms"),
        ("--fail-if", "p99 > 50", "50ms"),
        ("--fail-if", "p98 > 50ms", "unknown figure"),
        ("--fail-if", "p99 >> 50ms", "unknown operator"),
        ("--arrivals", "random", "poisson"),
        ("--ramp", "500", "100-5000"),
        ("--ramp", "0-0", "no load"),
        ("--ramp", "5--5", "rate"),
        ("--ramp", "fast-faster", "2.5k"),
        ("--steps", "100,", "rate"),
        ("--steps", "0,0", "no load"),
        ("--steps", "100:5", "unit"),
        ("--steps", "100:1s,200", "each step has its time"),
        ("--close-first", "nobody", "server"),
        ("--check", "everything", "sequence"),
    ] {
        few_lines(&[&url, flag, value], &[flag, word]);
    }
}

#[test]
fn flags_that_contradict_each_other() {
    let url = refusing();
    for (arguments, words) in [
        (&["-d", "1s", "-n", "5"][..], ["--duration", "--requests"]),
        (&["--burst", "5"], ["--burst", "--within"]),
        (&["--within", "1s"], ["--burst", "--within"]),
        (
            &["--burst", "5", "--within", "1s", "-d", "1s"],
            ["--burst", "--duration"],
        ),
        (
            &["--burst", "5", "--within", "1s", "-r", "5"],
            ["--burst", "--rate"],
        ),
        (
            &["--burst", "5", "--within", "1s", "-c", "5"],
            ["--burst", "--connections"],
        ),
        (
            &["--burst", "5", "--within", "1s", "--arrivals", "poisson"],
            ["--burst", "--arrivals"],
        ),
        (
            &["--fresh", "--requests-per-connection", "2"],
            ["--fresh", "--requests-per-connection"],
        ),
        (&["--arrivals", "poisson"], ["--rate", "--ramp"]),
        (&["--ramp", "1-5", "-r", "5"], ["--ramp", "--rate"]),
        (&["--ramp", "1-5", "--steps", "5"], ["--ramp", "--steps"]),
        (&["--ramp", "1-5", "-n", "5"], ["--ramp", "--requests"]),
        (&["--steps", "1,5", "-n", "5"], ["--steps", "--requests"]),
        (
            &["--steps", "5", "--burst", "5", "--within", "1s"],
            ["--steps", "--burst"],
        ),
        (&["--replay", "x", "--steps", "5"], ["--replay", "--steps"]),
        (&["--replay", "x", "-r", "5"], ["--replay", "--rate"]),
        (&["--replay", "x", "-d", "5s"], ["--replay", "--duration"]),
        (
            &["--replay", "x", "--arrivals", "poisson"],
            ["--replay", "--arrivals"],
        ),
        (&["--replay-speed", "2x"], ["--replay", "--replay-speed"]),
        (&["--replay-unit", "ms"], ["--replay", "--replay-unit"]),
        (
            &["--replay", "x", "--replay-speed", "0x"],
            ["--replay-speed", "0.5x"],
        ),
        (
            &["-b", "x", "--body-file", "/dev/null"],
            ["--body", "--body-file"],
        ),
        (&["--demo"], ["--demo", "URL"]),
        (&["--frsh"], ["--frsh", "--fresh"]),
    ] {
        let mut all = vec![url.as_str()];
        all.extend_from_slice(arguments);
        few_lines(&all, &words);
    }
    few_lines(&[], &["URL"]);
    few_lines(&["--demo", "--json", "x.json"], &["--demo", "--json"]);
    one_line(
        &[&url, "--close-first", "client"],
        &["--close-first", "--fresh"],
    );
    one_line(
        &[&url, "--sources", "::1-::2"],
        &["--sources", "family", "127.0.0.1"],
    );
}

#[test]
fn wrong_requests() {
    let url = refusing();
    for (arguments, word) in [
        (["-H", "a b: c"], "\"a b\""),
        (["-H", ": c"], "\"\""),
        (["-H", "a: b\r\nc: d"], "CR"),
        (["-H", "Content-Length: 5"], "Content-Length"),
        (["-H", "Transfer-Encoding: chunked"], "Transfer-Encoding"),
        (["-H", "Connection: close"], "kept"),
        (["-X", "GET /"], "GET /"),
        (["--body-file", "/no/such/file"], "/no/such/file"),
        (["--body-file", "/"], "--body-file"),
        (["-c", "5000000000"], "1,000,000"),
        (["-t", "2000"], "1024"),
        (["-r", "2000M"], "nanosecond"),
        (
            ["--ramp", "1-2000M"],
            "--ramp: more than a request per nanosecond",
        ),
        (["--replay", "/no/such/file"], "--replay /no/such/file"),
        (["--replay", "/"], "--replay /"),
    ] {
        one_line(&[&url, arguments[0], arguments[1]], &[word]);
    }
}

#[test]
fn schedules_that_cannot_be() {
    let url = refusing();
    for (arguments, words) in [
        (
            &["--steps", "5:1s", "-d", "5s"][..],
            &["--duration", "--steps"][..],
        ),
        (
            &["--ramp", "0-5", "--warmup", "1s"],
            &["--warmup", "--ramp"],
        ),
        (
            &["--steps", "0,5", "--warmup", "1s"],
            &["--warmup", "--steps"],
        ),
    ] {
        one_line(&[&[url.as_str()], arguments].concat(), words);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("times");
    let path = file.to_str().unwrap();
    for (content, place, mend) in [
        ("", "times: holds no timestamp", "one a line"),
        (
            "1\nsoon\n",
            "times:2: \"soon\" is no timestamp",
            "1763741296.123",
        ),
        (
            "1\n-1\n",
            "times:2: \"-1\" is negative",
            "before the first request",
        ),
        ("5\n4.5\n", "times:2: lies 500 ms before", "sort -n"),
        ("1\n1e99\n", "times:2: \"1e99\" is no timestamp", "seconds"),
        (
            "1\n99999999999999\n",
            "times:2: \"99999999999999\" is too large",
            "--replay-unit",
        ),
        (
            "0\n99999999\n",
            "times:2: lies more than 31 days",
            "--replay-unit",
        ),
        ("\u{1b}[2J", "times:1: ", "is no timestamp"),
    ] {
        std::fs::write(&file, content).unwrap();
        one_line(&[&url, "--replay", path], &[place, mend]);
    }
    std::fs::write(&file, "1\n2\n").unwrap();
    one_line(
        &[&url, "--replay", path, "--warmup", "1s"],
        &["--warmup", "--replay"],
    );
}

#[test]
fn files_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let url = refusing();
    for flag in ["--json", "--html", "--csv", "--hdr"] {
        one_line(
            &[&url, flag, "/no/such/folder/x"],
            &[flag, "/no/such/folder/x"],
        );
        one_line(&[&url, flag, folder.path().to_str().unwrap()], &[flag]);
    }
    one_line(
        &[
            "http://no-such-host.invalid/",
            "--json",
            "/no/such/folder/x",
        ],
        &["--json"],
    );
    std::fs::write(folder.path().join("events.jsonl"), "").unwrap();
    let taken = folder.path().to_str().unwrap();
    let json = folder.path().join("x.json");
    let json_name = json.to_str().unwrap();
    // Where io_uring is forbidden, doing without it would take a line of its own.
    one_line(
        &[
            &url,
            "--out",
            taken,
            "--json",
            json_name,
            "--backend",
            "epoll",
        ],
        &["holds a result already", "--out"],
    );
    assert!(!json.exists(), "a refused run leaves no empty file behind");
}

#[test]
fn a_public_address_needs_leave() {
    // TEST-NET-1 (RFC 5737): nobody is there, and nothing is sent.
    one_line(&["http://192.0.2.1/"], &["192.0.2.1", "--public"]);
    one_line(&["http://[2001:db8::1]/"], &["2001:db8::1", "--public"]);
}

#[test]
fn arguments_that_are_no_utf8() {
    let folder = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff.json");
    let json = folder.path().join(name);
    let mut command = floodmark(&["load", &refusing(), "-n", "1", "-q", "--json"]);
    let output = finish(command.arg(&json).spawn().unwrap());
    assert_eq!(code(&output), 3);
    valid(serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap());
}

#[test]
fn a_worker_without_a_plan_says_who_starts_it() {
    let output = run(&["worker"]);
    let said = text(&output.stderr);
    assert_eq!(code(&output), 2);
    assert!(
        said.contains("floodmark load") && said.lines().count() == 1,
        "{said}"
    );
}
