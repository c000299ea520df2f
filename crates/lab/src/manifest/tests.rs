//! Tests that manifests are read correctly.

use std::fs;
use std::time::Duration;

use floodmark_observe::StoreKind;
use floodmark_plan::LoadSpec;
use floodmark_plan::spec::BodySource;
use floodmark_record::plan::Expect;

use super::*;

/// A temporary directory that contains `systems/one` and an experiment.
pub(super) struct Lab(tempfile::TempDir);

impl Lab {
    pub(super) fn new(system: &str, experiment: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let one = directory.path().join("systems/one");
        fs::create_dir_all(&one).unwrap();
        fs::write(one.join("system.toml"), system).unwrap();
        fs::create_dir(directory.path().join("experiments")).unwrap();
        fs::write(directory.path().join("experiments/e.toml"), experiment).unwrap();
        Lab(directory)
    }

    /// Writes another file.
    pub(super) fn write(&self, path: &str, text: &str) {
        fs::write(self.0.path().join(path), text).unwrap();
    }

    pub(super) fn read(&self) -> Result<Experiment, String> {
        let path = self.0.path().join("experiments/e.toml");
        Experiment::read(&path).map_err(|error| {
            // Remove the path of the temporary directory.
            let file = error.place.rsplit('/').next().unwrap();
            format!("{file}: {}", error.what)
        })
    }
}

pub const SYSTEM: &str = r#"name = "one"
workloads = ["hello"]
[start]
command = "serve {port} {threads} {journal}"
[knobs]
threads = { low = 1, high = 4 }
journal = { default = "none", values = ["none", "file"] }
"#;

pub const EXPERIMENT: &str = r#"question = "Which?"
[load]
connections = "1k"
duration = "2s"
rate = 2500
[place]
hosts = "shared"
processes = 3
[[trial]]
system = "one"
workload = "hello"
setting = { threads = 2 }
[[trial]]
name = "mine"
command = "python3 server.py --port {port}"
ready = "GET /up"
port = 8000
load = { requests = 10, fresh = true }
[[claim]]
text = "no difference"
ratio = ["one", "mine"]
published = 0.98
[expect]
cause = ["server-cpu"]
check = "violated"
"#;

#[test]
fn reads_an_experiment() {
    let experiment = Lab::new(SYSTEM, EXPERIMENT).read().unwrap();
    let asked = &experiment.description;
    assert_eq!((asked.name.as_str(), asked.processes), ("e", 3));
    let [one, mine] = &experiment.trials[..] else {
        panic!("{experiment:?}");
    };
    assert_eq!((one.name.as_str(), one.path.as_str()), ("one", "/"));
    assert_eq!(one.setting["threads"], "2");
    let ready = [one, mine].map(|trial| trial.ready.as_deref());
    assert_eq!(ready, [Some("/"), Some("/up")]);
    let seconds = Duration::from_secs;
    assert_eq!(
        one.load,
        LoadSpec {
            connections: Some(1000),
            duration: Some(seconds(2)),
            rate: floodmark_record::units::Rate::new(2500.0),
            ..LoadSpec::default()
        }
    );
    assert_eq!(one.load.length(), Some(Duration::from_secs(2)));
    // A fixed number of requests replaces the experiment's duration.
    assert_eq!(
        mine.load,
        LoadSpec {
            duration: None,
            requests: Some(10),
            fresh: Some(true),
            ..one.load.clone()
        }
    );
    assert_eq!(mine.load.length(), None);
    assert_eq!((mine.path.as_str(), mine.port), ("/up", Some(8000)));
    assert_eq!(mine.server.start.command[1], "server.py");
    assert_eq!(asked.claims[0].published, Some(0.98));
    assert_eq!(asked.trials, ["one", "mine"]);
}

#[test]
fn overrides_the_placement_of_a_trial() {
    let text = EXPERIMENT
        .replace(
            "processes = 3",
            "cpus = { client = \"0\", server = \"2, 1\" }",
        )
        .replace(
            "port = 8000",
            "port = 8000\nplace = { cpus = { server = \"3\" } }",
        );
    let experiment = Lab::new(SYSTEM, &text).read().unwrap();
    let cpus = |placement: &PlacementSpec| placement.cpus.as_ref().map(ToString::to_string);
    let [one, mine] = [0, 1].map(|i| &experiment.trials[i].at);
    assert_eq!(cpus(&one.client).as_deref(), Some("0"));
    assert_eq!(cpus(&one.server).as_deref(), Some("1-2"));
    assert_eq!(
        (cpus(&mine.client), cpus(&mine.server).as_deref()),
        (None, Some("3"))
    );
    let wrong = text.replace("\"3\"", "\"three\"");
    assert_eq!(
        Lab::new(SYSTEM, &wrong).read().unwrap_err(),
        "e.toml:18: server: expected a list of CPUs such as \"0\" or \"0,2-3\", not \"three\""
    );
}

