//! A result that was cut short is gone on with: what it holds whole stays, the rest is measured anew.

use floodmark_record::events::Event;

use super::{Lab, NATIVE, leases};
use crate::support::{code, finish, signal, text, wait_for};

/// Two trials, two processes of each, two attempts on each process.
fn experiment() -> Lab {
    let second = NATIVE.replace("hello", "dispatcher") + "name = \"second\"\n";
    let check = "load = { check = \"sequence\" }\n";
    Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"400ms\"\nattempts = 2\n[place]\nprocesses = 2\n\
         {NATIVE}{second}{check}"
    ))
}

/// Events of a kind that a result holds so far.
fn count(lab: &Lab, event: &str) -> usize {
    let events = std::fs::read_to_string(lab.result().join("events.jsonl"));
    let named = format!("\"event\":\"{event}\"");
    events.map_or(0, |text| text.matches(&named).count())
}

#[test]
fn what_is_whole_stays_and_the_rest_is_measured_anew() {
    for kill in [libc::SIGINT, libc::SIGKILL] {
        let lab = experiment();
        let mut child = lab.start(&["--quiet"]);
        // In the second attempt on the first process of the second trial.
        wait_for("the fourth run", || {
            (count(&lab, "run_began") == 4).then_some(())
        });
        let begun = finish(lab.begin("--resume", &[]));
        assert_eq!(code(&begun), 2);
        let said = text(&begun.stderr);
        assert!(said.contains("another floodmark"), "{said}");
        signal(child.id(), kill);
        child.wait().unwrap();

        let (code, record, said) = lab.ended(lab.begin("--resume", &[]));
        assert!(matches!(code, 0 | 4), "{said}");
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
        assert_eq!(count(&lab, "run_began"), 10);
        let [resumed] = &record.resumed[..] else {
            panic!("{:?}", record.resumed);
        };
        assert_eq!(resumed.anew.len(), 2);
        assert!(resumed.unix_ms > record.runs[1].started_unix_ms);
        let checks = record.runs.iter().flat_map(|run| &run.checks);
        assert_eq!(checks.clone().filter(|check| !check.held).count(), 0);
        assert!(checks.count() >= 4);
        assert!(said.contains("1/6") && said.contains("resumed"), "{said}");
        assert_eq!(leases(&lab), 0);

        // Whole as it is now, there is nothing left to measure.
        let before = record.runs.clone();
        let (_, record, said) = lab.ended(lab.begin("--resume", &[]));
        assert_eq!(record.runs, before, "{said}");
        assert_eq!(record.resumed.len(), 2);
    }
}

#[test]
fn another_question_or_load_is_refused() {
    let lab = experiment();
    let only = ["--processes", "1", "--attempts", "1", "--quiet"];
    let (code_of_first, ..) = lab.run(&only);
    assert!(matches!(code_of_first, 0 | 4));
    let events = || std::fs::read(lab.result().join("events.jsonl")).unwrap();
    let before = events();
    for (flags, said) in [
        (vec!["--processes", "2", "--attempts", "1"], "1 processes"),
        (
            [&only[..], &["--duration", "300ms"]].concat(),
            "native was loaded otherwise",
        ),
        (
            [&only[..], &["--only", "second"]].concat(),
            "its trials are native, second",
        ),
        ([&only[..], &["--out", "other"]].concat(), "--out"),
    ] {
        let output = finish(lab.begin("--resume", &flags));
        assert_eq!(code(&output), 2, "{flags:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(said), "{flags:?}: {stderr}");
    }
    assert_eq!(events(), before, "a refusal leaves the result as it is");
    let own = std::fs::read_to_string(lab.0.path().join("e.toml")).unwrap();
    let cpus = floodmark_host::Cpus::allowed().unwrap();
    lab.write(&format!(
        "{own}place = {{ cpus = {{ server = \"{cpus}\" }} }}\n"
    ));
    let output = finish(lab.begin("--resume", &only));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("ran on other hosts or CPUs then"),
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
        stderr.contains("name another one with --resume"),
        "{stderr}"
    );
}

#[test]
fn events_of_one_load_are_no_experiment() {
    let lab = experiment();
    let folder = lab.result();
    std::fs::create_dir(&folder).unwrap();
    let (code_of_load, record, _) = {
        let other = experiment();
        let ran = other.run(&["--processes", "1", "--quiet"]);
        let text = std::fs::read_to_string(other.result().join("events.jsonl")).unwrap();
        let without = text.lines().filter(|line| {
            let event: Event = serde_json::from_str(line).unwrap();
            !matches!(event, Event::Experiment(_))
        });
        let text: String = without.map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.join("events.jsonl"), text).unwrap();
        ran
    };
    assert!(matches!(code_of_load, 0 | 4) && record.resumed.is_empty());
    let output = finish(lab.begin("--resume", &["--processes", "1"]));
    assert_eq!(code(&output), 2);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("no result of an experiment"), "{stderr}");
}
