//! Tests that invalid input produces a one-line message (place and fix), exit code 2 and no files.

use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use crate::support::{code, finish, floodmark, run, text, valid};

/// Returns a URL whose port refuses connections.
fn refusing() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    format!("http://{}/", address.unwrap())
}

/// Runs `floodmark load` with invalid usage. Returns stderr.
fn refused(arguments: &[&str]) -> String {
    let mut all = vec!["load"];
    all.extend_from_slice(arguments);
    let output = run(&all);
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 2, "{arguments:?}: {printed}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    printed
}

/// Expects a single line from floodmark that contains all `words`.
fn one_line(arguments: &[&str], words: &[&str]) {
    let printed = refused(arguments);
    assert!(
        printed.starts_with("floodmark: "),
        "{arguments:?}: {printed}"
    );
    assert_eq!(printed.lines().count(), 1, "{arguments:?}: {printed}");
    holds(&printed, arguments, words);
}

/// Expects a short usage error that contains all `words`.
fn few_lines(arguments: &[&str], words: &[&str]) {
    let printed = refused(arguments);
    assert!(printed.starts_with("error: "), "{arguments:?}: {printed}");
    assert!(printed.lines().count() <= 8, "{arguments:?}: {printed}");
    holds(&printed, arguments, words);
}

fn holds(printed: &str, arguments: &[&str], words: &[&str]) {
    for word in words {
        assert!(
            printed.contains(word),
            "{arguments:?} lacks {word:?}: {printed}"
        );
    }
}

#[test]
fn refuses_invalid_urls() {
    for (url, word) in [
        ("localhost:port", "port"),
        ("ftp://127.0.0.1/", "ftp"),
        ("http://127.0.0.1:0/", "port 0"),
        ("http://127.0.0.1:65536/", "port"),
        ("http://127.0.0.1:http/", "port"),
        ("http://me:secret@127.0.0.1:x/", "http://…@127.0.0.1:x/"),
        ("http://", "http://127.0.0.1:8080/path"),
        ("http://127.0.0.1 /", "the host contains ' '"),
        ("http://ä/", "xn--"),
        ("", "http://127.0.0.1:8080/path"),
    ] {
        one_line(&[url], &[word]);
    }
}

#[test]
fn escapes_control_sequences_of_a_url() {
    let printed = refused(&["http://127.0.0.1/\u{1b}[31m"]);
    assert!(
        !printed.contains('\u{1b}') && printed.contains("\\u{1b}"),
        "{printed}"
    );
}

