//! Tests of crash rounds with real servers.

use floodmark_record::Record;
use floodmark_record::crash::CrashResult;

use super::{ExperimentDirectory, leases, processes_of};
use crate::support::{run, signal, text, wait_for};

/// A server that counts in a file, with a fault.
const COUNTER: &str = include_str!("../../../../../experiments/crash-controls/counter.py");

const DURABLE: &str = "[[trial]]\nname = \"durable\"\nworkload = \"dispatcher\"\n\
    command = \"{floodmark} serve dispatcher --listen {host}:{port} --threads 1 --state {run}/numbers --reserve 64\"\n\
    load = { check = \"sequence\" }\n";

/// Returns an experiment with crash rounds after 100 ms to 300 ms of load.
pub(super) fn crashing(rounds: u32, more: &str, trials: &str) -> ExperimentDirectory {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"Does it lose data?\"\n[load]\nconnections = 4\nthreads = 1\ntimeout = \"500ms\"\n\
         [crash]\nrounds = {rounds}\nat = \"400ms-700ms\"\n{more}\n{trials}"
    ));
    std::fs::write(lab.0.path().join("counter.py"), COUNTER).unwrap();
    lab
}

/// Returns a trial of the Python server.
fn counter(workload: &str, fault: &str) -> String {
    let check = match workload {
        "dispatcher" => "sequence",
        other => other,
    };
    format!(
        "[[trial]]\nname = \"{fault}\"\nworkload = \"{workload}\"\nready = \"GET /\"\n\
         command = \"python3 counter.py {workload} {fault} {{run}}/count {{port}}\"\nload = {{ check = \"{check}\" }}\n"
    )
}

/// Checks that nothing is left behind.
pub(super) fn is_clean(lab: &ExperimentDirectory) {
    assert_eq!((processes_of(lab.0.path()), leases(lab)), (vec![], 0));
}

/// Returns the names of the response files in the result.
pub(super) fn responses(lab: &ExperimentDirectory) -> Vec<String> {
    let files = std::fs::read_dir(lab.result()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".bin")).collect();
    names.sort();
    names
}

pub(super) fn has_no_loss(trial: &CrashResult, rounds: u32, printed: &str) {
    assert_eq!(
        (trial.rounds, trial.lost, trial.losses.len()),
        (rounds, 0, 0),
        "{printed}"
    );
    assert_eq!(trial.upper_bound, Some((3.0 / f64::from(rounds)).min(1.0)));
    assert_eq!(trial.first_ok.count, rounds);
    assert!(trial.first_ok.min_ms.unwrap() > 0.0);
    assert!(trial.acknowledged > 0 && trial.requests.ok >= trial.acknowledged);
    assert_eq!(trial.requests.balance(), Ok(()));
}

#[test]
fn a_durable_dispatcher_loses_nothing() {
    let lab = crashing(4, "", DURABLE);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert!(record.runs.is_empty());
    let [trial] = &record.crash[..] else {
        panic!("{:?}", record.crash);
    };
    has_no_loss(trial, 4, &printed);
    assert!(trial.requests.reset > 0, "{:?}", trial.requests);
    assert_eq!(trial.check, "sequence");
    assert!(
        printed.contains("durable: no loss in 4 crash rounds (SIGKILL to the server)"),
        "{printed}"
    );
    assert_eq!(responses(&lab), [""; 0]);
    is_clean(&lab);
}

