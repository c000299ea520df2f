//! Capacities of server processes as figures to compare.

use floodmark_record::Record;
use floodmark_record::capacity::TrialCapacity;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::run::Interval;
use floodmark_stats::comparison::{geometric_mean, over_processes};
use floodmark_stats::interval::CONFIDENCE;

use super::process_figures::{ProcessFigures, not_comparable, outlier_notes};
use super::run_group::{RunGroup, run_groups};

/// Half-width of a 95 % interval in standard deviations.
const Z_95: f64 = 1.959_964;

/// Returns the capacities of a group's server processes. Capacities of which only a bound is known
/// are excluded.
pub(super) fn process_figures(group: &RunGroup<'_>) -> ProcessFigures {
    let found = || {
        group
            .capacities
            .iter()
            .filter(|found| found.bound.is_none())
    };
    let values: Vec<f64> = found().filter_map(|found| found.rate_per_s).collect();
    let numbers: Vec<u32> = found().map(|found| found.process).collect();
    let excluded = group.capacities.len() - values.len();
    let metric = ComparedMetric::Capacity;
    let excluded = (excluded > 0).then(|| {
        format!(
            "{excluded} of {} processes excluded: only a bound of the capacity is known",
            group.capacities.len()
        )
    });
    let notes = not_comparable(&values, metric, group).into_iter();
    let notes = notes
        .chain(excluded)
        .chain(outlier_notes(&values, &numbers, metric));
    ProcessFigures {
        notes: notes
            .map(|note| format!("{}: {note}", group.name))
            .collect(),
        attempts: values.len(),
        values,
    }
}

/// Returns the capacity of each trial of a record.
#[must_use]
pub fn trial_capacities(record: &Record) -> Vec<TrialCapacity> {
    let groups = run_groups(record).into_iter();
    let groups = groups.filter(|group| !group.capacities.is_empty());
    groups.map(|group| trial_capacity(&group)).collect()
}

fn trial_capacity(group: &RunGroup<'_>) -> TrialCapacity {
    let values = process_figures(group).values;
    let within = || match &group.capacities[..] {
        [only] => only.interval(),
        _ => None,
    };
    TrialCapacity {
        trial: group.name.clone(),
        rate_per_s: geometric_mean(&values),
        interval: over_processes(&values).or_else(within),
        processes: values.len() as u32,
        bounded: (group.capacities.len() - values.len()) as u32,
    }
}

/// Returns the interval of the ratio of two capacities, if there is a single server process on each
/// side. It covers the variation between trials, which is close to log-normal.
pub(super) fn interval_of_ratio(a: &RunGroup<'_>, b: &RunGroup<'_>) -> Option<Interval> {
    let ([a], [b]) = (&a.capacities[..], &b.capacities[..]) else {
        return None;
    };
    let (range_a, range_b) = (a.interval()?, b.interval()?);
    let spread = |range: &Interval| (range.high / range.low).ln() / (2.0 * Z_95);
    let half = Z_95 * spread(&range_a).hypot(spread(&range_b));
    let ratio = a.rate_per_s? / b.rate_per_s?;
    Some(Interval {
        low: ratio * (-half).exp(),
        high: ratio * half.exp(),
        confidence: CONFIDENCE,
        method: "ratio of two capacities; the interval covers trials of one server process each"
            .to_owned(),
    })
}