#[test]
fn refuses_invalid_values() {
    let url = refusing();
    for (flag, value, word) in [
        ("--duration", "5", "5s"),
        ("--duration", "5 parsecs", "unknown unit"),
        ("--duration", "-3s", "negative"),
        ("--timeout", "-1ms", "negative"),
        ("--duration", "0s", "longer than 0"),
        ("--timeout", "5", "5s"),
        ("--timeout", "0ms", "longer than 0"),
        ("--warmup", "5", "or auto"),
        ("--deadline", "soon", "10s"),
        ("--requests", "0", "at least 1"),
        ("--requests", "many", "integer"),
        ("--requests", "99999999999999999999", "too large"),
        ("--connections", "1.5", "integer"),
        ("--rate", "0", "must be above 0"),
        ("--rate", "fast", "2.5k"),
        ("--attempts", "0", "must be from 1 to 10,000"),
        ("--attempts", "10001", "must be from 1 to 10,000"),
        ("--attempts", "-1", "must be from 1 to 10,000"),
        ("--connections", "-1k", "must be at least 1"),
        ("--threads", "-1", "must be at least 1"),
        ("--requests", "-1", "must be at least 1"),
        ("--requests-per-connection", "-1", "must be at least 1"),
        ("--burst", "-1", "must be at least 1"),
        ("--rate", "-1.5", "must be above 0"),
        ("--seed", "-1", "must be an integer from 0"),
        ("--seed", "1k", "must be an integer from 0"),
        ("--server-pid", "-1", "must be from 1 to 4,194,304"),
        ("--server-pid", "0", "must be from 1 to 4,194,304"),
        ("--replay-speed", "-1", "is not a speed"),
        ("--ramp", "-1-5", "such as 100-5000"),
        ("--sources", "-1", "is not an IP address"),
        ("--sources", "127.0.0.9-127.0.0.2", "lower address first"),
        ("--sources", "127.0.0.2-::1", "same family"),
        ("--sources", "127.0.0.2-200", "127.0.0.2-127.0.0.200"),
        ("--sources", "10.0.0.0-11.0.0.0", "1,048,576"),
        ("--header", "no colon", "Name: value"),
        ("--expect", "200", "status=200"),
        ("--expect", "status=2xx", "three-digit"),
        ("--expect", "json={", "JSON"),
        ("--expect", "header=x", "json=VALUE"),
        ("--expect", "json:a=1", "$.name"),
        ("--expect", "regex:(", "unclosed group"),
        ("--fail-if", "p99", "p99 > 50ms"),
        ("--fail-if", "p99 > 50", "50ms"),
        ("--fail-if", "p98 > 50ms", "unknown figure"),
        ("--fail-if", "p99 >> 50ms", "unknown operator"),
        ("--abort-if", "p99 > 50 for 5s", "50ms"),
        ("--request-log-sample", "0%", "above 0"),
        ("--request-log-sample", "5", "5%"),
        ("--abort-if", "errors > 5% for 5", "5s"),
        (
            "--abort-if",
            "errors > 5% for 1500ms",
            "whole number of seconds",
        ),
        (
            "--abort-if",
            "cpu_us_per_request > 5us",
            "while the load runs",
        ),
        ("--abort-if", "search: p99 > 5ms", "while the load runs"),
        ("--arrivals", "random", "poisson"),
        ("--ramp", "500", "100-5000"),
        ("--ramp", "0-0", "no requests"),
        ("--ramp", "5--5", "rate"),
        ("--ramp", "fast-faster", "2.5k"),
        (
            "--steps",
            "100,200,",
            "step 3 is empty; remove the extra comma",
        ),
        ("--steps", "-1", "negative"),
        ("--steps", "0,0", "no requests"),
        ("--steps", "100:5", "unit"),
        ("--steps", "100:1s,200", "to each step"),
        ("--close-first", "nobody", "server"),
        ("--http", "3", "unknown value; use one of: 1.1, 2, auto"),
        ("--streams", "0", "must be from 1 to 1,000"),
        ("--streams", "1001", "must be from 1 to 1,000"),
        ("--h2-window", "0", "must be from 4KiB to 64MiB"),
        ("--h2-window", "128MiB", "must be from 4KiB to 64MiB"),
        ("--h2-window", "1M", "such as \"65535\" or \"64KiB\""),
        ("--h2-table", "65537", "must be from 0 to 64KiB"),
        ("--check", "everything", "sequence"),
        ("--http", "aut", "unknown value; did you mean \"auto\"?"),
    ] {
        let place = format!("floodmark: {flag} {value}: ");
        one_line(&[&url, flag, value], &[&place, word]);
    }
    one_line(&[&url, "--rate", ""], &["floodmark: --rate \"\": "]);
}

