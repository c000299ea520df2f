//! Experiment files: a question, the trials that answer it, and published claims. Each claim has a
//! criterion for agreement with the measured figure.

use std::ops::Range;
use std::path::{Path, PathBuf};

use floodmark_diagnose::conditions::AbortCondition;
use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{Name, Number};
use floodmark_plan::{FileError, LoadSpec, did_you_mean};
use floodmark_record::capacity::CapacityGoal;
use floodmark_record::cause::Cause;
use floodmark_record::comparison::{Agreement, ComparedMetric};
use floodmark_record::experiment::{ExpectedCheck, ExperimentDescription, PublishedClaim};
use floodmark_record::path::StepKind;
use schemars::JsonSchema;
use serde::Deserialize;

use super::client::Client;
use super::files::{ManifestCache, embedded_root, known_names};
use super::modes::{
    CapacitySearchPlan, CapacitySection, CrashSection, GateSection, capacity_search,
    crash_settings, first_given, gate_rules,
};
use super::place::{ExperimentPlace, TrialPlacement};
use super::system::{Store, System};
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
    /// Where the client and the server run, and how often each server is started.
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
    /// Conditions that end a measurement early, such as ["errors > 20% for 5s"]. The remaining
    /// attempts on the same server process are then skipped, and the experiment fails. Default:
    /// none.
    #[serde(rename = "abort-if", default)]
    abort_if: Vec<Located<String>>,
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
    /// Conditions that end a measurement early.
    pub abort_if: Vec<AbortCondition>,
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
        let claims: Result<Vec<_>, _> = claims.map(|one| claim(&file, one, &trials)).collect();
        let claims = claims?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let refuse = |mode: &str, keys: &[(&str, bool)]| match first_given(keys) {
            Some(key) => {
                let what = format!("`{key}` conflicts with {mode}; remove one of them");
                Err(file.error_at_start(what))
            }
            None => Ok(()),
        };
        let prove = ("prove", manifest.prove);
        let abort_if = abort_conditions(&file, &manifest.abort_if, &trials)?;
        let abort = ("abort-if", !abort_if.is_empty());
        let sweep = ("sweep", !sweeps.is_empty());
        let (ladder_key, claim) = (("ladder", ladder.is_some()), ("claim", !claims.is_empty()));
        let crash = manifest
            .crash
            .map(|section| crash_settings(&file, &section, &trials));
        let crash = crash.transpose()?;
        if crash.is_some() {
            let several = ("place.processes", processes.is_some_and(|n| n > 1));
            let keys = [prove, abort, ladder_key, claim, several];
            refuse("[crash], which measures no throughput", &keys)?;
        }
        let crash_key = ("[crash]", crash.is_some());
        let capacity = manifest
            .capacity
            .map(|section| capacity_search(&file, &section, &trials));
        let capacity = capacity.transpose()?;
        if capacity.is_some() {
            refuse("[capacity]", &[prove, abort, sweep, crash_key])?;
        }
        if manifest.gate.is_some() {
            let processes = ("place.processes", processes.is_some());
            let capacity = ("[capacity]", capacity.is_some());
            let keys = [
                prove, abort, sweep, ladder_key, claim, processes, crash_key, capacity,
            ];
            refuse("[gate]", &keys)?;
        }
        let gate = manifest.gate;
        let gate = gate.map(|section| gate_rules(&file, &section, &trials));
        Ok(Experiment {
            description: ExperimentDescription {
                abort_if: abort_if.iter().map(ToString::to_string).collect(),
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
            abort_if,
        })
    }

    /// Finds an experiment's file by its path, or by its name in `./experiments`. If there is no
    /// such file, searches the files that are embedded in floodmark, and unpacks them.
    ///
    /// # Errors
    /// The file does not exist, or the embedded files cannot be unpacked.
    pub fn find(name: &str) -> Result<PathBuf, String> {
        let named = format!("experiments/{name}.toml");
        let candidates = [name, &named];
        if let Some(path) = candidates.iter().find(|path| Path::new(path).is_file()) {
            return Ok(PathBuf::from(path));
        }
        for path in candidates {
            if let Some(root) = embedded_root(path) {
                return Ok(root?.join(path));
            }
        }
        let known = known_names(&["experiments".into()], "experiments/", ".toml");
        Err(format!(
            "\"{name}\" is not a file, an experiment in ./experiments or an embedded experiment (floodmark \
             init experiment writes a new one); {}",
            did_you_mean(name, known.iter().map(String::as_str))
        ))
    }
}

/// Parses the conditions that end a measurement early.
fn abort_conditions(
    file: &TomlFile,
    texts: &[Located<String>],
    trials: &[Trial],
) -> Result<Vec<AbortCondition>, FileError> {
    let parse = |text: &Located<String>| {
        let refuse = |what: String| file.error(&text.span(), format!("abort-if: {what}"));
        let condition: AbortCondition = text.parse().map_err(|e| refuse(format!("{e}")))?;
        if condition.condition.group.is_some() {
            return Err(refuse(format!(
                "'{}': trials have no mix; remove the part before the colon",
                **text
            )));
        }
        if let Some(trial) = trials.iter().find(|trial| trial.client.is_some()) {
            return Err(refuse(format!(
                "the external client of trial \"{}\" reports no figures while it runs; remove \
                 `abort-if` or the trial's `client`",
                trial.name
            )));
        }
        Ok(condition)
    };
    texts.iter().map(parse).collect()
}

/// Returns the error message for a name that no trial has.
pub(super) fn unknown_trial(name: &str, trials: &[Trial]) -> String {
    let fix = did_you_mean(name, trials.iter().map(|trial| trial.name.as_str()));
    format!("unknown trial \"{name}\"; {fix}")
}

