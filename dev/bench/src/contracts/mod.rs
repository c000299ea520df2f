//! The step `systems` of `cargo xtask test`: checks each system in `systems/` against the contracts
//! of its workloads. Workloads with state are checked with each knob value.
//!
//! The checks run as an experiment with `floodmark-bench contract` as the external client, so
//! systems and stores are built, started and stopped as in any other experiment.

mod bars;
mod client;
pub mod contract;
mod crash;
mod scoring;

use std::fs;
use std::path::Path;
use std::time::Duration;

use floodmark_lab::manifest::{System, Workload};
use floodmark_record::Record;

use crate::bench::{Bench, Failure, names};
use crate::experiment::{ClientSetup, Setup, TrialSetup};

/// Text in the record's line about a system or store that was skipped because a program is missing.
const NOT_INSTALLED: &str = " is not installed";

/// Name of the knob that selects the store.
const JOURNAL: &str = "journal";

/// Database of the `bars` workload.
const DATABASE: &str = "postgresql";

/// Maximum time of the experiment, including the first build of all systems.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// A trial: a system, a workload and at most one knob value.
#[derive(Debug, Clone)]
struct ContractTrial {
    name: String,
    system: String,
    workload: Workload,
    setting: Option<(String, String)>,
    store: Option<String>,
}

/// Returns whether a system or store was skipped because a program is not installed.
pub fn lacks_program(skipped: &str) -> bool {
    skipped.contains(NOT_INSTALLED)
}

/// Checks all systems and returns whether all of them meet their contracts.
pub fn run(bench: &Bench) -> Result<bool, Failure> {
    let directory = tempfile::tempdir()?;
    let stores = names(&bench.root.join("stores"))?;
    let systems = bench.root.join("systems");
    let mut trials = Vec::new();
    for system in names(&systems)?.iter().map(|name| systems.join(name)) {
        if system.join("system.toml").is_file() {
            trials.extend(trials_of(&System::read(&system)?, &stores));
        }
    }
    let program = std::env::current_exe()?;
    let setup = Setup {
        question: "Does each system meet the contracts of its workloads?",
        sections: "[load]\nconnections = 1\nrequests = 1\n[place]\nprocesses = 1".to_owned(),
        trials: trials.iter().map(|trial| trial.setup(&program)).collect(),
    };
    let record = setup.run(bench, directory.path(), &["--quiet"], MAX_TIME)?;
    let (violations, ignored) = judge(&trials, &record, &directory.path().join("result"));
    for line in &violations {
        println!("violated: {line}");
    }
    for line in &ignored {
        println!("ignored: {line}");
    }
    Ok(violations.is_empty())
}

/// Returns the violations of all trials, and the lines about missing programs.
fn judge(trials: &[ContractTrial], record: &Record, result: &Path) -> (Vec<String>, Vec<String>) {
    let skipped = record.skipped.iter().cloned();
    let (ignored, mut violations): (Vec<String>, Vec<String>) =
        skipped.partition(|line| lacks_program(line));
    violations.retain(|line| !trials.iter().any(|trial| trial.has_killed(line)));
    for trial in trials {
        let name = &trial.name;
        let log = result.join(format!("client-{name}-1-1.log"));
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines();
        let lines = lines.filter_map(|line| line.strip_prefix(contract::VIOLATION));
        violations.extend(lines.map(|line| format!("{name}: {line}")));
        let is_complete = text.contains(contract::SUMMARY);
        let is_ignored = ignored.iter().any(|line| trial.needs(line));
        if !is_complete && !is_ignored && violations.is_empty() {
            violations.push(format!("{name}: the contract check did not finish"));
        }
    }
    (violations, ignored)
}

impl ContractTrial {
    /// Returns whether a line reports that a server or store ended because the check killed it.
    fn has_killed(&self, line: &str) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        let of = |what: &str| line.starts_with(&format!("{}: {what} ended ", self.name));
        line.contains("SIGKILL") && (of("the server") || of(&format!("the store {store}")))
    }

    /// Returns whether a line is about the system or the store of this trial.
    fn needs(&self, line: &str) -> bool {
        let of = |part: &str| {
            let rest = line.strip_prefix(part);
            rest.is_some_and(|rest| rest.starts_with([' ', ':']))
        };
        let store = self.store.as_ref();
        of(&self.system) || store.is_some_and(|store| of(&format!("store {store}")))
    }

    /// Returns the trial for the experiment. If the trial has a store, the client also kills the
    /// server and the store.
    fn setup(&self, program: &Path) -> TrialSetup {
        let (system, workload) = (&self.system, self.workload);
        let mut lines = format!("system = {system:?}\nworkload = \"{workload}\"");
        if let Some((knob, value)) = &self.setting {
            lines.push_str(&format!("\nsetting = {{ {knob} = {value:?} }}"));
        }
        let mut outage = "";
        if let Some(store) = &self.store {
            lines.push_str(&format!("\nstore = {{ name = {store:?} }}"));
            outage = " --outage";
        }
        let program = program.display().to_string().replace('\'', r"'\''");
        let command = format!("'{program}' contract {workload} {{host}}:{{port}}{outage}");
        let manifest = format!(
            "path = {:?}\nsuccess = [0, 1]\n[kept]\nrequests = {command:?}\n[figures]\nanswers = {{ find = '^(\\d+){}' }}\n",
            workload.path(),
            contract::SUMMARY
        );
        TrialSetup {
            name: self.name.clone(),
            lines,
            client: Some(ClientSetup {
                manifest,
                scripts: None,
            }),
        }
    }
}

