//! Tests whether a server keeps up with a trial, and tracks the highest rate that the server
//! answered.

use floodmark_record::capacity::{AnsweredRate, TrialFlow};

use super::{CapacityEstimate, CapacityFinding};
use crate::estimate::{mean, variance};

/// Requests in one part of a load. All parts have the same length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowRow {
    /// Requests that became due.
    pub arrived: u64,
    /// Requests whose outcome became known.
    pub ended: u64,
    /// Requests that were answered; see [`AnsweredRate`].
    pub answered: u64,
}

/// Minimum number of parts for a standard error.
const FEWEST_ROWS: usize = 5;

/// Minimum standard error of a count, in requests. A period can start and end between two
/// responses.
const EDGES: f64 = 2.0;

/// Minimum ratio of a difference to its standard error at which a server does not keep up. With the
/// 15 parts of a trial of 1.5 s, chance alone reaches this ratio in one of 200 trials (Student's t
/// with 14 degrees of freedom).
const EVIDENT: f64 = 3.0;

/// Maximum ratio of the upper end of an interval to the highest answered rate.
const MOST_EXCESS: f64 = 1.02;

/// Number of standard errors by which an offered rate may exceed the highest answered rate.
const COUNTING_ERRORS: f64 = 2.0;

/// Returns the answered rate and the growth of the requests in flight over consecutive parts of
/// `part_s` seconds. The answered rate is divided by `needed_share`, the minimum share of answered
/// requests. Returns `None` for fewer than five parts.
///
/// The standard errors are those of the means of autocorrelated parts (initial monotone sequence,
/// Geyer 1992). Growth is computed from the actual arrivals instead of the offered rate, so random
/// variation of the arrival rate is not mistaken for growth.
#[must_use]
pub fn trial_flow(rows: &[FlowRow], part_s: f64, needed_share: f64) -> Option<TrialFlow> {
    if rows.len() < FEWEST_ROWS {
        return None;
    }
    let seconds = rows.len() as f64 * part_s;
    let least_error = EDGES / seconds;
    let rate = |count: fn(&FlowRow) -> f64| {
        let counts: Vec<f64> = rows.iter().map(count).collect();
        let middle = mean(&counts);
        let residuals: Vec<f64> = counts.iter().map(|count| count - middle).collect();
        let (variance, tau) = variance(&residuals, 1);
        let error = (variance * tau / rows.len() as f64).sqrt();
        (middle / part_s, (error / part_s).max(least_error))
    };
    let (growth_per_s, growth_error_per_s) = rate(|row| row.arrived as f64 - row.ended as f64);
    let (answered, error) = rate(|row| row.answered as f64);
    Some(TrialFlow {
        answered: AnsweredRate {
            per_s: answered / needed_share,
            error_per_s: error / needed_share,
            seconds,
        },
        growth_per_s,
        growth_error_per_s,
    })
}

/// Minimum rise in the answered rate that indicates a server is still warming up, as a share.
const LEAST_RISE: f64 = 0.02;

/// Returns whether the answered rate is clearly higher in the second half of the rows than in the
/// first. A server with a JIT compiler or an empty cache becomes faster while it warms up.
///
/// The noise is estimated from the differences between successive parts, which a slow rise hardly
/// changes (von Neumann et al. 1941, "The mean square successive difference").
#[must_use]
pub fn is_rising(rows: &[FlowRow]) -> bool {
    if rows.len() < 2 * FEWEST_ROWS {
        return false;
    }
    let counts: Vec<f64> = rows.iter().map(|row| row.answered as f64).collect();
    let squares: Vec<f64> = counts
        .windows(2)
        .map(|of| (of[1] - of[0]).powi(2))
        .collect();
    let (first, second) = counts.split_at(counts.len() / 2);
    // A part has half the mean square as its variance, and the rise is the difference of two means.
    let error = (mean(&squares) / first.len() as f64).sqrt();
    let rise = mean(second) - mean(first);
    rise > EVIDENT * error && rise > LEAST_RISE * mean(first)
}

