//! Tests of `--check FILE` with a correct CRUD server and with servers that have one fault each.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{
    PythonServer, code, finish, floodmark, folded, load, run, signal, start_load, text, valid,
};

/// Server that stores items, a set and counters. Arguments: fault, port.
const SERVER: &str = r#"
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

fault = sys.argv[1]
lock = threading.Lock()
items, old, names, late, counters, writes = {}, {}, [], [], {}, 0

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    disable_nagle_algorithm = True

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition('?')
        if path == '/set':
            page = int(query.removeprefix('page='))
            if fault == 'unavailable':
                return self.answer(503, {})
            if fault == 'endless' and names:
                return self.answer(200, {'data': [{'name': page}]})
            if fault == 'stuck' and names:
                time.sleep(60)
        with lock:
            if path == '/set':
                if page == 2:
                    names[:0], late[:] = late[:], []
                if fault == 'changing' and names:
                    names[0] = int(names[0]) + 1000
                return self.answer(200, {'data': [{'name': n} for n in names[100 * page - 100:100 * page]]})
            source = old if fault == 'stale' and writes % 7 == 0 else items
            source = counters if path.startswith('/counter') else source
            if path not in source:
                return self.answer(404, {})
            self.answer(200, {'value': source[path]})

    def do_PUT(self):
        self.write(lambda value: (old.update({self.path: items.get(self.path, value)}), items.update({self.path: value})))

    def do_POST(self):
        if self.path == '/set':
            return self.write(names.append)
        self.write(lambda _: counters.update({self.path: counters.get(self.path, 0) + 1}))

    def write(self, store):
        global writes
        value = json.loads(self.rfile.read(int(self.headers.get('Content-Length', 0))) or '{}').get('value')
        with lock:
            writes += 1
            # The check finds a lost write only if a read follows before the next write.
            due = writes % (5 if self.path.startswith('/items') else 50) == 0
            if due and fault == 'late':
                late.append(value)
            elif not (due and fault == 'lost'):
                store(value)
            if due and fault == 'twice':
                store(value)
            answer = counters.get(self.path)
        if due and fault in ('silent', 'late'):
            self.close_connection = True
            return
        status = {'failing': 500, 'refusing': 409}.get(fault) if due else 200
        self.answer(status or 200, {'value': answer})

    def log_message(self, *_):
        pass

ThreadingHTTPServer.request_queue_size = 200
server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

const SET: &str = r#"
kind = "set"
write = { path = "/set", body = '{"value": "{seq}"}' }
readback = { path = "/set?page={page}", items = "/data", value = "/name" }
"#;

const REGISTER: &str = r#"
kind = "register"
keys = 3
write = { method = "PUT", path = "/items/{key}", body = '{"value": {seq}}' }
read = { path = "/items/{key}", value = "/value", weight = 2 }
"#;

const COUNTER: &str = r#"
kind = "counter"
keys = 2
write = { path = "/counter/{key}", value = "/value" }
"#;

const READ_COUNTER: &str = r#"
kind = "counter"
write = { path = "/counter" }
read = { path = "/counter", value = "/value" }
"#;

/// Writes a check file into a temporary directory.
fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("check.toml");
    std::fs::write(&path, content).unwrap();
    (directory, path)
}

/// Returns the detail and the history of the check after 600 requests to a server with a fault.
fn checked(fault: &str, content: &str, held: bool) -> (String, Vec<String>) {
    let server = PythonServer::start(SERVER, &[fault]);
    let (_directory, path) = file(content);
    let check = path.to_str().unwrap();
    let arguments = [
        "-n",
        "600",
        "-c",
        "8",
        "-t",
        "2",
        "--timeout",
        "2s",
        "--check",
        check,
    ];
    let load = load(&server.url, &arguments);
    let result = load.run().checks[0].clone();
    assert_eq!(result.held, Some(held), "{fault}: {result:#?}");
    load.ends_with(i32::from(!held));
    assert_eq!(load.run().plan.mix.as_ref().unwrap().file, "check.toml");
    if !held {
        let printed = load.stderr();
        let words = format!("check {} failed: ", result.name);
        assert!(
            printed.lines().last().unwrap().contains(&words),
            "{printed}"
        );
    }
    let again = folded(&load.directory.path().join("result"));
    assert_eq!(again.runs[0].checks, load.run().checks);
    (result.detail, result.history)
}

#[test]
fn a_correct_server_passes() {
    for (content, words) in [
        (
            SET,
            "600 acknowledged items: each found once, and no other item",
        ),
        (REGISTER, " of 3 keys: linearizable"),
        (COUNTER, "600 increments of 2 counters: "),
        (READ_COUNTER, "300 increments of 1 counter: "),
    ] {
        let (detail, history) = checked("none", content, true);
        assert!(detail.contains(words), "{detail}");
        assert!(history.is_empty());
    }
}

