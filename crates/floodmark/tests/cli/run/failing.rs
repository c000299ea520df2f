//! Tests of experiments with failing trials.

use super::{ExperimentDirectory, NATIVE, processes_of, python};
use crate::support::{code, finish, floodmark, text};

#[test]
fn names_failed_trials_with_their_logs_and_continues() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = listener.local_addr().unwrap().port();
    let trial = |name: &str, command: &str, more: &str| {
        format!(
            "[[trial]]\nname = \"{name}\"\ncommand = \"{command}\"\nworkload = \"hello\"\n{more}\n"
        )
    };
    let failing = [
        trial("dies", "sh -c 'echo no such module {port}; exit 3'", ""),
        trial("deaf", "sleep 60", "port = 9\nready-within = \"300ms\""),
        trial(
            "wrong",
            "python3 -m http.server --bind 127.0.0.1 {port}",
            "",
        ),
        trial(
            "missing",
            "python3 -m http.server --bind 127.0.0.1 {port}",
            "ready = \"GET /missing\"\nready-within = \"1s\"",
        ),
        trial("absent", "no-such-program-here {port}", ""),
        trial("busy", "sleep 60", &format!("port = {busy}")),
    ];
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"200ms\"\n[place]\nprocesses = 2\n{}{NATIVE}",
        failing.concat()
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    assert_eq!(
        record.runs.len(),
        2,
        "expected two runs of native: {printed}"
    );
    // A failed trial must not be repeated.
    assert!(printed.contains("process 1 · next native ·"), "{printed}");
    let expected = [
        ("dies", "exit status: 3"),
        ("deaf", "not ready within 300 ms"),
        ("wrong", "unexpected response"),
        (
            "missing",
            "GET /missing returns 404; if another path shows that the server is ready, set ready = \"GET /path\"",
        ),
        ("absent", "install it"),
        ("busy", "is in use"),
    ];
    assert_eq!(record.skipped.len(), expected.len(), "{:?}", record.skipped);
    for ((name, why), line) in expected.iter().zip(&record.skipped) {
        assert!(line.starts_with(name) && line.contains(why), "{line}");
        assert!(printed.contains(line.as_str()), "{printed}");
    }
    assert!(
        record.skipped[0].contains("no such module"),
        "{:?}",
        record.skipped
    );
    assert!(
        record.skipped[0].contains("dies-1.log"),
        "{:?}",
        record.skipped
    );
    assert_eq!(processes_of(lab.0.path()), [0; 0]);
}

#[test]
fn names_a_server_that_dies_and_continues() {
    let lab = ExperimentDirectory::new("");
    let dying = python(
        lab.0.path(),
        "import threading\nthreading.Timer(1.0, lambda: (print('out of memory', flush=True), os._exit(9))).start()",
    );
    let experiment = format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"20s\"\n{dying}{NATIVE}load = {{ duration = \"200ms\" }}\n"
    );
    lab.write(&experiment);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    assert_eq!(record.runs.len(), 2, "{printed}");
    assert!(record.runs[0].requests.ok > 0 && record.runs[0].ended.detail.is_some());
    let line = &record.skipped[0];
    assert!(
        line.contains("exit status: 9") && line.contains("out of memory"),
        "{line}"
    );
    assert!(record.runs[1].ended.detail.is_none());
}

#[test]
fn a_missing_tool_skips_its_trials() {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nduration = \"200ms\"\n{NATIVE}[[trial]]\nsystem = \"exotic\"\nworkload = \"hello\"\n"
    ));
    lab.system(
        "exotic",
        "name = \"exotic\"\nworkloads = [\"hello\"]\nneeds = [\"no-such-program-here >= 3\"]\n[start]\ncommand = \"x {port}\"\n",
    );
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.runs.len(), 1);
    assert!(
        record.skipped[0].contains("no-such-program-here is not installed"),
        "{:?}",
        record.skipped
    );
}

#[test]
fn refuses_invalid_experiments_before_the_start() {
    for (experiment, printed) in [
        (
            "[[trial]]\nsystem = \"native\"\n",
            "e.toml:1: question is missing",
        ),
        (
            "question = \"?\"\n[[trial]]\nsystem = \"nativ\"\nworkload = \"hello\"\n",
            "e.toml:3: unknown system \"nativ\"; did you mean \"native\"?",
        ),
        (
            "question = \"?\"\n[load]\nclose-first = \"client\"\n[[trial]]\nsystem = \"native\"\nworkload = \"hello\"\n",
            "`close-first` has no effect",
        ),
    ] {
        let lab = ExperimentDirectory::new(experiment);
        let output = finish(lab.start(&[]));
        assert_eq!(code(&output), 2);
        let stderr = text(&output.stderr);
        assert!(stderr.contains(printed), "{stderr}");
        assert!(!lab.result().exists());
    }
    let output = finish(floodmark(&["run", "no-such-experiment"]).spawn().unwrap());
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("floodmark init experiment"));
}