/// Returns whether a server keeps up with an offered rate in requests per second: it answers the
/// offered rate, and the number of requests in flight does not grow, both within three standard
/// errors.
fn keeps_up(flow: &TrialFlow, offered_per_s: f64) -> bool {
    let AnsweredRate {
        per_s, error_per_s, ..
    } = flow.answered;
    offered_per_s - per_s <= EVIDENT * error_per_s
        && flow.growth_per_s <= EVIDENT * flow.growth_error_per_s
}

/// Length of a trial in which the queue reaches its steady state, in multiples of σ²/gap²; see
/// [`Ceiling::gap_per_s`]. This length is five relaxation times.
const RELAXATIONS: f64 = 10.0;

/// The highest rate that a server answered in the closed model or in a trial.
///
/// [`Ceiling::limit`] limits findings to this rate. Only the upper end of an interval may exceed
/// it, by at most 2 %.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ceiling {
    /// Rates that the server answered while it kept up, or in the closed model.
    kept_up: Vec<AnsweredRate>,
    /// Rates that it answered while it did not keep up.
    overloaded: Vec<AnsweredRate>,
}

/// The highest answered rate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Highest {
    /// Requests per second.
    per_s: f64,
    /// The rate plus its counting error, in requests per second.
    allowed_per_s: f64,
}

impl Ceiling {
    /// Adds a rate that the server answered for at least 1 s.
    pub fn add_answered(&mut self, answered: AnsweredRate) {
        self.kept_up.push(answered);
    }

    /// Adds a trial at an offered rate in requests per second.
    pub fn add_trial(&mut self, offered_per_s: f64, flow: &TrialFlow) {
        if keeps_up(flow, offered_per_s) {
            self.kept_up.push(flow.answered);
        } else {
            self.overloaded.push(flow.answered);
        }
    }

    /// Returns whether the server may have sustained a trial at an offered rate in requests per
    /// second. A single trial may not reveal a queue that grows slowly. Once a trial has overloaded
    /// the server, rates that exceed the answered rate by more than two standard errors therefore
    /// count as not sustained.
    #[must_use]
    pub fn sustains(&self, offered_per_s: f64, flow: &TrialFlow) -> bool {
        let is_possible =
            |of: Highest| self.overloaded.is_empty() || offered_per_s <= of.allowed_per_s;
        keeps_up(flow, offered_per_s) && self.highest().is_none_or(is_possible)
    }

    /// Returns the highest answered rate in requests per second, if the server failed to keep up
    /// with a load.
    #[must_use]
    pub fn reached_per_s(&self) -> Option<f64> {
        let highest = self.highest().filter(|_| !self.overloaded.is_empty())?;
        Some(highest.per_s)
    }

    /// Returns the highest answered rate in requests per second; `None` if it was not measured.
    #[must_use]
    pub fn answered_per_s(&self) -> Option<f64> {
        self.highest().map(|highest| highest.per_s)
    }

    /// Returns how far a rate must be below the answered rate, in requests per second, so that the
    /// queue reaches its steady state in a trial of `length_s` seconds. Returns `None` if no
    /// answered rate is known.
    ///
    /// In heavy traffic, the queue behaves like a reflected Brownian motion. Its relaxation time is
    /// 2σ²/gap², where σ² is the variance of arrivals and responses per second (Abate & Whitt 1987,
    /// "Transient behavior of regulated Brownian motion, I"). The returned gap makes `length_s` ten
    /// times σ²/gap², that is, five relaxation times.
    #[must_use]
    pub fn gap_per_s(&self, length_s: f64) -> Option<f64> {
        let per_s = self.answered_per_s()?;
        let same = |of: &&AnsweredRate| (of.per_s / per_s - 1.0).abs() < 0.05;
        let saturated = self.overloaded.iter().chain(&self.kept_up).filter(same);
        let variances: Vec<f64> = saturated
            .map(|of| of.error_per_s.powi(2) * of.seconds)
            .collect();
        let of_responses = if variances.is_empty() {
            per_s
        } else {
            mean(&variances)
        };
        Some((RELAXATIONS * (per_s + of_responses) / length_s).sqrt())
    }

