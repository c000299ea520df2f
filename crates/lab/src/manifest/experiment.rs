//! Experiment files: a question, the trials that answer it, and published claims.

use std::path::{Path, PathBuf};

use floodmark_record::capacity::CapacityGoal;
use floodmark_record::cause::Cause;
use floodmark_record::experiment::{ExpectedCheck, ExperimentDescription};
use floodmark_record::path::StepKind;

use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::{FileError, LoadSpec, did_you_mean};
use schemars::JsonSchema;
use serde::Deserialize;

use super::capacity::{self, CapacitySearchPlan, CapacitySection};
use super::claim::{ClaimSection, claim};
use super::client::Client;
use super::crash::{self, CrashSection};
use super::found::{ManifestCache, embedded_names, names_in};
use super::gate::{self, GateSection};
use super::place::{ExperimentPlace, TrialPlacement};
use super::store::Store;
use super::system::System;
use super::trial::{Trial, TrialReader, TrialSection, spread};

/// An experiment file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentManifest {
    /// Question that the experiment answers.
    question: String,
    /// Load for all trials. The keys are the flags of floodmark load. Trials can override settings.
    #[serde(default)]
    load: LoadSpec,
    /// Where client and server run, and how often each server is started.
    place: Option<ExperimentPlace>,
    /// Servers to load. Each trial names a system, or a command that starts your own server.
    trial: Vec<Located<TrialSection>>,
    /// Ordered names of trials. Each trial adds one feature to the previous trial. Comparing
    /// adjacent trials shows each feature's cost in throughput, latency and CPU.
    ladder: Option<Located<Vec<String>>>,
    /// Published figures to compare with.
    #[serde(default)]
    claim: Vec<Located<ClaimSection>>,
    /// Whether to perturb each process after its measurement, to prove what limited the process.
    /// Adds at least one minute per process. Default: false.
    #[serde(default)]
    prove: bool,
    /// Crash rounds. Each trial then has these rounds instead of measurements. Default: none.
    crash: Option<Located<CrashSection>>,
    /// Search for the capacity of each server process: the highest rate at which it meets all
    /// objectives. Each trial then has this search instead of measurements. Default: none.
    capacity: Option<Located<CapacitySection>>,
    /// Gate for two trials, a baseline and a candidate. Measures pairs of fresh server processes until
    /// it can decide whether the candidate is worse. Default: none.
    gate: Option<Located<GateSection>>,
    /// Expected outcome.
    #[serde(default)]
    expect: ExpectSection,
}

/// `[expect]`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExpectSection {
    /// Expected causes of the measured limit. The record contains these causes.
    cause: Option<Located<Vec<String>>>,
    /// Further causes that are expected to contribute.
    also: Option<Located<Vec<String>>>,
    /// Expected path from the requests in flight to the limit, such as
    /// `["threads server", "timer server"]`. Each step consists of a kind and a process.
    path: Option<Located<Vec<String>>>,
    /// Expected outcome of the check. With `violated`, the experiment fails if the check holds. With
    /// crash rounds, a trial violates the check if at least one of its rounds loses data, and
    /// `violated` requires this of every trial.
    check: Option<ExpectedCheck>,
}

/// An experiment and its trials.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Description of the experiment for the record.
    pub description: ExperimentDescription,
    /// Trials in the order of the file.
    pub trials: Vec<Trial>,
    /// Whether to perturb each measured process to prove what limited the process.
    pub prove: bool,
    /// Search for the capacity of each server process, instead of measurements.
    pub capacity: Option<CapacitySearchPlan>,
}