#[test]
fn finds_lost_writes() {
    for (content, words) in [
        (SET, "12 of 600 acknowledged items lost (first: 50, "),
        (REGISTER, "key "),
        (COUNTER, " more than once ("),
        (READ_COUNTER, "key 1: "),
    ] {
        let (detail, history) = checked("lost", content, false);
        // Numbers and order of concurrent requests differ between runs.
        let words = words.split(" (first").next().unwrap();
        assert!(detail.contains(words), "{detail}");
        assert!(
            history.iter().any(|line| line.starts_with('>')),
            "{history:#?}"
        );
    }
}

#[test]
fn finds_stale_reads() {
    let (detail, history) = checked("stale", REGISTER, false);
    assert!(detail.contains(": a read returned "), "{detail}");
    assert!(detail.contains(" had replaced it"), "{detail}");
    let read = |line: &&String| line.starts_with('>') && line.contains(": read ");
    assert!(history.iter().any(|line| read(&line)), "{history:#?}");
    assert!(
        history.iter().any(|line| line.contains(": write ")),
        "{history:#?}"
    );
}

#[test]
fn finds_writes_that_the_server_had_refused_or_executed_twice() {
    let (detail, _) = checked("refusing", SET, false);
    let words = "12 items found although the server had refused the insert (";
    assert!(detail.contains(words), "{detail}");
    let (detail, _) = checked("twice", SET, false);
    assert!(
        detail.contains("12 items found more than once ("),
        "{detail}"
    );
    let (detail, _) = checked("twice", READ_COUNTER, false);
    assert!(detail.contains(" instead of at most "), "{detail}");
}

#[test]
fn accepts_unknown_outcomes() {
    for fault in ["failing", "silent"] {
        for content in [SET, REGISTER, COUNTER, READ_COUNTER] {
            let (detail, _) = checked(fault, content, true);
            let is_set = content == SET;
            let words = "12 items with an unknown outcome, of which 12 found";
            assert!(!is_set || detail.contains(words), "{detail}");
        }
    }
}

#[test]
fn an_insert_between_two_pages_is_no_violation() {
    let (detail, _) = checked("late", SET, true);
    let words = "12 items with an unknown outcome, of which 12 found";
    assert!(detail.contains(words), "{detail}");
}

#[test]
fn covers_all_attempts_and_the_warm_up() {
    let server = PythonServer::start(SERVER, &["none"]);
    for content in [SET, REGISTER] {
        let (_directory, path) = file(content);
        let check = path.to_str().unwrap();
        let arguments = [
            "-n",
            "100",
            "-c",
            "4",
            "--warmup",
            "100ms",
            "--attempts",
            "2",
            "--check",
            check,
        ];
        let load = load(&server.url, &arguments);
        load.ends_with(0);
        let [first, second] = &load.record.runs[..] else {
            panic!("{:?}", load.record.runs);
        };
        assert_eq!(
            [first.checks[0].held, second.checks[0].held],
            [Some(true); 2]
        );
        assert_ne!(first.checks, second.checks);
    }
    let (_directory, path) = file(SET);
    let check = path.to_str().unwrap();
    let output = run(&["load", &server.url, "-n", "10", "--check", check]);
    assert_eq!(code(&output), 2, "{output:?}");
    let printed = text(&output.stderr);
    let words = "GET /set?page=1: the set already has 100 items; start with an empty set";
    assert!(printed.contains(words), "{printed}");
}

#[test]
fn sends_no_load_if_the_set_cannot_be_read_back() {
    let (_directory, path) = file(SET);
    let check = path.to_str().unwrap();
    let server = PythonServer::start(SERVER, &["unavailable"]);
    let load = load(&server.url, &["-n", "10", "--check", check]);
    load.ends_with(3);
    assert!(load.record.runs.is_empty());
    let printed = load.stderr();
    let words = "GET /set?page=1: status 503; the server must return the items with status 200";
    assert!(printed.contains(words), "{printed}");
    drop(server);
    let absent = run(&["load", "http://127.0.0.1:9", "-n", "10", "--check", check]);
    assert_eq!(code(&absent), 3, "{absent:?}");
    let printed = text(&absent.stderr);
    let words = "GET /set?page=1: connection refused; start the server, or correct its address";
    assert!(printed.contains(words), "{printed}");
    let (_directory, path) = file(&SET.replace("\"/data\"", "\"\""));
    let server = PythonServer::start(SERVER, &["none"]);
    let check = path.to_str().unwrap();
    let output = run(&["load", &server.url, "-n", "10", "--check", check]);
    assert_eq!(code(&output), 3, "{output:?}");
    let printed = text(&output.stderr);
    assert!(printed.contains("such as \"/data\""), "{printed}");
}

#[test]
fn ends_the_read_back_of_an_endless_or_silent_set() {
    for (fault, words) in [
        (
            "endless",
            "but at most 20 were sent; make the server return an empty page",
        ),
        ("stuck", "GET /set?page=1: no response within 1 s"),
        ("changing", "the items were still changing after 1 s"),
    ] {
        let server = PythonServer::start(SERVER, &[fault]);
        let (_directory, path) = file(SET);
        let check = path.to_str().unwrap();
        let arguments = ["-n", "20", "--timeout", "1s", "--check", check];
        let load = load(&server.url, &arguments);
        load.ends_with(1);
        let detail = &load.run().checks[0].detail;
        assert!(detail.contains(words), "{detail}");
    }
}