#[test]
fn ready_defaults_to_the_path_of_the_workload() {
    let own = |more: &str| {
        let text = format!("question = \"?\"\n[[trial]]\ncommand = \"x {{port}}\"\n{more}");
        Lab::new(SYSTEM, &text).read().unwrap().trials.remove(0)
    };
    let asked = |more| {
        let trial = own(more);
        (trial.ready.unwrap(), trial.path)
    };
    let paths = |ready: &str, path: &str| (ready.to_owned(), path.to_owned());
    assert_eq!(asked(""), paths("/", "/"));
    assert_eq!(asked("workload = \"json\""), paths("/json", "/json"));
    assert_eq!(asked("ready = \"GET /up\""), paths("/up", "/up"));
    assert_eq!(
        asked("workload = \"json\"\nready = \"GET /up\""),
        paths("/up", "/json")
    );
}

#[test]
fn a_system_without_workloads_has_a_path() {
    let system = SYSTEM
        .replace("[\"hello\"]", "[]")
        .replace("[start]", "[start]\nready = \"GET /items\"");
    let experiment = "question = \"?\"\n[[trial]]\nsystem = \"one\"\n";
    let trial = Lab::new(&system, experiment)
        .read()
        .unwrap()
        .trials
        .remove(0);
    assert_eq!((trial.workload, trial.path.as_str()), (None, "/items"));
    let error = Lab::new(SYSTEM, experiment).read().unwrap_err();
    assert_eq!(error, "e.toml:2: workload is missing; one serves hello");
    let wrong = format!("{experiment}workload = \"hello\"\n");
    let error = Lab::new(&system, &wrong).read().unwrap_err();
    let words = "e.toml:4: workload: one does not serve hello; remove workload";
    assert_eq!(error, words);
}

#[test]
fn applies_changes_from_the_command_line() {
    let lab = Lab::new(SYSTEM, EXPERIMENT);
    let changed = |changes: Changes| lab.read().unwrap().changed(&changes);
    let experiment = changed(Changes {
        only: vec!["mine".to_owned()],
        attempts: Some(4),
        processes: Some(2),
        duration: Some(Duration::from_millis(1500)),
        prove: true,
        ..Changes::default()
    })
    .unwrap();
    assert!(experiment.prove && !lab.read().unwrap().prove);
    let [mine] = &experiment.trials[..] else {
        panic!("{experiment:?}");
    };
    assert_eq!(
        (experiment.description.processes, mine.load.attempt_count()),
        (2, 4)
    );
    assert_eq!(mine.load.length(), Some(Duration::from_millis(1500)));
    let wrong = changed(Changes {
        only: vec!["min".to_owned()],
        ..Changes::default()
    });
    assert!(wrong.unwrap_err().contains("did you mean \"mine\"?"));
}

/// Reads an experiment that has a trial of `one` with the given `store`. A store `two` exists.
fn stored(store: &str) -> Result<Experiment, String> {
    let system = SYSTEM.replace("{journal}\"", "{journal} {store}\"");
    let lab = Lab::new(
        &system,
        &format!(
            "question = \"?\"\n[[trial]]\nsystem = \"one\"\nworkload = \"hello\"\nstore = {{ {store} }}\n"
        ),
    );
    let two = lab.0.path().join("stores/two");
    fs::create_dir_all(&two).unwrap();
    let text = "name = \"two\"\nkind = \"cassandra\"\n[start]\ncommand = \"db {port} {other-port} {data} {heap}\"\n[knobs]\nheap = { default = \"256m\", values = [\"256m\", \"1g\"] }\n";
    fs::write(two.join("store.toml"), text).unwrap();
    lab.read()
}

