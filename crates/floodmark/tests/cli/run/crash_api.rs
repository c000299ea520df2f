//! Tests of crash rounds with check files and real servers.

use std::collections::BTreeSet;

use super::ExperimentDirectory;
use super::crash::{crashing, has_no_loss, is_clean, responses};
use crate::support::{signal, wait_for};

/// A server with a set and registers. It appends each write as a line to one file, and reads its
/// port from another file. With the fault `late`, it appends each line 10 writes late. If the fault
/// is a number N, the Nth process refuses all writes.
const SERVER: &str = r#"
import http.server, json, os, sys
from threading import Lock
fault, path, port = sys.argv[1:]
lock, unwritten = Lock(), []
items, registers = [], {}
file = os.open(path, os.O_RDWR | os.O_APPEND)
with open(path + '.starts', 'a') as starts:
    starts.write('.')
    starts.flush()
    refuses = fault == str(starts.tell())
def apply(place, value):
    items.append({'name': value}) if place == '/items' else registers.update({place: {'value': value}})
for line in open(path):
    apply(*line.split())
class Crud(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    disable_nagle_algorithm = True
    def log_message(self, *args): pass
    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        with lock:
            value = items if self.path == '/items' else registers.get(self.path)
            self.answer(404 if value is None else 200, value)
    def do_POST(self):
        value = self.rfile.read(int(self.headers['Content-Length'])).decode()
        if refuses:
            return self.answer(503, {})
        with lock:
            unwritten.append(f'{self.path} {value}\n'.encode())
            if fault != 'late' or len(unwritten) > 10:
                os.write(file, unwritten.pop(0))
            apply(self.path, value)
        self.answer(201, {})
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 100
Server(('127.0.0.1', int(open(port).read())), Crud).serve_forever()
"#;

const SET: &str = r#"
kind = "set"
write = { method = "POST", path = "/items", body = "{seq}" }
readback = { path = "/items", value = "/name" }
"#;

const REGISTER: &str = r#"
kind = "register"
keys = 3
write = { method = "POST", path = "/registers/{key}", body = "{seq}" }
read = { path = "/registers/{key}", value = "/value", weight = 9 }
"#;

/// Returns an experiment with a server that starts with two items, and a trial per check.
fn experiment(rounds: u32, fault: &str, checks: &[&str]) -> ExperimentDirectory {
    let trial = |check: &&str| {
        format!(
            "[[trial]]\nname = \"{check}\"\nsystem = \"crud\"\nload = {{ check = \"{check}.toml\" }}\n"
        )
    };
    let trials: String = checks.iter().map(trial).collect();
    let lab = crashing(rounds, "", &trials);
    std::fs::write(lab.0.path().join("set.toml"), SET).unwrap();
    std::fs::write(lab.0.path().join("register.toml"), REGISTER).unwrap();
    let manifest = format!(
        "name = \"crud\"\nworkloads = []\n[start]\nready = \"GET /items\"\nfiles = [\"state\", \"port\"]\n\
         command = \"python3 server.py {fault} {{run}}/state {{run}}/port\"\n"
    );
    let system = lab.system("crud", &manifest);
    std::fs::write(system.join("server.py"), SERVER).unwrap();
    std::fs::write(system.join("state"), "/items 1\n/items 70\n").unwrap();
    std::fs::write(system.join("port"), "{port}").unwrap();
    lab
}

#[test]
fn a_server_that_writes_before_it_responds_loses_nothing() {
    let lab = experiment(3, "none", &["set", "register"]);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let [set, register] = &record.crash[..] else {
        panic!("{:?}", record.crash);
    };
    for (trial, check) in [(set, "set"), (register, "register")] {
        has_no_loss(trial, 3, &printed);
        assert_eq!(trial.check, check);
    }
    assert_eq!(responses(&lab), [""; 0]);
    is_clean(&lab);
}

#[test]
fn finds_the_writes_that_a_server_loses() {
    let lab = experiment(3, "late", &["set", "register"]);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 1, "{printed}");
    let [set, register] = &record.crash[..] else {
        panic!("{:?}", record.crash);
    };
    assert_eq!((set.rounds, set.lost), (3, 3), "{printed}");
    assert_eq!(set.upper_bound, Some(1.0));
    for loss in &set.losses {
        // Up to 4 of the 10 lost items were in flight. Each round reports only its own loss.
        let [violation] = &loss.violations[..] else {
            panic!("{loss:?}");
        };
        let count: u64 = violation.split(' ').next().unwrap().parse().unwrap();
        assert!((6..=10).contains(&count), "{violation}");
        assert!(
            violation.contains(" acknowledged items lost (first: "),
            "{violation}"
        );
        assert!(
            loss.acknowledged > 0 && loss.recovered.is_none(),
            "{loss:?}"
        );
    }
    assert!(register.lost > 0, "{printed}");
    let loss = &register.losses[0];
    assert!(
        loss.violations[0].contains("not linearizable; first violation: key "),
        "{loss:?}"
    );
    for trial in [set, register] {
        let history = &trial.losses[0].history;
        let marked = history.iter().find(|line| line.starts_with('>')).unwrap();
        let words: Vec<&str> = marked.split_whitespace().collect();
        assert!(printed.contains(&words[..5].join(" ")), "{printed}");
    }
    let files = responses(&lab).len() as u32;
    assert_eq!(files, set.lost + register.lost);
    is_clean(&lab);
}

