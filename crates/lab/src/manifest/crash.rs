//! `[crash]`: crash rounds instead of measurements.

use std::path::Path;
use std::time::Duration;

use floodmark_plan::spec::CheckKind;
use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{Count, CrashTime};
use floodmark_plan::{CheckFile, FileError};
use floodmark_record::api_check::ApiCheckKind;
use floodmark_record::crash::{CrashSettings, CrashSignal, CrashTarget};
use schemars::JsonSchema;
use serde::Deserialize;

use super::trial::Trial;

/// Default range for the time from the start of the load to the crash.
const RANDOM: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// `[crash]` of an experiment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CrashSection {
    /// Number of rounds per trial. In each round, floodmark sends load, sends the signal, starts the
    /// process again under load, and compares the recovered state with the acknowledged requests.
    rounds: Located<Count<1, 10_000>>,
    /// Process that fails: "server" or "store". Default: "server".
    #[serde(default)]
    kill: CrashTarget,
    /// Signal to send: "KILL", "TERM" or "STOP". "STOP" stops the process for longer than the
    /// request timeout and then continues it with SIGCONT. Default: "KILL".
    #[serde(default)]
    signal: CrashSignal,
    /// Whether to start the process again. Must be true. Default: true.
    restart: Option<Located<bool>>,
    /// Time of the signal after the start of the load: "random", a duration, or a range such as
    /// "200ms-1s". Each round draws its time from the range. Default: "random", from 500ms to 2s.
    at: Option<CrashTime>,
}

/// Checks the crash rounds of an experiment.
pub(super) fn settings(
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
        let refused = refusal(trial, section.kill);
        refused.map_or(Ok(()), |what| {
            Err(file.error(&section.span(), format!("{}: {what}", trial.name)))
        })?;
        if let Some(CheckKind::File(path)) = &trial.load.check
            && check_kind(path, trial)? == ApiCheckKind::Counter
        {
            let what = format!(
                "{}: crash rounds do not support check files of kind \"counter\"; use kind \"register\" or \"set\", or check = \"sequence\" if each response is the next number of one counter",
                trial.name
            );
            return Err(file.error(&section.span(), what));
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
fn refusal(trial: &Trial, kill: CrashTarget) -> Option<String> {
    let load = &trial.load;
    let store = trial.at.store.as_ref();
    match &load.check {
        Some(_) => {}
        None => return Some("crash rounds need a check; add check = \"sequence\", check = \"scoring\" or a check file to its load".to_owned()),
    }
    if trial.client.is_some() {
        return Some(
            "only floodmark can send the load of crash rounds; remove `client`".to_owned(),
        );
    }
    if kill == CrashTarget::Store && store.is_none_or(|store| store.started().is_none()) {
        return Some(
            "kill = \"store\" needs a store that floodmark starts; add store = { name = \"…\" } to the trial"
                .to_owned(),
        );
    }
    if trial.at.delay.is_some() {
        return Some("`delay` conflicts with crash rounds; remove it".to_owned());
    }
    if trial.at.agents.is_some() {
        return Some("`agents` conflicts with crash rounds; remove it from [place]".to_owned());
    }
    let lengths = ["duration", "requests", "burst", "attempts"];
    let given = load.given().find(|key| lengths.contains(key));
    given
        .map(|key| format!("the crash sets the length of each round; remove `{key}` from its load"))
}

/// Reads the kind of a trial's check file.
fn check_kind(path: &Path, trial: &Trial) -> Result<ApiCheckKind, FileError> {
    let file = CheckFile::read(path, &trial.spec(None)).map_err(|error| FileError {
        place: trial.place.clone(),
        what: format!("load: `check` {error}"),
    })?;
    Ok(file.check.kind)
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
                "remove `duration` from its load",
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
