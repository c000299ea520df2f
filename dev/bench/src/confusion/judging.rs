//! Judges the runs of a case and decides whether the case is void.

use std::collections::BTreeMap;
use std::path::Path;

use floodmark_lab::RECORD;
use floodmark_record::Record;
use floodmark_record::cause::Cause;
use floodmark_record::path::PathStep;
use floodmark_record::run::Run;
use floodmark_record::units::show_rate;
use floodmark_record::verdict::{Confidence, RuledOut, Verdict};

use super::baseline::{NamedCause, OTHERS};
use super::table::Suite;
use crate::bench::Failure;

/// Name of the trial with the fault. This trial's verdicts are judged.
pub const FAULT: &str = "fault";
/// Name of the trial without the fault.
pub const CONTROL: &str = "control";

/// Minimum relative effect of a fault. A case whose fault has a smaller effect is void.
const MIN_EFFECT: f64 = 0.05;

/// A measured and judged case.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedCase {
    /// Name of the case.
    pub name: String,
    /// Expected causes; never empty. A case has several expected causes if several limits apply
    /// equally by design.
    pub expected: Vec<Cause>,
    /// Steps of the expected path; empty if no path is expected.
    pub expected_path: Vec<String>,
    /// The last verdict with the most frequent cause; `None` in a tie.
    pub verdict: Option<Verdict>,
    /// Cause named by the verdict.
    pub judged: Cause,
    /// Confidence of the verdict.
    pub confidence: Confidence,
    /// The cause of each run.
    pub causes: Vec<Cause>,
    /// Cause and confidence for each row of [`OTHERS`].
    pub others: [NamedCause; OTHERS.len()],
    /// The control's throughput relative to the predicted range: 0 and 1 are the ends of the range.
    /// `None` if the case is clean or there is no prediction.
    pub gain: Option<f64>,
    /// Whether the control differs only in settings of the server, not in the application.
    pub is_setting: bool,
    /// Whether the case is set aside (held out) so that the rules are not fitted to it.
    pub is_set_aside: bool,
    /// Whether the case has no fault.
    pub is_clean: bool,
}

/// All cases of one pass.
#[derive(Debug, Default)]
pub struct Pass {
    /// Cases, judged by the rules of this build.
    pub cases: Vec<JudgedCase>,
    /// The same cases, judged by the rules of the floodmark build that measured the runs.
    pub as_measured: Vec<JudgedCase>,
    /// The name of each void case, and the reason.
    pub void: Vec<String>,
}

impl Pass {
    /// Judges the results in `directory` for the cases in `names`.
    pub fn read<'a>(
        suite: &Suite,
        directory: &Path,
        names: impl IntoIterator<Item = &'a String>,
    ) -> Self {
        let mut pass = Pass::default();
        for name in names {
            let result = directory.join(name);
            let record = floodmark_lab::fold(&result).map_err(Failure::from);
            match record.and_then(|record| judge(suite, &record, name)) {
                Ok(case) => {
                    pass.cases.push(case);
                    // The saved record contains the verdicts of the build that measured the runs.
                    let record = floodmark_lab::read(&result.join(RECORD)).map_err(Failure::from);
                    let case = record.and_then(|record| judge(suite, &record, name));
                    pass.as_measured.extend(case);
                }
                Err(reason) => pass.void.push(format!("{name}: {reason}")),
            }
        }
        pass
    }
}

impl JudgedCase {
    /// Judges a case.
    ///
    /// # Errors
    /// The case is void; the error contains the reason.
    pub fn of(suite: &Suite, record: &Record, name: &str) -> Result<Self, Failure> {
        judge(suite, record, name)
    }

    /// Returns whether the verdict names an expected cause.
    pub fn is_right(&self) -> bool {
        self.expected.contains(&self.judged)
    }

    /// Returns the steps of the verdict's path behind the requests in flight.
    pub fn path(&self) -> Vec<String> {
        let steps = self.verdict.iter().flat_map(|verdict| &verdict.path);
        steps.skip(1).map(PathStep::key).collect()
    }

