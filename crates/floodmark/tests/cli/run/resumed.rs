//! Tests of experiments that are interrupted and resumed.

use floodmark_record::stream::Event;

use super::{ExperimentDirectory, NATIVE, leases};
use crate::support::{code, finish, signal, text, wait_for};

/// Returns an experiment with two trials, two processes per trial and two attempts per process.
fn experiment() -> ExperimentDirectory {
    let second = NATIVE.replace("hello", "dispatcher") + "name = \"second\"\n";
    let check = "load = { check = \"sequence\" }\n";
    ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"400ms\"\nattempts = 2\n[place]\nprocesses = 2\n\
         {NATIVE}{second}{check}"
    ))
}

#[test]
fn keeps_complete_processes_and_repeats_the_rest() {
    for kill in [libc::SIGINT, libc::SIGKILL] {
        let lab = experiment();
        let mut child = lab.start(&["--quiet"]);
        // The fourth run is the second attempt on the second trial's first process.
        wait_for("the fourth run", || {
            (lab.count("run_began") == 4).then_some(())
        });
        let begun = finish(lab.begin("--resume", &[]));
        assert_eq!(code(&begun), 2);
        let printed = text(&begun.stderr);
        assert!(printed.contains("another floodmark"), "{printed}");
        signal(child.id(), kill);
        child.wait().unwrap();

        let (code, record, printed) = lab.ended(lab.begin("--resume", &[]));
        assert_eq!(code, 0, "{printed}");
        let order: Vec<(&str, u32, u32)> = record
            .runs
            .iter()
            .map(|run| (run.trial.as_deref().unwrap(), run.process, run.attempt))
            .collect();
        assert_eq!(
            order,
            [
                ("native", 1, 1),
                ("native", 1, 2),
                ("second", 1, 1),
                ("second", 1, 2),
                ("native", 2, 1),
                ("native", 2, 2),
                ("second", 2, 1),
                ("second", 2, 2),
            ]
        );
        assert_eq!(lab.count("run_began"), 10);
        let [resumed] = &record.resumed[..] else {
            panic!("{:?}", record.resumed);
        };
        assert_eq!(resumed.anew.len(), 2);
        assert!(resumed.unix_ms > record.runs[1].started_unix_ms);
        let checks = record.runs.iter().flat_map(|run| &run.checks);
        assert_eq!(
            checks
                .clone()
                .filter(|check| check.held != Some(true))
                .count(),
            0
        );
        assert!(checks.count() >= 4);
        assert!(
            printed.contains("1/6") && printed.contains("resumed"),
            "{printed}"
        );
        assert_eq!(leases(&lab), 0);

        // A complete result leaves nothing to measure.
        let before = record.runs.clone();
        let (_, record, printed) = lab.ended(lab.begin("--resume", &[]));
        assert_eq!(record.runs, before, "{printed}");
        assert_eq!(record.resumed.len(), 1);
        assert!(printed.contains("already complete"), "{printed}");
        let quiet = finish(lab.begin("--resume", &["--quiet"]));
        assert_eq!(quiet.status.code(), Some(0));
        assert_eq!(
            (text(&quiet.stdout), text(&quiet.stderr)),
            Default::default()
        );
    }
}

#[test]
fn refuses_to_resume_another_experiment() {
    let lab = experiment();
    let only = ["--processes", "1", "--attempts", "1", "--quiet"];
    let (code_of_first, _, printed) = lab.run(&only);
    assert_eq!(code_of_first, 0, "{printed}");
    let events = || std::fs::read(lab.result().join("events.jsonl")).unwrap();
    let before = events();
    for (flags, printed) in [
        (
            vec!["--processes", "2", "--attempts", "1"],
            "per trial was 1, not 2",
        ),
        (
            [&only[..], &["--duration", "300ms"]].concat(),
            "the load of native has changed",
        ),
        (
            [&only[..], &["--only", "second"]].concat(),
            "the result has different trials: native, second",
        ),
        ([&only[..], &["--out", "other"]].concat(), "--out"),
    ] {
        let output = finish(lab.begin("--resume", &flags));
        assert_eq!(code(&output), 2, "{flags:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(printed), "{flags:?}: {stderr}");
    }
    assert_eq!(events(), before, "the refused command changed the result");
    let own = std::fs::read_to_string(lab.0.path().join("e.toml")).unwrap();
    let cpus = floodmark_host::Cpus::allowed().unwrap();
    lab.write(&format!(
        "{own}place = {{ cpus = {{ server = \"{cpus}\" }} }}\n"
    ));
    let output = finish(lab.begin("--resume", &only));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("the placement of second has changed"),
        "{stderr}"
    );
    lab.write(&own);

    let empty = lab.0.path().join("result/empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::rename(lab.result(), lab.0.path().join("kept")).unwrap();
    std::fs::rename(lab.0.path().join("kept/empty"), lab.result()).unwrap();
    let output = finish(lab.begin("--resume", &only));
    assert_eq!(code(&output), 2);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("choose another directory with --resume"),
        "{stderr}"
    );
}

#[test]
fn refuses_to_resume_a_single_load() {
    let lab = experiment();
    let directory = lab.result();
    std::fs::create_dir(&directory).unwrap();
    let (code_of_load, record, printed) = {
        let other = experiment();
        let ran = other.run(&["--processes", "1", "--quiet"]);
        let text = std::fs::read_to_string(other.result().join("events.jsonl")).unwrap();
        let without = text.lines().filter(|line| {
            let event: Event = serde_json::from_str(line).unwrap();
            !matches!(event, Event::Experiment(_))
        });
        let text: String = without.map(|line| format!("{line}\n")).collect();
        std::fs::write(directory.join("events.jsonl"), text).unwrap();
        ran
    };
    assert_eq!(code_of_load, 0, "{printed}");
    assert!(record.resumed.is_empty());
    let output = finish(lab.begin("--resume", &["--processes", "1"]));
    assert_eq!(code(&output), 2);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("not the result of an experiment"),
        "{stderr}"
    );
}