/// Returns the names of trials.
pub(super) fn names(trials: &[Trial]) -> Vec<String> {
    trials.iter().map(|trial| trial.name.clone()).collect()
}

/// Selects a part of each name with `part`, and checks that this part is in `known`.
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
            return invalid(unknown_trial(name, trials));
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

/// A `[[claim]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimSection {
    /// Text of the claim.
    text: String,
    /// Where the claim was published.
    source: Option<String>,
    /// Metric of the figure. Default: throughput.
    metric: Option<ComparedMetric>,
    /// Names of two trials. The first trial's figure is divided by the second trial's figure.
    ratio: Option<Located<Vec<String>>>,
    /// Name of the trial with the claimed figure, for a claim without `ratio`. Optional if there is
    /// only one trial.
    trial: Option<Located<Name>>,
    /// Published figure: a ratio, a rate per second, or a time in microseconds.
    published: Option<Located<Number>>,
    /// Relative tolerance. With 0.1, the claim holds if the measured figure is between `published`
    /// / 1.1 and `published` * 1.1. Default for a ratio: 0.1. Without `within` or `at`, a claim
    /// about any other figure is inconclusive.
    within: Option<Located<Number>>,
    /// Direction of the claim. The claim holds if the measured figure is at least, or at most, the
    /// published figure. Conflicts with `within`.
    at: Option<Located<Bound>>,
}

/// Direction of a one-sided comparison.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Bound {
    Least,
    Most,
}

/// Reads a claim about the trials of an experiment.
pub(super) fn claim(
    file: &TomlFile,
    section: Located<ClaimSection>,
    trials: &[Trial],
) -> Result<PublishedClaim, FileError> {
    let ratio = match &section.ratio {
        None => Vec::new(),
        Some(ratio) => checked_ratio(file, ratio, trials)?,
    };
    if let Some(published) = &section.published
        && published.0 <= 0.0
    {
        return Err(file.error(&published.span(), "published: expected a number above 0"));
    }
    let has_figure = section.published.is_some() || !ratio.is_empty();
    let trial = claimed_trial(file, &section, trials, has_figure && ratio.is_empty())?;
    let agreement = agreement(file, &section)?;
    let section = section.into_inner();
    Ok(PublishedClaim {
        text: section.text,
        source: section.source,
        metric: section
            .metric
            .or(has_figure.then_some(ComparedMetric::Throughput)),
        trial,
        ratio,
        published: section.published.map(|published| published.0),
        agreement,
    })
}

fn checked_ratio(
    file: &TomlFile,
    ratio: &Located<Vec<String>>,
    trials: &[Trial],
) -> Result<Vec<String>, FileError> {
    let invalid = |what: String| Err(file.error(&ratio.span(), format!("ratio: {what}")));
    let [a, b] = &ratio[..] else {
        return invalid("expected two trials, like ratio = [\"one\", \"other\"]".to_owned());
    };
    for name in [a, b] {
        if let Err(what) = check_trial(name, trials) {
            return invalid(what);
        }
    }
    if a == b {
        invalid(format!(
            "both trials are \"{a}\"; name two different trials"
        ))
    } else {
        Ok(ratio.to_vec())
    }
}

/// Checks that a name refers to a trial, or to a system that has exactly one trial.
fn check_trial(name: &str, trials: &[Trial]) -> Result<(), String> {
    let of_system = trials.iter().filter(|trial| trial.server.name == name);
    let is_trial = trials.iter().any(|trial| trial.name == name);
    match (is_trial, of_system.count()) {
        (true, _) | (_, 1) => Ok(()),
        (_, 0) => Err(unknown_trial(name, trials)),
        _ => Err(format!(
            "the system \"{name}\" has several trials; name one of them"
        )),
    }
}

/// Returns the trial that a claim about a single figure refers to.
fn claimed_trial(
    file: &TomlFile,
    section: &Located<ClaimSection>,
    trials: &[Trial],
    is_single: bool,
) -> Result<Option<String>, FileError> {
    match (&section.trial, trials) {
        (Some(trial), _) if section.ratio.is_some() => Err(file.error(
            &trial.span(),
            "`trial` conflicts with `ratio`; remove one of them",
        )),
        (Some(trial), _) => match check_trial(&trial.0, trials) {
            Ok(()) => Ok(Some(trial.0.clone())),
            Err(what) => Err(file.error(&trial.span(), format!("trial: {what}"))),
        },
        (None, _) if !is_single => Ok(None),
        (None, [only]) => Ok(Some(only.name.clone())),
        (None, _) => Err(file.error(
            &section.span(),
            "the claim names no trial; add trial = \"…\" or ratio = [\"…\", \"…\"]",
        )),
    }
}

fn agreement(file: &TomlFile, section: &ClaimSection) -> Result<Option<Agreement>, FileError> {
    let needs_figure = |key: &str, span: Range<usize>| {
        let what = format!("`{key}` requires a published figure; add published = …");
        Err(file.error(&span, what))
    };
    let has_figure = section.published.is_some();
    match (&section.within, &section.at) {
        (Some(within), _) if !has_figure => needs_figure("within", within.span()),
        (None, Some(at)) if !has_figure => needs_figure("at", at.span()),
        (Some(_), Some(at)) => {
            let what = "`at` conflicts with `within`; remove one of them";
            Err(file.error(&at.span(), what))
        }
        (Some(within), None) if within.0 <= 0.0 => Err(file.error(
            &within.span(),
            "within: expected a number above 0, like within = 0.1",
        )),
        (Some(within), None) => Ok(Some(Agreement::Within(within.0))),
        (None, Some(at)) => Ok(Some(match **at {
            Bound::Most => Agreement::AtMost,
            Bound::Least => Agreement::AtLeast,
        })),
        (None, None) => Ok(None),
    }
}
