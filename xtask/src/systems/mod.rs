//! The step `systems` of `cargo xtask test`: every system of systems/ is built, started for each of its workloads with each of its
//! journals, and asked all of the workload's contract.
//!
//! An experiment is made of them whose load generator is `cargo xtask contract`, so that systems and stores are built, started and
//! stopped by `floodmark run` as they are for measuring.

mod bars;
mod client;
pub mod contract;
mod outage;
mod scoring;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floodmark_lab::manifest::{System, Workload};
use floodmark_record::Record;

use crate::command;
use crate::error::{Error, none_found};
use crate::release;
use crate::workspace::Workspace;

/// The knob whose values are ways to keep what was sent.
const JOURNAL: &str = "journal";

/// The database behind `bars`.
const DATABASE: &str = "postgresql";

/// A system with a workload and a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trial {
    name: String,
    system: String,
    workload: Workload,
    setting: BTreeMap<String, String>,
    store: Option<String>,
}

/// Runs the contracts of all systems; what was left out, and why.
pub fn run(workspace: &Workspace) -> Result<Option<String>, Error> {
    let folder = tempfile::tempdir().map_err(|error| Error::Found(vec![error.to_string()]))?;
    let stores = names(&workspace.root.join("stores"), "store.toml")?;
    let mut trials = Vec::new();
    for name in names(&workspace.root.join("systems"), "system.toml")? {
        let system = System::read(&workspace.root.join("systems").join(&name));
        let system = system.map_err(|error| Error::Found(vec![error.to_string()]))?;
        trials.extend(trials_of(&system, &stores));
    }
    let floodmark = release::floodmark(workspace)?;
    let experiment = folder.path().join("contracts.toml");
    write(&experiment, &text(&trials))?;
    let this = std::env::current_exe().map_err(|error| Error::Found(vec![error.to_string()]))?;
    for trial in &trials {
        let client = folder.path().join("clients").join(client_of(trial));
        let path = client.join("client.toml");
        fs::create_dir_all(&client).map_err(|source| Error::Write {
            path: client,
            source,
        })?;
        write(&path, &manifest(trial, &this))?;
    }
    let result = folder.path().join("result");
    let mut run = Command::new(floodmark);
    run.args(["run", "--quiet"])
        .arg(&experiment)
        .arg("--out")
        .arg(&result);
    // The systems and stores are found from here.
    let ran = command::run(run.current_dir(&workspace.root));
    judged(&trials, &result, ran)
}

/// What the run came to.
fn judged(
    trials: &[Trial],
    result: &Path,
    ran: Result<(), Error>,
) -> Result<Option<String>, Error> {
    let path = result.join("record.json");
    let Ok(json) = fs::read(&path) else {
        // It says itself why there is none.
        ran?;
        return Err(Error::Found(vec![format!("{}: no record", path.display())]));
    };
    let record: Record = serde_json::from_slice(&json)
        .map_err(|error| Error::Found(vec![format!("{}: {error}", path.display())]))?;
    let left_out: Vec<&String> = record.skipped.iter().filter(|line| is_lack(line)).collect();
    let mut findings: Vec<String> = record
        .skipped
        .iter()
        .filter(|line| !is_lack(line) && !trials.iter().any(|trial| was_killed(line, trial)))
        .cloned()
        .collect();
    for trial in trials {
        let log = result.join(format!("client-{}-1-1.log", trial.name));
        let said = fs::read_to_string(log).unwrap_or_default();
        let faults = said.lines().filter_map(|line| line.strip_prefix("fault: "));
        findings.extend(faults.map(|fault| format!("{}: {fault}", trial.name)));
        let lacking = left_out.iter().any(|line| lacks(line, trial));
        if !said.contains(" things asked, ") && !lacking && findings.is_empty() {
            findings.push(format!(
                "{}: its contract was not asked to its end",
                trial.name
            ));
        }
    }
    none_found(findings)?;
    let left_out: Vec<&str> = left_out.iter().map(|line| line.as_str()).collect();
    Ok((!left_out.is_empty()).then(|| left_out.join("; ")))
}