impl Experiment {
    /// Reads an experiment and the manifests of its systems, stores and clients.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let file = TomlFile::read(path)?;
        let manifest: ExperimentManifest = file.parse()?;
        let mut placement = TrialPlacement::default();
        let mut processes = None;
        if let Some(place) = manifest.place {
            processes = place.processes.as_ref().map(|n| n.0 as u32);
            let (cpus, sysctls) = (place.cpus.as_ref(), place.sysctls.as_ref());
            let agents = place.agents.as_ref();
            placement.override_with(&file, place.hosts, cpus, sysctls, agents)?;
        }
        let mut reader = TrialReader {
            file: &file,
            load: manifest.load,
            placement,
            systems: ManifestCache::new("system", System::read),
            stores: ManifestCache::new("store", Store::read),
            clients: ManifestCache::new("client", Client::read),
        };
        let mut trials: Vec<Trial> = Vec::new();
        let mut sweeps = Vec::new();
        for section in &manifest.trial {
            let trial = reader.trial(section)?;
            let these = match &section.sweep {
                None => vec![trial],
                Some(sweep) => {
                    let (these, sweep) = spread(&file, sweep, trial)?;
                    sweeps.push(sweep);
                    these
                }
            };
            for trial in these {
                if let Some(before) = trials.iter().find(|other| other.name == trial.name) {
                    let what = format!(
                        "the trial at {} is also named \"{}\"; choose another name",
                        before.place, trial.name
                    );
                    let span = section.name.as_ref().map_or(section.span(), Located::span);
                    return Err(file.error(&span, what));
                }
                trials.push(trial);
            }
        }
        if trials.is_empty() {
            let what = "the experiment has no trials; add [[trial]] with a system and a workload";
            return Err(file.error_at_start(what));
        }
        let ladder = manifest
            .ladder
            .map(|ladder| checked_ladder(&file, ladder, &trials));
        let expect = manifest.expect;
        let (causes, kinds) = (
            Cause::ALL.map(Cause::name),
            StepKind::ALL.map(StepKind::name),
        );
        let checked_causes =
            |names, key| checked_names(&file, names, (key, "cause"), &causes, |name| name);
        let expected_causes = checked_causes(expect.cause, "cause")?;
        let expected_also = checked_causes(expect.also, "also")?;
        let kind: fn(&str) -> &str = |step| step.split_once(' ').map_or(step, |(kind, _)| kind);
        let expected_path = checked_names(&file, expect.path, ("path", "step"), &kinds, kind)?;
        let claims = manifest.claim.into_iter();
        let claims = claims.map(|section| claim(&file, section, &trials));
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let crash = manifest
            .crash
            .map(|section| crash::settings(&file, &section, &trials));
        let crash = crash.transpose()?;
        let other = [
            ("prove", manifest.prove),
            ("ladder", ladder.is_some()),
            ("claim", !claims.is_empty()),
            ("place.processes", processes.is_some_and(|n| n > 1)),
        ];
        if crash.is_some()
            && let Some((key, _)) = other.iter().find(|(_, is_given)| *is_given)
        {
            let what = format!(
                "`{key}` conflicts with [crash], which measures no throughput; remove one of them"
            );
            return Err(file.error_at_start(what));
        }
        let capacity = manifest
            .capacity
            .map(|section| capacity::search(&file, &section, &trials));
        let capacity = capacity.transpose()?;
        let other = [
            ("prove", manifest.prove),
            ("sweep", !sweeps.is_empty()),
            ("[crash]", crash.is_some()),
        ];
        if capacity.is_some()
            && let Some((key, _)) = other.iter().find(|(_, is_given)| *is_given)
        {
            let what = format!("`{key}` conflicts with [capacity]; remove one of them");
            return Err(file.error_at_start(what));
        }
        let other = [
            ("prove", manifest.prove),
            ("sweep", !sweeps.is_empty()),
            ("ladder", ladder.is_some()),
            ("claim", !claims.is_empty()),
            ("place.processes", processes.is_some()),
            ("[crash]", crash.is_some()),
            ("[capacity]", capacity.is_some()),
        ];
        if manifest.gate.is_some()
            && let Some((key, _)) = other.iter().find(|(_, is_given)| *is_given)
        {
            let what = format!("`{key}` conflicts with [gate]; remove one of them");
            return Err(file.error_at_start(what));
        }
        let gate = manifest.gate;
        let gate = gate.map(|section| gate::rules(&file, &section, &trials));
        Ok(Experiment {
            description: ExperimentDescription {
                capacity: capacity.as_ref().map(|search| CapacityGoal {
                    objectives: search.objectives.iter().map(|o| o.text.clone()).collect(),
                    budget_s: search.budget.as_secs_f64(),
                }),
                name: name.into_owned(),
                question: manifest.question,
                trials: names(&trials),
                processes: processes.unwrap_or(1),
                claims,
                ladder: ladder.transpose()?.unwrap_or_default(),
                sweeps,
                expected_causes,
                expected_also,
                expected_path,
                expected_check: expect.check,
                crash,
                tuning: None,
                gate: gate.transpose()?,
            },
            trials,
            prove: manifest.prove,
            capacity,
        })
    }

    /// Finds an experiment's file by its path, or by its name in `./experiments`. If there is no
    /// such file, searches the files that are embedded in floodmark, and unpacks them.
    ///
    /// # Errors
    /// The file does not exist, or the embedded files cannot be unpacked.
    pub fn find(name: &str) -> Result<PathBuf, String> {
        let folder = Path::new("experiments");
        let named = format!("experiments/{name}.toml");
        let candidates = [name, &named];
        if let Some(path) = candidates.iter().find(|path| Path::new(path).is_file()) {
            return Ok(PathBuf::from(path));
        }
        let embedded = crate::bundle::paths();
        let mut paths = embedded.iter().map(String::as_str);
        if let Some(path) = paths.find(|path| candidates.contains(path)) {
            let root = crate::bundle::unpack().map_err(|error| error.to_string())?;
            return Ok(root.join(path));
        }
        let mut known = names_in(folder, |path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
                .then(|| path.file_stem())
                .flatten()
        });
        known.extend(embedded_names("experiments/", ".toml"));
        known.sort_unstable();
        known.dedup();
        Err(format!(
            "\"{name}\" is not a file, an experiment in ./experiments or an embedded experiment (floodmark \
             init experiment writes a new one); {}",
            did_you_mean(name, known.iter().map(String::as_str))
        ))
    }
}

