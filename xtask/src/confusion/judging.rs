//! What the runs of one case were judged to be, and whether it is a case at all.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::Path;

use floodmark_record::Record;
use floodmark_record::cause::Cause;
use floodmark_record::run::Run;
use floodmark_record::verdict::{Confidence, Verdict};

use super::baseline;
use super::outcome::{Outcome, is_set_aside};

/// The trial whose cause is asked for, and the one that it is held against.
pub const FAULT: &str = "fault";
const CONTROL: &str = "control";

/// A fault has to move a figure by more than this beside moving it in every run: less is nobody's limit.
const MOVED: f64 = 0.05;

/// One case that was measured.
pub struct Case {
    /// What became of it.
    pub outcome: Outcome,
    /// Of one of its runs, where most of them have the same.
    pub verdict: Option<Verdict>,
    /// What each of its runs was judged to be.
    pub causes: Vec<Cause>,
}

/// By which rules a case is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Those of this build.
    Present,
    /// Those that were there when it was measured, which nothing that it showed can have changed.
    OfThen,
}

impl Rules {
    /// A result with their verdicts.
    pub fn judge(self, result: &Path) -> Result<Record, String> {
        match self {
            Rules::Present => floodmark_lab::fold(result).map_err(|error| error.to_string()),
            Rules::OfThen => {
                let file = result.join("record.json");
                let named = |error: &dyn Display| format!("{}: {error}", file.display());
                let text = fs::read(&file).map_err(|error| named(&error))?;
                serde_json::from_slice(&text).map_err(|error| named(&error))
            }
        }
    }
}

/// Judges a case; why it is none, where it is none.
pub fn judged(result: &Path, name: &str, rules: Rules) -> Result<Case, String> {
    let record = rules.judge(result)?;
    if let Some(what) = record.skipped.first() {
        return Err(what.clone());
    }
    let runs = |trial: &str| -> Vec<&Run> {
        let of = |run: &&Run| run.trial.as_deref() == Some(trial);
        record.runs.iter().filter(of).collect()
    };
    let (fault, control) = (runs(FAULT), runs(CONTROL));
    if fault.is_empty() {
        return Err(format!("it has no run of the trial {FAULT}"));
    }
    let clean = control.is_empty();
    if !clean && !moved(&fault, &control) {
        return Err(format!(
            "the fault did not move throughput or p99 beyond what the control does by itself ({} beside {})",
            rates(&fault),
            rates(&control)
        ));
    }
    let (verdict, confidence) = most(&fault);
    let cpus = f64::from(record.environment.cpus);
    let causes = fault.iter().filter_map(|run| run.verdict.as_ref());
    Ok(Case {
        outcome: Outcome {
            name: name.to_owned(),
            expected: expected(&record)?,
            judged: verdict.as_ref().map_or(Cause::Unknown, |v| v.cause),
            confidence,
            baselines: baseline::of(fault[fault.len() - 1], cpus),
            set_aside: is_set_aside(name),
            clean,
        },
        verdict,
        causes: causes.map(|verdict| verdict.cause).collect(),
    })
}

/// What the case says that it is.
pub fn expected(record: &Record) -> Result<Vec<Cause>, String> {
    let asked = record.experiment.as_ref();
    let named = asked.map_or(&[][..], |asked| &asked.expected_causes[..]);
    let cause = |id: &String| {
        let found = Cause::ALL.iter().find(|cause| cause.id() == id);
        found
            .copied()
            .ok_or_else(|| format!("unknown cause {id:?}"))
    };
    let causes: Vec<Cause> = named.iter().map(cause).collect::<Result<_, _>>()?;
    if causes.is_empty() {
        return Err("it does not say what its cause is ([expect] cause)".to_owned());
    }
    Ok(causes)
}

/// Whether throughput was lower, or p99 higher, in each run of one than in each of the other, by more than a little. With three of each
/// chance alone does that in one of 20 cases (a permutation test), and for either figure in at most one of 10.
fn moved(fault: &[&Run], control: &[&Run]) -> bool {
    let lower = |of: fn(&Run) -> Option<f64>, a: &[&Run], b: &[&Run]| {
        let values =
            |runs: &[&Run]| -> Vec<f64> { runs.iter().filter_map(|run| of(run)).collect() };
        let (a, b) = (values(a), values(b));
        let most = a.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = b.iter().copied().fold(f64::INFINITY, f64::min);
        !a.is_empty() && !b.is_empty() && most < least * (1.0 - MOVED)
    };
    let p99 = |run: &Run| run.response_time_us.p99;
    lower(|run| run.throughput_per_s, fault, control) || lower(p99, control, fault)
}

fn rates(runs: &[&Run]) -> String {
    let each = runs.iter().filter_map(|run| run.throughput_per_s);
    let each: Vec<String> = each
        .map(|per_s| format!("{}/s", floodmark_record::units::show_rate(per_s)))
        .collect();
    each.join(", ")
}

/// The verdict that most runs have; where several are as frequent it abstains.
fn most(runs: &[&Run]) -> (Option<Verdict>, Confidence) {
    let mut counts: BTreeMap<Cause, usize> = BTreeMap::new();
    for verdict in runs.iter().filter_map(|run| run.verdict.as_ref()) {
        *counts.entry(verdict.cause).or_default() += 1;
    }
    let Some(most) = counts.values().max().copied() else {
        return (None, Confidence::Unknown);
    };
    let mut causes = counts.iter().filter(|(_, n)| **n == most);
    let (Some((cause, _)), None) = (causes.next(), causes.next()) else {
        return (None, Confidence::Unknown);
    };
    let mut verdicts = runs.iter().filter_map(|run| run.verdict.as_ref());
    let verdict = verdicts.rfind(|verdict| verdict.cause == *cause);
    let confidence = verdict.map_or(Confidence::Unknown, |verdict| verdict.confidence);
    (verdict.cloned(), confidence)
}