/// Whether something was left out since a program is missing here.
fn is_lack(line: &str) -> bool {
    line.contains(" is skipped: ")
}

/// Whether a line says that what the contract of a trial kills was killed: its server, or its store.
fn was_killed(line: &str, trial: &Trial) -> bool {
    let Some(store) = &trial.store else {
        return false;
    };
    let of = |what: &str| line.starts_with(&format!("{}: {what} ended while", trial.name));
    line.contains("(SIGKILL)") && (of("the server") || of(&format!("the store {store}")))
}

/// Whether a line says that what a trial needs is missing.
fn lacks(line: &str, trial: &Trial) -> bool {
    let of = |name: &str| line.starts_with(&format!("{name} is skipped: "));
    let store = trial.store.as_ref();
    of(&trial.system) || store.is_some_and(|store| of(&format!("store {store}")))
}

/// All that a system is asked: each workload, with each journal where it has such, and with each value of its other knobs.
fn trials_of(system: &System, stores: &[String]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for workload in &system.workloads {
        let mut settings = vec![BTreeMap::new()];
        let keeps = matches!(workload, Workload::Scoring | Workload::Bars);
        for (knob, values) in system
            .knobs
            .iter()
            .map(|(name, knob)| (name, knob.values()))
        {
            if keeps && !values.is_empty() {
                let set = values
                    .iter()
                    .map(|value| BTreeMap::from([(knob.clone(), value.clone())]));
                settings = match settings[0].is_empty() {
                    true => set.collect(),
                    false => settings.into_iter().chain(set).collect(),
                };
            }
        }
        for setting in settings {
            let values: Vec<&str> = setting.values().map(String::as_str).collect();
            let store = match (setting.get(JOURNAL), workload) {
                (Some(journal), _) => stores.iter().find(|store| *store == journal).cloned(),
                (None, Workload::Bars) => Some(DATABASE.to_owned()),
                (None, _) => None,
            };
            let parts: Vec<&str> = [system.name.as_str(), workload.name()]
                .into_iter()
                .chain(values)
                .collect();
            trials.push(Trial {
                name: parts.join("-"),
                system: system.name.clone(),
                workload: *workload,
                setting,
                store,
            });
        }
    }
    trials
}

/// The experiment.
fn text(trials: &[Trial]) -> String {
    let mut text = "question = \"Does every system keep the contracts of its workloads?\"\n\
                    [load]\nconnections = 1\nrequests = 1\n"
        .to_owned();
    for trial in trials {
        let Trial {
            name,
            system,
            workload,
            ..
        } = trial;
        let client = client_of(trial);
        // Writing into a String cannot fail.
        let _ = write!(
            text,
            "[[trial]]\nname = {name:?}\nsystem = {system:?}\nworkload = \"{workload}\"\nclient = {client:?}\n"
        );
        let setting: Vec<String> = trial
            .setting
            .iter()
            .map(|(knob, value)| format!("{knob} = {value:?}"))
            .collect();
        if !setting.is_empty() {
            let _ = writeln!(text, "setting = {{ {} }}", setting.join(", "));
        }
        if let Some(store) = &trial.store {
            let _ = writeln!(text, "store = {{ name = {store:?} }}");
        }
    }
    text
}

/// The name of the load generator that asks a contract: of what is kept in a store also on a bad day.
fn client_of(trial: &Trial) -> String {
    let outage = if trial.store.is_some() { "-outage" } else { "" };
    format!("contract-{}{outage}", trial.workload)
}

/// Its manifest.
fn manifest(trial: &Trial, this: &Path) -> String {
    let name = client_of(trial);
    let workload = trial.workload;
    let mut words = vec!["contract", workload.name(), "{host}:{port}"];
    if trial.store.is_some() {
        words.push("--outage");
    }
    let command = format!("{} {}", quoted(this), words.join(" "));
    format!(
        "name = {name:?}\npath = {:?}\n[kept]\nrequests = {command:?}\n[figures]\n\
         answers = {{ find = '^(\\d+) things asked, ' }}\nerrors = {{ find = ', (\\d+) faults$' }}\n",
        workload.path()
    )
}

