//! The measured processes of a tuning run, read from its record.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityEnd, CapacityKind, CapacityResult};
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::events::EndReason;
use floodmark_record::interval::Interval;
use floodmark_record::run::Run;
use floodmark_record::tuning::{KnobValues, TuningDescription, TuningGoal};
use floodmark_record::verdict::Verdict;

use crate::comparing::{RunGroup, process_figure};
use crate::text::per_s;
use crate::why::is_limit;

/// Minimum rate of a load above the capacity, as a multiple of the capacity.
const ABOVE: f64 = 1.01;

/// One measured server process. The default is a process that failed before it was measured.
#[derive(Debug, Clone, Default)]
pub(super) struct MeasuredProcess {
    /// Throughput or capacity per second, or a lower bound on the capacity; `None` if the figure is
    /// missing.
    pub(super) figure: Option<f64>,
    pub(super) is_lower_bound: bool,
    /// Interval of the figure, based on this process alone.
    pub(super) interval: Option<Interval>,
    /// Reason why the figure is missing or only a lower bound; `None` if the figure is exact, or if
    /// the process's runs show the reason.
    pub(super) note: Option<String>,
    /// Highest throughput per second, an upper bound on the figure.
    pub(super) throughput_per_s: Option<f64>,
    /// 99th percentile of response time in µs; `None` if the objectives limit it.
    pub(super) p99_us: Option<f64>,
    pub(super) verdict: Option<Verdict>,
    /// Number of requests that the closed-model load keeps in flight.
    pub(super) in_flight: u64,
}

impl MeasuredProcess {
    /// Returns a process whose throughput was measured.
    fn of_attempts(attempts: Vec<&Run>) -> Self {
        let last = attempts[attempts.len() - 1];
        let is_only = attempts.len() == 1;
        let group = RunGroup {
            name: String::new(),
            capacities: Vec::new(),
            processes: vec![attempts],
        };
        let figure = process_figure(&group, ComparedMetric::Throughput);
        MeasuredProcess {
            figure,
            interval: figure
                .and(last.throughput_interval.clone())
                .filter(|_| is_only),
            throughput_per_s: figure,
            p99_us: process_figure(&group, ComparedMetric::P99),
            verdict: last.verdict.clone(),
            in_flight: last.max_in_flight(),
            ..MeasuredProcess::default()
        }
    }

    /// Returns the process that a capacity search measured. The first load of the search uses the
    /// closed model.
    fn of_search(loads: &[&Run], found: Option<&CapacityResult>) -> Self {
        let closed = loads[0];
        MeasuredProcess {
            throughput_per_s: closed.throughput_per_s,
            verdict: limit_of_search(loads, found).cloned(),
            in_flight: closed.max_in_flight(),
            ..MeasuredProcess::of_capacity(found)
        }
    }

    /// Returns a process with the capacity that its search found. `found` is `None` if the search
    /// could not start, because no response was ok.
    fn of_capacity(found: Option<&CapacityResult>) -> Self {
        let missing = |why: &str| MeasuredProcess {
            note: Some(why.to_owned()),
            ..MeasuredProcess::default()
        };
        let at_least = |per_s, limit| MeasuredProcess {
            figure: Some(per_s),
            is_lower_bound: true,
            ..missing(limit)
        };
        let Some(found) = found else {
            return missing("no response was ok, so the search could not start");
        };
        let end = found.end.as_ref();
        if end.is_none_or(|end| end.reason == CapacityEnd::Failed) {
            return missing("the search failed");
        }
        if let Some((per_s, interval)) = found.sustained() {
            return MeasuredProcess {
                figure: Some(per_s),
                interval,
                ..MeasuredProcess::default()
            };
        }
        match (found.finding, found.rate_per_s, found.last_per_s) {
            (CapacityKind::ClientLimit, Some(rate), _) => at_least(
                rate,
                "the highest rate at which the client can send on time",
            ),
            (CapacityKind::AboveHighest, Some(rate), _) => {
                at_least(rate, "the highest rate of the search")
            }
            (CapacityKind::Never, Some(rate), _) => missing(&format!(
                "the server misses the objectives even at {}",
                per_s(rate)
            )),
            (CapacityKind::NotStationary, Some(first), Some(last)) => missing(&format!(
                "not stationary: the capacity changed from {} to {} during the search",
                per_s(first),
                per_s(last)
            )),
            _ => missing(
                "the search ended before it had found both bounds; use a longer `budget` in [capacity]",
            ),
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
        let all_known = measured.iter().all(|process| process.figure.is_some());
        if has_failed(&tuning.trial_name(&values)) && all_known {
            measured.push(MeasuredProcess::default());
        }
        (values, measured)
    });
    all.collect()
}
