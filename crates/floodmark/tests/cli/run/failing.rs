//! What fails is said in one line, and the rest goes on.

use super::{Lab, NATIVE, processes_of, python};
use crate::support::{code, finish, floodmark, text};

#[test]
fn what_fails_is_named_with_its_log_and_the_rest_goes_on() {
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
        trial("absent", "no-such-program-here {port}", ""),
        trial("busy", "sleep 60", &format!("port = {busy}")),
    ];
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"200ms\"\n[place]\nprocesses = 2\n{}{NATIVE}",
        failing.concat()
    ));
    let (code, record, said) = lab.run(&[]);
    assert_eq!(code, 3, "{said}");
    assert_eq!(record.runs.len(), 2, "only native, twice: {said}");
    // What failed does not come any more.
    assert!(said.contains("process 1 · next native ·"), "{said}");
    let expected = [
        ("dies", "exit status: 3"),
        ("deaf", "not ready within 300 ms"),
        ("wrong", "answers wrongly"),
        ("absent", "is it installed"),
        ("busy", "is busy"),
    ];
    assert_eq!(record.skipped.len(), expected.len(), "{:?}", record.skipped);
    for ((name, why), line) in expected.iter().zip(&record.skipped) {
        assert!(line.starts_with(name) && line.contains(why), "{line}");
        assert!(said.contains(line.as_str()), "{said}");
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
fn a_server_that_dies_midway_is_named_and_the_rest_goes_on() {
    let lab = Lab::new("");
    let dying = python(
        lab.0.path(),
        "import threading\nthreading.Timer(1.0, lambda: (print('out of memory', flush=True), os._exit(9))).start()",
    );
    let experiment = format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"20s\"\n{dying}{NATIVE}load = {{ duration = \"200ms\" }}\n"
    );
    lab.write(&experiment);
    let (code, record, said) = lab.run(&[]);
    assert_eq!(code, 3, "{said}");
    assert_eq!(record.runs.len(), 2, "{said}");
    assert!(record.runs[0].requests.ok > 0 && record.runs[0].ended.detail.is_some());
    let line = &record.skipped[0];
    assert!(
        line.contains("exit status: 9") && line.contains("out of memory"),
        "{line}"
    );
    assert!(record.runs[1].ended.detail.is_none());
}

#[test]
fn a_missing_tool_skips_and_does_not_fail() {
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nduration = \"200ms\"\n{NATIVE}[[trial]]\nsystem = \"exotic\"\nworkload = \"hello\"\n"
    ));
    lab.system(
        "exotic",
        "name = \"exotic\"\nworkloads = [\"hello\"]\nneeds = [\"no-such-program-here >= 3\"]\n[start]\ncommand = \"x {port}\"\n",
    );
    let (code, record, said) = lab.run(&[]);
    assert!(matches!(code, 0 | 4), "{said}");
    assert_eq!(record.runs.len(), 1);
    assert!(
        record.skipped[0].contains("no-such-program-here is not installed"),
        "{:?}",
        record.skipped
    );
}

#[test]
fn wrong_experiments_are_refused_before_anything_starts() {
    for (experiment, said) in [
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
            "kept connections never are",
        ),
    ] {
        let lab = Lab::new(experiment);
        let output = finish(lab.start(&[]));
        assert_eq!(code(&output), 2);
        let stderr = text(&output.stderr);
        assert!(stderr.contains(said), "{stderr}");
        assert!(!lab.result().exists());
    }
    let output = finish(floodmark(&["run", "no-such-experiment"]).spawn().unwrap());
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("floodmark init experiment"));
}
