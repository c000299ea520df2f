//! Steady state: the steady part of a run, and the window that its figures cover.
//!
//! The judgment is based on level changes in throughput and in median response time. In the open
//! model, only the median shows a warm-up.
//!
//! As in Barrett et al. (2017), "Virtual Machine Warmup Blows Hot and Cold", OOPSLA, no fixed
//! warm-up is assumed. A run may slow down, or never become steady.

use floodmark_record::run::{Steady, SteadyClass, Window};

use crate::change::{LEAST_CHANGE, Scale, Succession, changes, ramp};
use crate::estimate::mean;

/// One row of a run's series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesPoint {
    /// Start in seconds from the start of the run.
    pub from_s: f64,
    /// End in seconds from the start of the run.
    pub to_s: f64,
    /// Ok responses per second.
    pub throughput_per_s: f64,
    /// Median response time in µs; `None` without responses.
    pub p50_us: Option<f64>,
}

/// Minimum length of a row in seconds. The first and last row may contain only a few responses.
pub const SHORTEST_ROW_S: f64 = 0.5;

/// Minimum number of rows.
pub const FEWEST_ROWS: usize = 8;

/// Minimum length of a steady part in seconds.
pub const SHORTEST_END_S: f64 = 5.0;

/// Minimum length of a steady part as a share of the run (as in Barrett et al.).
pub const SHORTEST_END_SHARE: f64 = 0.25;

/// Minimum number of values in a third of a run.
/// By chance, one group of six values lies entirely above the other in 1 of 924 arrangements.
const FEWEST_OF_THIRD: usize = 6;

/// Minimum drift as a share of the higher level. The host alone causes a drift of a few percent.
const DRIFT: f64 = 0.1;

/// Maximum number of rows between a change in the median and the same change in throughput.
const SAME_CHANGE: usize = 2;

/// Judges the rows of a run in chronological order.
///
/// Outliers are kept, so a run with stalls throughout is `steady`. With fewer than [`FEWEST_ROWS`]
/// whole rows, the run is `unsteady` and has no changes.
#[must_use]
pub fn steady(series: &[SeriesPoint]) -> Steady {
    let rows: Vec<SeriesPoint> = series
        .iter()
        .filter(|p| p.to_s - p.from_s >= SHORTEST_ROW_S && p.throughput_per_s.is_finite())
        .copied()
        .collect();
    if rows.len() < FEWEST_ROWS {
        return of_class(SteadyClass::Unsteady);
    }
    let (from_s, to_s) = (rows[0].from_s, rows[rows.len() - 1].to_s);
    let signals = signals(&rows);
    let mut cuts: Vec<usize> = Vec::new();
    for cut in signals.iter().flat_map(|signal| &signal.cuts) {
        if cuts.iter().all(|c| c.abs_diff(*cut) > SAME_CHANGE) {
            cuts.push(*cut);
        }
    }
    cuts.sort_unstable();
    let Some(&end) = cuts.last() else {
        let class = drift(&signals).unwrap_or(SteadyClass::Steady);
        return Steady {
            from_s: (class == SteadyClass::Steady).then_some(from_s),
            ..of_class(class)
        };
    };
    let end_s = rows[end].from_s;
    let is_long = to_s - end_s >= SHORTEST_END_S.max(SHORTEST_END_SHARE * (to_s - from_s));
    let class = compare_with_end(&signals, &cuts, rows.len()).filter(|_| is_long);
    Steady {
        class: class.unwrap_or(SteadyClass::Unsteady),
        from_s: class.map(|_| end_s),
        changes_s: cuts.iter().map(|cut| rows[*cut].from_s).collect(),
    }
}

/// Returns the window over which figures are computed.
/// This is the steady part after a warm-up or a slowdown, and otherwise the whole sending window
/// (`from_s` to `to_s`, in seconds).
#[must_use]
pub fn window(steady: &Steady, (from_s, to_s): (f64, f64)) -> Window {
    let before = match steady.class {
        SteadyClass::Warming => Some("slower"),
        SteadyClass::Slowing => Some("faster"),
        _ => None,
    };
    let start_s = steady.from_s.filter(|s| *s > from_s && *s < to_s);
    if let Some((before, from_s)) = before.zip(start_s) {
        return Window {
            from_s,
            to_s,
            why: format!("steady from {from_s:.0} s; {before} before that"),
        };
    }
    let drifts = steady.from_s.is_none();
    let reason = match (steady.class, steady.changes_s.first()) {
        (SteadyClass::Steady, _) => ": steady throughout",
        (SteadyClass::Varied, _) => ": the plan changes the rate",
        (SteadyClass::Warming, _) if drifts => ": the server became faster throughout",
        (SteadyClass::Slowing, _) if drifts => ": the server became slower throughout",
        (SteadyClass::Warming | SteadyClass::Slowing, _) => "",
        (SteadyClass::Unsteady, None) => ": too short to judge whether it was steady",
        (SteadyClass::Unsteady, Some(first_s)) => {
            &format!(": never steady; the level first changed at {first_s:.0} s")
        }
    };
    Window {
        from_s,
        to_s,
        why: format!("the whole run{reason}"),
    }
}

/// Returns the judgment on a run whose plan changes the rate.
#[must_use]
pub fn varied() -> Steady {
    of_class(SteadyClass::Varied)
}

fn of_class(class: SteadyClass) -> Steady {
    Steady {
        class,
        from_s: None,
        changes_s: Vec::new(),
    }
}

