//! The open model's arrivals: a pure function of plan and seed.
//!
//! ```text
//! constant   |   |   |   |   |   |      every 1/rate, the first at 0
//! poisson    | |      |  |||     |      exponential gaps of mean 1/rate
//! burst      ||||||||||            .    N at equal distances within T, then nothing
//!            0                     end
//! ```
//!
//! Thread *i* of *n* keeps arrivals *i*, *i+n*, *i+2n*, …: together the threads send exactly the
//! schedule that one thread would send.

use floodmark_record::plan::{Arrivals, Plan};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const NS_PER_S: f64 = 1e9;

/// Arrival times of one thread, in ns from the start of the phase, in order.
///
/// Cloning gives a second cursor at the same place, so arrivals that wait need no queue.
#[derive(Debug, Clone)]
pub struct Schedule {
    spacing: Spacing,
    /// Number of arrivals handed out so far, over all threads' positions.
    index: u64,
    stride: u64,
    /// Arrivals of all threads together.
    total: u64,
}

#[derive(Debug, Clone)]
enum Spacing {
    /// Arrival k at k · num / den ns.
    Equal { period_ns: f64 },
    /// `next_ns` is the time of arrival `drawn − 1`.
    Exponential {
        mean_ns: f64,
        at_ns: f64,
        drawn: u64,
        random: Xoshiro256PlusPlus,
    },
}

impl Schedule {
    /// The arrivals that thread `thread` of `threads` sends within `duration_s` (or `requests` in all).
    ///
    /// Returns none when the plan is of the closed model.
    #[must_use]
    pub fn new(plan: &Plan, duration_s: Option<f64>, thread: u64, threads: u64) -> Option<Self> {
        let rate = plan.rate_per_s?;
        let arrivals = plan.arrivals?;
        let period_ns = NS_PER_S / rate;
        let (spacing, total) = match arrivals {
            Arrivals::Constant | Arrivals::Burst => {
                let total = match (plan.requests, duration_s) {
                    (_, Some(seconds)) => arrivals_before(seconds * rate),
                    (Some(requests), None) => requests,
                    (None, None) => 0,
                };
                (Spacing::Equal { period_ns }, total)
            }
            Arrivals::Poisson => {
                let mut spacing = Spacing::Exponential {
                    mean_ns: period_ns,
                    at_ns: 0.0,
                    drawn: 0,
                    random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
                };
                let total = match (plan.requests, duration_s) {
                    (_, Some(seconds)) => {
                        let end = seconds * NS_PER_S;
                        let mut counted = spacing.clone();
                        let mut n = 0;
                        while counted.at(n) < end {
                            n += 1;
                        }
                        n
                    }
                    (Some(requests), None) => requests,
                    (None, None) => 0,
                };
                spacing.at(0);
                (spacing, total)
            }
        };
        Some(Schedule {
            spacing,
            index: thread,
            stride: threads,
            total,
        })
    }

    /// The time of the next arrival without taking it.
    pub fn peek(&mut self) -> Option<u64> {
        (self.index < self.total).then(|| self.spacing.at(self.index) as u64)
    }

    /// Takes the next arrival.
    pub fn take(&mut self) -> Option<u64> {
        let at = self.peek()?;
        self.index += self.stride;
        Some(at)
    }

    /// The time of the last arrival of all threads, ns; 0 when there is none.
    #[must_use]
    pub fn last_at(mut self) -> u64 {
        match self.total.checked_sub(1) {
            Some(last) => self.spacing.at(last) as u64,
            None => 0,
        }
    }

    /// Arrivals over all threads.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl Spacing {
    /// Time of arrival `index`, ns. For random gaps `index` must not decrease from call to call.
    fn at(&mut self, index: u64) -> f64 {
        match self {
            Spacing::Equal { period_ns } => index as f64 * *period_ns,
            Spacing::Exponential {
                mean_ns,
                at_ns,
                drawn,
                random,
            } => {
                while *drawn <= index {
                    // 53 random bits in (0, 1]: the logarithm is finite.
                    let unit = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                    *at_ns -= unit.ln() * *mean_ns;
                    *drawn += 1;
                }
                *at_ns
            }
        }
    }
}

/// How many arrivals k = 0, 1, … have k < `periods`, forgiving the last bit of the product
/// duration × rate (0.1 s at 30/s is 3 arrivals, not 4).
fn arrivals_before(periods: f64) -> u64 {
    let nearest = periods.round();
    if (periods - nearest).abs() <= nearest.abs() * 1e-12 {
        nearest as u64
    } else {
        periods.ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::open_plan;
    use proptest::prelude::*;

    fn all(plan: &Plan, thread: u64, threads: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(plan, plan.duration_s, thread, threads).unwrap();
        std::iter::from_fn(|| schedule.take()).collect()
    }

    #[test]
    fn a_thousand_per_second_for_twelve_seconds_is_twelve_thousand() {
        let times = all(
            &open_plan(Arrivals::Constant, 1000.0, Some(12.0), None),
            0,
            1,
        );
        assert_eq!(times.len(), 12_000);
        assert_eq!(
            (times[0], times[1], times[11_999]),
            (0, 1_000_000, 11_999_000_000)
        );
    }

    #[test]
    fn awkward_products_do_not_gain_or_lose_an_arrival() {
        for (rate, seconds, n) in [
            (30.0, 0.1, 3),
            (3.0, 0.3, 1),
            (7.0, 1.0, 7),
            (0.1, 10.0, 1),
            (49_999.0, 10.0, 499_990),
        ] {
            let plan = open_plan(Arrivals::Constant, rate, Some(seconds), None);
            assert_eq!(all(&plan, 0, 1).len(), n, "{rate}/s for {seconds} s");
        }
    }

    #[test]
    fn poisson_has_the_asked_mean_and_spread() {
        let times = all(
            &open_plan(Arrivals::Poisson, 10_000.0, None, Some(200_000)),
            0,
            1,
        );
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1e5).abs() < 1e3, "mean gap {mean} ns");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.02,
            "an exponential's deviation is its mean"
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let plan = open_plan(Arrivals::Poisson, 500.0, Some(2.0), None);
        assert_eq!(all(&plan, 0, 1), all(&plan, 0, 1));
        let other = Plan {
            seed: plan.seed + 1,
            ..plan.clone()
        };
        assert_ne!(all(&plan, 0, 1), all(&other, 0, 1));
    }

    proptest! {
        #[test]
        fn threads_together_send_the_one_thread_schedule(
            rate in 1.0f64..5000.0,
            n in 0u64..500,
            threads in 1u64..7,
            arrivals in prop_oneof![Just(Arrivals::Constant), Just(Arrivals::Poisson), Just(Arrivals::Burst)],
        ) {
            let plan = open_plan(arrivals, rate, None, Some(n));
            let whole = all(&plan, 0, 1);
            prop_assert_eq!(whole.len() as u64, n);
            prop_assert!(whole.is_sorted());
            let mut parts: Vec<u64> = (0..threads).flat_map(|t| all(&plan, t, threads)).collect();
            parts.sort_unstable();
            prop_assert_eq!(parts, whole);
        }
    }
}