#[test]
fn reads_a_store_by_name_or_address() {
    let of = |text: &str| {
        let experiment = stored(text).unwrap();
        experiment.trials[0].at.store.clone().unwrap()
    };
    let two = of("name = \"two\", setting = { heap = \"1g\" }, delay = \"20ms\"");
    let StoreSource::Started { store, setting } = &two.from else {
        panic!("{two:?}");
    };
    assert_eq!(
        (two.name(), two.delay),
        ("two", Some(Duration::from_millis(20)))
    );
    assert_eq!(
        (store.kind, setting["heap"].as_str()),
        (Some(StoreKind::Cassandra), "1g")
    );
    let running = of("url = \"db.local:5432\"");
    assert!(running.started().is_none() && running.delay.is_none());
    for (text, said) in [
        (
            "delay = \"1s\"",
            "e.toml:5: `store` has neither `name` nor `url`",
        ),
        (
            "name = \"tow\"",
            "e.toml:5: unknown store \"tow\"; did you mean \"two\"?",
        ),
        (
            "name = \"two\", url = \"x:1\"",
            "`url` conflicts with `name`",
        ),
        (
            "url = \"localhost\"",
            "expected host and port, like url = \"127.0.0.1:5432\"",
        ),
        (
            "url = \"x:1\", setting = { heap = 1 }",
            "replace `url` with `name`",
        ),
        (
            "name = \"two\", setting = { heap = \"2g\" }",
            "heap: unknown value \"2g\"",
        ),
        (
            "name = \"two\", setting = { heep = 1 }",
            "two has no knob \"heep\"; did you mean \"heap\"?",
        ),
    ] {
        let error = stored(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn refuses_a_post_workload_for_a_client_without_post() {
    let system = SYSTEM.replace("[\"hello\"]", "[\"hello\", \"scoring\"]");
    let text = "question = \"?\"\n[[trial]]\nsystem = \"one\"\nworkload = \"scoring\"\n";
    let experiment = Lab::new(&system, text).read().unwrap();
    let spec = experiment.trials[0].spec(None);
    assert_eq!(spec.method.as_deref(), Some("POST"));
    assert_eq!(
        spec.load.body,
        Some(BodySource::Text("{\"score\": 10}".to_owned()))
    );
    let json = ("Content-Type".to_owned(), "application/json".to_owned());
    assert_eq!(spec.headers, [json]);
    assert_eq!(spec.load.expect, [Expect::Status(200)]);
    let lab = Lab::new(&system, &format!("{text}client = \"get\"\n"));
    let get = lab.0.path().join("clients/get");
    fs::create_dir_all(&get).unwrap();
    let client = "name = \"get\"\n[kept]\nduration = \"get {url}\"\n[figures]\nanswers = { find = '(\\d+) requests' }\n";
    fs::write(get.join("client.toml"), client).unwrap();
    let error = lab.read().unwrap_err();
    assert!(
        error.contains("client get sends only GET requests, but scoring requires POST /scoring"),
        "{error}"
    );
}

/// Reads an experiment with the given trials.
fn with_trials(trials: &str) -> Result<Experiment, String> {
    Lab::new(SYSTEM, &format!("question = \"?\"\n{trials}")).read()
}

#[test]
fn expands_a_sweep_to_a_trial_per_combination() {
    let trial = |sweep: &str| {
        format!("[[trial]]\nsystem = \"one\"\nworkload = \"hello\"\nsweep = {{ {sweep} }}\n")
    };
    let experiment =
        with_trials(&trial("threads = [1, 4], journal = [\"none\", \"file\"]")).unwrap();
    let names: Vec<&str> = experiment.trials.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "one-threads-1-journal-none",
            "one-threads-4-journal-none",
            "one-threads-1-journal-file",
            "one-threads-4-journal-file"
        ]
    );
    assert_eq!(experiment.trials[1].setting["threads"], "4");
    let [sweep] = &experiment.description.sweeps[..] else {
        panic!("{:?}", experiment.description);
    };
    assert_eq!(sweep.knobs, ["threads", "journal"]);
    assert_eq!(sweep.points[3].values["journal"], "file");
    // A sweep's name selects all trials of the sweep. A trial's name selects that trial.
    let only = |name: &str| {
        let changes = Changes {
            only: vec![name.to_owned()],
            ..Changes::default()
        };
        let kept = experiment.clone().changed(&changes).unwrap();
        (kept.trials.len(), kept.description.sweeps[0].points.len())
    };
    assert_eq!(only("one"), (4, 4));
    assert_eq!(only("one-threads-4-journal-file"), (1, 1));
    for (text, said) in [
        (
            "threads = [9]",
            "e.toml:5: sweep: threads: expected an integer from 1 to 4",
        ),
        ("threads = []", "sweep: `threads` has no values"),
        ("threads = [1, 1]", "sweep: threads: duplicate value 1"),
        ("", "sweep: no knob"),
        (
            "thread = [1]",
            "one has no knob \"thread\"; did you mean \"threads\"?",
        ),
        (
            "threads = 1",
            "e.toml:5: threads: invalid type: integer `1`, expected a sequence",
        ),
    ] {
        let error = with_trials(&trial(text)).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    let both = trial("threads = [1]") + "setting = { threads = 2 }\n";
    assert!(
        with_trials(&both)
            .unwrap_err()
            .contains("`threads` is in both `sweep` and `setting`")
    );
    let long = trial("threads = [1]") + &format!("name = \"{}\"\n", "x".repeat(35));
    assert!(
        with_trials(&long)
            .unwrap_err()
            .contains("give the trial a shorter name")
    );
}

#[test]
fn reads_a_ladder_of_trials() {
    let trials = "[[trial]]\nsystem = \"one\"\nworkload = \"hello\"\n[[trial]]\nname = \"two\"\nsystem = \"one\"\nworkload = \"hello\"\n";
    let ladder = |steps: &str| with_trials(&format!("ladder = [{steps}]\n{trials}"));
    assert_eq!(
        ladder("\"two\", \"one\"").unwrap().description.ladder,
        ["two", "one"]
    );
    for (steps, said) in [
        (
            "\"one\"",
            "e.toml:2: ladder: a ladder needs at least 2 steps",
        ),
        (
            "\"one\", \"tow\"",
            "ladder: unknown trial \"tow\"; did you mean \"two\"?",
        ),
        ("\"one\", \"one\"", "ladder: duplicate step \"one\""),
    ] {
        let error = ladder(steps).unwrap_err();
        assert!(error.contains(said), "{steps}: {error}");
    }
}

#[test]
fn refuses_unknown_expected_causes_and_steps() {
    let expecting = |expect: &str| {
        with_trials(&format!(
            "[[trial]]\nsystem = \"one\"\nworkload = \"hello\"\n[expect]\n{expect}\n"
        ))
    };
    let expected = expecting(
        "cause = [\"gc\", \"server-cpu\"]\nalso = [\"errors\"]\npath = [\"threads server\", \"cpu server\"]",
    );
    let expected = expected.unwrap().description;
    assert_eq!(expected.expected_causes, ["gc", "server-cpu"]);
    assert_eq!(expected.expected_also, ["errors"]);
    assert_eq!(expected.expected_path, ["threads server", "cpu server"]);
    for (expect, message) in [
        (
            "cause = [\"server-cpus\"]",
            "cause: unknown cause \"server-cpus\"; did you mean \"server-cpu\"?",
        ),
        (
            "also = [\"errors here\"]",
            "also: unknown cause \"errors here\"",
        ),
        (
            "path = [\"cpu server\", \"thread server\"]",
            "path: unknown step \"thread\"; did you mean \"threads\"?",
        ),
    ] {
        let error = expecting(expect).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn reads_conditions_that_end_a_measurement() {
    let reading = |text: &str| {
        let head = "question = \"?\"\n";
        let experiment = format!("{head}{text}\n[[trial]]\ncommand = \"x {{port}}\"\n");
        Lab::new(SYSTEM, &experiment).read()
    };
    let experiment = reading("abort-if = [\"errors > 20% for 2s\", \"p99 > 1s\"]").unwrap();
    let conditions = experiment.abort_if.iter().map(ToString::to_string);
    assert!(conditions.eq(["errors > 20% for 2s", "p99 > 1s for 5s"]));
    for (text, message) in [
        (
            "abort-if = [\"errors > 20\"]",
            "e.toml:2: abort-if: in \"errors > 20\"",
        ),
        ("abort-if = [\"a: errors > 20%\"]", "trials have no mix"),
        (
            "abort-if = [\"errors > 20%\"]\n[capacity]\nslo = [\"p99 < 20ms\"]",
            "`abort-if` conflicts with [capacity]",
        ),
    ] {
        let error = reading(text).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn keeps_the_length_of_a_burst() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("e.toml");
    let text = "question = \"?\"\n[load]\nburst = \"2k\"\nwithin = \"3s\"\n[[trial]]\ncommand = \"x {port}\"\n";
    fs::write(&path, text).unwrap();
    let experiment = Experiment::read(&path).unwrap();
    let load = &experiment.trials[0].load;
    assert_eq!(
        (load.burst, load.within),
        (Some(2000), Some(Duration::from_secs(3)))
    );
    assert_eq!(load.length(), Some(Duration::from_secs(3)));
    let refused = experiment.changed(&Changes {
        duration: Some(Duration::from_secs(1)),
        ..Changes::default()
    });
    assert!(
        refused
            .unwrap_err()
            .contains("--duration conflicts with `burst`")
    );
}
