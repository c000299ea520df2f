//! Prepares an experiment for `floodmark tune`: chooses a trial and its knobs.

use std::collections::BTreeMap;

use floodmark_plan::did_you_mean;
use floodmark_plan::values::{MAX_NAME, is_name};
use floodmark_record::experiment::ExperimentDescription;
use floodmark_record::tuning::{KnobKind, KnobValues, TunedKnob, TuningDescription, TuningGoal};

use super::experiment::Experiment;
use super::program::Knob;
use super::trial::Trial;

/// Maximum number of knobs that a tuning changes.
const MOST_KNOBS: usize = 2;

/// Parts of the names of knobs that size a thread pool.
const THREADS: [&str; 4] = ["thread", "worker", "process", "executor"];
/// Parts of the names of knobs that size a pool of connections.
const CONNECTIONS: [&str; 2] = ["conn", "pool"];

/// What to tune.
#[derive(Debug, Clone)]
pub struct TuningRequest {
    /// Name of the trial, its sweep or its system; `None` for the only trial with knobs.
    pub only: Option<String>,
    /// Names of the knobs. If the list is empty, all knobs that size threads or connections.
    pub knobs: Vec<String>,
    /// Figure to maximize.
    pub goal: TuningGoal,
}

impl Experiment {
    /// Returns an experiment that tunes one trial. Its only trial has the default setting. It keeps
    /// the capacity search only if the tuning maximizes the capacity.
    /// `default_threads` returns the default of a knob `threads` without a default.
    ///
    /// # Errors
    /// The experiment or the trial has no such knobs, or a knob cannot be tuned. The error message
    /// is a single line.
    pub fn tuned(
        self,
        request: &TuningRequest,
        default_threads: impl Fn(&Trial) -> Result<u64, String>,
    ) -> Result<Self, String> {
        if self.description.crash.is_some() {
            return Err(
                "the experiment has crash rounds, which measure no throughput; tune another experiment"
                    .to_owned(),
            );
        }
        let is_capacity = request.goal == TuningGoal::Capacity;
        if is_capacity && self.capacity.is_none() {
            return Err(
                "--for capacity: the experiment has no objectives; add [capacity] with slo = [\"p99 < 20ms\"]"
                    .to_owned(),
            );
        }
        let base = choose(bases(&self), request.only.as_deref())?;
        let at = |what: String| format!("{}: {what}", base.place);
        let names = knob_names(&base, &request.knobs).map_err(at)?;
        let knobs = names
            .iter()
            .map(|name| tuned_knob(&base, name, &default_threads));
        let tuning = TuningDescription {
            trial: base.name.clone(),
            goal: request.goal,
            knobs: knobs.collect::<Result<_, _>>().map_err(at)?,
        };
        let widest = |knob: &TunedKnob| (knob.name.clone(), knob.high);
        let longest = tuning.trial_name(&tuning.knobs.iter().map(widest).collect());
        if !is_name(&longest) {
            return Err(at(format!(
                "the trial name \"{longest}\" is invalid: names have up to {MAX_NAME} letters, digits, \"-\", \"_\" or \
                 \".\"; give the trial a shorter name"
            )));
        }
        let start = tuning.knobs.iter();
        let start = start
            .map(|knob| (knob.name.clone(), knob.default))
            .collect();
        Ok(Experiment {
            trials: vec![base.with_knobs(&tuning, &start)],
            description: ExperimentDescription {
                name: self.description.name,
                question: self.description.question,
                trials: vec![base.name],
                processes: 1,
                capacity: self.description.capacity.filter(|_| is_capacity),
                tuning: Some(tuning),
                ..ExperimentDescription::default()
            },
            prove: false,
            capacity: self.capacity.filter(|_| is_capacity),
        })
    }
}

impl Trial {
    /// Returns the trial of a tuning that measures a setting.
    #[must_use]
    pub fn with_knobs(&self, tuning: &TuningDescription, values: &KnobValues) -> Self {
        let mut trial = self.clone();
        trial.name = tuning.trial_name(values);
        let values = values.iter();
        let values = values.map(|(name, value)| (name.clone(), value.to_string()));
        trial.setting.extend(values);
        trial
    }
}

/// Returns the trials that can be tuned. A sweep is one trial, without its values.
fn bases(experiment: &Experiment) -> Vec<Trial> {
    let mut bases: Vec<Trial> = Vec::new();
    for trial in &experiment.trials {
        let mut sweeps = experiment.description.sweeps.iter();
        let sweep = sweeps.find(|sweep| sweep.points.iter().any(|p| p.trial == trial.name));
        let mut base = trial.clone();
        if let Some(sweep) = sweep {
            base.name.clone_from(&sweep.name);
            base.setting.retain(|knob, _| !sweep.knobs.contains(knob));
        }
        if !bases.iter().any(|other| other.name == base.name) {
            bases.push(base);
        }
    }
    bases
}

