//! Tests of experiments with stores behind the servers.

use std::path::Path;

use super::{ExperimentDirectory, leases, processes_of};
use crate::support::{alive, code, finish, text, wait_for};

/// A store that keeps a counter in a data file.
const STORE: &str = r#"
import os, signal, socketserver, sys, threading, time
count = os.path.join(sys.argv[2], 'count')
assert not os.listdir(sys.argv[2]), 'the data directory is not empty'
lock = threading.Lock()
class Next(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            with lock:
                n = int(open(count).read()) + 1 if os.path.exists(count) else 1
                open(count, 'w').write(str(n))
            self.wfile.write(b'%d\n' % n)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
if len(sys.argv) > 3 and sys.argv[3] != 'never':
    def die():
        print('disk full', flush=True)
        if sys.argv[3].startswith('k'): os.kill(os.getpid(), signal.SIGKILL)
        os._exit(9)
    threading.Timer(float(sys.argv[3].lstrip('k')), die).start()
Server(('127.0.0.1', int(sys.argv[1])), Next).serve_forever()
"#;

/// A server that returns consecutive numbers from the store.
const SERVER: &str = r#"
import http.server, socket, sys
host, port = sys.argv[2].split(':')
class Dispatcher(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    def log_message(self, *args): pass
    def setup(self):
        super().setup()
        self.store = socket.create_connection((host, int(port))).makefile('rw')
    def do_GET(self):
        self.store.write('next\n')
        self.store.flush()
        body = self.store.readline().strip().encode()
        self.send_response(200 if body else 503)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Dispatcher).serve_forever()
"#;

/// Returns an experiment with the store `count` and a server that uses this store.
fn lab(experiment: &str) -> ExperimentDirectory {
    let lab = ExperimentDirectory::new(experiment);
    let store = lab.0.path().join("stores/count");
    std::fs::create_dir_all(&store).unwrap();
    std::fs::write(store.join("store.py"), STORE).unwrap();
    std::fs::write(
        store.join("store.toml"),
        "name = \"count\"\n[build]\ncommand = \"sh -c 'echo built >> built'\"\ninputs = [\"store.py\"]\n\
         [start]\ncommand = \"python3 store.py {port} {data} {dies-after}\"\n[knobs]\ndies-after = { default = \"never\" }\n",
    )
    .unwrap();
    let system = lab.system(
        "counted",
        "name = \"counted\"\nworkloads = [\"dispatcher\"]\n[start]\ncommand = \"python3 server.py {port} {store}\"\n",
    );
    std::fs::write(system.join("server.py"), SERVER).unwrap();
    lab
}

fn trial(name: &str, store: &str, more: &str) -> String {
    format!(
        "[[trial]]\nname = \"{name}\"\nsystem = \"counted\"\nworkload = \"dispatcher\"\nstore = {{ {store} }}\n{more}\n"
    )
}

const HEAD: &str =
    "question = \"?\"\n[load]\nconnections = 2\nduration = \"500ms\"\ncheck = \"sequence\"\n";

/// Counts the data directories of all stores.
fn data_directories(lab: &ExperimentDirectory) -> usize {
    let directories = std::fs::read_dir(lab.0.path().join("tmp")).unwrap();
    let stores = directories.filter_map(|entry| {
        let stores = entry.unwrap().path().join("stores");
        std::fs::read_dir(stores).ok()
    });
    stores.map(Iterator::count).sum()
}

fn nothing_is_left(lab: &ExperimentDirectory) {
    assert_eq!(processes_of(lab.0.path()), [0; 0]);
    assert_eq!((leases(lab), data_directories(lab)), (0, 0));
}

#[test]
fn each_server_process_has_an_empty_store_and_its_delay() {
    let lab = lab(&format!(
        "{HEAD}[place]\nprocesses = 2\n{}{}{}",
        trial("direct", "name = \"count\"", ""),
        trial("through", "name = \"count\", delay = \"0s\"", ""),
        trial("far", "name = \"count\", delay = \"40ms\"", ""),
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.runs.len(), 6, "{printed}");
    for run in &record.runs {
        assert!(run.requests.ok > 0, "{printed}");
        // An empty store starts at 1, and the probe takes this number.
        let check = &run.checks[0];
        let numbers = check.detail.split_once(" numbers from ").unwrap().1;
        let first: u64 = numbers.split(' ').next().unwrap().parse().unwrap();
        assert!(check.held == Some(true) && first < 10, "{check:?}");
        let store = run.place.as_ref().unwrap().store.as_ref().unwrap();
        assert_eq!((store.name.as_str(), store.started), ("count", true));
        // The store's processes are monitored both with and without a proxy.
        let used = run.store.as_ref().unwrap();
        assert!(used.seen.name.starts_with("python"), "{used:?}");
        // The CPU time of the store may be less than one tick of 10 ms.
        let on_cpu = used.seen.threads.iter().any(|t| t.on_cpu_s > 0.0);
        assert!(on_cpu && used.wall_s > 0.4, "{used:?}");
        let server = run.server.as_ref().unwrap();
        assert_ne!(used.seen.pids, server.seen.pids);
        let p50_ms = run.service_time_us.p50.unwrap() / 1e3;
        match run.trial.as_deref().unwrap() {
            "direct" => assert_eq!(store.delay_s, None),
            "through" => assert_eq!(store.delay_s, Some(0.0)),
            _ => {
                assert_eq!(store.delay_s, Some(0.04));
                assert!(p50_ms >= 39.9, "{p50_ms} ms");
            }
        }
    }
    let built = std::fs::read_to_string(lab.0.path().join("stores/count/built"));
    assert_eq!(built.unwrap(), "built\n");
    // The output may be wrapped between any two words.
    let words: Vec<&str> = printed.split_whitespace().collect();
    let delayed = "store count, 40 ms of round-trip delay";
    assert!(words.join(" ").contains(delayed), "{printed}");
    nothing_is_left(&lab);
}

#[test]
fn names_a_store_that_dies_and_continues() {
    let dying = trial(
        "dying",
        "name = \"count\", setting = { dies-after = 2 }",
        "load = { duration = \"6s\" }",
    );
    let lab = lab(&format!(
        "{HEAD}{dying}{}",
        trial("well", "name = \"count\"", "")
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    let [dying, well] = &record.runs[..] else {
        panic!("{printed}");
    };
    // Responses that arrived before the store died are kept.
    assert!(dying.requests.ok > 0 && well.requests.ok > 0, "{printed}");
    let detail = dying.ended.detail.as_deref().unwrap();
    let after = detail.strip_prefix("the store count exited ").unwrap();
    let after: f64 = after.split(' ').next().unwrap().parse().unwrap();
    // The store ran for 2 s, and the load started later than the store.
    assert!(after > 0.0 && after < 2.1, "{detail}");
    assert!(well.ended.detail.is_none());
    let line = &record.skipped[0];
    assert!(
        line.contains("the store count ended during the load (exit status: 9)")
            && line.contains("disk full"),
        "{line}"
    );
    nothing_is_left(&lab);
}

#[test]
fn a_killed_store_ends_the_run_of_an_external_client() {
    let killed = trial(
        "killed",
        "name = \"count\", setting = { dies-after = \"k3\" }",
        "client = \"curl-loop\"",
    );
    let lab = lab(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"6s\"\nfresh = true\n{killed}"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    let detail = record.runs[0].ended.detail.as_deref().unwrap();
    assert!(detail.starts_with("the store count exited "), "{detail}");
    assert_eq!(record.skipped.len(), 1, "{printed}");
    // The message must not quote earlier, unrelated log lines.
    let line = &record.skipped[0];
    assert!(
        line.contains("(signal: 9 (SIGKILL)); see ") && !line.contains("disk full"),
        "{line}"
    );
    assert!(!printed.contains("ignored SIGTERM"), "{printed}");
    nothing_is_left(&lab);
}

#[test]
fn names_a_store_that_does_not_start() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let lab = lab(&format!(
        "{HEAD}{}{}{}",
        trial("absent", &format!("url = \"127.0.0.1:{port}\""), ""),
        trial(
            "broken",
            "name = \"count\", setting = { dies-after = \"soon\" }",
            ""
        ),
        trial("well", "name = \"count\"", ""),
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    assert_eq!(record.runs.len(), 1, "{printed}");
    let [absent, broken] = &record.skipped[..] else {
        panic!("{:?}", record.skipped);
    };
    let there = format!("absent: the store 127.0.0.1:{port} is unreachable: ");
    assert!(absent.starts_with(&there), "{absent}");
    let fix = "; start the store, or correct its url";
    assert!(absent.ends_with(fix), "{absent}");
    assert!(
        broken.starts_with(
            "broken: count does not start: exited before it was ready (exit status: 1)"
        ),
        "{broken}"
    );
    assert!(broken.contains("broken-1-store.log"), "{broken}");
    nothing_is_left(&lab);
}

#[test]
fn uses_a_running_store_and_leaves_it_running() {
    let lab = lab("");
    let data = lab.0.path().join("elsewhere");
    std::fs::create_dir(&data).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut there = std::process::Command::new("python3")
        .arg(lab.0.path().join("stores/count/store.py"))
        .args([&port.to_string(), data.to_str().unwrap()])
        .spawn()
        .unwrap();
    wait_for("the store", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let url = format!("url = \"127.0.0.1:{port}\"");
    lab.write(&format!("{HEAD}{}", trial("there", &url, "")));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let store = record.runs[0]
        .place
        .as_ref()
        .unwrap()
        .store
        .as_ref()
        .unwrap();
    assert!(
        !store.started && store.name.ends_with(&port.to_string()),
        "{store:?}"
    );
    assert!(
        alive(there.id()),
        "floodmark ended a store that it did not start"
    );
    there.kill().unwrap();
    there.wait().unwrap();
    let counted: u64 = read(&data.join("count")).trim().parse().unwrap();
    assert!(counted > record.runs[0].requests.ok, "{counted}: {printed}");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_next_start_removes_a_leftover_store() {
    let long = trial("long", "name = \"count\"", "load = { duration = \"60s\" }");
    let lab = lab(&format!("{HEAD}{long}"));
    let mut killed = lab.start(&[]);
    let events = lab.result().join("events.jsonl");
    wait_for("the load", || {
        let events = std::fs::read_to_string(&events).unwrap_or_default();
        events.contains("\"event\":\"second\"").then_some(())
    });
    assert_eq!(data_directories(&lab), 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    lab.write(&format!("{HEAD}{}", trial("next", "name = \"count\"", "")));
    std::fs::rename(lab.result(), lab.0.path().join("earlier")).unwrap();
    let (code, _, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    nothing_is_left(&lab);
}

#[test]
fn ctrl_c_ends_the_store() {
    let long = trial("long", "name = \"count\"", "load = { duration = \"60s\" }");
    let lab = lab(&format!("{HEAD}{long}"));
    let running = lab.start(&[]);
    let events = lab.result().join("events.jsonl");
    wait_for("the load", || {
        let events = std::fs::read_to_string(&events).unwrap_or_default();
        events.contains("\"event\":\"second\"").then_some(())
    });
    crate::support::signal(running.id(), libc::SIGINT);
    let output = finish(running);
    assert_eq!(code(&output), 130, "{}", text(&output.stderr));
    nothing_is_left(&lab);
}