/// A series in which higher values mean a faster server, and the rows at which its level changes.
struct SpeedSignal {
    scale: Scale,
    /// Row and value.
    values: Vec<(usize, f64)>,
    cuts: Vec<usize>,
}

impl SpeedSignal {
    fn new(scale: Scale, values: impl Iterator<Item = (usize, f64)>) -> Self {
        let mut signal = SpeedSignal {
            scale,
            values: values.collect(),
            cuts: Vec::new(),
        };
        let values = signal.within(0, usize::MAX);
        if values.len() >= FEWEST_ROWS {
            let cuts = changes(&values, scale, Succession::Correlated).into_iter();
            signal.cuts = cuts.map(|cut| signal.values[cut].0).collect();
        }
        signal
    }

    /// Returns the values of the rows `from..to`.
    fn within(&self, from: usize, to: usize) -> Vec<f64> {
        let rows = self.values.iter();
        let within = rows.filter(|(row, _)| (from..to).contains(row));
        within.map(|(_, value)| *value).collect()
    }

    /// Returns the first row after a slow start that ends before row `first`.
    fn ramp(&self, first: usize) -> Option<usize> {
        let values = self.within(0, first);
        if values.len() < FEWEST_ROWS {
            return None;
        }
        ramp(&values, self.scale).map(|at| self.values[at].0)
    }

    /// Returns the mean of the rows `from..to`; `None` if there are no values.
    fn level(&self, from: usize, to: usize) -> Option<f64> {
        let values = self.within(from, to);
        (!values.is_empty()).then(|| mean(&values))
    }
}

/// Returns the signals for throughput and median speed. Short slow starts are added to the changes
/// of each signal.
///
/// In the open model, requests in flight at the end of the first second lower its throughput. A
/// slow start in throughput therefore counts only if the median also shows it.
fn signals(rows: &[SeriesPoint]) -> [SpeedSignal; 2] {
    let throughput = rows.iter().map(|p| p.throughput_per_s).enumerate();
    let mut throughput = SpeedSignal::new(Scale::Linear, throughput);
    // Use −ln of the median response time, because response times vary multiplicatively.
    let median = rows.iter().enumerate().filter_map(|(row, p)| {
        let us = p.p50_us.filter(|us| us.is_finite() && *us > 0.0)?;
        Some((row, -us.ln()))
    });
    let mut median = SpeedSignal::new(Scale::Log, median);
    let cuts = throughput.cuts.iter().chain(&median.cuts);
    let first = cuts.min().copied().unwrap_or(rows.len());
    if let Some(at) = median.ramp(first) {
        median.cuts.insert(0, at);
    }
    if let Some(at) = throughput.ramp(first) {
        let levels = median.level(0, at).zip(median.level(at, first));
        let is_slower = |(start, rest)| median.scale.rise(start, rest) >= LEAST_CHANGE;
        if levels.is_none_or(is_slower) {
            throughput.cuts.insert(0, at);
        }
    }
    [throughput, median]
}

/// Returns the class that all parts or signals share; `None` if they differ.
fn unanimous(classes: &[SteadyClass]) -> Option<SteadyClass> {
    let (first, others) = classes.split_first()?;
    others.iter().all(|class| class == first).then_some(*first)
}

/// Returns whether a run without level changes became faster or slower throughout.
///
/// Either all values in the first third are above all values in the last third, or all are below.
/// The means must also differ by [`DRIFT`]. In random order, such a separation has a probability of
/// less than 1 in 900 (permutation test on [`FEWEST_OF_THIRD`] values each).
fn drift(signals: &[SpeedSignal]) -> Option<SteadyClass> {
    let classes = signals.iter().filter_map(|signal| {
        let values = signal.within(0, usize::MAX);
        let third = values.len() / 3;
        if third < FEWEST_OF_THIRD {
            return None;
        }
        let (first, last) = (&values[..third], &values[values.len() - third..]);
        let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |of: &[f64]| of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let rise = signal.scale.rise(mean(first), mean(last));
        if rise >= DRIFT && most(first) < least(last) {
            Some(SteadyClass::Warming)
        } else if rise <= -DRIFT && least(first) > most(last) {
            Some(SteadyClass::Slowing)
        } else {
            None
        }
    });
    unanimous(&classes.collect::<Vec<_>>())
}

/// Compares every part with the last part.
///
/// Returns `Warming` if all parts are slower, and `Slowing` if all are faster. Returns `None` if
/// parts or signals disagree. After a long stall in the middle, the first part is as fast as the
/// last, so the last part is not a steady end.
fn compare_with_end(signals: &[SpeedSignal], cuts: &[usize], rows: usize) -> Option<SteadyClass> {
    let end = *cuts.last()?;
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let classes = starts.zip(cuts).map(|(from, to)| {
        let signals = signals.iter().filter(|s| !s.cuts.is_empty());
        let rise = |s: &SpeedSignal| Some(s.scale.rise(s.level(from, *to)?, s.level(end, rows)?));
        let rises: Vec<f64> = signals.filter_map(rise).collect();
        let up = rises.iter().any(|rise| *rise >= LEAST_CHANGE);
        let down = rises.iter().any(|rise| *rise <= -LEAST_CHANGE);
        match (up, down) {
            (true, false) => Some(SteadyClass::Warming),
            (false, true) => Some(SteadyClass::Slowing),
            _ => None,
        }
    });
    unanimous(&classes.collect::<Option<Vec<_>>>()?)
}

#[cfg(test)]
#[path = "steady_tests.rs"]
mod tests;
