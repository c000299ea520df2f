//! Comparisons of trials or systems.
//!
//! Server processes are the independent repetitions. Each process has one figure, which combines
//! its attempts.

mod claims;
mod differences;
mod process_figures;
mod run_group;
mod trends;

use floodmark_record::Record;
use floodmark_record::comparison::{Compared, ComparedMetric, Comparison, Conclusion};
use floodmark_record::experiment::{ExperimentDescription, PointThroughput, Swept};
use floodmark_record::run::Status;
use floodmark_stats::comparison::{
    Ratio, conclusion as conclusion_of, geometric_mean, over_processes,
};
use floodmark_stats::estimate::CONFIDENCE;

pub use claims::claims;
pub use differences::{Caveats, caveats};
pub use process_figures::trial_capacities;
use process_figures::{ProcessFigures, interval_of_ratio};
pub use run_group::{GroupError, RunGroup, run_groups, select};
pub use trends::{NamedRecord, trend_series};

/// Recommended number of server processes per system. With fewer processes, the estimate of the
/// variance between processes is too uncertain.
pub const FEWEST_PROCESSES: usize = 5;

/// A sweep point is good enough if its throughput is at least this share of the highest throughput.
/// Throughput varies by about 5 % between fresh processes on one host.
const ENOUGH: f64 = 0.95;

/// Compares the trials of a record on every metric.
///
/// Each trial is compared with the first trial that has the same workload and load. Each step of a
/// ladder is compared with the previous measured step. Sweep trials are not compared, because the
/// curve of a sweep is more informative.
#[must_use]
pub fn comparisons(record: &Record) -> Vec<Comparison> {
    let none = ExperimentDescription::default();
    let experiment = record.experiment.as_ref().unwrap_or(&none);
    let in_sweep = |group: &RunGroup<'_>| {
        let mut points = experiment.sweeps.iter().flat_map(|sweep| &sweep.points);
        points.any(|point| point.trial == group.name)
    };
    let step = |group: &RunGroup<'_>| {
        let mut steps = experiment.ladder.iter();
        steps.position(|name| *name == group.name)
    };
    let trials: Vec<RunGroup<'_>> = run_groups(record)
        .into_iter()
        .filter(|group| group.is_trial() && !in_sweep(group))
        .collect();
    let loads = run_group::grouped(&trials, |a, b| differences::load(a) == differences::load(b));
    let mut comparisons = Vec::new();
    for load in &loads {
        for trial in &load[1..] {
            let baseline = match step(trial) {
                None => Some(&load[0]),
                // Find the nearest lower step that was measured.
                Some(n) => load
                    .iter()
                    .filter(|other| step(other).is_some_and(|of| of < n))
                    .max_by_key(|other| step(other)),
            };
            let Some(baseline) = baseline else { continue };
            // Add these notes to every comparison in the record. `floodmark compare` prints the
            // notes only once for all metrics.
            let notes = [trial, baseline].map(|of| of.named(&differences::validity_notes(of)));
            for metric in trial.metrics() {
                let mut comparison = compare(trial, baseline, metric);
                comparison.notes.extend(notes.concat());
                comparisons.push(comparison);
            }
        }
    }
    comparisons
}