    /// Returns whether the verdict has the expected path, or no path is expected.
    pub fn is_path_right(&self) -> bool {
        self.expected_path.is_empty() || self.path() == self.expected_path
    }

    /// Returns the ids of the expected causes.
    pub fn expected_ids(&self) -> String {
        let ids: Vec<&str> = self.expected.iter().map(|cause| cause.name()).collect();
        ids.join(" or ")
    }

    /// Returns the verdict's evidence against the expected causes.
    pub fn ruled_out(&self) -> Vec<String> {
        let ruled_out = self.verdict.iter().flat_map(|verdict| &verdict.ruled_out);
        ruled_out
            .filter(|ruled_out| self.expected.contains(&ruled_out.cause))
            .map(RuledOut::to_string)
            .collect()
    }

    /// Returns the summary of the verdict, or a description of how the runs disagree.
    pub fn summary(&self) -> String {
        if let Some(verdict) = &self.verdict {
            return verdict.summary.clone();
        }
        let ids: Vec<&str> = self.causes.iter().map(|cause| cause.name()).collect();
        format!("verdicts differ between processes: {}", ids.join(", "))
    }
}

/// Judges a case.
///
/// # Errors
/// The case is void; the error contains the reason.
fn judge(suite: &Suite, record: &Record, name: &str) -> Result<JudgedCase, Failure> {
    if let Some(skipped) = record.skipped.first() {
        // Omit the paths and lines of the server's log, which follow the reason in quotes.
        let reason = skipped.split(": \"").next().unwrap_or_default();
        return Err(reason.into());
    }
    let [fault, control] = [FAULT, CONTROL].map(|trial| record.runs_of(trial).collect::<Vec<_>>());
    let last = fault.last().ok_or("the `fault` trial has no run")?;
    let is_clean = control.is_empty();
    let has_effect = if suite.is_own() {
        has_effect(&fault, &control)
    } else {
        control_is_faster(&fault, &control)
    };
    if !is_clean && !has_effect {
        let (fault, control) = (rates(&fault), rates(&control));
        return Err(format!(
            "the fault has too little effect (with the fault: {fault}; control: {control})"
        )
        .into());
    }
    let verdict = most_frequent(&fault);
    let judged = verdict.as_ref().map(|v| (v.cause, v.confidence));
    let (judged, confidence) = judged.unwrap_or((Cause::Unknown, Confidence::Unknown));
    let verdicts = fault.iter().filter_map(|run| run.verdict.as_ref());
    let gain = verdict
        .as_ref()
        .and_then(|verdict| position(verdict, &control));
    let asked = record.experiment.iter();
    let expected_path = asked
        .flat_map(|asked| asked.expected_path.clone())
        .collect();
    Ok(JudgedCase {
        name: name.to_owned(),
        gain,
        expected: expected(record)?,
        expected_path,
        verdict,
        judged,
        confidence,
        causes: verdicts.map(|verdict| verdict.cause).collect(),
        others: OTHERS.map(|(_, judge)| judge(record)),
        is_setting: control.last().is_some_and(|control| {
            // Both names select the application's code.
            let code = |run: &Run| ["app", "handler"].map(|name| run.setting.get(name).cloned());
            code(last) == code(control)
        }),
        is_set_aside: suite.sets_aside(name),
        is_clean,
    })
}

/// Returns where the control's throughput lies in the range that a verdict predicts for the
/// control's number of connections.
fn position(verdict: &Verdict, control: &[&Run]) -> Option<f64> {
    let gain = verdict.gain.as_ref()?;
    let control = control.last()?;
    let requests = u64::from(gain.requests);
    let share = control.max_in_flight().min(requests) as f64 / requests as f64;
    let (low, high) = (gain.low_per_s * share, gain.high_per_s * share);
    Some((control.throughput_per_s? - low) / (high - low))
}

/// Returns the family of a third-party case: the first word of its name.
pub fn family(name: &str) -> &str {
    name.split('-').next().unwrap_or_default()
}

