//! Compares search results with the server's known capacity.

use floodmark_record::capacity::{CapacityBound, CapacityResult};
use serde::{Deserialize, Serialize};

use crate::statistics::Proportion;

/// A range that contains a rate, in requests per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateRange {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl RateRange {
    /// Returns the range of an exactly known rate.
    pub fn exactly(per_s: f64) -> Self {
        RateRange {
            low: per_s,
            high: per_s,
        }
    }

    fn overlaps(self, low: f64, high: f64) -> bool {
        low <= self.high && high >= self.low
    }
}

/// What is known about a server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KnownCapacity {
    /// Capacity when the load rises from idle.
    pub rising: RateRange,
    /// Capacity after an overload, if it is lower.
    pub falling: Option<RateRange>,
    /// Highest rate that the server can sustain, in requests per second. `None` if the server may
    /// exceed its mean rate for a second or more.
    pub limit_per_s: Option<f64>,
}

impl KnownCapacity {
    /// Returns whether the result's intervals contain the capacities, or whether its lower bound is
    /// true.
    pub fn agrees(&self, result: &CapacityResult) -> bool {
        let falls = match (self.falling, &result.falling) {
            (Some(known), Some(found)) => match (found.low, found.high) {
                (Some(low), Some(high)) => known.overlaps(low, high),
                _ => false,
            },
            _ => true,
        };
        match (result.low, result.high) {
            (Some(low), Some(high)) => falls && self.rising.overlaps(low, high),
            _ => self.is_below(result),
        }
    }

    /// Returns whether the result is a lower bound that the capacity exceeds.
    pub fn is_below(&self, result: &CapacityResult) -> bool {
        let rate_per_s = result.rate_per_s.unwrap_or(0.0);
        result.bound == Some(CapacityBound::Lower) && rate_per_s <= self.rising.high
    }

    /// Returns whether the result states a rate that the capacity contradicts: an interval or a
    /// bound that excludes it.
    pub fn is_contradicted(&self, result: &CapacityResult) -> bool {
        let rate_per_s = result.rate_per_s.unwrap_or(0.0);
        match (result.low, result.high, result.bound) {
            (Some(low), Some(high), _) => !self.rising.overlaps(low, high),
            (_, _, Some(CapacityBound::Lower)) => rate_per_s > self.rising.high,
            (_, _, Some(CapacityBound::Upper)) => rate_per_s < self.rising.low,
            _ => false,
        }
    }

    /// Returns whether the result is above the highest rate that the server can sustain.
    pub fn is_exceeded(&self, result: &CapacityResult) -> bool {
        let rate_per_s = result.rate_per_s.unwrap_or(0.0);
        result.bound != Some(CapacityBound::Upper)
            && self.limit_per_s.is_some_and(|limit| rate_per_s > limit)
    }
}

/// Returns the half-width of the result's interval, as a share of the estimate.
pub fn half_width(result: &CapacityResult) -> Option<f64> {
    Some(0.5 * (result.high? - result.low?) / result.rate_per_s?)
}

/// Figures of many searches on one server.
#[derive(Debug, Clone, Default)]
pub struct LimitedScore {
    /// Intervals that contain the capacity, and lower bounds that do not exceed it.
    pub right: Proportion,
    /// Lower bounds that do not exceed the capacity.
    pub lower_only: usize,
    /// Searches that found only an upper bound.
    pub upper_only: usize,
    /// Searches without a result.
    pub unknown: usize,
    /// Intervals and bounds that exclude the capacity.
    pub wrong: usize,
    /// Results above the highest rate that the server can sustain.
    pub impossible: usize,
    /// Half-widths of the intervals, as shares of the estimates.
    pub half_widths: Vec<f64>,
    /// Number of trials of each search.
    pub trials: Vec<f64>,
}

impl LimitedScore {
    /// Adds the result of a search.
    pub fn add(&mut self, known: &KnownCapacity, result: &CapacityResult) {
        self.right.add(known.agrees(result));
        self.lower_only += usize::from(known.is_below(result));
        self.upper_only += usize::from(result.bound == Some(CapacityBound::Upper));
        self.unknown += usize::from(result.rate_per_s.is_none());
        self.wrong += usize::from(known.is_contradicted(result));
        self.impossible += usize::from(known.is_exceeded(result));
        self.half_widths.extend(half_width(result));
        self.trials.push(result.trials.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::capacity::FallingCapacity;
    use serde_json::json;

    use super::*;

    const KNOWN: KnownCapacity = KnownCapacity {
        rising: RateRange {
            low: 98.0,
            high: 102.0,
        },
        falling: Some(RateRange {
            low: 79.0,
            high: 81.0,
        }),
        limit_per_s: Some(105.0),
    };

    fn empty() -> CapacityResult {
        let settings = json!({
            "objectives": [], "start_per_s": 1.0, "lowest_per_s": 1.0, "highest_per_s": 1.0,
            "precision": 0.02, "budget_s": 60.0, "closed": null,
        });
        let result = json!({
            "process": 1, "settings": settings, "finding": "capacity", "level": 0.95,
            "is_confirmed": false, "trials": [],
        });
        serde_json::from_value(result).unwrap()
    }

    fn result(rate: f64, interval: Option<(f64, f64)>) -> CapacityResult {
        CapacityResult {
            rate_per_s: Some(rate),
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
            ..empty()
        }
    }

    #[test]
    fn intervals_must_overlap_the_known_ranges() {
        for (low, high, is_right) in [
            (90.0, 97.0, false),
            (90.0, 98.0, true),
            (99.0, 100.0, true),
            (102.0, 104.0, true),
            (103.0, 107.0, false),
        ] {
            let found = result(0.5 * (low + high), Some((low, high)));
            assert_eq!(KNOWN.agrees(&found), is_right, "{low} {high}");
            for (falling, is_falling_right) in [(80.0, true), (85.0, false)] {
                let found = CapacityResult {
                    falling: Some(FallingCapacity {
                        rate_per_s: falling,
                        low: Some(falling - 1.0),
                        high: Some(falling + 1.0),
                    }),
                    ..found.clone()
                };
                assert_eq!(KNOWN.agrees(&found), is_right && is_falling_right);
            }
        }
    }

    #[test]
    fn only_true_lower_bounds_are_right() {
        let bound = |rate, bound| CapacityResult {
            bound: Some(bound),
            ..result(rate, None)
        };
        let mut score = LimitedScore::default();
        for (found, is_right) in [
            (bound(90.0, CapacityBound::Lower), true),
            (bound(103.0, CapacityBound::Lower), false),
            (bound(106.0, CapacityBound::Lower), false),
            (bound(106.0, CapacityBound::Upper), false),
            (result(100.0, Some((95.0, 105.0))), true),
            (result(100.0, None), false),
        ] {
            assert_eq!(KNOWN.agrees(&found), is_right, "{found:?}");
            score.add(&KNOWN, &found);
        }
        assert_eq!((score.right.count, score.right.total), (2, 6));
        assert_eq!(
            (score.lower_only, score.upper_only, score.impossible),
            (1, 1, 1)
        );
        assert_eq!((score.wrong, score.unknown), (2, 0));
        assert_eq!(score.half_widths, [0.05]);
    }
}
