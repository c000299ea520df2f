//! Sweeps: throughput at different values of a setting.

use floodmark_record::Record;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::experiment::{PointThroughput, Swept};
use floodmark_stats::comparison::{geometric_mean, over_processes};

use super::process_figures::ProcessFigures;
use super::run_group::{RunGroup, run_groups};

/// Minimum share of the highest throughput that is sufficient. Throughput varies by about 5 %
/// between fresh processes on one host.
const ENOUGH: f64 = 0.95;

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
    let usable = figures.as_ref().and_then(ProcessFigures::usable);
    let values = usable.unwrap_or(&[]);
    let interval = over_processes(values);
    PointThroughput {
        throughput_per_s: geometric_mean(values),
        low: interval.as_ref().map(|i| i.low),
        high: interval.as_ref().map(|i| i.high),
        processes: values.len() as u32,
    }
}
