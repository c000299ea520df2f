//! Tests of experiments with real servers.

use std::path::{Path, PathBuf};
use std::process::Child;

use floodmark_record::Record;

use crate::support::{alive, code, finish, floodmark, succeeds, text, valid};

mod abort;
mod beside;
mod capacity;
mod checks;
mod clients;
mod crash;
mod crash_api;
mod exporting;
mod failing;
mod gate;
mod grpc;
mod hosts;
mod http2;
mod https;
mod left_over;
mod live_view;
mod logs;
mod proving;
mod reported;
mod resumed;
mod separate;
mod stores;
mod tuning;
mod versions;

/// A directory with an experiment and its result.
struct ExperimentDirectory(tempfile::TempDir);

impl ExperimentDirectory {
    fn new(experiment: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("tmp")).unwrap();
        // Use the systems and clients that ship with floodmark.
        std::fs::create_dir(directory.path().join("systems")).unwrap();
        for name in ["native", "nginx"] {
            let shipped = root().join("systems").join(name);
            std::os::unix::fs::symlink(shipped, directory.path().join("systems").join(name))
                .unwrap();
        }
        std::fs::create_dir(directory.path().join("clients")).unwrap();
        for name in ["curl-loop", "wrk-scoring"] {
            let shipped = root().join("clients").join(name);
            std::os::unix::fs::symlink(shipped, directory.path().join("clients").join(name))
                .unwrap();
        }
        let lab = ExperimentDirectory(directory);
        lab.write(experiment);
        lab
    }

    /// Writes the experiment file.
    fn write(&self, experiment: &str) {
        std::fs::write(self.0.path().join("e.toml"), experiment).unwrap();
    }

    /// Adds a system. Returns its directory.
    fn system(&self, name: &str, text: &str) -> PathBuf {
        let directory = self.0.path().join("systems").join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("system.toml"), text).unwrap();
        directory
    }

    /// Adds a store. Returns its directory.
    fn store(&self, name: &str, text: &str) -> PathBuf {
        let directory = self.0.path().join("stores").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("store.toml"), text).unwrap();
        directory
    }

    fn result(&self) -> PathBuf {
        self.0.path().join("result")
    }

    /// Counts the events of one kind in the result.
    fn count(&self, event: &str) -> usize {
        let events = std::fs::read_to_string(self.result().join("events.jsonl"));
        let named = format!("\"event\":\"{event}\"");
        events.map_or(0, |text| text.matches(&named).count())
    }

    /// Returns the argument of `floodmark compare` that selects a trial of the result.
    fn of(&self, trial: &str) -> String {
        format!("{}:{trial}", self.result().display())
    }

    /// Starts the experiment with a new result directory.
    fn start(&self, arguments: &[&str]) -> Child {
        self.begin("--out", arguments)
    }

    /// Starts the experiment, with the result directory as the value of `flag`.
    fn begin(&self, flag: &str, arguments: &[&str]) -> Child {
        let experiment = self.0.path().join("e.toml");
        // The path of the result directory is relative to the working directory.
        let mut all = vec!["run", experiment.to_str().unwrap(), flag, "result"];
        all.extend_from_slice(arguments);
        // A separate TMPDIR hides the leases from other floodmark processes.
        floodmark(&all)
            .current_dir(self.0.path())
            .env("TMPDIR", self.0.path().join("tmp"))
            .spawn()
            .unwrap()
    }

    /// Runs the experiment. Returns its exit code, record and output.
    fn run(&self, arguments: &[&str]) -> (i32, Record, String) {
        self.ended(self.start(arguments))
    }

    /// Waits for the experiment to end. Returns its exit code, record and output.
    fn ended(&self, child: Child) -> (i32, Record, String) {
        let output = finish(child);
        let json = std::fs::read(self.result().join("record.json"));
        let printed = text(&output.stderr) + &text(&output.stdout);
        let json = json.unwrap_or_else(|error| panic!("{error}: {printed}"));
        let record = valid(serde_json::from_slice(&json).unwrap());
        (code(&output), record, printed)
    }
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const NATIVE: &str = "[[trial]]\nsystem = \"native\"\nworkload = \"hello\"\n";