/// Compares two groups on one metric. The ratio is candidate ÷ baseline.
#[must_use]
pub fn compare(
    candidate: &RunGroup<'_>,
    baseline: &RunGroup<'_>,
    metric: ComparedMetric,
) -> Comparison {
    let [of_candidate, of_baseline] =
        [candidate, baseline].map(|group| ProcessFigures::of(group, metric));
    let usable = of_candidate.usable().zip(of_baseline.usable());
    let ratio = usable.and_then(|(candidate, baseline)| Ratio::of(candidate, baseline));
    let across = ratio.as_ref().and_then(Ratio::interval);
    let is_capacity = metric == ComparedMetric::Capacity;
    let within = || interval_of_ratio(candidate, baseline).filter(|_| is_capacity);
    let interval = across.clone().or_else(within);
    let mut notes = [
        candidate.named(&of_candidate.notes),
        baseline.named(&of_baseline.notes),
    ]
    .concat();
    if ratio.is_some() && across.is_none() {
        notes.push(too_few(&[
            (candidate, &of_candidate),
            (baseline, &of_baseline),
        ]));
    }
    let mut method = match (&ratio, &interval) {
        (_, Some(interval)) => interval.method.clone(),
        (Some(_), None) => "ratio of geometric means, without an interval".to_owned(),
        (None, None) => "no ratio".to_owned(),
    };
    let conclusion = interval
        .as_ref()
        .map_or(Conclusion::Undecided, conclusion_of);
    let has_attempts = |figures: &ProcessFigures| figures.attempts > figures.values.len();
    if ratio.is_some() && (has_attempts(&of_candidate) || has_attempts(&of_baseline)) {
        method += "; the figure of a process is the median of its attempts";
    }
    let compared = |figures: &ProcessFigures| Compared {
        figure: figures.mean(),
        processes: figures.values.len() as u32,
        attempts: figures.attempts as u32,
    };
    let repetitions_needed = ratio.as_ref().and_then(Ratio::repetitions_needed);
    let load_s = candidate.load_s_per_process() + baseline.load_s_per_process();
    Comparison {
        baseline: baseline.name.clone(),
        candidate: candidate.name.clone(),
        metric,
        ratio: ratio.as_ref().map(Ratio::value),
        low: interval.as_ref().map(|i| i.low),
        high: interval.as_ref().map(|i| i.high),
        confidence: CONFIDENCE,
        conclusion,
        repetitions_needed,
        repetitions_load_s: repetitions_needed.map(|n| f64::from(n) * load_s),
        method,
        figures_baseline: compared(&of_baseline),
        figures_candidate: compared(&of_candidate),
        notes,
    }
}

/// Returns the figure of a group with one server process. Returns `None` if the process has no
/// valid run, or if its figure is not finite and positive.
pub(crate) fn process_figure(group: &RunGroup<'_>, metric: ComparedMetric) -> Option<f64> {
    ProcessFigures::of(group, metric).mean()
}

/// Returns the results of all sweeps in a record's experiment.
#[must_use]
pub fn sweeps(record: &Record) -> Vec<Swept> {
    let groups = run_groups(record);
    let trial = |name: &str| {
        let mut trials = groups.iter().filter(|group| group.is_trial());
        trials.find(|group| group.name == name)
    };
    let experiments = record.experiment.iter();
    let sweeps = experiments.flat_map(|experiment| &experiment.sweeps);
    sweeps
        .map(|sweep| {
            let points = sweep.points.iter();
            let measured = points.map(|point| throughput(trial(&point.trial)));
            let measured: Vec<PointThroughput> = measured.collect();
            let throughputs = || measured.iter().map(|point| point.throughput_per_s);
            let highest = throughputs().flatten().fold(0.0, f64::max);
            let first = |minimum: f64| {
                let mut throughputs = throughputs();
                let at = throughputs.position(|x| highest > 0.0 && x.is_some_and(|x| x >= minimum));
                at.map(|at| sweep.points[at].trial.clone())
            };
            Swept {
                best: first(highest),
                enough: first(highest * ENOUGH),
                sweep: sweep.clone(),
                measured,
            }
        })
        .collect()
}

fn throughput(group: Option<&RunGroup<'_>>) -> PointThroughput {
    let figures = group.map(|group| ProcessFigures::of(group, ComparedMetric::Throughput));
    let values = figures.as_ref().and_then(ProcessFigures::usable);
    let values = values.unwrap_or_default();
    let interval = over_processes(values);
    PointThroughput {
        throughput_per_s: geometric_mean(values),
        low: interval.as_ref().map(|i| i.low),
        high: interval.as_ref().map(|i| i.high),
        processes: values.len() as u32,
    }
}

/// Returns whether any run in a group is valid or bound.
#[must_use]
pub fn has_valid(group: &RunGroup<'_>) -> bool {
    let mut runs = group.runs();
    runs.any(|run| run.validity.status != Status::Invalid)
}

fn too_few(groups: &[(&RunGroup<'_>, &ProcessFigures)]) -> String {
    let single: Vec<&str> = groups
        .iter()
        .filter(|(_, figures)| figures.values.len() < 2)
        .map(|(group, _)| group.name.as_str())
        .collect();
    format!(
        "only one server process for {}: the variance between processes is unknown; measure at least \
         {FEWEST_PROCESSES} per system",
        single.join(" and for ")
    )
}

#[cfg(test)]
#[path = "comparing_tests.rs"]
pub(crate) mod tests;