    /// Returns the highest answered rate. Overloads are pooled, because the maximum of many counts
    /// is biased upward. A rate that is clearly above the pooled rate also counts, because a server
    /// can become slower in an overload. If there was an overload, other rates are ignored.
    fn highest(&self) -> Option<Highest> {
        let most = |rates: &mut dyn Iterator<Item = &AnsweredRate>| {
            rates.fold(None, |highest: Option<Highest>, of| {
                let highest = highest.unwrap_or(Highest {
                    per_s: 0.0,
                    allowed_per_s: 0.0,
                });
                let allowed = of.per_s + COUNTING_ERRORS * of.error_per_s;
                Some(Highest {
                    per_s: highest.per_s.max(of.per_s),
                    allowed_per_s: highest.allowed_per_s.max(allowed),
                })
            })
        };
        let Some(pooled) = pooled(&self.overloaded) else {
            return most(&mut self.kept_up.iter());
        };
        let is_clearly_higher = |of: &&AnsweredRate| {
            let error = of.error_per_s.hypot(pooled.error_per_s);
            of.per_s - pooled.per_s > EVIDENT * error
        };
        let higher = self.overloaded.iter().chain(&self.kept_up);
        let mut higher = higher.filter(is_clearly_higher).chain([&pooled]);
        most(&mut higher)
    }

    /// Limits the rates of a finding to the highest answered rate. Only the upper end of an
    /// interval may exceed this rate, by its counting error but at most 2 %.
    #[must_use]
    pub fn limit(&self, finding: CapacityFinding) -> CapacityFinding {
        let highest = self.highest().unwrap_or(Highest {
            per_s: f64::INFINITY,
            allowed_per_s: f64::INFINITY,
        });
        let most = highest.per_s;
        let estimate = |mut of: CapacityEstimate| {
            of.rate_per_s = of.rate_per_s.min(most);
            of.interval.low = of.interval.low.min(most);
            of.interval.high = of
                .interval
                .high
                .min(highest.allowed_per_s.min(MOST_EXCESS * most));
            of
        };
        match finding {
            CapacityFinding::Capacity(of) => CapacityFinding::Capacity(estimate(of)),
            CapacityFinding::Hysteresis { rising, falling } => CapacityFinding::Hysteresis {
                rising: estimate(rising),
                falling: estimate(falling),
            },
            CapacityFinding::NotStationary {
                first_per_s,
                last_per_s,
            } => CapacityFinding::NotStationary {
                first_per_s: first_per_s.min(most),
                last_per_s: last_per_s.min(most),
            },
            CapacityFinding::AtLeast { rate_per_s, limit } => CapacityFinding::AtLeast {
                rate_per_s: rate_per_s.min(most),
                limit,
            },
            CapacityFinding::Below {
                rate_per_s,
                is_lowest,
            } => CapacityFinding::Below {
                rate_per_s: rate_per_s.min(most),
                is_lowest,
            },
            CapacityFinding::Unknown => CapacityFinding::Unknown,
        }
    }
}