#[test]
fn refuses_conflicting_flags() {
    let url = refusing();
    for (arguments, words) in [
        (&["--burst", "5"][..], ["--burst", "--within"]),
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
    one_line(
        &[&url, "--replay", "x", "--replay-speed", "0x"],
        &["--replay-speed 0x: ", "0.5x"],
    );
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
fn refuses_settings_that_conflict_with_the_version_of_http() {
    let url = refusing();
    let without = [
        ["--streams", "2"],
        ["--h2-window", "1MiB"],
        ["--h2-table", "0"],
    ];
    for [flag, value] in without {
        let fix = format!("add --http 2 or remove {flag}");
        one_line(&[&url, flag, value], &[flag, &fix]);
        one_line(&[&url, "--http", "1.1", flag, value], &[flag, &fix]);
    }
    let http2 = |arguments: &[&str], words: &[&str]| {
        let mut all = vec![url.as_str(), "--http", "2"];
        all.extend_from_slice(arguments);
        one_line(&all, words);
    };
    let closed = ["--close-first server", "--http 2", "--close-first client"];
    http2(&["--fresh", "--close-first", "server"], &closed);
    http2(
        &["--requests-per-connection", "9", "--close-first", "server"],
        &closed,
    );
    http2(
        &["--streams", "2", "--check", "sequence"],
        &["--check", "--streams 2", "use --streams 1"],
    );
    http2(
        &["--streams", "2", "--fresh"],
        &["--streams 2", "1 request", "use --streams 1"],
    );
    http2(
        &["--streams", "3", "--requests-per-connection", "2"],
        &["--streams 3", "2 requests", "use --streams 2"],
    );
    http2(
        &["-c", "10k", "--streams", "101"],
        &["--connections 10000", "--streams 101", "1,010,000"],
    );
}

#[test]
fn refuses_invalid_requests() {
    let url = refusing();
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let missing = missing.to_str().unwrap();
    for (arguments, word) in [
        (["-H", "a b: c"], "\"a b\""),
        (["-H", ": c"], "\"\""),
        (["-H", "a: b\r\nc: d"], "CR"),
        (["-H", "Content-Length: 5"], "Content-Length"),
        (["-H", "Transfer-Encoding: chunked"], "Transfer-Encoding"),
        (["-H", "Connection: close"], "use --fresh"),
        (["-X", "GET /"], "GET /"),
        (["--body-file", missing], missing),
        (["--body-file", "/"], "--body-file"),
        (["-c", "5000000000"], "1,000,000"),
        (["-t", "2000"], "1024"),
        (["-r", "2000M"], "nanosecond"),
        (
            ["--ramp", "1-2000M"],
            "--ramp: more than one request per nanosecond",
        ),
        (["--replay", missing], missing),
        (["--replay", "/"], "--replay /"),
    ] {
        one_line(&[&url, arguments[0], arguments[1]], &[word]);
    }
}

#[test]
fn refuses_a_body_that_names_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body.json");
    std::fs::write(&file, "{}").unwrap();
    let body = format!("@{}", file.display());
    let fix = format!("use --body-file {}", file.display());
    one_line(&[&refusing(), "-b", &body], &[&fix]);
}

#[test]
fn explains_flags_of_other_programs() {
    let url = refusing();
    for (flag, hint) in [
        ("--vus", "--connections"),
        ("--http2", "use --http 2"),
        ("--http3", "only HTTP/1.1 and HTTP/2"),
        ("--follow", "redirects are not followed"),
        ("-k", "--insecure"),
    ] {
        few_lines(&[&url, flag, "5"], &[flag, hint]);
    }
}

#[test]
fn refuses_impossible_schedules() {
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
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("times");
    let path = file.to_str().unwrap();
    for (content, place, mend) in [
        ("", "times: no timestamps", "one timestamp per line"),
        (
            "1\nsoon\n",
            "times:2: \"soon\" is not a timestamp",
            "1763741296.123",
        ),
        ("1\n-1\n", "times:2: \"-1\" is negative", "non-negative"),
        (
            "5\n4.5\n",
            "times:2: the timestamp is 500 ms before",
            "sort -n",
        ),
        (
            "1\n1e99\n",
            "times:2: \"1e99\" is not a timestamp",
            "seconds",
        ),
        (
            "1\n99999999999999\n",
            "times:2: \"99999999999999\" is too large",
            "--replay-unit",
        ),
        (
            "0\n99999999\n",
            "times:2: the timestamp is more than 31 days",
            "--replay-unit",
        ),
        ("\u{1b}[2J", "times:1: ", "is not a timestamp"),
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
fn refuses_output_files_that_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing/x");
    let missing = missing.to_str().unwrap();
    let url = refusing();
    for flag in ["--json", "--html", "--csv", "--hdr", "--junit"] {
        one_line(&[&url, flag, missing], &[flag, missing]);
        one_line(&[&url, flag, directory.path().to_str().unwrap()], &[flag]);
    }
    one_line(
        &["http://no-such-host.invalid/", "--json", missing],
        &["--json"],
    );
    std::fs::write(directory.path().join("events.jsonl"), "").unwrap();
    let taken = directory.path().to_str().unwrap();
    let json = directory.path().join("x.json");
    let json_name = json.to_str().unwrap();
    // Without io_uring, --backend auto prints an additional line.
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
        &["contains a result", "--out"],
    );
    assert!(!json.exists(), "a refused run must not leave an empty file");
}

#[test]
fn refuses_a_missing_tmpdir() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let mut command = floodmark(&["load", &refusing(), "-n", "1"]);
    let output = finish(command.env("TMPDIR", &missing).spawn().unwrap());
    let message = text(&output.stderr);
    assert_eq!(code(&output), 2, "{message}");
    assert!(
        message.contains("choose another directory with TMPDIR"),
        "{message}"
    );
    assert!(!missing.exists());
}

