//! From the number of an arrival to its time: the inverse of the cumulative rate.
//!
//! ```text
//! Λ(t), arrivals expected by t        constant: arrival k is at Λ⁻¹(k)
//!   │            ·                    poisson:  arrival k is at Λ⁻¹(S), S the sum of k + 1 exponential distances of mean 1
//! k ├─────────·
//!   │      ·  │                       A Poisson process of rate 1 whose time is so changed is one of the rate λ(t) = Λ'(t):
//!   │  ·      │                       E. Çinlar, Introduction to Stochastic Processes (1975), chapter 4.
//!   └─────────┴──── t
//! ```

use std::sync::Arc;

use floodmark_record::profile::{Profile, Stretch};

use crate::clock::NS_PER_S;

/// The last bits of a sum or product of decimal numbers, as a share of it.
const LAST_BITS: f64 = 1e-12;

/// Times of arrivals, asked for in order.
#[derive(Debug, Clone)]
pub(crate) enum Course {
    /// One rate throughout.
    Constant { period_ns: f64 },
    /// Stretch after stretch.
    Varied {
        stretches: Arc<[Stretch]>,
        current: usize,
    },
}

impl Course {
    /// The course of a profile, or of one rate per second where there is none.
    pub(crate) fn new(profile: Option<&Profile>, rate_per_s: f64) -> Self {
        match profile {
            None => Course::Constant {
                period_ns: NS_PER_S as f64 / rate_per_s,
            },
            Some(profile) => Course::Varied {
                stretches: profile.stretches().into(),
                current: 0,
            },
        }
    }

    /// Arrivals expected within the first `seconds`.
    pub(crate) fn expected_by(&self, seconds: f64) -> f64 {
        match self {
            Course::Constant { period_ns } => seconds * NS_PER_S as f64 / period_ns,
            Course::Varied { stretches, .. } => {
                floodmark_record::profile::expected_by(stretches, seconds).unwrap_or(0.0)
            }
        }
    }

    /// When `count` arrivals are expected to have been, ns from the start; `count` must not decrease from call to call. Where the
    /// rate is 0 for a while that is the end of the pause.
    pub(crate) fn at(&mut self, count: f64) -> f64 {
        match self {
            Course::Constant { period_ns } => count * *period_ns,
            Course::Varied { stretches, current } => {
                while let Some(next) = stretches.get(*current + 1)
                    && next.before - count <= count * LAST_BITS
                {
                    *current += 1;
                }
                let within = stretches
                    .get(*current)
                    .map_or(0.0, |stretch| stretch.from_s + time_of(stretch, count));
                (within * NS_PER_S as f64).round()
            }
        }
    }
}

/// Solves `rate · t + slope · t² / 2 = count − before` for t, in the form that does not cancel and holds for slope 0 too.
fn time_of(stretch: &Stretch, count: f64) -> f64 {
    let n = count - stretch.before;
    if n <= 0.0 {
        return 0.0;
    }
    let Stretch {
        rate_per_s: rate,
        slope,
        length_s,
        ..
    } = *stretch;
    let root = (rate * rate + 2.0 * slope * n).max(0.0).sqrt();
    (2.0 * n / (rate + root)).min(length_s)
}

/// How many arrivals k = 0, 1, … have k < `expected`, forgiving the last bits of duration × rate (0.1 s at 30/s is 3 arrivals,
/// not 4).
pub(crate) fn arrivals_before(expected: f64) -> u64 {
    let nearest = expected.round();
    if (expected - nearest).abs() <= nearest.abs() * LAST_BITS {
        nearest as u64
    } else {
        expected.ceil() as u64
    }
}
