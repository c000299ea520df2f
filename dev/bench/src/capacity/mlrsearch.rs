//! The Multiple Loss Ratio Search of RFC 9971, with the goal and the heuristics of FD.io CSIT.
//!
//! A trial of 1 s that misses an objective counts as a high-loss trial. The exceed ratio is 50 %,
//! and the duration sum is 21 s. Two preceding targets have duration sums of 4.58 s and 1 s and two
//! and four times the width. Lower bounds are measured first.

use floodmark_stats::capacity::TrialOutcome;

use super::methods::{LOWEST_PER_S, PRECISION, SearchRun, bracket, never};
use super::servers::SimulatedServer;

/// Share of high-loss trials that a lower bound may have.
const EXCEED_RATIO: f64 = 0.5;

/// Duration sums in seconds, and factors of the final width.
const TARGETS: [(f64, f64); 3] = [(1.0, 4.0), (4.58, 2.0), (21.0, 1.0)];

/// Growth of the distance between successive loads without a bound on one side.
const EXPANSION: f64 = 4.0;

/// Loads beyond this multiple of the first are not tried.
const MOST_TIMES_START: f64 = 1e4;

/// Trials of 1 s at one load.
#[derive(Debug, Clone, Copy)]
struct LoadTrials {
    rate_per_s: f64,
    low_loss: u32,
    high_loss: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadClass {
    Lower,
    Upper,
    Undecided,
}

impl LoadTrials {
    /// Classifies the load. Undecided if the result depends on whether the missing trials have low
    /// or high loss.
    fn class(&self, duration_sum_s: f64) -> LoadClass {
        let (low, high) = (f64::from(self.low_loss), f64::from(self.high_loss));
        let whole = duration_sum_s.max(low + high);
        let optimistic = high / whole;
        let pessimistic = (whole - low) / whole;
        if optimistic > EXCEED_RATIO {
            LoadClass::Upper
        } else if pessimistic <= EXCEED_RATIO {
            LoadClass::Lower
        } else {
            LoadClass::Undecided
        }
    }
}

/// Searches for the capacity.
pub fn mlrsearch(server: &mut SimulatedServer, start_per_s: f64) -> SearchRun {
    let mut loads: Vec<LoadTrials> = Vec::new();
    let mut trials = 0;
    let mut bounds = (None, None);
    for (duration_sum_s, factor) in TARGETS {
        let width = factor * 2.0 * PRECISION;
        let mut step = width;
        let mut candidate = bounds.0.or(bounds.1).unwrap_or(start_per_s);
        let mut other = bounds.1;
        loop {
            while class_of(&loads, candidate, duration_sum_s) == LoadClass::Undecided {
                let outcome = server.trial(candidate);
                trials += 1;
                add(&mut loads, candidate, outcome == TrialOutcome::Pass);
            }
            bounds = relevant_bounds(&loads, duration_sum_s);
            // A bound of the preceding target is measured before others.
            if let Some(load) = other.take()
                && bounds.0.is_some()
                && bounds.1.is_none_or(|upper| load < upper)
            {
                candidate = load;
                continue;
            }
            candidate = match bounds {
                (Some(low), Some(high)) if high / low <= 1.0 + width => break,
                (Some(low), Some(high)) => (low * high).sqrt(),
                (Some(low), None) => low * (1.0 + step),
                (None, Some(high)) if high <= LOWEST_PER_S => {
                    return SearchRun {
                        finding: never(high),
                        trials,
                    };
                }
                (None, Some(high)) => (high / (1.0 + step)).max(LOWEST_PER_S),
                (None, None) => start_per_s,
            };
            if bounds.0.is_none() || bounds.1.is_none() {
                step *= EXPANSION;
            }
            candidate = candidate.min(start_per_s * MOST_TIMES_START);
        }
    }
    let (low, high) = (bounds.0.unwrap_or(0.0), bounds.1.unwrap_or(f64::INFINITY));
    SearchRun {
        finding: bracket(low, high),
        trials,
    }
}

fn class_of(loads: &[LoadTrials], rate_per_s: f64, duration_sum_s: f64) -> LoadClass {
    let load = loads.iter().find(|load| load.rate_per_s == rate_per_s);
    load.map_or(LoadClass::Undecided, |load| load.class(duration_sum_s))
}

fn add(loads: &mut Vec<LoadTrials>, rate_per_s: f64, is_pass: bool) {
    let at = loads.iter().position(|load| load.rate_per_s == rate_per_s);
    let at = at.unwrap_or_else(|| {
        loads.push(LoadTrials {
            rate_per_s,
            low_loss: 0,
            high_loss: 0,
        });
        loads.len() - 1
    });
    loads[at].low_loss += u32::from(is_pass);
    loads[at].high_loss += u32::from(!is_pass);
}

/// Returns the relevant bounds: the lowest upper bound, and the highest lower bound below it.
fn relevant_bounds(loads: &[LoadTrials], duration_sum_s: f64) -> (Option<f64>, Option<f64>) {
    let of = |class: LoadClass| {
        let loads = loads
            .iter()
            .filter(move |load| load.class(duration_sum_s) == class);
        loads.map(|load| load.rate_per_s)
    };
    let upper = of(LoadClass::Upper).reduce(f64::min);
    let below = of(LoadClass::Lower).filter(|rate| upper.is_none_or(|upper| *rate < upper));
    (below.reduce(f64::max), upper)
}