fn choose(mut bases: Vec<Trial>, only: Option<&str>) -> Result<Trial, String> {
    let names =
        |bases: &[Trial]| -> Vec<String> { bases.iter().map(|trial| trial.name.clone()).collect() };
    if let Some(only) = only {
        let known = names(&bases);
        bases.retain(|trial| trial.name == only || trial.server.name == only);
        if bases.is_empty() {
            let fix = did_you_mean(only, known.iter().map(String::as_str));
            return Err(format!(
                "--only {only}: no trial or system has this name; {fix}"
            ));
        }
    } else {
        bases.retain(|trial| {
            let mut knobs = trial.server.knobs.values();
            knobs.any(|knob| is_numeric(knob) || has_no_limit(knob))
        });
    }
    match bases.len() {
        0 => Err(
            "no trial of the experiment has a knob with a number; add knobs = { threads = { low = 1, high = 200 } } to \
             [[trial]], and {threads} to its command"
                .to_owned(),
        ),
        1 => Ok(bases.remove(0)),
        _ => Err(format!(
            "the experiment has several trials with knobs ({}); choose one with --only",
            names(&bases).join(", ")
        )),
    }
}

/// Returns the names of the knobs to tune.
fn knob_names(trial: &Trial, requested: &[String]) -> Result<Vec<String>, String> {
    let server = &trial.server;
    let numeric = || server.knobs.iter().filter(|(_, knob)| is_numeric(knob));
    let known: Vec<&str> = numeric().map(|(name, _)| name.as_str()).collect();
    let mut knobs = server.knobs.iter();
    let is_wanted = |name| requested.contains(name) || known.is_empty();
    match knobs.find(|(name, knob)| is_wanted(name) && has_no_limit(knob)) {
        Some((name, _)) => {
            return Err(format!(
                "the knob \"{name}\" has no upper limit; add high = … to it"
            ));
        }
        None if known.is_empty() => {
            return Err(format!("{} has no knob with a number", server.name));
        }
        None => {}
    }
    for (i, name) in requested.iter().enumerate() {
        if requested[..i].contains(name) {
            return Err(format!("--knob {name} is given twice; remove one of them"));
        }
        if !known.contains(&name.as_str()) {
            let fix = did_you_mean(name, known.iter().copied());
            return Err(match server.knobs.get(name) {
                Some(_) => format!("--knob {name}: the knob is not a number; {fix}"),
                None => format!("--knob {name}: {} has no such knob; {fix}", server.name),
            });
        }
    }
    let sizes_pool = |(name, knob): &(&String, &Knob)| kind(name, knob) != KnobKind::Other;
    let names: Vec<String> = match requested {
        [] if numeric().any(|one| sizes_pool(&one)) => {
            let pools = numeric().filter(sizes_pool);
            // Threads use connections, so their number is tuned first.
            let (mut threads, others): (Vec<_>, Vec<_>) =
                pools.partition(|(name, knob)| kind(name, knob) == KnobKind::Threads);
            threads.extend(others);
            threads.into_iter().map(|(name, _)| name.clone()).collect()
        }
        [] => numeric().map(|(name, _)| name.clone()).collect(),
        some => some.to_vec(),
    };
    if names.len() > MOST_KNOBS {
        Err(format!(
            "a tuning changes at most {MOST_KNOBS} knobs; choose from {} with --knob",
            known.join(", ")
        ))
    } else {
        Ok(names)
    }
}

fn is_numeric(knob: &Knob) -> bool {
    let mut values = knob.values.iter();
    if knob.values.is_empty() {
        knob.limits().1.is_some()
    } else {
        values.all(|value| value.0.parse::<u64>().is_ok())
    }
}

/// Returns whether a knob is a number without an upper limit.
fn has_no_limit(knob: &Knob) -> bool {
    let default = knob.default.as_ref();
    let is_open = knob.values.is_empty() && knob.limits().1.is_none();
    is_open && default.is_none_or(|default| default.0.parse::<u64>().is_ok())
}

/// Returns what a knob sizes: as stated, or as its name suggests.
fn kind(name: &str, knob: &Knob) -> KnobKind {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    knob.sizes().unwrap_or(match () {
        () if has(&THREADS) => KnobKind::Threads,
        () if has(&CONNECTIONS) => KnobKind::Connections,
        () => KnobKind::Other,
    })
}

fn tuned_knob(
    trial: &Trial,
    name: &str,
    default_threads: impl Fn(&Trial) -> Result<u64, String>,
) -> Result<TunedKnob, String> {
    let invalid = |what: &str| Err(format!("the knob \"{name}\" {what}"));
    let knob = &trial.server.knobs[name];
    if !trial.server.uses(name) {
        return invalid(&format!(
            "has no effect; add {{{name}}} to the server's command"
        ));
    }
    let mut values: Vec<u64> = knob
        .values
        .iter()
        .filter_map(|v| v.0.parse().ok())
        .collect();
    values.sort_unstable();
    values.dedup();
    let (low, high) = knob.limits();
    let low = low.or(values.first().copied()).unwrap_or(1).max(1);
    let high = high.or(values.last().copied()).unwrap_or(0);
    values.retain(|value| (low..=high).contains(value));
    if low >= high || values.len() == 1 {
        return invalid("has only one value above 0; raise its `high`");
    }
    let given: BTreeMap<_, _> = trial.server.setting(&trial.setting);
    let default = match given.get(name) {
        Some(value) => value.parse().ok(),
        None => Some(default_threads(trial)?.clamp(low, high)),
    };
    let Some(default) = default.filter(|default| *default == 0 || (low..=high).contains(default))
    else {
        return invalid(&format!(
            "has a default outside its range from {low} to {high}; change one of them"
        ));
    };
    Ok(TunedKnob {
        name: name.to_owned(),
        sizes: kind(name, knob),
        default,
        low,
        high,
        values,
    })
}

#[cfg(test)]
#[path = "tuned_tests.rs"]
mod tests;