/// Writes a Python server that runs `code` at startup. Returns a trial that uses this server.
fn python(directory: &Path, code: &str) -> String {
    let script = format!(
        "import http.server, os, signal, subprocess, sys, time\n{code}\n\
         class Hello(http.server.BaseHTTPRequestHandler):\n\
        \x20   protocol_version = 'HTTP/1.1'\n\
        \x20   def log_message(self, *args): pass\n\
        \x20   def do_GET(self):\n\
        \x20       self.send_response(200)\n\
        \x20       self.send_header('Content-Length', '11')\n\
        \x20       self.end_headers()\n\
        \x20       self.wfile.write(b'Hello World')\n\
         http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Hello).serve_forever()\n"
    );
    std::fs::write(directory.join("server.py"), script).unwrap();
    "[[trial]]\nname = \"python\"\ncommand = \"python3 server.py {port}\"\nready = \"GET /\"\nworkload = \"hello\"\n".to_owned()
}

/// Returns the IDs of processes whose command line or working directory contains `directory`.
fn processes_of(directory: &Path) -> Vec<u32> {
    let directory = directory.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id: &u32| {
            let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let at = std::fs::read_link(format!("/proc/{id}/cwd")).unwrap_or_default();
            let named = String::from_utf8_lossy(&command).contains(directory);
            alive(*id) && (named || at.starts_with(directory))
        })
        .collect()
}

fn leases(lab: &ExperimentDirectory) -> usize {
    let tmp = std::fs::read_dir(lab.0.path().join("tmp")).unwrap();
    tmp.filter_map(|entry| std::fs::read_dir(entry.unwrap().path().join("leases")).ok())
        .map(Iterator::count)
        .sum()
}

/// Writes a Node.js server. Returns a trial that uses this server.
fn node(directory: &Path) -> String {
    let script = "require('http').createServer((request, response) => response.end('Hello World'))\
                  .listen(+process.argv[2], '127.0.0.1')";
    std::fs::write(directory.join("server.js"), script).unwrap();
    "[[trial]]\nname = \"node\"\ncommand = \"node server.js {port}\"\nready = \"GET /\"\nworkload = \"hello\"\n".to_owned()
}

#[test]
fn runs_native_and_python_servers_in_rounds() {
    let lab = ExperimentDirectory::new("");
    let python = python(lab.0.path(), "");
    runs_in_rounds(
        &lab,
        vec![("native", NATIVE.to_owned()), ("python", python)],
    );
}

#[test]
#[cfg_attr(not(installed = "node"), ignore = "node is not installed")]
fn runs_a_node_server_in_rounds() {
    let lab = ExperimentDirectory::new("");
    let node = node(lab.0.path());
    runs_in_rounds(&lab, vec![("native", NATIVE.to_owned()), ("node", node)]);
}

#[test]
#[cfg_attr(not(installed = "nginx"), ignore = "nginx is not installed")]
fn runs_nginx_in_rounds() {
    let nginx = NATIVE.replace("native", "nginx") + "setting = { threads = 1 }\n";
    let trials = vec![("native", NATIVE.to_owned()), ("nginx", nginx)];
    runs_in_rounds(&ExperimentDirectory::new(""), trials);
}

/// Runs trials in two rounds and checks the server of each run.
fn runs_in_rounds(lab: &ExperimentDirectory, trials: Vec<(&str, String)>) {
    let (names, texts): (Vec<&str>, Vec<String>) = trials.into_iter().unzip();
    lab.write(&format!(
        "question = \"Which?\"\n[load]\nconnections = 4\nduration = \"300ms\"\n[place]\nprocesses = 2\n{}",
        texts.concat()
    ));
    let (code, record, printed) = lab.run(&[]);
    // Other load on this host can make any run invalid.
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.skipped, Vec::<String>::new());
    let order: Vec<(&str, u32)> = record
        .runs
        .iter()
        .map(|run| (run.trial.as_deref().unwrap(), run.process))
        .collect();
    let expected: Vec<(&str, u32)> = [1, 2]
        .into_iter()
        .flat_map(|process| names.iter().map(move |name| (*name, process)))
        .collect();
    assert_eq!(order, expected);
    for run in &record.runs {
        assert!(run.requests.ok > 0, "{:?}", run.requests);
        assert_eq!(run.workload, "hello");
        let threads = run.setting.get("threads").map(String::as_str);
        assert_eq!(threads, (run.system == "nginx").then_some("1"));
        let server = run.server.as_ref();
        let server = server.unwrap_or_else(|| panic!("{}: {:?}", run.system, run.missing));
        // The run may be shorter than a tick of the kernel's CPU accounting.
        let ran = server
            .seen
            .threads
            .iter()
            .any(|thread| thread.on_cpu_s > 0.0);
        assert!(ran, "{}: {server:?}", run.system);
        // Name of the program that the trial starts.
        let program = match run.trial.as_deref() {
            Some("native") => "floodmark",
            Some(trial) => trial,
            None => "",
        };
        assert!(server.seen.name.starts_with(program), "{server:?}");
    }
    assert_eq!(record.experiment.unwrap().question, "Which?");
    assert!(
        printed.contains("1/") && printed.contains(&format!("next {}", names[1])),
        "{printed}"
    );
    assert!(printed.contains("CPU/request"), "{printed}");
    assert_eq!(processes_of(lab.0.path()), [0; 0]);
    assert_eq!(leases(lab), 0);
}

