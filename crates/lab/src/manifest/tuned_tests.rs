use super::*;
use crate::manifest::tests::Lab;

const SYSTEM: &str = r#"name = "one"
workloads = ["hello"]
[start]
command = "serve {port} {threads} {db-pool} {size} {unit} {heap}"
[knobs]
threads = { low = 1, high = 64 }
db-pool = { default = 0, low = 0, high = 32 }
size = { default = 8, values = [16, 2, 8] }
unit = { default = 2, high = 9, sizes = "threads" }
heap = { default = "512m" }
unused = { default = 1, high = 5 }
"#;

const EXPERIMENT: &str = r#"question = "How many?"
[[trial]]
name = "swept"
system = "one"
workload = "hello"
sweep = { threads = [1, 8], size = [2, 8] }
[[trial]]
name = "single"
system = "one"
workload = "hello"
setting = { threads = 4, heap = "1g" }
[[trial]]
name = "plain"
command = "serve {port}"
"#;

fn tuned(only: Option<&str>, knobs: &[&str]) -> Result<Experiment, String> {
    tuned_for(TuningGoal::Throughput, EXPERIMENT, only, knobs)
}

fn tuned_for(
    goal: TuningGoal,
    experiment: &str,
    only: Option<&str>,
    knobs: &[&str],
) -> Result<Experiment, String> {
    let request = TuningRequest {
        only: only.map(str::to_owned),
        knobs: knobs.iter().map(|knob| (*knob).to_owned()).collect(),
        goal,
    };
    let experiment = Lab::new(SYSTEM, experiment).read().unwrap();
    experiment.tuned(&request, |_| Ok(100))
}

fn error(only: Option<&str>, knobs: &[&str]) -> String {
    tuned(only, knobs).unwrap_err()
}

#[test]
fn tunes_a_sweep_from_the_default() {
    let experiment = tuned(Some("swept"), &["threads", "size"]).unwrap();
    let tuning = experiment.description.tuning.unwrap();
    let [threads, size] = &tuning.knobs[..] else {
        panic!("{tuning:?}");
    };
    // The default number of threads is reduced to the upper limit.
    assert_eq!((threads.default, threads.low, threads.high), (64, 1, 64));
    assert_eq!(
        (threads.sizes, size.sizes),
        (KnobKind::Threads, KnobKind::Other)
    );
    assert_eq!((size.default, size.low, size.high), (8, 2, 16));
    assert_eq!(size.values, [2, 8, 16]);
    assert_eq!(experiment.description.trials, ["swept"]);
    assert!(experiment.description.sweeps.is_empty());
    let [trial] = &experiment.trials[..] else {
        panic!("{:?}", experiment.trials);
    };
    assert_eq!(trial.name, "swept-threads-64-size-8");
    assert_eq!(trial.setting["threads"], "64");
}

#[test]
fn refuses_conditions_that_end_measurements_early() {
    let experiment = format!("abort-if = [\"errors > 20%\"]\n{EXPERIMENT}");
    let error = tuned_for(TuningGoal::Throughput, &experiment, Some("swept"), &[]).unwrap_err();
    assert!(
        error.starts_with("`abort-if` conflicts with tuning"),
        "{error}"
    );
}

#[test]
fn starts_with_the_trials_own_setting() {
    let experiment = tuned(Some("single"), &["threads"]).unwrap();
    assert_eq!(experiment.description.tuning.unwrap().knobs[0].default, 4);
    assert_eq!(experiment.trials[0].setting["heap"], "1g");
}

#[test]
fn infers_what_a_knob_sizes() {
    let experiment = tuned(Some("single"), &["db-pool", "unit"]).unwrap();
    let knobs = experiment.description.tuning.unwrap().knobs;
    let kinds: Vec<KnobKind> = knobs.iter().map(|knob| knob.sizes).collect();
    assert_eq!(kinds, [KnobKind::Connections, KnobKind::Threads]);
    // 0 stands for the server's own default. The search tries values from 1.
    assert_eq!((knobs[0].default, knobs[0].low), (0, 1));
}

