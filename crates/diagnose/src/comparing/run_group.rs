//! Groups of runs to compare. A group is either one trial, or one system with one workload and one
//! set of settings.

use std::collections::BTreeSet;

use floodmark_record::Record;
use floodmark_record::capacity::CapacityResult;
use floodmark_record::comparison::{ComparedMetric, ComparedResult};
use floodmark_record::interval::Interval;
use floodmark_record::run::Run;

/// The runs of one trial or system.
#[derive(Debug, Clone, PartialEq)]
pub struct RunGroup<'a> {
    /// Name of the trial or system.
    pub name: String,
    /// The attempts on each server process, in chronological order.
    pub processes: Vec<Vec<&'a Run>>,
    /// The capacity of each server process, if it was searched. The attempts then have different
    /// loads.
    pub capacities: Vec<&'a CapacityResult>,
}

/// The reason why a group cannot be selected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The result contains no runs.
    #[error("the result has no runs")]
    Empty,
    /// No name was given, but there are several groups.
    #[error("the result has several trials or systems: {}", .0.join(", "))]
    Several(Vec<String>),
    /// The given name is unknown. Contains the given name and the known names.
    #[error("the result has no trial or system \"{0}\"; available: {known}", known = .1.join(", "))]
    Unknown(String, Vec<String>),
}

impl<'a> RunGroup<'a> {
    /// Prefixes each note with the group's name.
    pub(super) fn named(&self, notes: &[String]) -> Vec<String> {
        let name = &self.name;
        notes.iter().map(|note| format!("{name}: {note}")).collect()
    }

    /// Returns all runs of the group.
    pub fn runs(&self) -> impl Iterator<Item = &'a Run> {
        self.processes.iter().flatten().copied()
    }

    /// Returns the mean load time per server process in seconds, including warm-ups.
    pub(super) fn load_s_per_process(&self) -> f64 {
        let runs = self
            .runs()
            .map(|run| run.sending_s + run.plan.warmup.as_secs_f64());
        runs.sum::<f64>() / self.processes.len().max(1) as f64
    }

    /// Returns the metrics on which the group can be compared.
    #[must_use]
    pub fn metrics(&self) -> Vec<ComparedMetric> {
        let has_capacity = !self.capacities.is_empty();
        let fits = |metric: &ComparedMetric| (*metric == ComparedMetric::Capacity) == has_capacity;
        ComparedMetric::ALL.into_iter().filter(fits).collect()
    }

    /// Returns the sustained capacity of the group's only server process, with its interval.
    pub(super) fn only_capacity(&self) -> Option<(f64, Option<Interval>)> {
        match &self.capacities[..] {
            [only] => only.sustained(),
            _ => None,
        }
    }

    /// Returns whether the group is a trial of an experiment.
    pub(super) fn is_trial(&self) -> bool {
        self.runs().all(|run| run.trial.is_some())
    }

    /// Returns the group's name, its systems and workloads, and the numbers of processes and
    /// attempts.
    #[must_use]
    pub fn summary(&self) -> ComparedResult {
        let show = |run: &Run| format!("{} {}", run.system, run.workload);
        ComparedResult {
            name: self.name.clone(),
            of: Vec::from_iter(BTreeSet::from_iter(self.runs().map(show))),
            processes: self.processes.len() as u32,
            attempts: self.runs().count() as u32,
        }
    }
}

/// Returns the trials of a record in order, or the record's systems if there are no trials. A
/// system with several workloads or settings becomes several groups with distinct names.
#[must_use]
pub fn run_groups(record: &Record) -> Vec<RunGroup<'_>> {
    let is_same = |a: &&Run, b: &&Run| match (&a.trial, &b.trial) {
        (None, None) => {
            (&a.system, &a.workload, &a.setting) == (&b.system, &b.workload, &b.setting)
        }
        (a, b) => a == b,
    };
    let groups = grouped(&record.runs, is_same);
    let firsts: Vec<&Run> = groups.iter().map(|runs| runs[0]).collect();
    groups
        .iter()
        .map(|runs| RunGroup {
            name: name(runs[0], &firsts),
            processes: grouped(runs.iter().copied(), |a, b| a.process == b.process),
            capacities: capacities(record)
                .filter(|found| found.trial == runs[0].trial)
                .collect(),
        })
        .collect()
}

/// Returns the capacities of a record.
fn capacities(record: &Record) -> impl Iterator<Item = &CapacityResult> {
    record.capacity.iter().chain(&record.capacities)
}

/// Groups items that are equal according to `is_same`. Items and groups keep their order.
pub(super) fn grouped<T>(
    items: impl IntoIterator<Item = T>,
    is_same: impl Fn(&T, &T) -> bool,
) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for item in items {
        match groups.iter_mut().find(|group| is_same(&group[0], &item)) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}

/// Returns the trial's name. For a run without a trial, returns the system's name, plus the
/// workload and settings that distinguish the group.
fn name(run: &Run, all: &[&Run]) -> String {
    if let Some(trial) = &run.trial {
        return trial.clone();
    }
    let same_system = || all.iter().filter(|other| other.system == run.system);
    let mut name = run.system.clone();
    if same_system().any(|other| other.workload != run.workload) {
        name += &format!(" {}", run.workload);
    }
    if same_system().any(|other| other.workload == run.workload && other.setting != run.setting) {
        let settings = run.setting.iter();
        let settings: Vec<String> = settings.map(|(k, v)| format!("{k}={v}")).collect();
        name += &format!(" [{}]", settings.join(" "));
    }
    name
}

/// Returns the group called `name`, or the only group of the system called `name`. Without a name,
/// returns the only group.
///
/// # Errors
/// Fails if no group or more than one group matches.
pub fn select<'s, 'a>(
    groups: &'s [RunGroup<'a>],
    name: Option<&str>,
) -> Result<&'s RunGroup<'a>, GroupError> {
    let known = || groups.iter().map(|group| group.name.clone()).collect();
    let Some(name) = name else {
        return match groups {
            [] => Err(GroupError::Empty),
            [only] => Ok(only),
            _ => Err(GroupError::Several(known())),
        };
    };
    let named = groups.iter().find(|group| group.name == name);
    let is_of_system = |group: &&RunGroup<'_>| group.runs().all(|run| run.system == name);
    let mut of_system = groups.iter().filter(is_of_system);
    match (named, of_system.next(), of_system.next()) {
        (Some(group), ..) | (None, Some(group), None) => Ok(group),
        _ if groups.is_empty() => Err(GroupError::Empty),
        _ => Err(GroupError::Unknown(name.to_owned(), known())),
    }
}