#[test]
fn an_interrupted_read_back_keeps_the_result() {
    let server = PythonServer::start(SERVER, &["stuck"]);
    let (_directory, path) = file(SET);
    let check = path.to_str().unwrap();
    let arguments = ["-n", "20", "--timeout", "30s", "--check", check];
    let load = start_load(&server.url, &arguments);
    load.wait_for("\"event\":\"end\"");
    let begin = Instant::now();
    signal(load.pid(), libc::SIGINT);
    let load = load.end();
    assert!(begin.elapsed() < Duration::from_secs(10));
    load.ends_with(130);
    assert_eq!(load.counts().ok, 20);
    let check = &load.run().checks[0];
    let words = "the load is complete, but reading the items back was interrupted";
    assert!(
        check.held.is_none() && check.detail.starts_with(words),
        "{check:?}"
    );
}

#[test]
fn an_interrupted_first_read_writes_the_requested_files() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (directory, path) = file(SET);
    let json = directory.path().join("record.json");
    let (check, json) = (path.to_str().unwrap(), json.to_str().unwrap());
    let load = floodmark(&["load", &url, "--check", check, "--json", json]).spawn();
    let (load, connection) = (load.unwrap(), silent.accept());
    signal(load.id(), libc::SIGINT);
    let output = finish(load);
    drop(connection);
    assert_eq!(code(&output), 130);
    let printed = text(&output.stderr);
    let words = "interrupted before the load, while --check was reading the set; no result";
    assert!(printed.contains(words), "{printed}");
    let record = valid(serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap());
    assert!(record.runs.is_empty());
    assert_eq!(record.skipped, [words]);
}

#[test]
fn a_wrong_location_of_the_value_is_named() {
    let [register, counter, set] = [
        REGISTER.replace("/value\", weight", "/valu\", weight"),
        COUNTER.replace("\"/value\"", "\"/valu\""),
        SET.replace("\"/name\"", "\"/nam\""),
    ];
    for (content, words) in [
        (register, "check.toml:5: read.value \"/valu\": "),
        (
            counter,
            "check.toml:4: write.value \"/valu\": 30 responses with status 2xx or 3xx have no integer ",
        ),
        (
            set,
            "check.toml:4: readback.value \"/nam\": no item has an integer at this JSON pointer (items found: 30); ",
        ),
    ] {
        let server = PythonServer::start(SERVER, &["none"]);
        let (_directory, path) = file(&content);
        let arguments = ["-n", "30", "-c", "1", "--check", path.to_str().unwrap()];
        let load = load(&server.url, &arguments);
        load.ends_with(1);
        let check = &load.run().checks[0];
        assert!(check.held.is_none(), "{check:?}");
        assert!(check.detail.starts_with(words), "{}", check.detail);
        assert!(check.detail.ends_with("; correct the pointer"));
    }
}

#[test]
fn shows_the_history_in_the_summary() {
    let server = PythonServer::start(SERVER, &["lost"]);
    let (_directory, path) = file(SET);
    let output = run(&[
        "load",
        &server.url,
        "-n",
        "100",
        "-c",
        "1",
        "--check",
        path.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 1);
    let printed = text(&output.stdout);
    assert!(
        printed.contains("set violated: 2 of 100 acknowledged items lost (50, 100)"),
        "{printed}"
    );
    assert!(
        printed
            .lines()
            .any(|line| line.trim_start().starts_with("> ") && line.contains("insert 50")),
        "{printed}"
    );
}

#[test]
fn refuses_invalid_files_and_conflicting_flags() {
    let (_directory, path) = file(REGISTER);
    let check = path.to_str().unwrap();
    for (arguments, words) in [
        (
            &["http://127.0.0.1:9/items", "--check", check][..],
            "takes the paths from the check file",
        ),
        (
            &["http://127.0.0.1:9", "--check", check, "-X", "PUT"],
            "--method conflicts with --check",
        ),
        (
            &["http://127.0.0.1:9", "--check", check, "-b", "x"],
            "--body conflicts with --check",
        ),
        (
            &["http://127.0.0.1:9", "--check", check, "--body-file", check],
            "--body-file conflicts with --check",
        ),
        (
            &["http://127.0.0.1:9", "--check", "missing.toml"],
            "--check missing.toml: ",
        ),
        (
            &["http://127.0.0.1:9", "--check", "sequense"],
            "did you mean \"sequence\"?",
        ),
    ] {
        let output = run(&[&["load"], arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        let printed = text(&output.stderr);
        assert!(printed.contains(words), "{printed}");
    }
    let write = REGISTER.replace("/items/{key}\", body", "items/{key}\", body");
    let readback = SET.replace("/set?page", "set?page");
    for (content, name) in [(write, "write"), (readback, "readback")] {
        let (_directory, path) = file(&content);
        let check = path.to_str().unwrap();
        let output = run(&["load", "http://127.0.0.1:9", "--check", check]);
        assert_eq!(code(&output), 2);
        let printed = text(&output.stderr);
        let words = format!("check.toml:4: the request \"{name}\": ");
        assert!(printed.contains(&words), "{printed}");
    }
}