#[test]
fn refuses_ambiguous_and_unsuitable_knobs() {
    for (only, knobs, expected) in [
        (
            None,
            &["threads"][..],
            "several trials with knobs (swept, single); choose one with --only",
        ),
        (Some("plain"), &[], "plain has no numeric knob"),
        (
            Some("swpt"),
            &[],
            "--only swpt: no trial or system has this name; did you mean \"swept\"?",
        ),
        (
            Some("one"),
            &[],
            "several trials with knobs (swept, single)",
        ),
        (
            Some("single"),
            &[],
            "at most 2 knobs; choose from db-pool, size, threads, unit",
        ),
        (
            Some("single"),
            &["heap"],
            "--knob heap: the knob is not numeric",
        ),
        (
            Some("single"),
            &["unused"],
            "\"unused\" has no effect; add {unused} to the server's command",
        ),
        (
            Some("single"),
            &["thraeds"],
            "one has no such knob; did you mean \"threads\"?",
        ),
    ] {
        let message = error(only, knobs);
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn only_a_tuning_for_capacity_keeps_the_objectives() {
    // A search conflicts with a sweep.
    let unswept = EXPERIMENT.replace("sweep = { threads = [1, 8], size = [2, 8] }\n", "");
    let experiment = format!("{unswept}[capacity]\nslo = [\"p99 < 20ms\"]\n");
    let tuned = |goal| tuned_for(goal, &experiment, Some("single"), &["threads"]).unwrap();
    let capacity = tuned(TuningGoal::Capacity);
    assert_eq!(capacity.capacity.unwrap().objectives.len(), 1);
    let described = capacity.description.capacity.unwrap();
    assert_eq!(described.objectives, ["p99 < 20ms"]);
    let throughput = tuned(TuningGoal::Throughput);
    assert!(throughput.capacity.is_none() && throughput.description.capacity.is_none());
    let goal = TuningGoal::Capacity;
    assert_eq!(
        tuned_for(goal, EXPERIMENT, Some("single"), &["threads"]).unwrap_err(),
        "--for capacity: the experiment has no objectives; add [capacity] with slo = [\"p99 < 20ms\"]"
    );
}

#[test]
fn a_users_own_server_has_knobs() {
    let read = |command: &str, keys: &str| {
        let experiment =
            format!("question = \"?\"\n[[trial]]\nname = \"mine\"\n{command}\n{keys}\n");
        Lab::new(SYSTEM, &experiment).read()
    };
    let command = "command = \"serve {port} --size {size}\"";
    let knob = "knobs.size = { default = 2, high = 8 }";
    let swept = read(command, &format!("{knob}\nsweep = {{ size = [1, 8] }}")).unwrap();
    let names: Vec<&str> = swept
        .trials
        .iter()
        .map(|trial| trial.name.as_str())
        .collect();
    assert_eq!(names, ["mine-size-1", "mine-size-8"]);
    let set = read(command, &format!("{knob}\nsetting = {{ size = 4 }}")).unwrap();
    assert_eq!(set.trials[0].setting["size"], "4");
    for (command, keys, expected) in [
        (command, "", "e.toml:4: command: unknown placeholder {size}"),
        (
            "command = \"serve {port}\"",
            "setting = { size = 4 }",
            "e.toml:5: setting: the server has no knobs",
        ),
        (
            "command = \"serve {port}\"",
            knob,
            "e.toml:5: the knob \"size\" has no effect; add {size} to the command",
        ),
        (
            "system = \"one\"\nworkload = \"hello\"",
            knob,
            "e.toml:6: `knobs` requires your own server",
        ),
        (
            command,
            &format!("{knob}\nsetting = {{ size = 9 }}"),
            "e.toml:6: setting: size: expected an integer from 0 to 8",
        ),
    ] {
        let message = read(command, keys).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
    }
}