/// Returns the inverse-variance weighted mean of answered rates, or `None` if there are none.
fn pooled(rates: &[AnsweredRate]) -> Option<AnsweredRate> {
    let weight = |of: &AnsweredRate| of.error_per_s.powi(-2);
    let weights: f64 = rates.iter().map(weight).sum();
    let sum: f64 = rates.iter().map(|of| of.per_s * weight(of)).sum();
    (weights > 0.0).then(|| AnsweredRate {
        per_s: sum / weights,
        error_per_s: weights.powf(-0.5),
        seconds: rates.iter().map(|of| of.seconds).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Normal;

    const PART_S: f64 = 0.1;

    /// Number of parts before the judged time.
    const TRANSIENT: usize = 2;

    /// Returns the flow of a pool of 8 permits that needs 20 ms per request, in `parts` parts with
    /// Poisson arrivals at `rate_per_s`. The parts follow a transient.
    fn pool(seed: u64, rate_per_s: f64, parts: usize) -> TrialFlow {
        let mut random = Normal::new(seed);
        let mut rows = vec![FlowRow::default(); TRANSIENT + parts];
        let part = |at_s: f64| (at_s / PART_S) as usize;
        let (mut now_s, mut free_s) = (0.0, [0.0f64; 8]);
        for permit in (0..8).cycle() {
            now_s -= random.uniform().ln() / rate_per_s;
            let Some(row) = rows.get_mut(part(now_s)) else {
                break;
            };
            row.arrived += 1;
            free_s[permit] = now_s.max(free_s[permit]) + 0.02;
            if let Some(row) = rows.get_mut(part(free_s[permit])) {
                row.ended += 1;
                row.answered += 1;
            }
        }
        trial_flow(&rows[TRANSIENT..], PART_S, 1.0).unwrap()
    }

    #[test]
    fn an_overloaded_pool_does_not_keep_up() {
        let share = |rate: f64| {
            let kept_up = (0..200).filter(|seed| keeps_up(&pool(*seed, rate, 15), rate));
            kept_up.count() as f64 / 200.0
        };
        assert_eq!(share(600.0), 0.0);
        assert!(share(424.0) < 0.5, "{}", share(424.0));
        for sound in [200.0, 300.0, 360.0] {
            assert!(share(sound) > 0.98, "{sound}: {}", share(sound));
        }
    }

    #[test]
    fn a_slowly_growing_queue_is_not_sustained_once_the_ceiling_is_known() {
        let mut ceiling = Ceiling::default();
        let slow = pool(3, 424.0, 15);
        ceiling.add_trial(600.0, &pool(2, 600.0, 15));
        ceiling.add_trial(424.0, &slow);
        let reached = ceiling.reached_per_s().unwrap();
        assert!((395.0..408.0).contains(&reached), "{reached}");
        assert!(!ceiling.sustains(424.0, &slow));
        assert!(ceiling.sustains(380.0, &pool(4, 380.0, 15)));
    }

    #[test]
    fn a_rate_above_an_unsaturated_load_is_sustained() {
        let mut ceiling = Ceiling::default();
        ceiling.add_answered(AnsweredRate {
            per_s: 100.0,
            error_per_s: 1.0,
            seconds: 2.0,
        });
        let flow = pool(5, 300.0, 15);
        ceiling.add_trial(300.0, &flow);
        assert!(ceiling.sustains(300.0, &flow));
        assert_eq!(ceiling.reached_per_s(), None);
    }

    #[test]
    fn a_server_that_becomes_faster_is_rising() {
        let rows = |answered: &dyn Fn(u64) -> u64| -> Vec<FlowRow> {
            let row = |part| FlowRow {
                answered: answered(part),
                ..FlowRow::default()
            };
            (0..20).map(row).collect()
        };
        assert!(is_rising(&rows(&|part| 100 + 20 * part)));
        assert!(is_rising(&rows(&|part| if part < 10 { 400 } else { 500 })));
        assert!(!is_rising(&rows(&|_| 500)));
        assert!(!is_rising(&rows(&|part| 500 - 10 * part)));
        assert!(!is_rising(&rows(&|part| 500 + 40 * (part % 2))));
        assert!(!is_rising(&rows(&|part| 10_000 + 10 * part)), "only 1 %");
        assert!(!is_rising(&rows(&|part| 100 + 20 * part)[..9]));
    }

    #[test]
    fn a_steady_pool_is_rarely_rising() {
        let mut random = Normal::new(7);
        let mut part = |_| FlowRow {
            answered: (500.0 + 22.0 * random.next()).round() as u64,
            ..FlowRow::default()
        };
        let mut load = || is_rising(&(0..20).map(&mut part).collect::<Vec<_>>());
        let rising = (0..2_000).filter(|_| load()).count();
        assert!(rising < 20, "{rising} of 2000");
    }

    #[test]
    fn errors_that_the_objective_allows_are_no_backlog() {
        let row = FlowRow {
            arrived: 100,
            ended: 100,
            answered: 91,
        };
        let flow = |share| trial_flow(&[row; 10], PART_S, share).unwrap();
        assert!(keeps_up(&flow(0.9), 1_000.0));
        assert!(!keeps_up(&flow(1.0), 1_000.0));
        assert!(trial_flow(&[row; 4], PART_S, 1.0).is_none());
    }
}