#[test]
fn a_server_without_state_loses_data_in_every_round() {
    let no_state = DURABLE.replace(" --state {run}/numbers --reserve 64", "");
    let no_state = no_state.replace("durable", "no-state");
    for (expect, expected) in [("", 1), ("[expect]\ncheck = \"violated\"\n", 0)] {
        let lab = crashing(2, "", &(no_state.clone() + expect));
        let (code, record, printed) = lab.run(&[]);
        assert_eq!(code, expected, "{printed}");
        let trial = &record.crash[0];
        assert_eq!((trial.rounds, trial.lost), (2, 2), "{printed}");
        assert_eq!(trial.upper_bound, Some(1.0));
        let loss = &trial.losses[0];
        assert!(
            loss.violations[0].starts_with("the restart lost "),
            "{loss:?}"
        );
        assert_eq!((loss.round, loss.recovered), (1, Some(0)), "{loss:?}");
        assert_eq!(
            responses(&lab),
            ["crash-no-state-1.bin", "crash-no-state-2.bin"]
        );
        assert!(
            printed.contains("crash round 1 lost data: the restart lost"),
            "{printed}"
        );
        let summary = "no-state: 2 of 2 crash rounds lost data, first in round 1: the restart lost";
        assert_eq!(printed.contains(summary), expected == 1, "{printed}");
        let result = lab.result();
        let csv = run(&["report", result.to_str().unwrap(), "--csv", "-"]);
        let printed = text(&csv.stderr);
        let words = "--csv: the result has crash rounds but no runs; use --html or --json";
        assert!(printed.contains(words), "{printed}");
    }
}

#[test]
fn finds_servers_that_forget_or_acknowledge_too_early() {
    let trials = counter("dispatcher", "forgets")
        + &counter("scoring", "early")
        + &counter("scoring", "none");
    let lab = crashing(2, "", &trials);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 1, "{printed}");
    let [forgets, early, durable] = &record.crash[..] else {
        panic!("{:?}", record.crash);
    };
    assert_eq!((forgets.rounds, forgets.lost), (2, 2), "{printed}");
    assert!(early.lost > 0, "{printed}");
    let violation = &early.losses[0].violations[0];
    assert!(
        violation.starts_with("the restart lost") && violation.contains("scores"),
        "{violation}"
    );
    has_no_loss(durable, 2, &printed);
    is_clean(&lab);
}

#[test]
fn expects_a_loss_of_each_trial_with_an_expected_violation() {
    let expect = "[expect]\ncheck = \"violated\"\n";
    let lab = crashing(1, "", &(counter("dispatcher", "none") + expect));
    let (code, _, printed) = lab.run(&[]);
    assert_eq!(code, 1, "{printed}");
    assert!(
        printed
            .contains("none: none of 1 crash rounds lost data, but the experiment expects a loss"),
        "{printed}"
    );
}

#[test]
fn terminates_or_stops_the_server() {
    for (signal, name) in [("TERM", "SIGTERM"), ("STOP", "SIGSTOP")] {
        let lab = crashing(2, &format!("signal = \"{signal}\""), DURABLE);
        let (code, record, printed) = lab.run(&[]);
        assert_eq!(code, 0, "{printed}");
        let trial = &record.crash[0];
        has_no_loss(trial, 2, &printed);
        assert!(printed.contains(name), "{printed}");
        if signal == "STOP" {
            // Each connection waits for one response until the timeout.
            assert!(trial.requests.timed_out > 0, "{:?}", trial.requests);
            assert!(trial.unknown > 0);
        }
        is_clean(&lab);
    }
}

#[test]
fn reports_a_server_that_does_not_start_again() {
    let lab = crashing(3, "", &counter("dispatcher", "refuses"));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    assert!(
        printed.contains(
            "refuses: the server exited after the restart (exit status: 1): \"the state is damaged\"; see "
        ),
        "{printed}"
    );
    assert_eq!(
        (record.crash[0].rounds, record.crash[0].upper_bound),
        (0, None)
    );
    is_clean(&lab);
}

