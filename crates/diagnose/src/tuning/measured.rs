//! The measured processes of a tuning, read from its record.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::events::EndReason;
use floodmark_record::run::{Interval, Run};
use floodmark_record::tuning::{KnobValues, TuningDescription};
use floodmark_record::verdict::Verdict;

use crate::comparing::{RunGroup, process_figure};

/// One measured server process.
#[derive(Debug, Clone)]
pub(super) struct MeasuredProcess {
    /// The figure; `None` if the server failed or the runs are invalid.
    pub(super) figure: Option<f64>,
    /// 99th percentile of response time in µs.
    pub(super) p99_us: Option<f64>,
    /// Interval within the run; `None` for several attempts.
    pub(super) interval: Option<Interval>,
    pub(super) verdict: Option<Verdict>,
    /// Number of requests that the load keeps in flight.
    pub(super) in_flight: u64,
}

impl MeasuredProcess {
    /// Returns a process that failed before it was measured.
    pub(super) fn failed() -> Self {
        MeasuredProcess {
            figure: None,
            p99_us: None,
            interval: None,
            verdict: None,
            in_flight: 0,
        }
    }

    fn of(attempts: Vec<&Run>, tuning: &TuningDescription) -> Self {
        let last = attempts[attempts.len() - 1];
        let interval = last.throughput_interval.clone();
        let interval = interval.filter(|_| attempts.len() == 1);
        let verdict = last.verdict.clone();
        let in_flight = u64::from(last.plan.connections);
        let group = RunGroup {
            name: tuning.trial.clone(),
            capacities: Vec::new(),
            processes: vec![attempts],
        };
        MeasuredProcess {
            figure: process_figure(&group, tuning.goal.metric()),
            p99_us: process_figure(&group, ComparedMetric::P99),
            interval,
            verdict,
            in_flight,
        }
    }
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
    let is_whole = |run: &&Run| run.ended.reason != EndReason::Interrupted;
    for run in record.runs.iter().filter(is_whole) {
        if let Some(values) = values_of(run) {
            let processes = runs.entry(values).or_default();
            processes.entry(run.process).or_default().push(run);
        }
    }
    let all = runs.into_iter().map(|(values, processes)| {
        let measured = processes.into_values();
        let measured = measured.map(|attempts| MeasuredProcess::of(attempts, tuning));
        let mut measured: Vec<MeasuredProcess> = measured.collect();
        if has_failed(&tuning.trial_name(&values)) && measured.iter().all(|p| p.figure.is_some()) {
            measured.push(MeasuredProcess::failed());
        }
        (values, measured)
    });
    all.collect()
}