#[test]
fn runs_each_native_workload() {
    let trial = |workload: &str, more: &str| {
        format!(
            "[[trial]]\nname = \"{workload}\"\nsystem = \"native\"\nworkload = \"{workload}\"\n{more}"
        )
    };
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"200ms\"\n{}{}{}",
        trial("hello", ""),
        trial("json", ""),
        trial("dispatcher", "load = { check = \"sequence\" }\n"),
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let workloads: Vec<&str> = record
        .runs
        .iter()
        .map(|run| run.workload.as_str())
        .collect();
    assert_eq!(workloads, ["hello", "json", "dispatcher"], "{printed}");
    assert!(record.runs.iter().all(|run| run.requests.ok > 0));
    let checks = &record.runs[2].checks;
    assert!(
        !checks.is_empty() && checks.iter().all(|check| check.held == Some(true)),
        "{checks:?}"
    );
}

#[test]
fn finds_the_quickstart_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result");
    let mut command = floodmark(&["run", "quickstart", "--duration", "300ms", "--out"]);
    let output = finish(
        command
            .arg(&out)
            .current_dir(root())
            .env("TMPDIR", directory.path())
            .spawn()
            .unwrap(),
    );
    succeeds(&output);
    let json = std::fs::read(out.join("record.json")).unwrap();
    let record = valid(serde_json::from_slice(&json).unwrap());
    let table = text(&output.stdout);
    for (run, trial) in record.runs.iter().zip(["kept", "fresh", "rate"]) {
        assert_eq!(run.trial.as_deref(), Some(trial));
        let row = table.lines().find(|line| line.starts_with(trial)).unwrap();
        let status = serde_json::to_value(run.validity.status).unwrap();
        assert!(row.contains(status.as_str().unwrap()), "{row}");
    }
    assert_eq!(record.runs.len(), 3);
}

#[test]
fn runs_the_documented_python_server() {
    runs_documented_server("python");
}

#[test]
#[cfg_attr(not(installed = "node"), ignore = "node is not installed")]
fn runs_the_documented_node_server() {
    runs_documented_server("node");
}

fn runs_documented_server(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = vec!["run", "docs/examples/own-servers.toml", "--only", name];
    arguments.extend(["--duration", "300ms", "--processes", "1", "--json", "-"]);
    let mut command = floodmark(&arguments);
    command.current_dir(root()).env("TMPDIR", directory.path());
    let output = finish(command.spawn().unwrap());
    succeeds(&output);
    let record = valid(serde_json::from_slice(&output.stdout).unwrap());
    let [run] = &record.runs[..] else {
        panic!("{:?}", record.skipped);
    };
    assert_eq!(run.trial.as_deref(), Some(name));
    assert!(run.requests.ok > 0, "{:?}", run.requests);
}

#[test]
fn runs_the_manifests_that_init_writes() {
    let directory = tempfile::tempdir().unwrap();
    let start = |arguments: &[&str]| {
        let mut command = floodmark(arguments);
        command.current_dir(directory.path());
        finish(command.spawn().unwrap())
    };
    assert_eq!(code(&start(&["init", "system", "other"])), 0);
    assert_eq!(code(&start(&["init", "experiment", "first"])), 0);
    assert_eq!(code(&start(&["init", "experiment", "first"])), 2);
    let out = directory.path().join("result");
    let output = start(&[
        "run",
        "first",
        "--duration",
        "200ms",
        "--out",
        out.to_str().unwrap(),
    ]);
    succeeds(&output);
    assert!(
        text(&output.stdout).contains("mine"),
        "{}",
        text(&output.stdout)
    );
}
