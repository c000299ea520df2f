//! Whether a run came to a steady state, from when on, and so which part of it figures are of.
//!
//! Judged by the changes of level in throughput and in the median response time: in the closed model either shows a
//! warm-up, in the open model only the second does. After Barrett et al. (2017), "Virtual Machine Warmup Blows
//! Hot and Cold", OOPSLA: no fixed warm-up is assumed, and a run may also slow down or never settle.

use floodmark_record::run::{Steady, SteadyClass, Window};

use crate::change::{LEAST_CHANGE, Scale, changes, ramp};
use crate::estimate::mean;

/// One row of a run's series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Begin, seconds from the start of the measurement.
    pub from_s: f64,
    /// End.
    pub to_s: f64,
    /// Ok answers per second.
    pub throughput_per_s: f64,
    /// Median response time, microseconds; none where nothing was answered.
    pub p50_us: Option<f64>,
}

/// Rows shorter than this are left out: the first and the last may be a few milliseconds with a handful of answers.
pub const SHORTEST_ROW_S: f64 = 0.5;

/// Fewest rows that say anything about steadiness.
pub const FEWEST_ROWS: usize = 8;

/// A steady end lasts at least this long, seconds.
pub const SHORTEST_END_S: f64 = 5.0;

/// And at least this share of the run (Barrett et al. ask for the last quarter).
pub const SHORTEST_END_SHARE: f64 = 0.25;

/// Fewest values of a third of a run that say that it drifts: six of each lie apart by chance in 1 of 924 orders.
const FEWEST_OF_THIRD: usize = 6;

/// Least drift that matters, as a share of the higher level: the machine's own hour moves a run by some hundredths.
const DRIFT: f64 = 0.1;

/// A change in the median this near to one in throughput (rows) is the same change.
const SAME_CHANGE: usize = 2;

/// Judges a run by its rows, in order of time. Nothing is trimmed: a run with stalls that come again is `steady` when
/// they do so throughout.
///
/// With fewer than [`FEWEST_ROWS`] whole rows it is `unsteady` without changes, which means: too short to tell.
#[must_use]
pub fn steady(series: &[Point]) -> Steady {
    let rows: Vec<Point> = series
        .iter()
        .filter(|p| p.to_s - p.from_s >= SHORTEST_ROW_S && p.throughput_per_s.is_finite())
        .copied()
        .collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return too_short();
    };
    if rows.len() < FEWEST_ROWS {
        return too_short();
    }
    let signals = signals(&rows);
    let mut cuts: Vec<usize> = Vec::new();
    for signal in &signals {
        for cut in &signal.cuts {
            if cuts.iter().all(|c| c.abs_diff(*cut) > SAME_CHANGE) {
                cuts.push(*cut);
            }
        }
    }
    cuts.sort_unstable();
    let changes_s: Vec<f64> = cuts.iter().map(|c| rows[*c].from_s).collect();
    let Some(&end_from) = cuts.last() else {
        if let Some(class) = drift(&signals) {
            return Steady {
                class,
                from_s: None,
                changes_s,
            };
        }
        return Steady {
            class: SteadyClass::Steady,
            from_s: Some(first.from_s),
            changes_s,
        };
    };
    let end_s = last.to_s - rows[end_from].from_s;
    let long_enough = end_s >= SHORTEST_END_S.max(SHORTEST_END_SHARE * (last.to_s - first.from_s));
    let class = match against_the_end(&signals, &cuts, rows.len()) {
        Some(class) if long_enough => class,
        _ => SteadyClass::Unsteady,
    };
    Steady {
        class,
        from_s: (class != SteadyClass::Unsteady).then(|| rows[end_from].from_s),
        changes_s,
    }
}

/// The part of a run that figures are of: its steady end where it warmed up or slowed down to one, else all of it.
/// `whole` is the sending window in seconds.
#[must_use]
pub fn window(steady: &Steady, whole: (f64, f64)) -> Window {
    let at = |s: f64| format!("{s:.0} s");
    let whole_because = |why: String| Window {
        from_s: whole.0,
        to_s: whole.1,
        why,
    };
    let end_because = |why: &str| match steady.from_s {
        Some(from_s) if from_s > whole.0 && from_s < whole.1 => Window {
            from_s,
            to_s: whole.1,
            why: format!("from {} on: {why}", at(from_s)),
        },
        _ => whole_because("the whole run".to_owned()),
    };
    match steady.class {
        SteadyClass::Steady => whole_because("the whole run: one level throughout".to_owned()),
        SteadyClass::Varied => whole_because("the whole run: its rate was to change".to_owned()),
        SteadyClass::Warming if steady.from_s.is_none() => whole_because(
            "the whole run: it became faster throughout and came to no level".to_owned(),
        ),
        SteadyClass::Slowing if steady.from_s.is_none() => whole_because(
            "the whole run: it became slower throughout and came to no level".to_owned(),
        ),
        SteadyClass::Warming => end_because("slower before, one level since"),
        SteadyClass::Slowing => end_because("faster before, one level since"),
        SteadyClass::Unsteady if steady.changes_s.is_empty() => {
            whole_because("the whole run: too short to tell whether it was steady".to_owned())
        }
        SteadyClass::Unsteady => {
            let shown = 3;
            let mut times: Vec<String> = steady
                .changes_s
                .iter()
                .take(shown)
                .map(|s| at(*s))
                .collect();
            if steady.changes_s.len() > shown {
                times.push("later".to_owned());
            }
            whole_because(format!(
                "the whole run: its level changed (at {}) and did not settle for long enough",
                times.join(", ")
            ))
        }
    }
}

