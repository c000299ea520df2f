//! Manifests: what is read of them, and what is said of bad ones.

use std::fs;
use std::time::Duration;

use super::*;

/// A folder with `systems/one` and an experiment of the given text.
pub(super) struct Lab(tempfile::TempDir);

impl Lab {
    pub(super) fn new(system: &str, experiment: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let one = folder.path().join("systems/one");
        fs::create_dir_all(&one).unwrap();
        fs::write(one.join("system.toml"), system).unwrap();
        fs::create_dir(folder.path().join("experiments")).unwrap();
        fs::write(folder.path().join("experiments/e.toml"), experiment).unwrap();
        Lab(folder)
    }

    pub(super) fn read(&self) -> Result<Experiment, String> {
        let path = self.0.path().join("experiments/e.toml");
        Experiment::read(&path).map_err(|error| {
            // The folder's name is no matter.
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
fn a_whole_experiment() {
    let experiment = Lab::new(SYSTEM, EXPERIMENT).read().unwrap();
    assert_eq!((experiment.name.as_str(), experiment.processes), ("e", 3));
    let [one, mine] = &experiment.trials[..] else {
        panic!("{experiment:?}");
    };
    assert_eq!((one.name.as_str(), one.path.as_str()), ("one", "/"));
    assert_eq!(one.setting["threads"], "2");
    assert_eq!((one.ready.as_str(), mine.ready.as_str()), ("/", "/up"));
    assert_eq!(
        one.load.flags(),
        ["--connections=1k", "--duration=2s", "--rate=2500"]
    );
    assert_eq!(one.load.length(), Some(Duration::from_secs(2)));
    // A number of requests takes the place of the length.
    assert_eq!(
        mine.load.flags(),
        [
            "--connections=1k",
            "--fresh",
            "--rate=2500",
            "--requests=10"
        ]
    );
    assert_eq!(mine.load.length(), None);
    assert_eq!(
        (mine.path.as_str(), mine.server.port()),
        ("/up", Some(8000))
    );
    assert_eq!(mine.server.start().command[1], "server.py");
    let asked = experiment.asked();
    assert_eq!(asked.claims[0].published, Some(0.98));
    assert_eq!(asked.trials, ["one", "mine"]);
}

#[test]
fn a_trial_may_run_elsewhere_than_the_others() {
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
    let cpus = |wish: &Wish| wish.cpus.as_ref().map(ToString::to_string);
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
        "e.toml:18: server: expected CPUs, like \"0\" or \"0,2-3\", not \"three\""
    );
}

#[test]
fn ready_follows_the_workload_unless_it_is_said() {
    let own = |more: &str| {
        let text = format!("question = \"?\"\n[[trial]]\ncommand = \"x {{port}}\"\n{more}");
        Lab::new(SYSTEM, &text).read().unwrap().trials.remove(0)
    };
    let asked = |more| {
        let trial = own(more);
        (trial.ready, trial.path)
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
fn the_command_line_goes_before_the_file() {
    let lab = Lab::new(SYSTEM, EXPERIMENT);
    let changed = |changes: Changes| lab.read().unwrap().changed(&changes);
    let experiment = changed(Changes {
        only: vec!["mine".to_owned()],
        attempts: Some(4),
        processes: Some(2),
        duration: Some(Duration::from_millis(1500)),
        prove: true,
    })
    .unwrap();
    assert!(experiment.prove && !lab.read().unwrap().prove);
    let [mine] = &experiment.trials[..] else {
        panic!("{experiment:?}");
    };
    assert_eq!((experiment.processes, mine.load.attempts()), (2, 4));
    assert_eq!(mine.load.length(), Some(Duration::from_millis(1500)));
    let wrong = changed(Changes {
        only: vec!["min".to_owned()],
        ..Changes::default()
    });
    assert!(wrong.unwrap_err().contains("did you mean \"mine\"?"));
}

/// What is said of a trial of `one` with a store of the given keys; there is a store `two`.
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
fn a_store_of_a_name_or_at_an_address() {
    let of = |text: &str| {
        let experiment = stored(text).unwrap();
        experiment.trials[0].at.store.clone().unwrap()
    };
    let two = of("name = \"two\", setting = { heap = \"1g\" }, delay = \"20ms\"");
    let From::Started { store, setting } = &two.from else {
        panic!("{two:?}");
    };
    assert_eq!(
        (two.name(), two.delay),
        ("two", Some(Duration::from_millis(20)))
    );
    assert_eq!(
        (store.kind.as_deref(), setting["heap"].as_str()),
        (Some("cassandra"), "1g")
    );
    let there = of("url = \"db.local:5432\"");
    assert!(there.started().is_none() && there.delay.is_none());
    for (text, said) in [
        ("delay = \"1s\"", "e.toml:5: store: which one?"),
        (
            "name = \"tow\"",
            "e.toml:5: unknown store \"tow\"; did you mean \"two\"?",
        ),
        ("name = \"two\", url = \"x:1\"", "a name or a url, not both"),
        (
            "url = \"localhost\"",
            "expected host and port, like url = \"127.0.0.1:5432\"",
        ),
        (
            "url = \"x:1\", setting = { heap = 1 }",
            "write name in place of url",
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
fn a_workload_that_is_posted_is_sent_so_and_by_no_client_that_cannot() {
    let system = SYSTEM.replace("[\"hello\"]", "[\"hello\", \"scoring\"]");
    let text = "question = \"?\"\n[[trial]]\nsystem = \"one\"\nworkload = \"scoring\"\n";
    let experiment = Lab::new(&system, text).read().unwrap();
    assert_eq!(
        experiment.trials[0].request_flags(),
        [
            "--method=POST",
            "--body={\"score\": 10}",
            "--header=Content-Type: application/json",
            "--expect=status=200"
        ]
    );
    let lab = Lab::new(&system, &format!("{text}client = \"get\"\n"));
    let get = lab.0.path().join("clients/get");
    fs::create_dir_all(&get).unwrap();
    let client = "name = \"get\"\n[kept]\nduration = \"get {url}\"\n[figures]\nanswers = { find = '(\\d+) requests' }\n";
    fs::write(get.join("client.toml"), client).unwrap();
    let error = lab.read().unwrap_err();
    assert!(
        error.contains("client get sends GET alone, and scoring is POST /scoring"),
        "{error}"
    );
}

/// An experiment with a trial of `one` and more.
fn with_trials(trials: &str) -> Result<Experiment, String> {
    Lab::new(SYSTEM, &format!("question = \"?\"\n{trials}")).read()
}

#[test]
fn a_sweep_is_a_trial_for_each_combination() {
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
    let [sweep] = &experiment.asked().sweeps[..] else {
        panic!("{:?}", experiment.asked());
    };
    assert_eq!(sweep.knobs, ["threads", "journal"]);
    assert_eq!(sweep.points[3].values["journal"], "file");
    // By its own name all of it is meant, by a trial's that point.
    let only = |name: &str| {
        let changes = Changes {
            only: vec![name.to_owned()],
            ..Changes::default()
        };
        let kept = experiment.clone().changed(&changes).unwrap();
        (kept.trials.len(), kept.asked().sweeps[0].points.len())
    };
    assert_eq!(only("one"), (4, 4));
    assert_eq!(only("one-threads-4-journal-file"), (1, 1));
    for (text, said) in [
        (
            "threads = [9]",
            "e.toml:5: sweep: threads: expected a whole number from 1 to 4",
        ),
        ("threads = []", "sweep: threads has no values"),
        ("threads = [1, 1]", "sweep: threads: 1 is there twice"),
        ("", "sweep: which knob?"),
        (
            "thread = [1]",
            "one has no knob \"thread\"; did you mean \"threads\"?",
        ),
        ("threads = 1", "sweep: expected a table of lists"),
    ] {
        let error = with_trials(&trial(text)).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    let both = trial("threads = [1]") + "setting = { threads = 2 }\n";
    assert!(
        with_trials(&both)
            .unwrap_err()
            .contains("threads is in setting too")
    );
    let long = trial("threads = [1]") + &format!("name = \"{}\"\n", "x".repeat(35));
    assert!(
        with_trials(&long)
            .unwrap_err()
            .contains("give the trial a shorter name")
    );
}

#[test]
fn a_ladder_names_trials_in_order() {
    let trials = "[[trial]]\nsystem = \"one\"\nworkload = \"hello\"\n[[trial]]\nname = \"two\"\nsystem = \"one\"\nworkload = \"hello\"\n";
    let ladder = |steps: &str| with_trials(&format!("ladder = [{steps}]\n{trials}"));
    assert_eq!(
        ladder("\"two\", \"one\"").unwrap().asked().ladder,
        ["two", "one"]
    );
    for (steps, said) in [
        ("\"one\"", "e.toml:2: ladder: one step alone"),
        (
            "\"one\", \"tow\"",
            "ladder: unknown trial \"tow\"; did you mean \"two\"?",
        ),
        ("\"one\", \"one\"", "ladder: one is there twice"),
    ] {
        let error = ladder(steps).unwrap_err();
        assert!(error.contains(said), "{steps}: {error}");
    }
}

#[test]
fn expected_causes_are_those_of_the_catalogue() {
    let expecting = |cause: &str| {
        with_trials(&format!(
            "[[trial]]\nsystem = \"one\"\nworkload = \"hello\"\n[expect]\ncause = [\"gc\", \"{cause}\"]\n"
        ))
    };
    assert_eq!(
        expecting("server-cpu").unwrap().asked().expected_causes,
        ["gc", "server-cpu"]
    );
    let error = expecting("server-cpus").unwrap_err();
    assert!(
        error.contains("unknown cause \"server-cpus\"; did you mean \"server-cpu\"?"),
        "{error}"
    );
}
