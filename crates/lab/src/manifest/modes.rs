//! Reads `[crash]`, `[capacity]` and `[gate]`. An experiment with one of these sections does not
//! measure each trial a fixed number of times.

use std::path::Path;
use std::time::Duration;

use floodmark_diagnose::conditions::{Objective, check_objectives};
use floodmark_plan::spec::CheckKind;
use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{Count, CrashTime, Name, Percentage, PositiveDuration};
use floodmark_plan::{CheckFile, FileError};
use floodmark_record::api_check::ApiCheckKind;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::crash::{CrashSettings, CrashSignal, CrashTarget};
use floodmark_record::gate::GateRules;
use floodmark_record::plan::DEFAULT_TIMEOUT;
use schemars::JsonSchema;
use serde::Deserialize;

use super::experiment::unknown_trial;
use super::trial::Trial;
use crate::capacity::check_budget;

/// Returns the name of the first key or flag that is given.
pub(super) fn first_given<'a>(keys: &[(&'a str, bool)]) -> Option<&'a str> {
    let mut given = keys.iter().filter(|(_, is_given)| *is_given);
    given.next().map(|(key, _)| *key)
}

/// Default range for the time from the start of the load to the crash.
const RANDOM: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// `[crash]` of an experiment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CrashSection {
    /// Number of rounds per trial. In each round, floodmark sends load, sends the signal, starts the
    /// process again under load, and compares the recovered state with the acknowledged requests.
    rounds: Located<Count<1, 10_000>>,
    /// Process to crash: "server" or "store". Default: "server".
    #[serde(default)]
    kill: CrashTarget,
    /// Signal to send: "KILL", "TERM" or "STOP". "STOP" pauses the process for longer than the
    /// request timeout, and then resumes it with SIGCONT. Default: "KILL".
    #[serde(default)]
    signal: CrashSignal,
    /// Whether to start the process again. Must be true. Default: true.
    restart: Option<Located<bool>>,
    /// Time from the start of the load, after any warm-up, to the signal: "random", a duration, or
    /// a range such as "200ms-1s". Each round uses a random time from the range. Default: "random",
    /// from 500ms to 2s.
    at: Option<CrashTime>,
}

/// Checks and returns the settings of an experiment's crash rounds.
pub(super) fn crash_settings(
    file: &TomlFile,
    section: &Located<CrashSection>,
    trials: &[Trial],
) -> Result<CrashSettings, FileError> {
    if let Some(restart) = &section.restart
        && !**restart
    {
        let what = "restart: floodmark compares the state before and after a restart; remove `restart`, or write restart = true";
        return Err(file.error(&restart.span(), what));
    }
    for trial in trials {
        if let Some(what) = crash_refusal(trial, section.kill)? {
            return Err(file.error(&section.span(), format!("{}: {what}", trial.name)));
        }
    }
    let (from, to) = match &section.at {
        None | Some(CrashTime(None)) => RANDOM,
        Some(CrashTime(Some(range))) => *range,
    };
    Ok(CrashSettings {
        rounds: section.rounds.0 as u32,
        kill: section.kill,
        signal: section.signal,
        from_s: from.as_secs_f64(),
        to_s: to.as_secs_f64(),
    })
}