/// Of a run whose rate was to change: it has no level to come to.
#[must_use]
pub fn varied() -> Steady {
    Steady {
        class: SteadyClass::Varied,
        from_s: None,
        changes_s: Vec::new(),
    }
}

fn too_short() -> Steady {
    Steady {
        class: SteadyClass::Unsteady,
        from_s: None,
        changes_s: Vec::new(),
    }
}

/// A series in which higher is faster, and where its level changes; places count rows of the run.
struct Signal {
    scale: Scale,
    /// Row and value.
    values: Vec<(usize, f64)>,
    cuts: Vec<usize>,
}

impl Signal {
    fn new(scale: Scale, values: Vec<(usize, f64)>) -> Self {
        let bare: Vec<f64> = values.iter().map(|(_, v)| *v).collect();
        let cuts = if bare.len() < FEWEST_ROWS {
            Vec::new()
        } else {
            changes(&bare, scale)
                .into_iter()
                .map(|c| values[c].0)
                .collect()
        };
        Signal {
            scale,
            values,
            cuts,
        }
    }

    /// Row after a slow start within the rows before `first`.
    fn ramp(&self, first: usize) -> Option<usize> {
        let values: Vec<f64> = self
            .values
            .iter()
            .filter(|(row, _)| *row < first)
            .map(|(_, v)| *v)
            .collect();
        if values.len() < FEWEST_ROWS {
            return None;
        }
        ramp(&values, self.scale).map(|at| self.values[at].0)
    }

    /// Mean over the rows from `from` to before `to`; none where there is no value.
    fn level(&self, from: usize, to: usize) -> Option<f64> {
        let within: Vec<f64> = self
            .values
            .iter()
            .filter(|(row, _)| (from..to).contains(row))
            .map(|(_, v)| *v)
            .collect();
        (!within.is_empty()).then(|| mean(&within))
    }
}

/// Throughput and median, with a slow start that is too short to be a part of its own added to the changes of each.
///
/// In the open model the first second may answer less than the others only because what was out at its end is
/// answered in the next, so a slow start in throughput counts only where the median shows it as well.
fn signals(rows: &[Point]) -> [Signal; 2] {
    let (mut throughput, mut median) = (throughput(rows), median_speed(rows));
    let cuts = throughput.cuts.iter().chain(&median.cuts);
    let first = cuts.min().copied().unwrap_or(rows.len());
    if let Some(at) = median.ramp(first) {
        median.cuts.insert(0, at);
    }
    if let Some(at) = throughput.ramp(first) {
        let slower = |median: &Signal| {
            let rise = median
                .scale
                .rise(median.level(0, at)?, median.level(at, first)?);
            Some(rise >= LEAST_CHANGE)
        };
        if slower(&median).unwrap_or(true) {
            throughput.cuts.insert(0, at);
        }
    }
    [throughput, median]
}

fn throughput(rows: &[Point]) -> Signal {
    let values = rows.iter().map(|p| p.throughput_per_s).enumerate();
    Signal::new(Scale::Linear, values.collect())
}

/// −ln of the median response time: times spread by factors, and what matters of them is a ratio.
fn median_speed(rows: &[Point]) -> Signal {
    let values = rows
        .iter()
        .enumerate()
        .filter_map(|(row, p)| Some((row, p.p50_us.filter(|us| us.is_finite() && *us > 0.0)?)))
        .map(|(row, us)| (row, -us.ln()));
    Signal::new(Scale::Log, values.collect())
}

/// Of a run whose level changes nowhere at once: warming where it becomes faster from beginning to end, slowing where slower. All values of
/// its first third lie on one side of all values of its last, which of unordered ones happens by chance less often than once in a thousand
/// times (a permutation test on [`FEWEST_OF_THIRD`] of each), and far from them on the whole; neighbouring values may be alike, so that a
/// small drift is nothing.
fn drift(signals: &[Signal]) -> Option<SteadyClass> {
    let mut found = None;
    for signal in signals {
        let values: Vec<f64> = signal.values.iter().map(|(_, value)| *value).collect();
        let third = values.len() / 3;
        if third < FEWEST_OF_THIRD {
            continue;
        }
        let (first, last) = (&values[..third], &values[values.len() - third..]);
        let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |of: &[f64]| of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let rise = signal.scale.rise(mean(first), mean(last));
        let class = if rise >= DRIFT && most(first) < least(last) {
            SteadyClass::Warming
        } else if rise <= -DRIFT && least(first) > most(last) {
            SteadyClass::Slowing
        } else {
            continue;
        };
        if found.is_some_and(|found| found != class) {
            return None;
        }
        found = Some(class);
    }
    found
}

/// Warming where every part is slower than the last one, slowing where every part is faster; none where parts differ
/// in that, or where throughput and median contradict each other. So a long stall in the middle of a run never makes
/// its second half a steady end: the first half was as fast.
fn against_the_end(signals: &[Signal], cuts: &[usize], rows: usize) -> Option<SteadyClass> {
    let end = *cuts.last()?;
    let mut class = None;
    let mut from = 0;
    for &to in cuts {
        let rises = signals
            .iter()
            .filter(|s| !s.cuts.is_empty())
            .filter_map(|s| Some(s.scale.rise(s.level(from, to)?, s.level(end, rows)?)));
        let (mut up, mut down) = (false, false);
        for rise in rises {
            up |= rise >= LEAST_CHANGE;
            down |= rise <= -LEAST_CHANGE;
        }
        let here = match (up, down) {
            (true, false) => SteadyClass::Warming,
            (false, true) => SteadyClass::Slowing,
            _ => return None,
        };
        if class.is_some_and(|c| c != here) {
            return None;
        }
        class = Some(here);
        from = to;
    }
    class
}

#[cfg(test)]
#[path = "steady_tests.rs"]
mod tests;
