//! Experiments with real servers: what is measured and said, what becomes of servers that fail, and that nothing is left running.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use floodmark_record::Record;

use crate::support::{alive, code, finish, floodmark, text, valid};

mod beside;
mod checks;
mod clients;
mod failing;
mod hosts;
mod left_over;
mod logs;
mod proving;
mod resumed;
mod separate;
mod stores;

/// A folder with an experiment, and a place for its result.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new(experiment: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        // The shipped systems are found beside the experiment.
        std::fs::create_dir(folder.path().join("systems")).unwrap();
        for name in ["native", "nginx"] {
            let shipped = root().join("systems").join(name);
            std::os::unix::fs::symlink(shipped, folder.path().join("systems").join(name)).unwrap();
        }
        std::fs::create_dir(folder.path().join("clients")).unwrap();
        for name in ["curl-loop", "wrk-scoring"] {
            let shipped = root().join("clients").join(name);
            std::os::unix::fs::symlink(shipped, folder.path().join("clients").join(name)).unwrap();
        }
        let lab = Lab(folder);
        lab.write(experiment);
        lab
    }

    /// Writes its experiment.
    fn write(&self, experiment: &str) {
        std::fs::write(self.0.path().join("e.toml"), experiment).unwrap();
    }

    /// Adds a system; its folder.
    fn system(&self, name: &str, text: &str) -> PathBuf {
        let folder = self.0.path().join("systems").join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("system.toml"), text).unwrap();
        folder
    }

    fn result(&self) -> PathBuf {
        self.0.path().join("result")
    }

    /// A trial of its result, as floodmark compare takes it.
    fn of(&self, trial: &str) -> String {
        format!("{}:{trial}", self.result().display())
    }

    /// Starts it with a new result.
    fn start(&self, arguments: &[&str]) -> Child {
        self.begin("--out", arguments)
    }

    /// Starts it with the result named by a flag.
    fn begin(&self, flag: &str, arguments: &[&str]) -> Child {
        let experiment = self.0.path().join("e.toml");
        // The result is relative, as people write it.
        let mut all = vec!["run", experiment.to_str().unwrap(), flag, "result"];
        all.extend_from_slice(arguments);
        // Leases and stamps of its own, so that no other floodmark sweeps them.
        floodmark(&all)
            .current_dir(self.0.path())
            .env("TMPDIR", self.0.path().join("tmp"))
            .spawn()
            .unwrap()
    }

    /// Runs it to its end: exit code, record, what was said.
    fn run(&self, arguments: &[&str]) -> (i32, Record, String) {
        self.ended(self.start(arguments))
    }

    /// What a run came to.
    fn ended(&self, child: Child) -> (i32, Record, String) {
        let output = finish(child);
        let json = std::fs::read(self.result().join("record.json"));
        let said = text(&output.stderr) + &text(&output.stdout);
        let json = json.unwrap_or_else(|error| panic!("{error}: {said}"));
        let record = valid(serde_json::from_slice(&json).unwrap());
        (code(&output), record, said)
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const NATIVE: &str = "[[trial]]\nsystem = \"native\"\nworkload = \"hello\"\n";

/// A server in Python by four lines; what stands for {do} happens before it answers.
fn python(folder: &Path, does: &str) -> String {
    let script = format!(
        "import http.server, os, signal, subprocess, sys, time\n{does}\n\
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
    std::fs::write(folder.join("server.py"), script).unwrap();
    "[[trial]]\nname = \"python\"\ncommand = \"python3 server.py {port}\"\nready = \"GET /\"\nworkload = \"hello\"\n".to_owned()
}

/// Ids of the processes whose command line or working folder names a folder.
fn processes_of(folder: &Path) -> Vec<u32> {
    let folder = folder.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id: &u32| {
            let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let at = std::fs::read_link(format!("/proc/{id}/cwd")).unwrap_or_default();
            let named = String::from_utf8_lossy(&command).contains(folder);
            alive(*id) && (named || at.starts_with(folder))
        })
        .collect()
}

fn leases(lab: &Lab) -> usize {
    let tmp = std::fs::read_dir(lab.0.path().join("tmp")).unwrap();
    tmp.filter_map(|entry| std::fs::read_dir(entry.unwrap().path().join("leases")).ok())
        .map(Iterator::count)
        .sum()
}

/// A server in Node by four lines.
fn node(folder: &Path) -> String {
    let script = "require('http').createServer((request, response) => response.end('Hello World'))\
                  .listen(+process.argv[2], '127.0.0.1')";
    std::fs::write(folder.join("server.js"), script).unwrap();
    "[[trial]]\nname = \"node\"\ncommand = \"node server.js {port}\"\nready = \"GET /\"\nworkload = \"hello\"\n".to_owned()
}

fn installed(program: &str) -> bool {
    let mut asked = std::process::Command::new(program);
    asked.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok()
}

#[test]
fn servers_of_all_kinds_in_rounds() {
    let lab = Lab::new("");
    let mut trials = vec![
        ("native", NATIVE.to_owned()),
        ("python", python(lab.0.path(), "")),
    ];
    if installed("node") {
        trials.push(("node", node(lab.0.path())));
    }
    if installed("nginx") {
        let setting = NATIVE.replace("native", "nginx") + "setting = { threads = 1 }\n";
        trials.push(("nginx", setting));
    }
    let (names, texts): (Vec<&str>, Vec<String>) = trials.into_iter().unzip();
    lab.write(&format!(
        "question = \"Which?\"\n[load]\nconnections = 4\nduration = \"300ms\"\n[place]\nprocesses = 2\n{}",
        texts.concat()
    ));
    let (code, record, said) = lab.run(&[]);
    // A busy machine can make any run invalid.
    assert!(matches!(code, 0 | 4), "{said}");
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
        // So short a run may be less than a tick of the kernel's CPU accounting; the scheduler's own is finer.
        let ran = server
            .seen
            .threads
            .iter()
            .any(|thread| thread.on_cpu_s > 0.0);
        assert!(ran, "{}: {server:?}", run.system);
        // Its name is that of the program that was started, nginx's master included.
        let program = match run.trial.as_deref() {
            Some("native") => "floodmark",
            Some(trial) => trial,
            None => "",
        };
        assert!(server.seen.name.starts_with(program), "{server:?}");
    }
    assert_eq!(record.experiment.unwrap().question, "Which?");
    assert!(
        said.contains("1/") && said.contains("next python"),
        "{said}"
    );
    assert!(said.contains("CPU/request"), "{said}");
    assert_eq!(processes_of(lab.0.path()), [0; 0]);
    assert_eq!(leases(&lab), 0);
}

