//! Tests of `floodmark tune`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Child;
use std::thread;
use std::time::Duration;

use floodmark_record::Record;
use floodmark_record::cause::Cause;
use floodmark_record::tuning::{KnobKind, Tuning, TuningAction, TuningEnd};

use super::ExperimentDirectory;
use crate::junit;
use crate::support::{code, finish, floodmark, signal, text, wait_for};
use crate::tables::rows;

/// Time that the store takes for each request.
const STORE_TIME: Duration = Duration::from_millis(20);

const SERVER: &str = include_str!("pools.py");

/// Starts a store that answers each byte after [`STORE_TIME`], until the test ends. Returns its
/// address.
fn store() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            connection.set_nodelay(true).unwrap();
            thread::spawn(move || {
                let mut byte = [0];
                while connection.read_exact(&mut byte).is_ok() {
                    thread::sleep(STORE_TIME);
                    if connection.write_all(&byte).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Returns an experiment that loads `pools.py` over the given number of connections. Adds `keys` to
/// its trial.
pub(super) fn pools(
    connections: u32,
    duration: &str,
    options: &str,
    keys: &str,
) -> ExperimentDirectory {
    let load = format!("connections = {connections}\nduration = \"{duration}\"\n");
    loaded_pools(&load, options, keys)
}

/// Returns an experiment that loads `pools.py`, with the given keys in its load and its trial.
fn loaded_pools(load: &str, options: &str, keys: &str) -> ExperimentDirectory {
    let store = store();
    let lab = ExperimentDirectory::new(&format!(
        "question = \"How many?\"\n[load]\n{load}[[trial]]\nname = \"pools\"\nstore = {{ url = \"{store}\" }}\n\
         command = \"python3 pools.py --listen {{host}}:{{port}} --store {{store}} {options}\"\n{keys}"
    ));
    std::fs::write(lab.0.path().join("pools.py"), SERVER).unwrap();
    lab
}

impl ExperimentDirectory {
    /// Starts a tuning run, with the result directory as the value of `flag`.
    fn tune(&self, flag: &str, arguments: &[&str]) -> Child {
        let mut all = vec!["tune", "e.toml", flag, "result"];
        all.extend_from_slice(arguments);
        floodmark(&all)
            .current_dir(self.0.path())
            .env("TMPDIR", self.0.path().join("tmp"))
            .spawn()
            .unwrap()
    }

    /// Expects that tuning is refused with one line that contains all `words`.
    fn refuses(&self, arguments: &[&str], words: &[&str]) {
        let output = finish(self.tune("--out", arguments));
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        for word in words {
            assert!(printed.contains(word), "no {word:?} in {printed}");
        }
        assert!(!self.result().exists());
    }
}

fn tuning(record: &Record) -> &Tuning {
    record.tuning.as_ref().unwrap()
}

#[test]
fn raises_the_full_pools_of_a_users_own_server() {
    let options = "--threads {threads} --connections {connections}";
    let keys = "knobs.threads = { low = 1, high = 100 }\n\
                knobs.connections = { default = 2, low = 1, high = 100 }\n";
    let lab = pools(16, "2s", options, keys);
    let files = ["--html", "page.html", "--junit", "junit.xml"];
    let (code, record, printed) = lab.ended(lab.tune("--out", &files));
    assert_eq!(code, 0, "{printed}");
    let tuning = tuning(&record);
    let steps: Vec<(TuningAction, u64, u64)> = tuning
        .steps
        .iter()
        .map(|step| {
            (
                step.action,
                step.values["threads"],
                step.values["connections"],
            )
        })
        .collect();
    assert_eq!(
        steps[..3],
        [
            (TuningAction::Start, 1, 2),
            (TuningAction::Raise, 16, 2),
            (TuningAction::Raise, 16, 16),
        ],
        "{printed}"
    );
    let causes: Vec<Cause> = tuning.steps.iter().filter_map(|step| step.cause).collect();
    assert_eq!(
        causes[..3],
        [Cause::WorkerPool, Cause::ConnectionPool, Cause::Concurrency],
        "{printed}"
    );
    let chosen = tuning.setting(tuning.chosen.as_ref().unwrap()).unwrap();
    let cases = junit::read(&lab.0.path().join("junit.xml"));
    assert!(cases.contains(&"e: tuning: passed".to_owned()), "{cases:?}");
    let settings = rows(lab.result().to_str().unwrap(), "tuning_settings");
    let is_chosen = |row: &&serde_json::Value| row["is_chosen"] == true;
    let names: Vec<&serde_json::Value> = settings.iter().filter(is_chosen).collect();
    assert_eq!(names[0]["trial"], chosen.trial.as_str());
    assert_eq!(names.len(), 1);
    assert!(
        chosen.values.values().all(|value| *value >= 14),
        "{printed}"
    );
    assert_eq!(tuning.ended, TuningEnd::Complete);
    assert!(tuning.why_ended.contains("to the store"), "{printed}");
    let described = record.experiment.unwrap().tuning.unwrap();
    let kinds: Vec<KnobKind> = described.knobs.iter().map(|knob| knob.sizes).collect();
    assert_eq!(kinds, [KnobKind::Threads, KnobKind::Connections]);
    let page = std::fs::read_to_string(lab.0.path().join("page.html")).unwrap();
    assert!(
        page.contains("Path of the tuning") && page.contains("Path over threads and connections")
    );
}

#[test]
fn resumes_and_finds_that_a_knob_does_not_matter() {
    let options = "--threads 8 --connections 8 --cache {cache}";
    let keys = "knobs.cache = { default = 16, low = 2, high = 64 }\n";
    let lab = pools(8, "1s", options, keys);
    let (code, record, printed) = lab.ended(lab.tune("--out", &["--budget", "10ms"]));
    assert_eq!(code, 0, "{printed}");
    assert_eq!(tuning(&record).ended, TuningEnd::OutOfTime);
    assert_eq!(tuning(&record).steps.len(), 1);
    assert!(printed.contains("time limit"), "{printed}");

    let child = lab.tune("--resume", &[]);
    wait_for("the second run", || {
        (lab.count("run_began") == 2).then_some(())
    });
    signal(child.id(), libc::SIGINT);
    let (code, record, printed) = lab.ended(child);
    assert_eq!(code, 130, "{printed}");
    assert_eq!(tuning(&record).ended, TuningEnd::Interrupted);
    assert_eq!(tuning(&record).steps.len(), 1, "{printed}");

    let (code, record, printed) = lab.ended(lab.tune("--resume", &[]));
    assert_eq!(code, 0, "{printed}");
    let tuned = tuning(&record);
    assert_eq!(tuned.ended, TuningEnd::Complete);
    assert_eq!(tuned.irrelevant, ["cache"], "{printed}");
    assert_eq!(tuned.chosen.as_deref(), Some("pools-cache-2"), "{printed}");
    assert!(printed.contains("does not matter"), "{printed}");
    let (code, _, printed) = lab.ended(lab.tune("--resume", &[]));
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("already complete"), "{printed}");
    let output = finish(lab.tune("--resume", &["--duration", "2s"]));
    assert!(
        text(&output.stderr).contains("load of pools-cache-"),
        "{:?}",
        output.stderr
    );
}

#[test]
fn raises_the_capacity_of_a_full_pool_and_resumes() {
    let keys = "knobs.threads = { default = 2, low = 1, high = 64 }\n\
                [capacity]\nslo = [\"p90 < 80ms\"]\nbudget = \"15s\"\n";
    let options = "--threads {threads} --connections 64";
    let lab = loaded_pools("connections = 16\n", options, keys);
    // Each part of the tuning run measures one process.
    let parts = ["--for", "capacity", "--budget", "10ms"];
    let (code, first, printed) = lab.ended(lab.tune("--out", &parts));
    assert_eq!(code, 0, "{printed}");
    assert_eq!(tuning(&first).ended, TuningEnd::OutOfTime);
    let page = [&parts[..], &["--html", "page.html"]].concat();
    let (code, record, printed) = lab.ended(lab.tune("--resume", &page));
    assert_eq!(code, 0, "{printed}");
    let [start, raised] = &tuning(&record).steps[..] else {
        panic!("{printed}");
    };
    assert_eq!(*start, tuning(&first).steps[0]);
    assert_eq!(start.cause, Some(Cause::WorkerPool), "{printed}");
    assert_eq!(
        (raised.action, raised.values["threads"]),
        (TuningAction::Raise, 16),
        "{printed}"
    );
    let ratio = raised.figure_per_s.unwrap() / start.figure_per_s.unwrap();
    assert!((4.0..20.0).contains(&ratio), "{printed}");
    assert_eq!(tuning(&record).chosen.as_ref(), Some(&raised.trial));
    for words in ["capacity/s", "highest rate with p90 < 80ms", "time limit"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let page = std::fs::read_to_string(lab.0.path().join("page.html")).unwrap();
    assert!(page.contains("highest rate with p90 &lt; 80ms by step"));

    let child = lab.tune("--resume", &parts);
    wait_for("the third search", || {
        (lab.count("capacity_began") == 3).then_some(())
    });
    signal(child.id(), libc::SIGINT);
    let (code, record, printed) = lab.ended(child);
    assert_eq!(code, 130, "{printed}");
    assert_eq!(tuning(&record).steps.len(), 2, "{printed}");
}

#[test]
fn fails_if_the_server_does_not_start() {
    let lab = pools(
        8,
        "1s",
        "--threads {threads} --nothing",
        "knobs.threads = { low = 1, high = 9 }\n",
    );
    let (code, record, printed) = lab.ended(lab.tune("--out", &[]));
    assert_eq!(code, 3, "{printed}");
    assert!(printed.contains("does not start"), "{printed}");
    assert_eq!(tuning(&record).ended, TuningEnd::NoStart);
    assert_eq!(tuning(&record).chosen, None);
}

#[test]
fn refuses_what_cannot_be_tuned() {
    let knobs = "knobs.threads = { low = 1, high = 9 }\nknobs.size = { default = 3, high = 9 }\n";
    let options = "--threads {threads} --size {size}";
    let lab = pools(8, "1s", options, knobs);
    lab.refuses(
        &["--knob", "thread"],
        &["no such knob", "did you mean \"threads\""],
    );
    lab.refuses(&["--knob", "size", "--knob", "size"], &["given twice"]);
    lab.refuses(&["--only", "pool"], &["did you mean \"pools\""]);
    for (keys, words) in [
        (
            "knobs.threads = { low = 9, high = 1 }",
            ["e.toml:9", "low = 9 above high = 1"],
        ),
        (
            "knobs.threads = { low = 1, high = 0 }",
            ["e.toml:9", "above high = 0"],
        ),
        (
            "knobs.threads = { high = 1 }",
            ["e.toml:5", "only one value"],
        ),
        (
            "knobs.threads = { low = 1 }",
            ["e.toml:5", "no upper limit; add high = …"],
        ),
        (
            "knobs.threads = { default = 20, high = 9 }",
            ["e.toml:5", "outside its range"],
        ),
        (
            "knobs.threads = { sizes = \"thread\" }",
            ["e.toml:9", "did you mean \"threads\""],
        ),
        (
            "knobs.threads = { high = 9 }\nknobs.other = { default = 1 }",
            ["e.toml:10", "{other}"],
        ),
        (
            "",
            ["no trial of the experiment has a numeric knob", "[[trial]]"],
        ),
    ] {
        let lab = pools(8, "1s", "--threads {threads}", keys);
        lab.refuses(&[], &words);
    }
    let keys = "knobs.threads = { low = 1, high = 9 }\n";
    let lab = pools(8, "1s", "--threads {threads}", keys);
    lab.refuses(
        &["--for", "capacity"],
        &["tune e.toml: --for capacity: the experiment has no objectives; add [capacity]"],
    );
    let lab = loaded_pools(
        "",
        "--threads {threads}",
        &format!("{keys}[capacity]\nslo = [\"p90 < 80ms\"]\n"),
    );
    lab.refuses(
        &["--for", "capacity", "--duration", "1s"],
        &["--duration conflicts with [capacity]"],
    );
    let keys = "load = { rate = 100 }\nknobs.threads = { low = 1, high = 9 }\n";
    let lab = pools(8, "1s", "--threads {threads}", keys);
    lab.refuses(&[], &["e.toml:5", "fixed rate", "remove `rate`"]);
}
