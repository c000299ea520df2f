//! Experiment files: a question, what is loaded how and how often, and what was published about it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_record::cause::Cause;
use floodmark_record::experiment::{Asked, ExpectedCheck, PublishedClaim};
use floodmark_record::sweep::Sweep;

use super::claim::{CLAIM, claim};
use super::fields::{Field, Kind, field, needed};
use super::found::names_in;
use super::load::{LOAD, Load};
use super::place::{CPUS, HOSTS, Place, SYSCTLS};
use super::section::Section;
use super::sweep::spread;
use super::trial::{Reader, TRIAL, Trial};
use crate::source::{FileError, Source, did_you_mean, read_text};

/// Keys of an experiment.
pub(super) const EXPERIMENT: &[Field] = &[
    needed("question", Kind::Text, "What the experiment is to answer."),
    field(
        "load",
        Kind::Table(LOAD),
        "What is sent: the flags of floodmark load. Trials may say otherwise.",
    ),
    field(
        "place",
        Kind::Table(PLACE),
        "Where it runs, and how often servers are started afresh.",
    ),
    needed(
        "trial",
        Kind::Tables(TRIAL),
        "What is loaded: a system, or a server of your own by its command.",
    ),
    field(
        "ladder",
        Kind::Texts,
        "Names of trials of which each is the one before with something added. Each is held against the one before: what the added part costs in throughput, latency and CPU.",
    ),
    field(
        "claim",
        Kind::Tables(CLAIM),
        "Published figures to hold it against.",
    ),
    field(
        "prove",
        Kind::Flag,
        "Whether parts of each setup are changed after it was measured, to prove what limited it: a minute more for each process, or some where answers take long. Without it false.",
    ),
    field("expect", Kind::Table(EXPECT), "What its author expects."),
];

const PLACE: &[Field] = &[
    HOSTS,
    CPUS,
    SYSCTLS,
    field(
        "processes",
        Kind::Count(1, 1000),
        "Fresh starts of each server, in rounds over all trials (A B A B). Without it 1.",
    ),
];

const EXPECT: &[Field] = &[
    field(
        "cause",
        Kind::Texts,
        "Expected causes of the limit; kept in the record.",
    ),
    field(
        "check",
        Kind::OneOf(&["held", "violated"]),
        "What becomes of the check: with violated the experiment fails where it holds.",
    ),
];

/// An experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its file.
    pub path: PathBuf,
    /// Its name: that of its file.
    pub name: String,
    /// What it asks.
    pub question: String,
    /// Fresh starts of each server.
    pub processes: u32,
    /// What is loaded, in order.
    pub trials: Vec<Trial>,
    ladder: Vec<String>,
    sweeps: Vec<Sweep>,
    claims: Vec<PublishedClaim>,
    expected_causes: Vec<String>,
    /// Whether parts of each setup are changed after it was measured, to prove what limited it.
    pub prove: bool,
    /// What becomes of the check, where something was said.
    pub expected_check: Option<ExpectedCheck>,
}

/// What the command line changes.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Only these trials, by their own name or the system's; all where empty.
    pub only: Vec<String>,
    /// Measurements on each process.
    pub attempts: Option<u32>,
    /// Fresh starts of each server.
    pub processes: Option<u32>,
    /// Length of each measurement.
    pub duration: Option<Duration>,
    /// Whether verdicts are to be proven where the experiment does not ask for it.
    pub prove: bool,
}