/// Returns the names of trials.
pub(super) fn names(trials: &[Trial]) -> Vec<String> {
    trials.iter().map(|trial| trial.name.clone()).collect()
}

/// Checks that a part of each name is known.
fn checked_names(
    file: &TomlFile,
    names: Option<Located<Vec<String>>>,
    (key, noun): (&str, &str),
    known: &[&str],
    part: for<'a> fn(&'a str) -> &'a str,
) -> Result<Vec<String>, FileError> {
    let Some(names) = names else {
        return Ok(Vec::new());
    };
    let mut parts = names.iter().map(|name| part(name));
    match parts.find(|part| !known.contains(part)) {
        None => Ok(names.into_inner()),
        Some(part) => {
            let fix = did_you_mean(part, known.iter().copied());
            let what = format!("{key}: unknown {noun} \"{part}\"; {fix}");
            Err(file.error(&names.span(), what))
        }
    }
}

/// Checks that each step of a ladder is the name of a trial.
fn checked_ladder(
    file: &TomlFile,
    ladder: Located<Vec<String>>,
    trials: &[Trial],
) -> Result<Vec<String>, FileError> {
    let invalid = |what: String| Err(file.error(&ladder.span(), format!("ladder: {what}")));
    for (i, name) in ladder.iter().enumerate() {
        if !trials.iter().any(|trial| trial.name == *name) {
            let fix = did_you_mean(name, trials.iter().map(|trial| trial.name.as_str()));
            return invalid(format!("unknown trial \"{name}\"; {fix}"));
        }
        if ladder[..i].contains(name) {
            return invalid(format!("duplicate step \"{name}\""));
        }
    }
    match ladder.len() {
        1 => invalid("a ladder needs at least 2 steps; name a second trial".to_owned()),
        _ => Ok(ladder.into_inner()),
    }
}
