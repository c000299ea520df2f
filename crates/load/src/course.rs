//! Arrival times by index: the inverse of the cumulative rate.
//!
//! ```text
//! Λ(t), arrivals expected by t        constant: arrival k is at Λ⁻¹(k)
//!   │            ·                    poisson:  arrival k is at Λ⁻¹(S), S the sum of k + 1 exponential gaps of mean 1
//! k ├─────────·
//!   │      ·  │                       Transforming the time of a Poisson process of rate 1 in this way yields one of
//!   │  ·      │                       rate λ(t) = Λ'(t): E. Çinlar, Introduction to Stochastic Processes (1975), ch. 4.
//!   └─────────┴──── t
//! ```

use std::sync::Arc;

use floodmark_record::plan::Schedule;
use floodmark_record::profile::RateSegment;

use crate::clock::NS_PER_S;

/// Maximum relative rounding error in a sum or product of decimal numbers.
const LAST_BITS: f64 = 1e-12;

/// Computes arrival times, which must be requested in order.
#[derive(Debug, Clone)]
pub(crate) enum Course {
    /// A constant rate.
    Constant { period_ns: f64 },
    /// A sequence of linear segments.
    Varied {
        segments: Arc<[RateSegment]>,
        current: usize,
    },
}

impl Course {
    /// Creates the arrival times of a schedule.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        if schedule.rate_changes() {
            Course::Varied {
                segments: schedule.segments().into(),
                current: 0,
            }
        } else {
            Course::Constant {
                period_ns: NS_PER_S as f64 / schedule.rate_per_s(),
            }
        }
    }

    /// Returns the number of arrivals expected within the first `seconds`.
    pub(crate) fn expected_by(&self, seconds: f64) -> f64 {
        match self {
            Course::Constant { period_ns } => seconds * NS_PER_S as f64 / period_ns,
            Course::Varied { segments, .. } => {
                floodmark_record::profile::expected_by(segments, seconds).unwrap_or(0.0)
            }
        }
    }

    /// Returns the time in ns from the start by which `count` arrivals are expected.
    /// `count` must not decrease between calls. If the time falls in a pause (rate 0), the result
    /// is the end of the pause.
    pub(crate) fn at(&mut self, count: f64) -> f64 {
        match self {
            Course::Constant { period_ns } => count * *period_ns,
            Course::Varied { segments, current } => {
                while let Some(next) = segments.get(*current + 1)
                    && next.before - count <= count * LAST_BITS
                {
                    *current += 1;
                }
                let within = segments
                    .get(*current)
                    .map_or(0.0, |segment| segment.from_s + time_of(segment, count));
                (within * NS_PER_S as f64).round()
            }
        }
    }
}

/// Solves `rate · t + slope · t² / 2 = count − before` for t.
/// This form of the solution avoids cancellation and is also valid for slope 0.
fn time_of(segment: &RateSegment, count: f64) -> f64 {
    let n = count - segment.before;
    if n <= 0.0 {
        return 0.0;
    }
    let RateSegment {
        rate_per_s: rate,
        slope,
        length_s,
        ..
    } = *segment;
    let root = (rate * rate + 2.0 * slope * n).max(0.0).sqrt();
    (2.0 * n / (rate + root)).min(length_s)
}

/// Returns the number of arrivals k = 0, 1, … with k < `expected`.
/// The function ignores the rounding error of duration × rate. For example, 0.1 s at 30/s gives 3
/// arrivals, not 4.
pub(crate) fn arrivals_before(expected: f64) -> u64 {
    let nearest = expected.round();
    if (expected - nearest).abs() <= nearest.abs() * LAST_BITS {
        nearest as u64
    } else {
        expected.ceil() as u64
    }
}