#[test]
fn quotes_only_the_restarted_server_if_it_is_silent() {
    let trial = "[[trial]]\nname = \"silent\"\nsystem = \"silent\"\nworkload = \"dispatcher\"\n\
        load = { check = \"sequence\" }\n";
    let lab = crashing(1, "", trial);
    let system = lab.system(
        "silent",
        "name = \"silent\"\nworkloads = [\"dispatcher\"]\n[start]\n\
         command = \"sh start.sh {floodmark} {run} {host}:{port}\"\nready-within = \"2s\"\n",
    );
    let script = "[ -e $2/started ] && exec sleep 60\n\
        echo once >&2; touch $2/started; exec $1 serve dispatcher --listen $3 --threads 1\n";
    std::fs::write(system.join("start.sh"), script).unwrap();
    let (code, _, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    let expected = "silent: no ok response within 2 s after the restart of the server; see ";
    assert!(printed.contains(expected), "{printed}");
    // The round was not judged.
    let (_, row) = printed.split_once("\nsilent  ").unwrap();
    let row = row.lines().next().unwrap();
    assert!(row.trim_end().ends_with("–        –"), "{printed}");
    is_clean(&lab);
}

/// A store that appends a byte to a file for each request, and returns the file's length.
const STORE: &str = r#"
import os, socketserver, sys, threading
lock = threading.Lock()
file = os.open(os.path.join(sys.argv[2], 'count'), os.O_RDWR | os.O_CREAT | os.O_APPEND)
if sys.argv[3] == 'empties':
    os.truncate(file, 0)
class Next(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            with lock:
                os.write(file, b'x')
                n = os.fstat(file).st_size
            self.wfile.write(b'%d\n' % n)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(('127.0.0.1', int(sys.argv[1])), Next).serve_forever()
"#;

/// A dispatcher that gets its numbers from the store, through a new connection for each number.
const SERVER: &str = r#"
import http.server, socket, sys
host, port = sys.argv[2].split(':')
class Dispatcher(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    def log_message(self, *args): pass
    def number(self):
        try:
            with socket.create_connection((host, int(port))) as store:
                store.sendall(b'next\n')
                return store.makefile().readline().strip().encode()
        except OSError:
            return b''
    def do_GET(self):
        body = self.number()
        self.send_response(200 if body else 503)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Dispatcher).serve_forever()
"#;

#[test]
fn kills_the_store() {
    for (fault, expected) in [("none", 0), ("empties", 1)] {
        let trial = format!(
            "[[trial]]\nname = \"stored\"\nsystem = \"stored\"\nworkload = \"dispatcher\"\n\
             store = {{ name = \"count\", setting = {{ fault = \"{fault}\" }} }}\nload = {{ check = \"sequence\" }}\n"
        );
        let lab = crashing(2, "kill = \"store\"", &trial);
        let store = lab.store(
            "count",
            "name = \"count\"\n[start]\ncommand = \"python3 store.py {port} {data} {fault}\"\n\
             [knobs]\nfault = { default = \"none\" }\n",
        );
        std::fs::write(store.join("store.py"), STORE).unwrap();
        let system = lab.system(
            "stored",
            "name = \"stored\"\nworkloads = [\"dispatcher\"]\n[start]\ncommand = \"python3 server.py {port} {store}\"\n",
        );
        std::fs::write(system.join("server.py"), SERVER).unwrap();
        let (code, record, printed) = lab.run(&[]);
        assert_eq!(code, expected, "{printed}");
        let trial = &record.crash[0];
        assert_eq!(trial.rounds, 2, "{printed}");
        match expected {
            0 => has_no_loss(trial, 2, &printed),
            _ => assert_eq!(trial.lost, 2, "{printed}"),
        }
        assert!(printed.contains("(SIGKILL to the store)"), "{printed}");
        is_clean(&lab);
    }
}

/// Kills floodmark after the second round, and resumes the experiment.
fn killed_and_resumed(lab: &ExperimentDirectory) -> (i32, Record, String) {
    let mut child = lab.start(&["--quiet"]);
    wait_for("the second round", || {
        (lab.count("crash_round") >= 2).then_some(())
    });
    signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    lab.ended(lab.begin("--resume", &[]))
}

#[test]
fn resumes_after_the_last_complete_round() {
    let lab = crashing(4, "", DURABLE);
    let (code, record, printed) = killed_and_resumed(&lab);
    assert_eq!(code, 0, "{printed}");
    has_no_loss(&record.crash[0], 4, &printed);
    assert_eq!(lab.count("crash_round"), 4);
    assert!(printed.contains("interrupted; resumed once"), "{printed}");
    is_clean(&lab);

    // A complete result leaves nothing to do.
    let (code, again, printed) = lab.ended(lab.begin("--resume", &[]));
    assert_eq!((code, again.crash), (0, record.crash), "{printed}");
}

#[test]
fn changes_the_number_of_rounds() {
    let lab = crashing(9, "", DURABLE);
    let (code, record, printed) = lab.run(&["--rounds", "1"]);
    assert_eq!(code, 0, "{printed}");
    has_no_loss(&record.crash[0], 1, &printed);
}
