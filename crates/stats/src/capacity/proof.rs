//! Long trials that prove a lower bound if the other trials are too short.
//!
//! If requests arrive about as fast as the server handles them, the queue needs many seconds to
//! grow. Short trials start with an empty queue, so they pass at rates that the server cannot
//! sustain. Their posterior therefore gives only an upper bound.

use floodmark_record::capacity::TailShare;

use super::{CapacityEstimate, CapacityFinding, Ceiling};

/// Highest rate to prove, as a share of the upper bound of the capacity. The half-width of the
/// interval is then 2.5 %.
const FIRST_SHARE: f64 = 0.95;

/// Factor that lowers the rate while no rate is proved. After n proof trials, the next rate is at
/// most `FALL`ⁿ times the lowest unproved rate, because each trial is shorter than the previous
/// one.
const FALL: f64 = 0.95;

/// Minimum rate to prove, as a share of the estimate.
const LEAST_SHARE: f64 = 0.3;

/// Minimum ratio of the upper bound to the proved rate for which a higher rate is tried.
const WIDE: f64 = 1.06;

/// Minimum ratio of this higher rate to the proved rate.
const LEAST_RISE: f64 = 1.02;

/// Number of trials after which a proved rate is not raised.
const MOST_TRIALS: usize = 2;

/// Number of standard errors by which a share must be below the allowed share.
const ERRORS: f64 = 2.0;

/// Target for the sum of the expected share and [`ERRORS`] standard errors when a proof trial is
/// planned, relative to the allowed share.
const EXPECTED: f64 = 0.7;

/// Statistical power of a proof trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProofPower {
    /// Maximum share of requests beyond the midpoint, or of failed requests; see [`TailShare`].
    pub allowed: f64,
    /// Number of independent requests.
    pub independent: f64,
    /// Judged time in seconds.
    pub judged_s: f64,
}

impl ProofPower {
    /// Returns the exponent e for which a trial with a true share of `allowed`ᵉ is likely to prove
    /// its rate. At most about 8.
    fn exponent(self) -> f64 {
        const STEP: f64 = 1.05;
        const MOST: f64 = 8.0;
        let mut exponent = 1.0;
        while exponent < MOST {
            let share = self.allowed.powf(exponent);
            let error = (share * (1.0 - share) / self.independent.max(1.0)).sqrt();
            if share + ERRORS * error <= EXPECTED * self.allowed {
                break;
            }
            exponent *= STEP;
        }
        exponent
    }
}

/// A proof trial.
#[derive(Debug, Clone, PartialEq)]
pub struct ProofTrial {
    /// Offered rate in requests per second.
    pub rate_per_s: f64,
    /// Judged time in seconds.
    pub judged_s: f64,
    /// Whether the trial met its objectives and was sustained.
    pub is_pass: bool,
    /// Shares of requests beyond the midpoint and beyond the limit, or of failed requests; empty if
    /// the objective applies to one request of a mix.
    pub tail: Vec<TailShare>,
}

impl ProofTrial {
    /// Returns whether the trial proves its rate: it passed, each share is at least two standard
    /// errors below the allowed share, and the trial was long enough for the queue to reach its
    /// steady state.
    fn is_proof(&self, ceiling: &Ceiling) -> bool {
        let is_below = |of: &TailShare| of.share + ERRORS * of.error <= of.allowed;
        let most = ceiling.answered_per_s().unwrap_or(f64::INFINITY);
        let gap = ceiling.gap_per_s(self.judged_s).unwrap_or(0.0);
        // The gap changes slightly with each trial, so 90 % of the gap is enough here.
        let is_long_enough = self.rate_per_s <= most - gap * GAP_MARGIN;
        self.is_pass && is_long_enough && self.tail.iter().all(is_below)
    }