#[test]
fn refuses_public_addresses_without_the_flag() {
    // TEST-NET-1 (RFC 5737) is reserved for documentation. The test sends nothing.
    one_line(&["http://192.0.2.1/"], &["192.0.2.1", "--public"]);
    one_line(&["http://[2001:db8::1]/"], &["2001:db8::1", "--public"]);
}

#[test]
fn accepts_file_names_that_are_not_utf8() {
    let directory = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff.json");
    let json = directory.path().join(name);
    let mut command = floodmark(&["load", &refusing(), "-n", "1", "-q", "--json"]);
    let output = finish(command.arg(&json).spawn().unwrap());
    assert_eq!(code(&output), 3);
    valid(serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap());
}

#[test]
fn worker_refuses_an_invalid_plan() {
    let output = run(&["worker"]);
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 2);
    assert!(
        printed.contains("floodmark load") && printed.lines().count() == 1,
        "{printed}"
    );
}

#[test]
fn refuses_more_than_seven_days() {
    let url = refusing();
    for arguments in [
        &["-d", "1000000h"][..],
        &["--steps", "1:100h,2:100h"],
        &["--burst", "5", "--within", "169h"],
    ] {
        one_line(
            &[&[url.as_str()], arguments].concat(),
            &["7 days", "--anyway"],
        );
    }
    let output = run(&["load", &url, "-d", "169h", "--anyway", "-q"]);
    assert_eq!(code(&output), 3, "{output:?}");
}

#[test]
fn suggests_no_hidden_command() {
    let output = run(&["lod"]);
    let error = text(&output.stderr);
    assert_eq!(code(&output), 2);
    assert!(
        error.contains("'load'") && !error.contains("slow"),
        "{error}"
    );
}

#[test]
fn other_commands_state_the_range_of_a_number() {
    let of_run = &["run", "x"][..];
    let of_serve = &["serve", "hello"][..];
    let of_disk = &["disk", "--check", "sequence"][..];
    for (command, flag, value, told) in [
        (of_serve, "--threads", "0", "must be from 1 to 1,024"),
        (of_serve, "--threads", "-1", "must be from 1 to 1,024"),
        (of_serve, "--max-connections", "0", "must be at least 1"),
        (of_serve, "--max-connections", "-1", "must be at least 1"),
        (of_serve, "--reserve", "-1", "must be at least 1"),
        (of_serve, "--max-wait", "-1s", "negative"),
        (of_serve, "--idle", "-1s", "negative"),
        (of_run, "--attempts", "-1", "must be from 1 to 10,000"),
        (of_run, "--rounds", "-1", "must be from 1 to 10,000"),
        (of_run, "--processes", "1001", "must be from 1 to 1,000"),
        (of_run, "--duration", "-1s", "negative"),
        (of_disk, "--requests", "-1", "must be at least 1"),
        (of_disk, "--connections", "-1", "must be from 1 to 1,000"),
        (of_disk, "--images", "-1", "must be at least 1"),
        (of_disk, "--images-per-error", "-1", "must be at least 0"),
        (of_disk, "--seed", "-1", "must be an integer from 0"),
        (
            &["observe", "--out", "x"],
            "--port",
            "-1",
            "must be from 1 to 65,535",
        ),
        (
            &["why", "x", "--prove"],
            "--server-pid",
            "-1",
            "must be from 1 to",
        ),
    ] {
        let output = run(&[command, &[flag, value]].concat());
        let error = text(&output.stderr);
        assert_eq!(code(&output), 2, "{command:?} {flag} {value}");
        assert!(
            error.starts_with(&format!("floodmark: {flag} {value}: "))
                && error.contains(told)
                && error.lines().count() == 1,
            "{command:?} {flag} {value}: {error}"
        );
    }
}

#[test]
fn names_a_flag_without_a_value() {
    few_lines(&[&refusing(), "-q", "-1"], &["unexpected argument '-1'"]);
    few_lines(
        &[&refusing(), "-c", "-t", "1"],
        &["a value is required", "--connections"],
    );
}
