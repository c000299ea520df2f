//! One figure per server process, and notes on excluded attempts and outliers.

use floodmark_record::Record;
use floodmark_record::capacity::TrialCapacity;
use floodmark_record::comparison::{ComparedMetric, counted_attempts};
use floodmark_record::interval::Interval;
use floodmark_record::run::{Run, Status};
use floodmark_stats::attempts::{geometric_median, median, outliers, slow_first};
use floodmark_stats::comparison::{geometric_mean, over_processes};
use floodmark_stats::estimate::CONFIDENCE;

use super::run_group::{RunGroup, run_groups};
use crate::text::{plural, show_s};

/// Half-width of a 95 % interval of the normal distribution, in standard deviations.
const Z_95: f64 = 1.959_964;

/// A group's figures, one per server process.
pub(super) struct ProcessFigures {
    /// Figures in the metric's unit. A time above the timeout is infinite. The throughput of a run
    /// without responses is 0.
    pub(super) values: Vec<f64>,
    /// Number of attempts included in the figures.
    pub(super) attempts: usize,
    /// Notes, without the group's name.
    pub(super) notes: Vec<String>,
}

impl ProcessFigures {
    pub(super) fn of(group: &RunGroup<'_>, metric: ComparedMetric) -> Self {
        if metric == ComparedMetric::Capacity {
            return of_capacities(group);
        }
        let (mut values, mut numbers, mut used) = (Vec::new(), Vec::new(), 0);
        let (mut invalid, mut warming, mut unmeasured) = (0, 0, 0);
        let of = metric.figure();
        let mut slow = Vec::new();
        for (number, attempts) in (1..).zip(&group.processes) {
            let is_valid = |run: &&&Run| run.validity.status != Status::Invalid;
            let valid = attempts.iter().filter(is_valid).count();
            let counted = counted_attempts(attempts);
            invalid += attempts.len() - valid;
            warming += valid - counted.len();
            let figures = counted.iter().filter_map(|run| of.of(*run));
            let figures: Vec<f64> = figures.collect();
            unmeasured += counted.len() - figures.len();
            if metric == ComparedMetric::Throughput {
                let rates: Vec<f64> = attempts.iter().filter_map(|r| r.throughput_per_s).collect();
                slow.extend(slow_first(&rates));
            }
            if !figures.is_empty() {
                used += figures.len();
                values.push(geometric_median(&figures));
                numbers.push(number);
            }
        }
        let excluded = |n: usize, reason: &str| {
            let attempts = plural(n as u64, "attempt");
            (n > 0).then(|| format!("{attempts} excluded: {reason}"))
        };
        let slow = (!slow.is_empty()).then(|| {
            format!(
                "in {} of {} the first attempt was the slowest, {:.0} % below the others: the server \
                 was warming up; add a warm-up",
                slow.len(),
                plural(group.processes.len() as u64, "process"),
                median(&slow) * 100.0
            )
        });
        let exclusions = [
            excluded(invalid, "invalid"),
            excluded(warming, "still warming up"),
            excluded(unmeasured, "figure not measured"),
        ];
        let exclusions = exclusions.into_iter().flatten();
        // If all attempts are invalid, one note is enough for all metrics.
        let are_all_invalid = invalid > 0 && invalid == group.runs().count();
        let not_comparable = (!are_all_invalid).then(|| not_comparable(&values, metric, group));
        let notes = exclusions
            .chain(slow)
            .chain(not_comparable.into_iter().flatten())
            .chain(outlier_notes(&values, &numbers, metric))
            .collect();
        ProcessFigures {
            values,
            attempts: used,
            notes,
        }
    }

    /// Returns the figures if all are finite and positive.
    pub(super) fn usable(&self) -> Option<&[f64]> {
        let known = |v: &f64| v.is_finite() && *v > 0.0;
        (!self.values.is_empty() && self.values.iter().all(known)).then_some(&self.values[..])
    }

    /// Returns the group's figure: the geometric mean across its server processes.
    pub(super) fn mean(&self) -> Option<f64> {
        geometric_mean(self.usable()?)
    }

