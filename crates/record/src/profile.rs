//! Rates of the open model that change over the sending window.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timetable::Timetable;

/// How the rate of the open model changes over the sending window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// From one rate to another, in a straight line over the sending window.
    Ramp(Ramp),
    /// One rate after the other.
    Steps(Vec<Step>),
    /// As in a file of timestamps.
    Replay(Replay),
}

/// A rate that changes in a straight line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ramp {
    /// Arrivals per second at the beginning; may be 0.
    pub from_per_s: f64,
    /// Arrivals per second at the end; may be 0.
    pub to_per_s: f64,
    /// Over how long, seconds.
    pub duration_s: f64,
}

/// A rate that is kept for a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Arrivals per second; 0 for a pause.
    pub rate_per_s: f64,
    /// For how long, seconds.
    pub duration_s: f64,
}

/// Arrivals from a file of timestamps, the first of them at the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
    /// The file as it was named.
    pub file: String,
    /// How many times faster than in the file.
    pub speed: f64,
    /// Most arrivals within a second that begins with one of them.
    pub peak_per_s: u64,
    /// Length of the sending window, seconds: up to the last arrival and one mean distance more, so that it is as many mean
    /// distances long as there are arrivals; a second where all arrive at once.
    pub window_s: f64,
    /// Size of the encoded timetable, bytes.
    pub timetable_bytes: u64,
    /// Checksum of the encoded timetable, FNV-1a of 64 bits in hexadecimal.
    pub timetable_checksum: String,
    /// The arrivals. They follow a worker's plan as bytes and are in no JSON; a plan that was read from a record is without.
    #[serde(skip)]
    #[schemars(skip)]
    pub timetable: Timetable,
}

/// A stretch of time over which a rate stays or changes in a straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Begin, seconds from the start.
    pub from_s: f64,
    /// Length, seconds.
    pub length_s: f64,
    /// Arrivals per second at its beginning.
    pub rate_per_s: f64,
    /// By how much the rate grows, per second and second.
    pub slope: f64,
    /// Arrivals expected before it begins.
    pub before: f64,
}

impl Stretch {
    /// Arrivals expected within its first `s` seconds.
    #[must_use]
    pub fn within(&self, s: f64) -> f64 {
        self.rate_per_s * s + self.slope * s * s / 2.0
    }
}

impl Profile {
    /// The stretches it consists of, in order and without gaps; none of a replay, whose arrivals are what they are.
    #[must_use]
    pub fn stretches(&self) -> Vec<Stretch> {
        let parts: Vec<(f64, f64, f64)> = match self {
            Profile::Ramp(r) => vec![(
                r.from_per_s,
                (r.to_per_s - r.from_per_s) / r.duration_s,
                r.duration_s,
            )],
            Profile::Steps(steps) => steps
                .iter()
                .map(|s| (s.rate_per_s, 0.0, s.duration_s))
                .collect(),
            Profile::Replay(_) => Vec::new(),
        };
        let (mut from_s, mut before) = (0.0, 0.0);
        parts
            .into_iter()
            .map(|(rate_per_s, slope, length_s)| {
                let stretch = Stretch {
                    from_s,
                    length_s,
                    rate_per_s,
                    slope,
                    before,
                };
                from_s += length_s;
                before += stretch.within(length_s);
                stretch
            })
            .collect()
    }

    /// Length of the sending window, seconds.
    #[must_use]
    pub fn window_s(&self) -> f64 {
        match self {
            Profile::Ramp(ramp) => ramp.duration_s,
            Profile::Steps(steps) => steps.iter().map(|s| s.duration_s).sum(),
            Profile::Replay(replay) => replay.window_s,
        }
    }

    /// Arrivals per second at the beginning; none of a replay.
    #[must_use]
    pub fn first_per_s(&self) -> Option<f64> {
        self.stretches().first().map(|s| s.rate_per_s)
    }

    /// The highest rate, per second.
    #[must_use]
    pub fn peak_per_s(&self) -> f64 {
        match self {
            Profile::Ramp(ramp) => ramp.from_per_s.max(ramp.to_per_s),
            Profile::Steps(steps) => steps.iter().map(|s| s.rate_per_s).fold(0.0, f64::max),
            Profile::Replay(replay) => replay.peak_per_s as f64,
        }
    }

    /// Arrivals expected up to `at_s` seconds from the start, the integral of the rate; none of a replay.
    #[must_use]
    pub fn expected_by(&self, at_s: f64) -> Option<f64> {
        expected_by(&self.stretches(), at_s)
    }
}

/// See [`Profile::expected_by`].
#[must_use]
pub fn expected_by(stretches: &[Stretch], at_s: f64) -> Option<f64> {
    let stretch = stretches
        .iter()
        .rev()
        .find(|s| s.from_s <= at_s)
        .or(stretches.first())?;
    Some(stretch.before + stretch.within((at_s - stretch.from_s).clamp(0.0, stretch.length_s)))
}

/// The step, from 0, that is on at `at_s` seconds from the start; the last one from its begin on.
#[must_use]
pub fn step_at(steps: &[Step], at_s: f64) -> usize {
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

    fn steps(rates: &[(f64, f64)]) -> Vec<Step> {
        rates
            .iter()
            .map(|(rate_per_s, duration_s)| Step {
                rate_per_s: *rate_per_s,
                duration_s: *duration_s,
            })
            .collect()
    }

    #[test]
    fn the_integral_of_the_rate() {
        let ramp = Profile::Ramp(Ramp {
            from_per_s: 0.0,
            to_per_s: 1000.0,
            duration_s: 10.0,
        });
        assert_eq!(ramp.expected_by(5.0), Some(1250.0));
        assert_eq!(ramp.expected_by(10.0), Some(5000.0));
        assert_eq!(ramp.expected_by(99.0), Some(5000.0));
        assert_eq!(ramp.expected_by(-1.0), Some(0.0));
        let steps = Profile::Steps(steps(&[(100.0, 1.0), (0.0, 2.0), (10.0, 1.0)]));
        assert_eq!(steps.expected_by(2.0), Some(100.0));
        assert_eq!(steps.expected_by(4.0), Some(110.0));
        assert_eq!((steps.peak_per_s(), steps.window_s()), (100.0, 4.0));
        assert_eq!(steps.first_per_s(), Some(100.0));
    }

    #[test]
    fn a_step_holds_its_begin_and_not_its_end() {
        let steps = steps(&[(1.0, 1.0), (2.0, 0.5), (3.0, 1.0)]);
        let at = [0.0, 0.99, 1.0, 1.49, 1.5, 2.5, 9.0].map(|s| step_at(&steps, s));
        assert_eq!(at, [0, 0, 1, 1, 2, 2, 2]);
    }
}