/// Returns why a trial cannot have crash rounds, and how to fix it.
///
/// # Errors
/// The trial's check file cannot be read or is invalid.
fn crash_refusal(trial: &Trial, kill: CrashTarget) -> Result<Option<String>, FileError> {
    let (load, store) = (&trial.load, trial.at.store.as_ref());
    let lengths = ["duration", "requests", "burst", "attempts"];
    let length = load.given().find(|key| lengths.contains(key));
    let what = if load.check.is_none() {
        "crash rounds need a check; add check = \"sequence\", check = \"scoring\" or a check file to its load"
    } else if trial.client.is_some() {
        "only floodmark can generate the load for crash rounds; remove `client`"
    } else if kill == CrashTarget::Store && store.is_none_or(|store| store.started().is_none()) {
        "kill = \"store\" needs a store that floodmark starts; add store = { name = \"…\" } to the trial"
    } else if trial.at.delay.is_some() {
        "`delay` conflicts with crash rounds; remove it"
    } else if trial.at.agents.is_some() {
        "`agents` conflicts with crash rounds; remove it from [place]"
    } else if let Some(key) = length {
        return Ok(Some(format!(
            "the crash determines the length of each round; remove `{key}` from the trial's load"
        )));
    } else if let Some(CheckKind::File(path)) = &load.check
        && check_kind(path, trial)? == ApiCheckKind::Counter
    {
        "crash rounds do not support check files of kind \"counter\"; use kind \"register\" or \"set\", or check = \"sequence\" if each response is the next number of one counter"
    } else {
        return Ok(None);
    };
    Ok(Some(what.to_owned()))
}

/// Reads the kind of a trial's check file.
fn check_kind(path: &Path, trial: &Trial) -> Result<ApiCheckKind, FileError> {
    let file = CheckFile::read(path, &trial.spec(None)).map_err(|error| FileError {
        place: trial.place.clone(),
        what: format!("load: `check` {error}"),
    })?;
    Ok(file.check.kind)
}

/// Default length of a search.
const SEARCH_BUDGET: Duration = Duration::from_secs(60);

/// `[capacity]` of an experiment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CapacitySection {
    /// Objectives that each server must meet, such as ["p99 < 20ms", "errors < 0.1%"].
    slo: Vec<Located<String>>,
    /// Maximum duration of the search on each server process, excluding the warm-up; at least 15s.
    /// Default: 60s.
    budget: Option<PositiveDuration>,
}

/// Search for the capacity of each server process.
#[derive(Debug, Clone)]
pub struct CapacitySearchPlan {
    /// Objectives that each server must meet.
    pub objectives: Vec<Objective>,
    /// Maximum length of each search.
    pub budget: Duration,
}

/// Checks the search of an experiment.
pub(super) fn capacity_search(
    file: &TomlFile,
    section: &Located<CapacitySection>,
    trials: &[Trial],
) -> Result<CapacitySearchPlan, FileError> {
    let invalid = |what: String| file.error(&section.span(), format!("[capacity]: {what}"));
    let mut objectives: Vec<Objective> = Vec::new();
    for text in &section.slo {
        let objective: Objective = text
            .parse()
            .map_err(|error| file.error(&text.span(), format!("slo: {error}")))?;
        if objective.group.is_some() {
            let what = format!(
                "slo: '{}': trials have no mix; remove the part before the colon",
                **text
            );
            return Err(file.error(&text.span(), what));
        }
        objectives.push(objective);
    }
    if objectives.is_empty() {
        return Err(invalid(
            "slo has no objectives; add one, such as slo = [\"p99 < 20ms\"]".to_owned(),
        ));
    }
    for trial in trials {
        let timeout = trial.load.timeout.unwrap_or(DEFAULT_TIMEOUT);
        check_objectives(&objectives, timeout).map_err(|what| invalid(format!("slo: {what}")))?;
        if let Some(what) = search_refusal(trial) {
            return Err(invalid(format!("{}: {what}", trial.name)));
        }
    }
    let budget = section
        .budget
        .as_ref()
        .map_or(SEARCH_BUDGET, |budget| budget.0);
    check_budget(budget).map_err(|what| invalid(format!("budget: {what}")))?;
    Ok(CapacitySearchPlan { objectives, budget })
}

/// Returns why a search cannot find a trial's capacity, and how to fix it.
fn search_refusal(trial: &Trial) -> Option<String> {
    if trial.client.is_some() {
        return Some(
            "only floodmark can generate the loads for a search; remove `client`".to_owned(),
        );
    }
    let keys = [
        "duration", "requests", "rate", "burst", "within", "arrivals", "attempts", "check",
    ];
    let given = trial.load.given().find(|key| keys.contains(key));
    given.map(|key| format!("the search chooses its loads; remove `{key}` from the load"))
}