    /// Returns the interval of the mean.
    pub(super) fn interval(&self) -> Option<Interval> {
        over_processes(self.usable()?)
    }
}

/// Returns the reasons why the figures cannot be compared.
fn not_comparable(values: &[f64], metric: ComparedMetric, group: &RunGroup<'_>) -> Vec<String> {
    let all = plural(values.len() as u64, "process");
    let mut reasons = Vec::new();
    if values.is_empty() {
        reasons.push(format!("the {metric} was not measured"));
    }
    let above = values.iter().filter(|v| v.is_infinite()).count();
    if above > 0 {
        let timeouts = group.runs().map(|run| run.plan.timeout.as_secs_f64());
        reasons.push(format!(
            "the {metric} is above the timeout ({}) in {above} of {all}; repeat with a longer \
             --timeout or less load",
            show_s(timeouts.fold(0.0, f64::max))
        ));
    }
    let zero = values.iter().filter(|v| **v <= 0.0).count();
    if zero > 0 {
        reasons.push(format!(
            "the {metric} is 0 in {zero} of {all} and cannot be compared"
        ));
    }
    reasons
}

/// Returns one note per outlier. The figures include outliers.
fn outlier_notes(values: &[f64], numbers: &[u32], metric: ComparedMetric) -> Vec<String> {
    if values.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let show = |value| metric.figure().unit().show(value);
    let note = |i: usize| {
        format!(
            "process {} is an outlier ({}, median {}): it widens the interval; check this host for other load",
            numbers[i],
            show(values[i]),
            show(median(values))
        )
    };
    outliers(values).into_iter().map(note).collect()
}

/// Returns the sustained capacities of a group's server processes. Excludes processes without a
/// sustained capacity.
fn of_capacities(group: &RunGroup<'_>) -> ProcessFigures {
    let sustained = group.capacities.iter().filter_map(|found| {
        let (per_s, _) = found.sustained()?;
        Some((per_s, found.process))
    });
    let (values, numbers): (Vec<f64>, Vec<u32>) = sustained.unzip();
    let (excluded, all) = (
        group.capacities.len() - values.len(),
        group.capacities.len(),
    );
    let metric = ComparedMetric::Capacity;
    let mut notes = not_comparable(&values, metric, group);
    if excluded > 0 {
        notes.push(format!(
            "{excluded} of {all} processes excluded: the capacity changed, or only a bound is known"
        ));
    }
    notes.extend(outlier_notes(&values, &numbers, metric));
    ProcessFigures {
        notes,
        attempts: values.len(),
        values,
    }
}

/// Returns the capacity of each trial in a record.
#[must_use]
pub fn trial_capacities(record: &Record) -> Vec<TrialCapacity> {
    let capacity = |group: RunGroup<'_>| {
        let values = of_capacities(&group).values;
        TrialCapacity {
            trial: group.name.clone(),
            rate_per_s: geometric_mean(&values),
            interval: over_processes(&values).or_else(|| group.only_capacity()?.1),
            processes: values.len() as u32,
            bounded: (group.capacities.len() - values.len()) as u32,
        }
    };
    let groups = run_groups(record).into_iter();
    groups
        .filter(|group| !group.capacities.is_empty())
        .map(capacity)
        .collect()
}

/// Returns the interval for the ratio of two capacities. Returns `None` unless each side has
/// exactly one server process, whose capacity has an interval. The result accounts only for the
/// variation between capacity trials, which is close to log-normal.
pub(super) fn interval_of_ratio(a: &RunGroup<'_>, b: &RunGroup<'_>) -> Option<Interval> {
    let ((per_s_a, range_a), (per_s_b, range_b)) = (a.only_capacity()?, b.only_capacity()?);
    let (range_a, range_b) = (range_a?, range_b?);
    let spread = |range: &Interval| (range.high / range.low).ln() / (2.0 * Z_95);
    let half = Z_95 * spread(&range_a).hypot(spread(&range_b));
    let ratio = per_s_a / per_s_b;
    Some(Interval {
        low: ratio * (-half).exp(),
        high: ratio * half.exp(),
        confidence: CONFIDENCE,
        method: "ratio of two capacities; the interval covers only trials on one process per side"
            .to_owned(),
    })
}
