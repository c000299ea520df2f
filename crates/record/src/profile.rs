//! Rates that change during a run of the open model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timetable::Timetable;
use crate::units::Bytes;

/// A rate that changes linearly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ramp {
    /// Arrivals per second at the start; may be 0.
    pub from_per_s: f64,
    /// Arrivals per second at the end; may be 0.
    pub to_per_s: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// A constant rate for a given duration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateStep {
    /// Arrivals per second; 0 for a pause.
    pub rate_per_s: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// Arrivals that follow the timestamps in a file. The first arrival is at the start of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
    /// File name as given.
    pub file: String,
    /// Speed relative to the file; 2 means twice as fast.
    pub speed: f64,
    /// Maximum number of arrivals within any one second.
    pub peak_per_s: u64,
    /// Length of the sending window in seconds: the last arrival time plus one mean interval.
    /// The length is one second if all arrivals are at the same time.
    pub window_s: f64,
    /// Size of the encoded timetable in bytes.
    #[schemars(with = "u64")]
    pub timetable_bytes: Bytes,
    /// FNV-1a checksum (64 bits, hexadecimal) of the encoded timetable.
    pub timetable_checksum: String,
    /// Arrival times, sent to a worker as bytes after the plan.
    /// The JSON omits these times, so a plan read from a record has none.
    #[serde(skip)]
    #[schemars(skip)]
    pub timetable: Timetable,
}

/// A time segment in which the rate is constant or changes linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSegment {
    /// Start of the segment, in seconds since the start of the window.
    pub from_s: f64,
    /// Length of the segment in seconds.
    pub length_s: f64,
    /// Arrivals per second at the start of the segment.
    pub rate_per_s: f64,
    /// Increase of the rate, in arrivals per second per second.
    pub slope: f64,
    /// Expected number of arrivals before the segment.
    pub before: f64,
}

impl RateSegment {
    /// Returns the expected number of arrivals within the first `s` seconds of the segment.
    #[must_use]
    pub fn within(&self, s: f64) -> f64 {
        self.rate_per_s * s + self.slope * s * s / 2.0
    }
}

/// Returns the expected number of arrivals in the first `at_s` seconds; `None` without segments.
#[must_use]
pub fn expected_by(segments: &[RateSegment], at_s: f64) -> Option<f64> {
    let segment = segments
        .iter()
        .rev()
        .find(|s| s.from_s <= at_s)
        .or(segments.first())?;
    Some(segment.before + segment.within((at_s - segment.from_s).clamp(0.0, segment.length_s)))
}

/// Returns the index of the step that is active `at_s` seconds after the start.
/// Returns the last index if all steps have ended.
#[must_use]
pub fn step_at(steps: &[RateStep], at_s: f64) -> usize {
    let mut end_s = 0.0;
    steps
        .iter()
        .position(|step| {
            end_s += step.duration_s;
            at_s < end_s
        })
        .unwrap_or(steps.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(rates: &[(f64, f64)]) -> Vec<RateStep> {
        rates
            .iter()
            .map(|(rate_per_s, duration_s)| RateStep {
                rate_per_s: *rate_per_s,
                duration_s: *duration_s,
            })
            .collect()
    }

    #[test]
    fn a_step_includes_its_begin_but_not_its_end() {
        let steps = steps(&[(1.0, 1.0), (2.0, 0.5), (3.0, 1.0)]);
        let at = [0.0, 0.99, 1.0, 1.49, 1.5, 2.5, 9.0].map(|s| step_at(&steps, s));
        assert_eq!(at, [0, 0, 1, 1, 2, 2, 2]);
    }
}