    /// Returns the rate at which the first share would equal the allowed share, or `None` if this
    /// rate is unknown. The logarithm of the share is proportional to the distance between the rate
    /// and the answered rate, `most_per_s`. `errors` is the number of standard errors to subtract
    /// from the measured share.
    fn capacity_per_s(&self, most_per_s: f64, errors: f64) -> Option<f64> {
        /// Upper limit for the share. As the share approaches 1, its logarithm approaches 0 and the
        /// gap becomes infinite.
        const MOST_SHARE: f64 = 0.9;
        let tail = self.tail.first()?;
        let share = (tail.share - errors * tail.error).min(MOST_SHARE);
        if share <= 0.0 {
            return None;
        }
        let gap = (most_per_s - self.rate_per_s) * tail.allowed.ln() / share.ln();
        (gap > 0.0).then_some(most_per_s - gap)
    }
}

/// Minimum gap for a proof, as a share of the gap with which its rate was chosen.
const GAP_MARGIN: f64 = 0.9;

/// The proof trials of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Proofs {
    trials: Vec<ProofTrial>,
}

impl Proofs {
    /// Adds a trial.
    pub fn record(&mut self, trial: ProofTrial) {
        self.trials.push(trial);
    }

    /// Returns the highest proved rate in requests per second. A rate does not count if a trial at
    /// the same or a lower rate did not prove its rate.
    #[must_use]
    pub fn proved_per_s(&self, ceiling: &Ceiling) -> Option<f64> {
        let limit = self.unproved_per_s(ceiling).unwrap_or(f64::INFINITY);
        let proofs = self.trials.iter().filter(|trial| trial.is_proof(ceiling));
        let rates = proofs.map(|trial| trial.rate_per_s);
        rates.filter(|rate| *rate < limit).reduce(f64::max)
    }

    /// Returns the lowest rate that a trial did not prove, in requests per second.
    fn unproved_per_s(&self, ceiling: &Ceiling) -> Option<f64> {
        let unproved = self.trials.iter().filter(|trial| !trial.is_proof(ceiling));
        unproved.map(|trial| trial.rate_per_s).reduce(f64::min)
    }

    /// Returns the rate to prove next, in requests per second. Returns `None` if there is no
    /// estimate yet, or if another trial is not worthwhile.
    ///
    /// In heavy traffic, the share of requests that wait for longer than a limit falls
    /// exponentially with the distance from the answered rate (Kingman 1962, "On queues in heavy
    /// traffic"). The returned rate is so far below the answered rate that a trial is likely to
    /// prove it.
    #[must_use]
    pub fn next(
        &self,
        finding: &CapacityFinding,
        ceiling: &Ceiling,
        power: ProofPower,
    ) -> Option<f64> {
        let (rate_per_s, high_per_s) = match finding {
            CapacityFinding::Capacity(of) | CapacityFinding::Hysteresis { rising: of, .. } => {
                (of.rate_per_s, of.interval.high)
            }
            _ => return None,
        };
        let most_per_s = ceiling.answered_per_s();
        let likely = most_per_s.map_or(f64::INFINITY, |most| {
            let measured = self
                .trials
                .last()
                .and_then(|trial| trial.capacity_per_s(most, 0.0));
            let capacity = measured.unwrap_or(rate_per_s);
            let gap = ceiling.gap_per_s(power.judged_s).unwrap_or(0.0);
            (most - power.exponent() * (most - capacity)).min(most - gap)
        });
        let high_per_s = self.high_per_s(ceiling).unwrap_or(0.0).max(high_per_s);
        let likely = likely.min(FIRST_SHARE * high_per_s);
        let proved = self.proved_per_s(ceiling);
        let unproved = self.unproved_per_s(ceiling);
        match (proved, unproved) {
            (Some(proved), _) => {
                // With several attempts to raise the bound, one would too often succeed by chance.
                let is_worthwhile = self.trials.len() < MOST_TRIALS
                    && unproved.is_none_or(|unproved| likely < unproved)
                    && high_per_s > WIDE * proved
                    && likely > LEAST_RISE * proved;
                is_worthwhile.then_some(likely)
            }
            (None, Some(unproved)) => {
                let fall = FALL.powi(self.trials.len() as i32);
                Some(likely.min(fall * unproved))
            }
            (None, None) => Some(likely),
        }
        .map(|rate| rate.max(LEAST_SHARE * rate_per_s))
        .filter(|rate| unproved.is_none_or(|unproved| *rate < unproved))
    }