/// Computes the 64-bit FNV-1a hash.
pub fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the case's expected causes.
fn expected(record: &Record) -> Result<Vec<Cause>, Failure> {
    let ids = record
        .experiment
        .iter()
        .flat_map(|asked| &asked.expected_causes);
    let cause = |id: &String| Cause::ALL.iter().find(|cause| cause.name() == id);
    let causes: Vec<Cause> = ids.filter_map(cause).copied().collect();
    if causes.is_empty() {
        Err("no expected cause; add `cause` to [expect]".into())
    } else {
        Ok(causes)
    }
}

/// Returns whether the fault had an effect.
///
/// A fault has an effect if every run with the fault has lower throughput, or a higher p99, than
/// every control run. The difference must be at least [`MIN_EFFECT`]. With three runs per trial,
/// the probability that chance alone produces such an effect is 1/20 per figure, and at most 1/10
/// for both figures together (permutation test).
fn has_effect(fault: &[&Run], control: &[&Run]) -> bool {
    let all_lower = |figure: fn(&Run) -> Option<f64>, a: &[&Run], b: &[&Run]| {
        let max = a.iter().filter_map(|run| figure(run)).reduce(f64::max);
        let min = b.iter().filter_map(|run| figure(run)).reduce(f64::min);
        matches!((max, min), (Some(max), Some(min)) if max < min * (1.0 - MIN_EFFECT))
    };
    all_lower(|run| run.throughput_per_s, fault, control)
        || all_lower(|run| run.response_time_us.p99, control, fault)
}

/// Minimum ratio of the control's throughput to the throughput with the fault.
const MIN_RATIO: f64 = 1.2;

/// Returns whether, in each process, the control's throughput of ok responses is at least
/// [`MIN_RATIO`] times the throughput with the fault.
fn control_is_faster(fault: &[&Run], control: &[&Run]) -> bool {
    let mut pairs = control.iter().zip(fault);
    let rate = |run: &Run| run.throughput_per_s.unwrap_or(0.0);
    pairs.all(|(control, fault)| rate(control) >= MIN_RATIO * rate(fault))
}

fn rates(runs: &[&Run]) -> String {
    let each = runs.iter().filter_map(|run| run.throughput_per_s);
    let each: Vec<String> = each.map(|rate| show_rate(rate) + "/s").collect();
    each.join(", ")
}

/// Returns the last verdict with the most frequent cause, or `None` in a tie.
pub fn most_frequent(runs: &[&Run]) -> Option<Verdict> {
    let verdicts = || runs.iter().filter_map(|run| run.verdict.as_ref());
    let mut counts: BTreeMap<Cause, usize> = BTreeMap::new();
    for verdict in verdicts() {
        *counts.entry(verdict.cause).or_default() += 1;
    }
    let most = counts.values().max()?;
    let mut causes = counts.iter().filter(|(_, n)| *n == most);
    let (cause, tie) = (causes.next()?.0, causes.next());
    let found = verdicts().rfind(|verdict| verdict.cause == *cause);
    found.filter(|_| tie.is_none()).cloned()
}

#[cfg(test)]
impl JudgedCase {
    /// Returns a case that is not set aside, with a likely verdict.
    pub fn example(name: &str, expected: Cause, judged: Cause) -> Self {
        JudgedCase {
            name: name.to_owned(),
            expected: vec![expected],
            expected_path: Vec::new(),
            verdict: None,
            judged,
            confidence: Confidence::Likely,
            causes: Vec::new(),
            others: [(Cause::ServerCpu, Confidence::Likely); OTHERS.len()],
            gain: None,
            is_setting: false,
            is_set_aside: false,
            is_clean: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::confusion::table::SUITES;

    #[test]
    fn sets_aside_about_one_case_in_five() {
        let names: Vec<String> = (0..1000).map(|i| format!("case-{i}")).collect();
        let aside = names
            .iter()
            .filter(|name| SUITES[0].sets_aside(name))
            .count();
        assert!((150..250).contains(&aside), "{aside}");
    }
}
