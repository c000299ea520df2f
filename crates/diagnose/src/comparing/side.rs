//! What is put side by side: the runs of a trial, or of one system with one workload and setting, by server process.

use std::collections::BTreeSet;

use floodmark_record::Record;
use floodmark_record::comparison::SideFacts;
use floodmark_record::run::Run;

/// The runs of one trial or system.
#[derive(Debug, Clone, PartialEq)]
pub struct Side<'a> {
    /// What it is called.
    pub name: String,
    /// The attempts on each server process, in the order they were made.
    pub processes: Vec<Vec<&'a Run>>,
}

/// Why there is no such side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSide {
    /// The record has no run.
    #[error("there is no run in it")]
    Empty,
    /// None was named, and there are several.
    #[error("there are several trials or systems in it; name one: {}", .0.join(", "))]
    Several(Vec<String>),
    /// A name that is none of them.
    #[error("no run of \"{name}\" is in it; there is {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
}

impl<'a> Side<'a> {
    /// All its runs.
    pub fn runs(&self) -> impl Iterator<Item = &'a Run> {
        self.processes.iter().flatten().copied()
    }

    /// Whether it is a trial of an experiment.
    pub(super) fn is_trial(&self) -> bool {
        self.runs().all(|run| run.trial.is_some())
    }

    /// Several results as one side; each one's processes count.
    #[must_use]
    pub fn joined(name: String, parts: Vec<Side<'a>>) -> Side<'a> {
        Side {
            name,
            processes: parts.into_iter().flat_map(|part| part.processes).collect(),
        }
    }

    /// What is said of it.
    #[must_use]
    pub fn facts(&self) -> SideFacts {
        let of: BTreeSet<String> = self
            .runs()
            .map(|run| format!("{} {}", run.system, run.workload))
            .collect();
        SideFacts {
            name: self.name.clone(),
            of: of.into_iter().collect(),
            processes: self.processes.len() as u32,
            attempts: self.runs().count() as u32,
        }
    }
}

/// The trials of a record, in the order they first came; where it has none its systems. A system that was measured with several
/// workloads or settings is several, and their names say which.
#[must_use]
pub fn sides(record: &Record) -> Vec<Side<'_>> {
    let mut found: Vec<(&Run, Vec<Vec<&Run>>)> = Vec::new();
    for run in &record.runs {
        let same = |first: &Run| match (&first.trial, &run.trial) {
            (None, None) => {
                (&first.system, &first.workload, &first.setting)
                    == (&run.system, &run.workload, &run.setting)
            }
            (first, run) => first == run,
        };
        match found.iter_mut().find(|(first, _)| same(first)) {
            None => found.push((run, vec![vec![run]])),
            Some((_, processes)) => {
                match processes.iter_mut().find(|p| p[0].process == run.process) {
                    Some(attempts) => attempts.push(run),
                    None => processes.push(vec![run]),
                }
            }
        }
    }
    let firsts: Vec<&Run> = found.iter().map(|(first, _)| *first).collect();
    found
        .into_iter()
        .map(|(first, processes)| Side {
            name: name(first, &firsts),
            processes,
        })
        .collect()
}

/// The trial's name, or the system's with as much more as it takes to tell it from the others.
fn name(run: &Run, all: &[&Run]) -> String {
    if let Some(trial) = &run.trial {
        return trial.clone();
    }
    let namesakes: Vec<&&Run> = all.iter().filter(|r| r.system == run.system).collect();
    let mut name = run.system.clone();
    if namesakes.iter().any(|r| r.workload != run.workload) {
        name += &format!(" {}", run.workload);
    }
    if namesakes
        .iter()
        .any(|r| r.workload == run.workload && r.setting != run.setting)
    {
        let knobs: Vec<String> = run
            .setting
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        name += &format!(" [{}]", knobs.join(" "));
    }
    name
}

/// The side of that name, else the only one of that system; the only one at all where none is named.
///
/// # Errors
/// There is no such one, or no only one.
pub fn select<'s, 'a>(sides: &'s [Side<'a>], name: Option<&str>) -> Result<&'s Side<'a>, NoSide> {
    let known = || sides.iter().map(|side| side.name.clone()).collect();
    let Some(name) = name else {
        return match sides {
            [] => Err(NoSide::Empty),
            [only] => Ok(only),
            _ => Err(NoSide::Several(known())),
        };
    };
    let named = sides.iter().find(|side| side.name == name);
    let mut of_system = sides
        .iter()
        .filter(|side| side.runs().all(|run| run.system == name));
    match (named, of_system.next(), of_system.next()) {
        (Some(side), ..) | (None, Some(side), None) => Ok(side),
        _ if sides.is_empty() => Err(NoSide::Empty),
        _ => Err(NoSide::Unknown {
            name: name.to_owned(),
            known: known(),
        }),
    }
}
