//! Capacities of server processes as figures to compare.

use floodmark_record::Record;
use floodmark_record::capacity::TrialCapacity;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::interval::Interval;
use floodmark_stats::comparison::{geometric_mean, over_processes};
use floodmark_stats::estimate::CONFIDENCE;

use super::process_figures::{ProcessFigures, not_comparable, outlier_notes};
use super::run_group::{RunGroup, run_groups};

/// Half-width of a 95 % interval in standard deviations.
const Z_95: f64 = 1.959_964;

/// Returns the sustained capacities of a group's server processes. Processes without one are
/// excluded.
pub(super) fn process_figures(group: &RunGroup<'_>) -> ProcessFigures {
    let sustained = group.capacities.iter().filter_map(|found| {
        let (per_s, _) = found.sustained()?;
        Some((per_s, found.process))
    });
    let (values, numbers): (Vec<f64>, Vec<u32>) = sustained.unzip();
    let excluded = group.capacities.len() - values.len();
    let metric = ComparedMetric::Capacity;
    let excluded = (excluded > 0).then(|| {
        format!(
            "{excluded} of {} processes excluded: the capacity changed, or only a bound is known",
            group.capacities.len()
        )
    });
    let notes = not_comparable(&values, metric, group).into_iter();
    let notes = notes
        .chain(excluded)
        .chain(outlier_notes(&values, &numbers, metric));
    ProcessFigures {
        notes: notes.collect(),
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
        [only] => only.sustained()?.1,
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
    let ((per_s_a, range_a), (per_s_b, range_b)) = (a.sustained()?, b.sustained()?);
    let (range_a, range_b) = (range_a?, range_b?);
    let spread = |range: &Interval| (range.high / range.low).ln() / (2.0 * Z_95);
    let half = Z_95 * spread(&range_a).hypot(spread(&range_b));
    let ratio = per_s_a / per_s_b;
    Some(Interval {
        low: ratio * (-half).exp(),
        high: ratio * half.exp(),
        confidence: CONFIDENCE,
        method: "ratio of two capacities; the interval covers trials of one server process each"
            .to_owned(),
    })
}