impl Experiment {
    /// Reads an experiment and the systems that it names.
    ///
    /// # Errors
    /// A file that cannot be read or says what it may not, with the line and the mend.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = read_text(path)?;
        let source = Source { path, text: &text };
        let document = source.document()?;
        let file = Section::file(source, &document, EXPERIMENT)?;
        let mut load = Load::default();
        if let Some(section) = file.table("load", LOAD)? {
            load.take(&section);
        }
        let mut place = Place::default();
        let mut processes = None;
        if let Some(section) = file.table("place", PLACE)? {
            place.take(&section)?;
            processes = section.count("processes");
        }
        let mut reader = Reader {
            path,
            load,
            place,
            systems: BTreeMap::new(),
            stores: BTreeMap::new(),
            clients: BTreeMap::new(),
        };
        let mut trials: Vec<Trial> = Vec::new();
        let mut sweeps = Vec::new();
        for section in file.tables("trial", TRIAL)? {
            let (these, sweep) = spread(&section, reader.trial(&section)?)?;
            for trial in these {
                if let Some(before) = trials.iter().find(|other| other.name == trial.name) {
                    let what = format!(
                        "the trial of {} is called \"{}\" too; give one a name = \"…\" of its own",
                        before.place, trial.name
                    );
                    return Err(section.error("name", what));
                }
                trials.push(trial);
            }
            sweeps.extend(sweep);
        }
        let ladder = ladder(&file, &trials)?;
        if trials.is_empty() {
            return Err(file.error(
                "trial",
                "there is no trial; write [[trial]] with a system and a workload",
            ));
        }
        let mut claims = Vec::new();
        for section in file.tables("claim", CLAIM)? {
            claims.push(claim(&section, &trials)?);
        }
        let expect = file.table("expect", EXPECT)?;
        let check = expect.as_ref().and_then(|expect| expect.text("check"));
        Ok(Experiment {
            path: path.to_owned(),
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            question: file.text("question").unwrap_or_default().to_owned(),
            processes: processes.unwrap_or(1) as u32,
            trials,
            ladder,
            sweeps,
            claims,
            expected_causes: expect.as_ref().map(causes).transpose()?.unwrap_or_default(),
            prove: file.scalar("prove").is_some_and(|prove| prove == "true"),
            expected_check: check.map(|word| match word {
                "violated" => ExpectedCheck::Violated,
                _ => ExpectedCheck::Held,
            }),
        })
    }

    /// Finds the file of an experiment: a path, or a name of one in `./experiments`.
    ///
    /// # Errors
    /// Neither is there; in words.
    pub fn find(name: &str) -> Result<PathBuf, String> {
        let path = Path::new(name);
        if path.is_file() {
            return Ok(path.to_owned());
        }
        let folder = Path::new("experiments");
        let named = folder.join(format!("{name}.toml"));
        if !name.contains('/') && named.is_file() {
            return Ok(named);
        }
        let known = names_in(folder, |path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
                .then(|| path.file_stem())
                .flatten()
        });
        Err(match known.is_empty() {
            true => format!(
                "\"{name}\" is no file, and there is no folder ./experiments with one of that name; give the path of an experiment, or \
                 write one with floodmark init experiment"
            ),
            false => format!(
                "\"{name}\" is no file and no experiment of ./experiments; {}",
                did_you_mean(name, known.iter().map(String::as_str))
            ),
        })
    }

    /// The experiment with what the command line changes of it.
    ///
    /// # Errors
    /// A trial that there is not; in words.
    pub fn changed(mut self, changes: &Changes) -> Result<Self, String> {
        let in_sweep = |name: &str, trial: &Trial| {
            let mut named = self.sweeps.iter().filter(|sweep| sweep.name == name);
            named.any(|sweep| sweep.points.iter().any(|point| point.trial == trial.name))
        };
        let meant = |name: &String, trial: &Trial| {
            trial.name == *name || trial.server.name(&trial.name) == *name || in_sweep(name, trial)
        };
        for name in &changes.only {
            let is = |trial: &Trial| meant(name, trial);
            if !self.trials.iter().any(is) {
                let known = self.trials.iter().map(|trial| trial.name.as_str());
                return Err(format!(
                    "--only {name}: no trial or system of that name; {}",
                    did_you_mean(name, known)
                ));
            }
        }
        if !changes.only.is_empty() {
            let kept = |trial: &Trial| changes.only.iter().any(|name| meant(name, trial));
            let kept: Vec<bool> = self.trials.iter().map(kept).collect();
            let mut each = kept.into_iter();
            self.trials.retain(|_| each.next().unwrap_or(false));
            let is_there = |name: &String| self.trials.iter().any(|trial| trial.name == *name);
            self.ladder.retain(is_there);
            for sweep in &mut self.sweeps {
                sweep.points.retain(|point| is_there(&point.trial));
            }
            self.sweeps.retain(|sweep| !sweep.points.is_empty());
        }
        self.prove |= changes.prove;
        for trial in &mut self.trials {
            if let Some(attempts) = changes.attempts {
                trial.load.set_attempts(attempts);
            }
            if let Some(duration) = changes.duration {
                let text = format!("{}ns", duration.as_nanos());
                let asked = trial.load.clone();
                let set = trial.load.set_duration(&text);
                if trial
                    .client
                    .as_ref()
                    .is_some_and(|client| client.only_counts(&asked))
                {
                    trial.load = asked;
                }
                set.map_err(|what| format!("{}: --duration: {what}", trial.place))?;
            }
            if let Some(client) = &trial.client {
                let fits = client.command(&trial.load);
                fits.map_err(|what| format!("{}: {what}", trial.place))?;
            }
        }
        self.processes = changes.processes.unwrap_or(self.processes);
        Ok(self)
    }

    /// What it asks, for the record.
    #[must_use]
    pub fn asked(&self) -> Asked {
        Asked {
            name: self.name.clone(),
            question: self.question.clone(),
            trials: self.trials.iter().map(|trial| trial.name.clone()).collect(),
            processes: self.processes,
            claims: self.claims.clone(),
            ladder: self.ladder.clone(),
            sweeps: self.sweeps.clone(),
            expected_causes: self.expected_causes.clone(),
            expected_check: self.expected_check,
        }
    }
}

/// The causes that are expected.
fn causes(expect: &Section<'_>) -> Result<Vec<String>, FileError> {
    let named = expect.list("cause");
    let known = || Cause::ALL.iter().map(|cause| cause.id());
    match named
        .iter()
        .find(|name| !known().any(|id| id == name.as_str()))
    {
        None => Ok(named),
        Some(name) => {
            let what = format!("unknown cause \"{name}\"; {}", did_you_mean(name, known()));
            Err(expect.error("cause", format!("cause: {what}")))
        }
    }
}

/// The steps of `ladder`, which are trials.
fn ladder(file: &Section<'_>, trials: &[Trial]) -> Result<Vec<String>, FileError> {
    let ladder = file.list("ladder");
    let wrong = |what: String| Err(file.error("ladder", format!("ladder: {what}")));
    for (i, name) in ladder.iter().enumerate() {
        if !trials.iter().any(|trial| trial.name == *name) {
            let known = trials.iter().map(|trial| trial.name.as_str());
            return wrong(format!(
                "unknown trial \"{name}\"; {}",
                did_you_mean(name, known)
            ));
        }
        if ladder[..i].contains(name) {
            return wrong(format!("{name} is there twice"));
        }
    }
    match ladder.len() {
        1 => wrong("one step alone cannot be held against another; name a second trial".to_owned()),
        _ => Ok(ladder),
    }
}