/// Default time limit of a gate.
const GATE_BUDGET: Duration = Duration::from_secs(90);

/// Default margin of a gate, as a share.
const DEFAULT_MARGIN: f64 = 0.05;

/// `[gate]` of an experiment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GateSection {
    /// Name of the baseline trial. Default: the first trial.
    baseline: Option<Located<Name>>,
    /// Metric to compare. Default: throughput.
    metric: Option<Located<ComparedMetric>>,
    /// Smallest degradation that the gate must detect, such as "5%". Default: 5%.
    margin: Option<Percentage>,
    /// Time limit, excluding builds. Default: 90s.
    budget: Option<PositiveDuration>,
    /// Whether both servers run at the same time and are loaded alternately. Default: true if the
    /// load, the metric and the servers allow it.
    alternating: Option<Located<bool>>,
}

/// Checks the gate of an experiment.
pub(super) fn gate_rules(
    file: &TomlFile,
    section: &Located<GateSection>,
    trials: &[Trial],
) -> Result<GateRules, FileError> {
    let invalid = |what: String| file.error(&section.span(), format!("[gate]: {what}"));
    let [first, second] = trials else {
        return Err(invalid(format!(
            "compares 2 trials, but the experiment has {}; keep a baseline and a candidate",
            trials.len()
        )));
    };
    let (baseline, candidate) = match &section.baseline {
        None => (first, second),
        Some(name) if name.0 == first.name => (first, second),
        Some(name) if name.0 == second.name => (second, first),
        Some(name) => {
            let what = format!("baseline: {}", unknown_trial(&name.0, trials));
            return Err(file.error(&name.span(), what));
        }
    };
    if (&first.load, &first.path) != (&second.load, &second.path) {
        return Err(invalid(format!(
            "{} and {} have different loads or paths; a gate needs the same load and path for both",
            first.name, second.name
        )));
    }
    let metric = section.metric.as_ref();
    let metric = metric.map_or(ComparedMetric::Throughput, |metric| **metric);
    if let Some(what) = metric_refusal(metric, first) {
        let span = section.metric.as_ref().map(Located::span);
        return Err(file.error(&span.unwrap_or(section.span()), format!("metric: {what}")));
    }
    let requested = section.alternating.as_ref();
    let is_alternating = match (
        requested.map(|requested| **requested),
        obstacle(metric, trials),
    ) {
        (Some(false), _) | (None, Some(_)) => false,
        (_, None) => true,
        (Some(true), Some(what)) => {
            let span = requested.map_or(section.span(), Located::span);
            let what = format!("alternating: {what}; remove \"alternating\"");
            return Err(file.error(&span, what));
        }
    };
    let margin = section.margin.as_ref();
    let budget = section.budget.as_ref();
    Ok(GateRules {
        baseline: baseline.name.clone(),
        candidate: candidate.name.clone(),
        metric,
        margin: margin.map_or(DEFAULT_MARGIN, |margin| margin.0),
        budget_s: budget.map_or(GATE_BUDGET, |budget| budget.0).as_secs_f64(),
        is_alternating,
        is_two_sided: false,
    })
}

/// Returns why a gate cannot alternate, or `None` if it can.
pub(super) fn obstacle(metric: ComparedMetric, trials: &[Trial]) -> Option<&'static str> {
    match metric {
        ComparedMetric::ServerCpuPerRequest => {
            return Some("CPU times are not accurate enough for turns of a few milliseconds");
        }
        ComparedMetric::FirstByteP99 => {
            return Some("alternating loads do not measure times to the first byte");
        }
        _ => {}
    }
    trials.iter().find_map(|trial| {
        let (load, at) = (&trial.load, &trial.at);
        Some(if load.rate.is_some() || load.burst.is_some() {
            "open-model loads cannot alternate"
        } else if load.requests.is_some() {
            "a load with a fixed number of requests cannot alternate"
        } else if load.check.is_some() {
            "a load with a check cannot alternate"
        } else if trial.client.is_some() {
            "an external client cannot alternate"
        } else if at.agents.is_some() {
            "agents cannot alternate"
        } else if trial.port.is_some() {
            "a server with a fixed port cannot alternate"
        } else if at.store.is_some() {
            "a server with a store cannot alternate"
        } else if at.separate {
            "hosts = \"separate\" supports only one server"
        } else if at.delay.is_some() {
            "turns are too short for network delay"
        } else if at.client != trials[0].at.client {
            "the trials' client CPUs differ"
        } else if trial.server.start.scheme != trials[0].server.start.scheme {
            "only one of the servers uses HTTPS"
        } else {
            return None;
        })
    })
}