#[test]
fn a_round_without_acknowledged_writes_does_not_count() {
    let lab = experiment(2, "2", &["register"]);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let register = &record.crash[0];
    assert_eq!(
        (register.rounds, register.inconclusive),
        (2, 1),
        "{printed}"
    );
    let words =
        "register: no loss in 1 crash round (SIGKILL to the server); 1 more round was inconclusive";
    let unwrapped: Vec<&str> = printed.split_whitespace().collect();
    assert!(unwrapped.join(" ").contains(words), "{printed}");
    // If the first round is inconclusive, the load is probably wrong, so the trial ends.
    let lab = experiment(2, "1", &["register"]);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!((code, record.crash[0].rounds), (3, 0), "{printed}");
    let words =
        "crash round 1: inconclusive: no key with an acknowledged write was read after the restart";
    assert!(printed.contains(words), "{printed}");
    is_clean(&lab);
}

#[test]
fn continues_on_the_state_of_an_interrupted_round() {
    for (check, place) in [("set", "/items"), ("register", "/registers/")] {
        let lab = experiment(2, "none", &[check]);
        let path = lab.result().join(format!("{check}-1/state"));
        let state = || std::fs::read_to_string(&path).unwrap_or_default();
        let mut before = state();
        for (complete, flag) in [(0, "--out"), (1, "--resume")] {
            let mut child = lab.begin(flag, &["--quiet"]);
            wait_for("writes of the next round", || {
                let written = state().len() > before.len() + 500;
                (written && lab.count("crash_round") == complete).then_some(())
            });
            signal(child.id(), libc::SIGKILL);
            child.wait().unwrap();
            let after = state();
            assert!(
                after.starts_with(&before),
                "{check}: the state was replaced"
            );
            before = after;
        }
        let (code, record, printed) = lab.ended(lab.begin("--resume", &[]));
        assert_eq!(code, 0, "{printed}");
        has_no_loss(&record.crash[0], 2, &printed);
        let after = state();
        assert!(
            after.starts_with(&before),
            "{check}: the state was replaced"
        );
        let mut values = BTreeSet::new();
        for line in after.lines().filter(|line| line.starts_with(place)) {
            let value: i32 = line.split(' ').nth(1).unwrap().parse().unwrap();
            assert!(values.insert(value), "{check}: {line} was written twice");
        }
        is_clean(&lab);
    }
}
