//! Two trials or systems side by side. The unit of replication is one server process, started afresh: its attempts come to one figure first.

mod claims;
mod figures;
mod side;
mod sweeps;
mod unlike;

use floodmark_record::Record;
use floodmark_record::comparison::{Compared, Comparison, Conclusion, Metric};
use floodmark_record::experiment::Asked;
use floodmark_record::run::Status;
use floodmark_stats::comparison::{Ratio, geometric_mean};
use floodmark_stats::interval::CONFIDENCE;

pub use claims::claims;
use figures::Figures;
pub use side::{NoSide, Side, select, sides};
pub use sweeps::sweeps;
pub use unlike::{Likeness, likeness};

/// Processes of each system that a comparison should have: with fewer, what fresh processes differ by is hardly known.
pub const FEWEST_PROCESSES: usize = 5;

/// The comparisons of a record: of its trials those that were sent the same load for the same workload, each beside the first of
/// them by every metric; ratios of other trials would be of their loads too. Of a ladder each is held against the step before it,
/// of a sweep none against another: its curve says more.
#[must_use]
pub fn comparisons(record: &Record) -> Vec<Comparison> {
    let sides = sides(record);
    let mut loads: Vec<Vec<&Side<'_>>> = Vec::new();
    for side in sides.iter().filter(|side| side.is_trial()) {
        match loads
            .iter_mut()
            .find(|load| unlike::same_load(load[0], side))
        {
            Some(load) => load.push(side),
            None => loads.push(vec![side]),
        }
    }
    let none = Asked::default();
    let asked = record.experiment.as_ref().unwrap_or(&none);
    let swept = |side: &Side<'_>| {
        let mut points = asked.sweeps.iter().flat_map(|sweep| &sweep.points);
        points.any(|point| point.trial == side.name)
    };
    let mut pairs: Vec<[&Side<'_>; 2]> = Vec::new();
    for load in &loads {
        let load: Vec<&Side<'_>> = load.iter().copied().filter(|side| !swept(side)).collect();
        let step = |side: &Side<'_>| asked.ladder.iter().position(|name| *name == side.name);
        for (i, side) in load.iter().enumerate().skip(1) {
            let before = match step(side) {
                None => Some(&load[0]),
                // The nearest step below it that was measured.
                Some(n) => {
                    let below = load
                        .iter()
                        .filter(|other| step(other).is_some_and(|of| of < n));
                    below.max_by_key(|other| step(other))
                }
            };
            pairs.extend(before.map(|before| [load[i], *before]));
        }
    }
    pairs
        .into_iter()
        .flat_map(|[a, b]| {
            Metric::ALL.map(|metric| with_validity(compare_sides(a, b, metric), [a, b]))
        })
        .collect()
}

/// With what weakens it beside the figures, which `floodmark compare` says once for all metrics.
fn with_validity(mut comparison: Comparison, sides: [&Side<'_>; 2]) -> Comparison {
    for side in sides {
        let notes = unlike::validity(side).into_iter();
        comparison
            .notes
            .extend(notes.map(|note| format!("{}: {note}", side.name)));
    }
    comparison
}

/// Compares two sides by one metric. The ratio is a's figure divided by b's.
#[must_use]
pub fn compare_sides(a: &Side<'_>, b: &Side<'_>, metric: Metric) -> Comparison {
    let (of_a, of_b) = (Figures::of(a, metric), Figures::of(b, metric));
    let mut notes: Vec<String> = [&of_a, &of_b]
        .into_iter()
        .flat_map(|figures| figures.notes.iter().cloned())
        .collect();
    let ratio = match (of_a.usable(), of_b.usable()) {
        (Some(a), Some(b)) => Ratio::of(a, b),
        _ => None,
    };
    let interval = ratio.as_ref().and_then(Ratio::interval);
    if ratio.is_some() && interval.is_none() {
        notes.push(too_few(&[(a, &of_a), (b, &of_b)]));
    }
    let mut method = match (&ratio, &interval) {
        (_, Some(interval)) => interval.method.clone(),
        (Some(_), None) => format!(
            "ratio of the figures of {} and {} server processes (geometric means), without an interval",
            of_a.values.len(),
            of_b.values.len()
        ),
        (None, None) => "no ratio".to_owned(),
    };
    let several = |figures: &Figures| figures.attempts > figures.values.len();
    if ratio.is_some() && (several(&of_a) || several(&of_b)) {
        method += "; a process's figure is the median of its attempts";
    }
    let facts = |figures: &Figures| Compared {
        figure: figures.usable().and_then(geometric_mean),
        processes: figures.values.len() as u32,
        attempts: figures.attempts as u32,
    };
    Comparison {
        a: a.name.clone(),
        b: b.name.clone(),
        metric,
        ratio: ratio.as_ref().map(Ratio::value),
        low: interval.as_ref().map(|i| i.low),
        high: interval.as_ref().map(|i| i.high),
        confidence: CONFIDENCE,
        conclusion: ratio
            .as_ref()
            .map_or(Conclusion::Undecided, Ratio::conclusion),
        repetitions_needed: ratio.as_ref().and_then(Ratio::repetitions_needed),
        method,
        figures_a: facts(&of_a),
        figures_b: facts(&of_b),
        notes,
    }
}

/// Whether a side has a run whose figures mean something.
#[must_use]
pub fn has_valid(side: &Side<'_>) -> bool {
    side.runs()
        .any(|run| run.validity.status != Status::Invalid)
}

fn too_few(sides: &[(&Side<'_>, &Figures)]) -> String {
    let lone: Vec<&str> = sides
        .iter()
        .filter(|(_, figures)| figures.values.len() < 2)
        .map(|(side, _)| side.name.as_str())
        .collect();
    format!(
        "one server process of {}: how much fresh ones differ is not known, and attempts on one do not tell; measure at least \
         {FEWEST_PROCESSES} of each",
        lone.join(" and of ")
    )
}

#[cfg(test)]
#[path = "comparing_tests.rs"]
mod tests;