/// Returns why a gate or a comparison of versions cannot use a metric, and how to fix it.
pub(super) fn metric_refusal(metric: ComparedMetric, trial: &Trial) -> Option<String> {
    let load = &trial.load;
    let is_scheduled = load.rate.is_some() || load.burst.is_some();
    match metric {
        ComparedMetric::Capacity => Some(
            "pairs of servers do not have capacities; use another metric, such as throughput".to_owned(),
        ),
        ComparedMetric::CpuPerRequest => Some(
            "this is the client's CPU time; use server_cpu_us_per_request".to_owned(),
        ),
        ComparedMetric::Throughput if is_scheduled => Some(
            "at a fixed rate, throughput does not show a difference; remove the rate, or use another metric, such as p99"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Lab, SYSTEM};
    use super::super::{Changes, Experiment};
    use super::*;

    const TRIAL: &str =
        "[[trial]]\nname = \"mine\"\ncommand = \"serve {port}\"\nload = { check = \"sequence\" }\n";

    fn read(crash: &str, trial: &str) -> Result<Experiment, String> {
        Lab::new(
            SYSTEM,
            &format!("question = \"?\"\n[crash]\n{crash}\n{trial}"),
        )
        .read()
    }

    fn settings_of(crash: &str) -> CrashSettings {
        read(crash, TRIAL).unwrap().description.crash.unwrap()
    }

    #[test]
    fn reads_crash_rounds() {
        let all =
            "rounds = 50\nkill = \"server\"\nsignal = \"STOP\"\nrestart = true\nat = \"200ms-1s\"";
        assert_eq!(
            settings_of(all),
            CrashSettings {
                rounds: 50,
                kill: CrashTarget::Server,
                signal: CrashSignal::Stop,
                from_s: 0.2,
                to_s: 1.0,
            }
        );
        for (at, from_s, to_s) in [
            ("", 0.5, 2.0),
            ("at = \"random\"", 0.5, 2.0),
            ("at = \"1s\"", 1.0, 1.0),
        ] {
            let settings = settings_of(&format!("rounds = \"1k\"\n{at}"));
            assert_eq!((settings.from_s, settings.to_s), (from_s, to_s), "{at}");
            assert_eq!(
                (settings.rounds, settings.signal),
                (1000, CrashSignal::Kill)
            );
        }
    }

    #[test]
    fn names_line_and_fix_of_errors() {
        let store = "store = { url = \"127.0.0.1:5432\" }\n[trial.load]\ncheck = \"sequence\"\n";
        let store = TRIAL.replace("load = { check = \"sequence\" }\n", store);
        for (crash, trial, said) in [
            ("", TRIAL, "rounds is missing"),
            (
                "rounds = 0",
                TRIAL,
                "e.toml:3: rounds: expected an integer from 1 to 10000",
            ),
            (
                "rounds = 1\nkil = 1",
                TRIAL,
                "e.toml:4: unknown key \"kil\" in [crash]; did you mean \"kill\"?",
            ),
            (
                "rounds = 1\nkill = \"sever\"",
                TRIAL,
                "did you mean \"server\"?",
            ),
            (
                "rounds = 1\nsignal = \"KIL\"",
                TRIAL,
                "did you mean \"KILL\"?",
            ),
            (
                "rounds = 1\nrestart = false",
                TRIAL,
                "e.toml:4: restart: floodmark compares",
            ),
            (
                "rounds = 1\nat = \"randm\"",
                TRIAL,
                "did you mean \"random\"?",
            ),
            (
                "rounds = 1\nat = \"2s-1s\"",
                TRIAL,
                "at: expected \"random\", a duration up to 60s",
            ),
            (
                "rounds = 1\nat = \"2m\"",
                TRIAL,
                "at: expected \"random\", a duration up to 60s",
            ),
            (
                "rounds = 1\nkill = \"store\"",
                TRIAL,
                "mine: kill = \"store\" needs a store that floodmark starts",
            ),
            (
                "rounds = 1\nkill = \"store\"",
                &store,
                "mine: kill = \"store\" needs a store that floodmark starts",
            ),
            (
                "rounds = 1",
                &TRIAL.replace("check = \"sequence\"", "fresh = true"),
                "mine: crash rounds need a check",
            ),
            (
                "rounds = 1",
                &TRIAL.replace("\"sequence\"", "\"items.toml\""),
                "items.toml: No such file or directory",
            ),
            (
                "rounds = 1",
                &TRIAL.replace(" }", ", duration = \"1s\" }"),
                "remove `duration` from the trial's load",
            ),
            (
                "rounds = 1",
                &format!("{TRIAL}delay = \"1ms\"\n"),
                "mine: `delay` conflicts with crash rounds",
            ),
            (
                "rounds = 1\n[place]\nagents = \"local:2\"",
                TRIAL,
                "mine: `agents` conflicts with crash rounds",
            ),
            (
                "rounds = 1\n[place]\nprocesses = 2",
                TRIAL,
                "`place.processes` conflicts with [crash]",
            ),
        ] {
            let error = read(crash, trial).unwrap_err();
            assert!(error.contains(said), "{crash}: {error}");
        }
    }

    #[test]
    fn accepts_check_files_except_those_of_counters() {
        let trial = TRIAL.replace("\"sequence\"", "\"api.toml\"");
        let experiment = format!("question = \"?\"\n[crash]\nrounds = 1\n{trial}");
        for (kind, more, refused) in [
            ("set", "readback = { path = \"/\" }", false),
            ("register", "read = { path = \"/\" }", false),
            ("counter", "read = { path = \"/\" }", true),
        ] {
            let lab = Lab::new(SYSTEM, &experiment);
            let seq = if refused { "" } else { "{seq}" };
            let check = format!("kind = \"{kind}\"\nwrite = {{ path = \"/{seq}\" }}\n{more}\n");
            lab.write("experiments/api.toml", &check);
            let error = lab.read().err();
            assert_eq!(error.is_some(), refused, "{kind}: {error:?}");
            let says = |error: &String| {
                error.starts_with(
                    "e.toml:2: mine: crash rounds do not support check files of kind \"counter\"; use",
                )
            };
            assert!(error.iter().all(says), "{error:?}");
        }
        let error = Lab::new(SYSTEM, &experiment).read().unwrap_err();
        assert!(error.starts_with("e.toml:4: load: `check` "), "{error}");
        assert!(error.contains("api.toml: No such file"), "{error}");
    }

    #[test]
    fn only_the_number_of_rounds_can_change() {
        let changed = |changes: Changes| {
            let changed = read("rounds = 5", TRIAL).unwrap().changed(&changes);
            changed.map(|experiment| experiment.description.crash.unwrap().rounds)
        };
        let rounds = Changes {
            rounds: Some(2),
            ..Changes::default()
        };
        assert_eq!(changed(rounds.clone()), Ok(2));
        let attempts = Changes {
            attempts: Some(2),
            ..Changes::default()
        };
        let error = changed(attempts).unwrap_err();
        assert!(
            error.contains("--attempts conflicts with crash rounds"),
            "{error}"
        );
        let other = Lab::new(SYSTEM, &format!("question = \"?\"\n{TRIAL}"));
        let error = other.read().unwrap().changed(&rounds).unwrap_err();
        assert!(
            error.contains("the experiment has no crash rounds"),
            "{error}"
        );
    }
}
