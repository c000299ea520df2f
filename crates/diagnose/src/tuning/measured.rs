//! The measured processes of a tuning, read from its record.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityEnd, CapacityResult};
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::events::EndReason;
use floodmark_record::run::Run;
use floodmark_record::tuning::{KnobValues, TuningDescription, TuningGoal};
use floodmark_record::verdict::Verdict;

use super::figure::MeasuredFigure;
use crate::comparing::{RunGroup, process_figure};
use crate::why::is_limit;

/// Minimum rate of a load above the capacity, as a multiple of the capacity.
const ABOVE: f64 = 1.01;

/// One measured server process.
#[derive(Debug, Clone)]
pub(super) struct MeasuredProcess {
    pub(super) figure: MeasuredFigure,
    /// Highest throughput per second, which bounds the figure of a pool that is full.
    pub(super) throughput_per_s: Option<f64>,
    /// 99th percentile of response time in µs; `None` if the objectives limit it.
    pub(super) p99_us: Option<f64>,
    pub(super) verdict: Option<Verdict>,
    /// Number of requests that the closed-model load keeps in flight.
    pub(super) in_flight: u64,
}

impl MeasuredProcess {
    /// Returns a process that failed before it was measured.
    pub(super) fn failed() -> Self {
        MeasuredProcess {
            figure: MeasuredFigure::Missing(None),
            throughput_per_s: None,
            p99_us: None,
            verdict: None,
            in_flight: 0,
        }
    }

    /// Returns a process whose throughput was measured.
    fn of_attempts(attempts: Vec<&Run>) -> Self {
        let last = attempts[attempts.len() - 1];
        let interval = last.throughput_interval.clone();
        let interval = interval.filter(|_| attempts.len() == 1);
        let verdict = last.verdict.clone();
        let in_flight = u64::from(last.plan.connections);
        let group = RunGroup {
            name: String::new(),
            capacities: Vec::new(),
            processes: vec![attempts],
        };
        let figure = process_figure(&group, ComparedMetric::Throughput);
        MeasuredProcess {
            throughput_per_s: figure,
            figure: match figure {
                Some(per_s) => MeasuredFigure::Known(per_s, interval),
                None => MeasuredFigure::Missing(None),
            },
            p99_us: process_figure(&group, ComparedMetric::P99),
            verdict,
            in_flight,
        }
    }

    /// Returns a process whose capacity was searched. The first load of a search is that of the closed
    /// model.
    fn of_search(loads: &[&Run], found: Option<&CapacityResult>) -> Self {
        let closed = loads[0];
        MeasuredProcess {
            figure: MeasuredFigure::of_capacity(found),
            throughput_per_s: closed.throughput_per_s,
            p99_us: None,
            verdict: limit_of_search(loads, found).cloned(),
            in_flight: u64::from(closed.plan.connections),
        }
    }
}

/// Returns the verdict on the load above the capacity. If it names no limit, returns the verdict on
/// the closed-model load.
fn limit_of_search<'a>(loads: &[&'a Run], found: Option<&CapacityResult>) -> Option<&'a Verdict> {
    let capacity_per_s = found.and_then(|found| found.rate_per_s);
    let is_above = |run: &&&Run| {
        let rate = run.plan.rate_per_s().zip(capacity_per_s);
        rate.is_some_and(|(rate, capacity)| rate > ABOVE * capacity)
    };
    let names_limit = |of: &&Verdict| is_limit(of.cause);
    let above = loads.iter().rfind(is_above);
    let above = above.and_then(|run| run.verdict.as_ref());
    above.filter(names_limit).or(loads[0].verdict.as_ref())
}

/// The measured processes of each setting, in order.
pub(super) type Measured = BTreeMap<KnobValues, Vec<MeasuredProcess>>;

/// Reads the measured processes from a record. A setting at which the server failed has no further
/// processes.
pub(super) fn measured(
    record: &Record,
    tuning: &TuningDescription,
    has_failed: impl Fn(&str) -> bool,
) -> Measured {
    let values_of = |run: &Run| -> Option<KnobValues> {
        let value = |name: &String| run.setting.get(name)?.parse().ok();
        let knobs = tuning.knobs.iter();
        knobs
            .map(|knob| Some((knob.name.clone(), value(&knob.name)?)))
            .collect()
    };
    let mut runs: BTreeMap<KnobValues, BTreeMap<u32, Vec<&Run>>> = BTreeMap::new();
    for run in &record.runs {
        if let Some(values) = values_of(run) {
            let processes = runs.entry(values).or_default();
            processes.entry(run.process).or_default().push(run);
        }
    }
    let process = |runs: Vec<&Run>| {
        let is_interrupted = |run: &&Run| run.ended.reason == EndReason::Interrupted;
        if runs.iter().any(is_interrupted) {
            return None;
        }
        if tuning.goal == TuningGoal::Throughput {
            return Some(MeasuredProcess::of_attempts(runs));
        }
        let of_process = |found: &&CapacityResult| {
            (&found.trial, found.process) == (&runs[0].trial, runs[0].process)
        };
        let found = record.capacities.iter().find(of_process);
        let has_ended = |found: &CapacityResult| {
            let end = found.end.as_ref();
            end.is_some_and(|end| end.reason != CapacityEnd::Interrupted)
        };
        found
            .is_none_or(has_ended)
            .then(|| MeasuredProcess::of_search(&runs, found))
    };
    let all = runs.into_iter().map(|(values, processes)| {
        let measured = processes.into_values().filter_map(process);
        let mut measured: Vec<MeasuredProcess> = measured.collect();
        let all_known = measured.iter().all(|p| p.figure.per_s().is_some());
        if has_failed(&tuning.trial_name(&values)) && all_known {
            measured.push(MeasuredProcess::failed());
        }
        (values, measured)
    });
    all.collect()
}