    /// Returns an upper bound of the capacity from the longest trial, in requests per second.
    fn high_per_s(&self, ceiling: &Ceiling) -> Option<f64> {
        let most = ceiling.answered_per_s()?;
        let trials = self.trials.iter().filter(|trial| !trial.tail.is_empty());
        let longest = trials.max_by(|a, b| a.judged_s.total_cmp(&b.judged_s))?;
        Some(
            longest
                .capacity_per_s(most, ERRORS)
                .unwrap_or(most)
                .min(most),
        )
    }

    /// Replaces the lower bound of a capacity, or of the rising capacity of hysteresis, by the
    /// proved rate. Without a proved rate, a capacity becomes an upper bound, and hysteresis is
    /// unchanged. Other findings, such as lower bounds, are always unchanged.
    #[must_use]
    pub fn limit(&self, finding: CapacityFinding, ceiling: &Ceiling) -> CapacityFinding {
        let high = self.high_per_s(ceiling).unwrap_or(0.0);
        let estimate = |mut of: CapacityEstimate, low: f64| {
            of.interval.low = low;
            of.interval.high = of.interval.high.max(low).max(high);
            // Short trials pass at rates that are too high, so the median of their posterior is
            // only an upper bound.
            of.rate_per_s = (low * of.interval.high).sqrt().min(of.rate_per_s.max(low));
            of
        };
        match (finding, self.proved_per_s(ceiling)) {
            (CapacityFinding::Capacity(of), Some(low)) => {
                CapacityFinding::Capacity(estimate(of, low))
            }
            (CapacityFinding::Capacity(of), None) => CapacityFinding::Below {
                rate_per_s: of.interval.high.max(high),
                is_lowest: false,
            },
            (CapacityFinding::Hysteresis { rising, falling }, Some(low)) => {
                CapacityFinding::Hysteresis {
                    rising: estimate(rising, low),
                    falling,
                }
            }
            (finding, _) => finding,
        }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::capacity::{AnsweredRate, TrialFlow};
    use floodmark_record::interval::Interval;

    use super::*;

    fn found(rate_per_s: f64) -> CapacityFinding {
        CapacityFinding::Capacity(CapacityEstimate {
            rate_per_s,
            interval: Interval {
                low: 0.99 * rate_per_s,
                high: 1.01 * rate_per_s,
                confidence: 0.95,
                method: String::new(),
            },
            scatter: 0.01,
            is_confirmed: true,
        })
    }

    const POWER: ProofPower = ProofPower {
        allowed: 0.1,
        independent: 1_000.0,
        judged_s: 10.0,
    };

    /// Returns a trial with the given rate and share of slow requests. The allowed share is 10 %.
    fn trial(rate_per_s: f64, share: f64) -> ProofTrial {
        ProofTrial {
            rate_per_s,
            judged_s: 10.0,
            is_pass: true,
            tail: vec![TailShare {
                share,
                error: 0.01,
                allowed: 0.1,
            }],
        }
    }

    fn proofs(trials: &[ProofTrial]) -> Proofs {
        let trials = trials.to_vec();
        Proofs { trials }
    }

    /// Returns a ceiling of 400/s that the server reached.
    fn reached() -> Ceiling {
        let mut ceiling = Ceiling::default();
        let answered = AnsweredRate {
            per_s: 400.0,
            error_per_s: 1.0,
            seconds: 2.0,
        };
        let flow = TrialFlow {
            answered,
            growth_per_s: 100.0,
            growth_error_per_s: 1.0,
        };
        ceiling.add_trial(500.0, &flow);
        ceiling
    }

    #[test]
    fn a_rate_is_proved_if_the_share_is_clearly_below_the_limit() {
        let proved = |trials: &[ProofTrial]| proofs(trials).proved_per_s(&Ceiling::default());
        assert_eq!(proved(&[trial(90.0, 0.07)]), Some(90.0));
        assert_eq!(proved(&[trial(90.0, 0.09)]), None);
        let missed = ProofTrial {
            is_pass: false,
            ..trial(80.0, 0.01)
        };
        assert_eq!(proved(std::slice::from_ref(&missed)), None);
        assert_eq!(
            proved(&[trial(90.0, 0.01), missed.clone()]),
            None,
            "a lower rate missed"
        );
        assert_eq!(proved(&[trial(70.0, 0.01), missed]), Some(70.0));
    }

    #[test]
    fn a_rate_near_the_ceiling_needs_a_long_trial() {
        // The gap for 10 s is the square root of 10 · 402/10 s, that is 20/s.
        let ceiling = reached();
        assert!((ceiling.gap_per_s(10.0).unwrap() - 20.0).abs() < 0.1);
        let proved = |rate| proofs(&[trial(rate, 0.0)]).proved_per_s(&ceiling);
        assert_eq!(proved(380.0), Some(380.0));
        assert_eq!(proved(390.0), None);
    }

    #[test]
    fn without_a_proof_the_finding_is_an_upper_bound() {
        let none = Ceiling::default();
        let mut proofs = Proofs::default();
        let CapacityFinding::Below { rate_per_s, .. } = proofs.limit(found(100.0), &none) else {
            panic!("expected an upper bound");
        };
        assert_eq!(rate_per_s, 101.0);
        proofs.record(trial(95.0, 0.2));
        let next = proofs.next(&found(100.0), &none, POWER);
        assert!((next.unwrap() - 90.25).abs() < 1e-9, "{next:?}");
        proofs.record(trial(90.0, 0.0));
        assert_eq!(proofs.next(&found(100.0), &none, POWER), None);
        let CapacityFinding::Capacity(of) = proofs.limit(found(100.0), &none) else {
            panic!("expected a capacity");
        };
        assert_eq!((of.interval.low, of.interval.high), (90.0, 101.0));
        assert!((90.0..101.0).contains(&of.rate_per_s));
    }

    #[test]
    fn an_estimate_above_a_proved_rate_respects_the_short_trials() {
        let ceiling = reached();
        // Without slow requests, the trial gives no upper bound below the ceiling.
        let proofs = proofs(&[trial(150.0, 0.0)]);
        let CapacityFinding::Capacity(of) = proofs.limit(found(200.0), &ceiling) else {
            panic!("expected a capacity");
        };
        assert_eq!((of.interval.low, of.interval.high), (150.0, 400.0));
        assert_eq!(of.rate_per_s, 200.0, "instead of the middle, 245/s");
    }

    #[test]
    fn the_share_of_a_trial_shows_how_far_to_fall() {
        // At 300/s, the share is the square root of the allowed share. It therefore equals the
        // allowed share at twice the distance from 400/s: at 200/s.
        let proofs = proofs(&[trial(300.0, 0.1f64.sqrt())]);
        let next = proofs.next(&found(310.0), &reached(), POWER).unwrap();
        assert!((130.0..200.0).contains(&next), "{next}");
    }

    #[test]
    fn an_unproved_rate_is_not_tried_again() {
        let proofs = proofs(&[trial(30.0, 0.2)]);
        assert_eq!(proofs.next(&found(100.0), &Ceiling::default(), POWER), None);
    }

    #[test]
    fn fewer_independent_requests_need_a_lower_rate() {
        let exponent = |independent| {
            let power = ProofPower {
                independent,
                ..POWER
            };
            power.exponent()
        };
        assert!(exponent(10.0) > exponent(1_000.0));
        assert!(exponent(1e6) < 1.25);
        assert!(exponent(0.0).is_finite());
    }
}