/// Returns the trials of a system. A workload without state has one trial, and a workload with
/// state has one trial per knob value.
fn trials_of(system: &System, stores: &[String]) -> Vec<ContractTrial> {
    let mut trials = Vec::new();
    let has_store = (system.start.command.iter()).any(|word| word.contains("{store}"));
    for workload in &system.workloads {
        let mut settings = Vec::new();
        if matches!(workload, Workload::Scoring | Workload::Bars) {
            for (name, knob) in &system.knobs {
                let values = knob.values.iter();
                settings.extend(values.map(|value| Some((name.clone(), value.0.clone()))));
            }
        }
        if settings.is_empty() {
            settings.push(None);
        }
        for setting in settings {
            let store = match &setting {
                Some((knob, journal)) if knob == JOURNAL => {
                    stores.iter().find(|store| *store == journal).cloned()
                }
                _ => (*workload == Workload::Bars && has_store).then(|| DATABASE.to_owned()),
            };
            let mut name = format!("{}-{workload}", system.name);
            if let Some((_, value)) = &setting {
                name.push_str(&format!("-{value}"));
            }
            trials.push(ContractTrial {
                name,
                system: system.name.clone(),
                workload: *workload,
                setting,
                store,
            });
        }
    }
    trials
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_lab::manifest::Need;

    fn system(text: &str) -> System {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("s");
        fs::create_dir(&directory).unwrap();
        fs::write(
            directory.join("system.toml"),
            format!("name = \"s\"\n{text}"),
        )
        .unwrap();
        System::read(&directory).unwrap()
    }

    #[test]
    fn combines_workloads_with_knob_values() {
        let scoring = system(
            "workloads = [\"hello\", \"scoring\"]\n[start]\ncommand = \"s {port} {journal} {store}\"\n\
             [knobs]\njournal = { default = \"none\", values = [\"none\", \"cassandra\"] }\n",
        );
        let trials = trials_of(&scoring, &["cassandra".to_owned()]);
        let pairs: Vec<_> = trials
            .iter()
            .map(|trial| (trial.name.as_str(), trial.store.as_deref()))
            .collect();
        let expected = [
            ("s-hello", None),
            ("s-scoring-none", None),
            ("s-scoring-cassandra", Some("cassandra")),
        ];
        assert_eq!(pairs, expected);
        let bars = system(
            "workloads = [\"bars\"]\n[start]\ncommand = \"s {port} {access} {store}\"\n\
             [knobs]\naccess = { default = \"jdbc\", values = [\"jdbc\", \"ebean\"] }\n",
        );
        let trials = trials_of(&bars, &[]);
        let store = Some("postgresql".to_owned());
        assert!(trials.len() == 2 && trials.iter().all(|trial| trial.store == store));
        let embedded = system("workloads = [\"bars\"]\n[start]\ncommand = \"s {port} {run}\"\n");
        let trials = trials_of(&embedded, &[]);
        assert!(trials.len() == 1 && trials[0].store.is_none());
    }

    #[test]
    fn a_missing_program_is_ignored_and_an_unfinished_contract_is_a_violation() {
        let trial = trials_of(
            &system("workloads = [\"hello\"]\n[start]\ncommand = \"s {port}\"\n"),
            &[],
        );
        let directory = tempfile::tempdir().unwrap();
        let judge = |skipped: &str| {
            let mut record = Record::new(
                floodmark_record::host::ToolInfo::floodmark("0", Vec::new()),
                floodmark_record::host::Environment::default(),
            );
            record.skipped = vec![skipped.to_owned()];
            super::judge(&trial, &record, directory.path())
        };
        let missing = "s is skipped: java is not installed (not on the PATH)";
        assert_eq!(judge(missing), (vec![], vec![missing.to_owned()]));
        assert_eq!(judge("s-hello does not start").0.len(), 1);
        // A program that is installed but broken is a violation.
        let broken = "s is skipped: java prints no version; version 17 or later is required";
        assert_eq!(judge(broken), (vec![broken.to_owned()], vec![]));
        let (violations, _) = judge("t is skipped: java is not installed");
        assert!(violations[0].contains("did not finish"), "{violations:?}");
        fs::write(
            directory.path().join("client-s-hello-1-1.log"),
            "violation: it is wrong\n9 checks, 1 violations\n",
        )
        .unwrap();
        let (violations, _) = judge("t is skipped: java is not installed");
        assert_eq!(violations, ["s-hello: it is wrong"]);
    }

    #[test]
    fn recognizes_the_message_about_a_missing_program() {
        let need: Need = "no-such-program-here".to_owned().try_into().unwrap();
        assert!(lacks_program(&need.missing().unwrap()));
    }

    #[test]
    fn a_kill_by_the_contract_is_not_a_violation() {
        let trials = trials_of(
            &system("workloads = [\"hello\"]\n[start]\ncommand = \"s {port}\"\n"),
            &[],
        );
        let killed =
            "s-hello: the store x ended during the load (signal: 9 (SIGKILL)); its log is y";
        assert!(!trials[0].has_killed(killed));
        let stored = ContractTrial {
            store: Some("x".to_owned()),
            ..trials[0].clone()
        };
        assert!(stored.has_killed(killed));
        assert!(!stored.has_killed("s-hello: unexpected response"));
        let client = stored.setup(Path::new("/x")).client.unwrap();
        assert!(client.manifest.contains("--outage"));
    }
}