/// A path as one word of a command.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// The folders of a folder that hold a manifest, by name.
fn names(folder: &Path, manifest: &str) -> Result<Vec<String>, Error> {
    let failed = |source| Error::Read {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path: PathBuf = entry.map_err(failed)?.path();
        if path.join(manifest).is_file() {
            names.extend(
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system of a folder that goes with the test.
    fn system(text: &str) -> System {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("s");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("system.toml"), format!("name = \"s\"\n{text}")).unwrap();
        System::read(&folder).unwrap()
    }

    #[test]
    fn each_workload_with_each_way_to_keep_what_was_sent() {
        let scoring = system(
            "workloads = [\"hello\", \"scoring\"]\n[start]\ncommand = \"s {port} {journal} {store}\"\n\
             [knobs]\njournal = { default = \"none\", values = [\"none\", \"cassandra\"] }\n",
        );
        let trials = trials_of(&scoring, &["cassandra".to_owned()]);
        let names: Vec<_> = trials
            .iter()
            .map(|trial| (trial.name.as_str(), trial.store.as_deref()))
            .collect();
        let expected = [
            ("s-hello", None),
            ("s-scoring-none", None),
            ("s-scoring-cassandra", Some("cassandra")),
        ];
        assert_eq!(names, expected);
        let bars = system(
            "workloads = [\"bars\"]\n[start]\ncommand = \"s {port} {access} {store}\"\n\
             [knobs]\naccess = { default = \"jdbc\", values = [\"jdbc\", \"ebean\"] }\n",
        );
        let trials = trials_of(&bars, &[]);
        assert_eq!(trials.len(), 2);
        assert!(
            trials
                .iter()
                .all(|trial| trial.store.as_deref() == Some("postgresql"))
        );
    }

    #[test]
    fn what_is_missing_is_no_finding_and_what_was_not_asked_is_one() {
        let trial = trials_of(
            &system("workloads = [\"hello\"]\n[start]\ncommand = \"s {port}\"\n"),
            &[],
        );
        let folder = tempfile::tempdir().unwrap();
        let record = |skipped: &str| {
            let mut record = Record::new(
                floodmark_record::run::ToolInfo {
                    name: "floodmark".to_owned(),
                    version: "0".to_owned(),
                    command: Vec::new(),
                },
                floodmark_record::run::Environment::default(),
            );
            record.skipped = vec![skipped.to_owned()];
            fs::write(
                folder.path().join("record.json"),
                serde_json::to_vec(&record).unwrap(),
            )
            .unwrap();
        };
        record("s is skipped: java is not installed");
        let left_out = judged(&trial, folder.path(), Ok(())).unwrap();
        assert_eq!(
            left_out.as_deref(),
            Some("s is skipped: java is not installed")
        );
        record("s-hello does not start");
        assert!(judged(&trial, folder.path(), Ok(())).is_err());
        record("t is skipped: java is not installed");
        let error = judged(&trial, folder.path(), Ok(()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("was not asked to its end"), "{error}");
        fs::write(
            folder.path().join("client-s-hello-1-1.log"),
            "fault: it is wrong\n9 things asked, 1 faults\n",
        )
        .unwrap();
        let error = judged(&trial, folder.path(), Ok(()))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "s-hello: it is wrong");
        // That its store was killed is a part of a contract on what is kept.
        let killed =
            "s-hello: the store x ended while it was loaded (signal: 9 (SIGKILL)); its log is y";
        assert!(!was_killed(killed, &trial[0]));
        let stored = Trial {
            store: Some("x".to_owned()),
            ..trial[0].clone()
        };
        assert!(was_killed(killed, &stored));
        assert!(!was_killed("s-hello: answers wrongly", &stored));
        assert!(manifest(&stored, Path::new("/x")).contains("--outage"));
    }
}