#[test]
fn the_native_server_is_ready_for_each_of_its_workloads() {
    let trial = |workload: &str, more: &str| {
        format!(
            "[[trial]]\nname = \"{workload}\"\nsystem = \"native\"\nworkload = \"{workload}\"\n{more}"
        )
    };
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"200ms\"\n{}{}{}",
        trial("hello", ""),
        trial("json", ""),
        trial("dispatcher", "load = { check = \"sequence\" }\n"),
    ));
    let (code, record, said) = lab.run(&[]);
    assert!(matches!(code, 0 | 4), "{said}");
    let workloads: Vec<&str> = record
        .runs
        .iter()
        .map(|run| run.workload.as_str())
        .collect();
    assert_eq!(workloads, ["hello", "json", "dispatcher"], "{said}");
    assert!(record.runs.iter().all(|run| run.requests.ok > 0));
    let checks = &record.runs[2].checks;
    assert!(
        !checks.is_empty() && checks.iter().all(|check| check.held),
        "{checks:?}"
    );
}

#[test]
fn quickstart_is_found_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("result");
    let mut command = floodmark(&["run", "quickstart", "--duration", "300ms", "--out"]);
    let output = finish(
        command
            .arg(&out)
            .current_dir(root())
            .env("TMPDIR", folder.path())
            .spawn()
            .unwrap(),
    );
    assert!(matches!(code(&output), 0 | 4), "{}", text(&output.stderr));
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
fn servers_of_ones_own_run_as_the_docs_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["run", "docs/examples/own-servers.toml"];
    arguments.extend(["--duration", "300ms", "--processes", "1", "--json", "-"]);
    let mut names = vec!["python"];
    match installed("node") {
        true => names.push("node"),
        false => {
            println!("node is not installed: only the server in Python is looked at");
            arguments.extend(["--only", "python"]);
        }
    }
    let mut command = floodmark(&arguments);
    command.current_dir(root()).env("TMPDIR", folder.path());
    let output = finish(command.spawn().unwrap());
    assert!(matches!(code(&output), 0 | 4), "{}", text(&output.stderr));
    let record = valid(serde_json::from_slice(&output.stdout).unwrap());
    for (run, name) in record.runs.iter().zip(&names) {
        assert_eq!(run.trial.as_deref(), Some(*name));
        assert!(run.requests.ok > 0, "{:?}", run.requests);
    }
    assert_eq!(record.runs.len(), names.len());
}

#[test]
fn init_writes_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let start = |arguments: &[&str]| {
        let mut command = floodmark(arguments);
        command.current_dir(folder.path());
        finish(command.spawn().unwrap())
    };
    assert_eq!(code(&start(&["init", "system", "other"])), 0);
    assert_eq!(code(&start(&["init", "experiment", "first"])), 0);
    assert_eq!(code(&start(&["init", "experiment", "first"])), 2);
    let out = folder.path().join("result");
    let output = start(&[
        "run",
        "first",
        "--duration",
        "200ms",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(matches!(code(&output), 0 | 4), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("mine"),
        "{}",
        text(&output.stdout)
    );
}
