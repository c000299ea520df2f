//! Simulated servers whose capacity is known.

use std::collections::VecDeque;
use std::f64::consts::FRAC_1_SQRT_2;

use floodmark_stats::capacity::{
    LATEST_TRIALS, SHORTEST_TRIAL_S, SLOW_QUANTILE, TrialOutcome, TrialRow, design_effect,
    trial_length,
};
use floodmark_truth::capacity::KnownAnswer;
use statrs::function::erf::erfc;

use super::queues::{Queue, share_over};
use super::random::Random;
use super::score::quantile;

/// Capacity or speed of the simulated servers, in requests per second.
pub const SPEED_PER_S: f64 = 20_000.0;

/// Share of requests that may be slower than the limit of p99.
const SHARE: f64 = 0.01;

/// How a simulated server behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Behavior {
    /// Requests wait in a queue; the objective limits p99.
    Queue {
        queue: Queue,
        /// Limit of p99 in seconds.
        limit_s: f64,
        /// Maximum length of a trial in seconds, without its transient.
        longest_s: f64,
    },
    /// Requests above the capacity fail; the arrivals are Poisson, the objective is 0.1 % errors.
    Limiter,
    /// Equal gaps between arrivals, so that a trial passes exactly up to the capacity.
    Constant,
    /// Log-normal response times that grow with the square of the rate; the objective is p99.
    SlowlyCrossing,
    /// An overload persists until the rate is 20 % lower.
    Hysteresis,
    /// The capacity falls by 0.5 % per trial.
    Degrading,
    /// The client cannot send more than half of the capacity.
    ClientLimit,
    /// A limiter on a host that is disturbed during 40 % of the trials. Of these, 80 % miss at any
    /// rate.
    Disturbed,
    /// Every trial misses.
    Never,
}

/// A simulated server with its state.
#[derive(Debug, Clone)]
pub struct SimulatedServer {
    behavior: Behavior,
    /// Standard deviation between the capacities of trials, as a share.
    scatter: f64,
    random: Random,
    /// Number of trials so far.
    pub trials: u32,
    is_collapsed: bool,
    /// Whether the host was disturbed during the last trial.
    pub is_disturbed: bool,
    /// Parts of the latest trials that passed.
    passed: VecDeque<Vec<TrialRow>>,
    /// Simulated time in seconds.
    pub time_s: f64,
    /// Smallest judged time of a trial, as a share of the required time.
    pub shortest_share: f64,
}

impl SimulatedServer {
    pub fn new(behavior: Behavior, scatter: f64, random: Random) -> Self {
        SimulatedServer {
            behavior,
            scatter,
            random,
            trials: 0,
            is_collapsed: false,
            is_disturbed: false,
            passed: VecDeque::new(),
            time_s: 0.0,
            shortest_share: 1.0,
        }
    }

    /// Simulates a trial. Scatter divides the rate by a random factor, which is equivalent to
    /// multiplying the capacity by it.
    pub fn trial(&mut self, rate_per_s: f64) -> TrialOutcome {
        let trials = self.trials;
        self.trials += 1;
        if self.behavior == Behavior::ClientLimit && rate_per_s > CLIENT_LIMIT_PER_S {
            self.time_s += SHORTEST_TRIAL_S;
            return TrialOutcome::Void;
        }
        let rate = rate_per_s / (self.scatter * self.random.normal()).exp();
        let mut length_s = SHORTEST_TRIAL_S;
        let is_pass = match self.behavior {
            Behavior::Queue {
                queue,
                limit_s,
                longest_s,
            } => {
                let effect = design_effect(self.passed.make_contiguous()).unwrap_or(1.0);
                let required = trial_length(rate_per_s, 1.0 - SHARE, effect);
                let length = required.limited(longest_s);
                self.shortest_share =
                    (length.judged_s / required.judged_s).min(self.shortest_share);
                length_s = length.transient_s + length.judged_s;
                let times = queue.simulate(rate, SPEED_PER_S, length, &mut self.random);
                let is_pass = share_over(&times, limit_s) <= SHARE;
                // During an overload, the queue grows, so all of its requests are correlated.
                if is_pass {
                    self.passed.push_back(rows(&times, limit_s));
                    if self.passed.len() > LATEST_TRIALS {
                        self.passed.pop_front();
                    }
                }
                is_pass
            }
            Behavior::Limiter => {
                let requests = self.random.poisson(rate) as f64;
                requests * (1.0 - MOST_ERRORS) <= SPEED_PER_S
            }
            Behavior::Disturbed => {
                let is_pass = rate <= SPEED_PER_S;
                self.is_disturbed = self.random.uniform() < DISTURBED_TRIALS;
                is_pass && !(self.is_disturbed && self.random.uniform() < DISTURBED_MISSES)
            }
            Behavior::SlowlyCrossing => {
                let z = Z_99 - 2.0 * (rate / SPEED_PER_S).ln();
                let slow_share = 0.5 * erfc(z * FRAC_1_SQRT_2);
                self.random.poisson(rate * slow_share) as f64 <= SHARE * rate
            }
            Behavior::Hysteresis => {
                let share = if self.is_collapsed {
                    FALLING_SHARE
                } else {
                    1.0
                };
                self.is_collapsed = rate > share * SPEED_PER_S;
                !self.is_collapsed
            }
            Behavior::Degrading => rate <= SPEED_PER_S * (-DEGRADATION * f64::from(trials)).exp(),
            Behavior::Constant | Behavior::ClientLimit => rate <= SPEED_PER_S,
            Behavior::Never => false,
        };
        self.time_s += length_s;
        if is_pass {
            TrialOutcome::Pass
        } else {
            TrialOutcome::Miss
        }
    }
}

impl Behavior {
    /// Returns what a search should find.
    pub fn answer(self) -> KnownAnswer {
        match self {
            Behavior::Queue { queue, limit_s, .. } => {
                KnownAnswer::Capacity(queue.capacity_per_s(SPEED_PER_S, limit_s, SHARE))
            }
            Behavior::Limiter => KnownAnswer::Capacity(SPEED_PER_S / (1.0 - MOST_ERRORS)),
            Behavior::Constant | Behavior::SlowlyCrossing | Behavior::Disturbed => {
                KnownAnswer::Capacity(SPEED_PER_S)
            }
            Behavior::Hysteresis => KnownAnswer::Hysteresis {
                rising: SPEED_PER_S,
                falling: FALLING_SHARE * SPEED_PER_S,
            },
            Behavior::Degrading => KnownAnswer::NotStationary,
            Behavior::ClientLimit => KnownAnswer::ClientLimit(CLIENT_LIMIT_PER_S),
            Behavior::Never => KnownAnswer::Never,
        }
    }
}

/// Share of the trials during which the host is disturbed.
const DISTURBED_TRIALS: f64 = 0.4;

/// Share of the disturbed trials that miss at any rate.
const DISTURBED_MISSES: f64 = 0.8;

/// Share of errors that the objective allows.
const MOST_ERRORS: f64 = 0.001;

/// Capacity after an overload, as a share of the capacity before.
const FALLING_SHARE: f64 = 0.8;

/// Decrease of the capacity per trial, as a difference of logarithms.
const DEGRADATION: f64 = 0.005;

/// Highest rate of the client, in requests per second.
const CLIENT_LIMIT_PER_S: f64 = 0.5 * SPEED_PER_S;

/// The standard normal value that is exceeded with probability 1 %.
const Z_99: f64 = 2.326_348;

/// Minimum response time of slow requests, as a share of the limit.
const NEAR_LIMIT: f64 = 0.7;

/// Counts slow requests in parts of a trial.
fn rows(times: &[(f64, f64)], limit_s: f64) -> Vec<TrialRow> {
    /// Length of a part in seconds, as in events.
    const PART_S: f64 = 0.1;
    let response_s: Vec<f64> = times.iter().map(|time| time.1).collect();
    let (Some(first), Some(last), Some(p90_s)) = (
        times.first(),
        times.last(),
        quantile(&response_s, SLOW_QUANTILE),
    ) else {
        return Vec::new();
    };
    let slow_s = p90_s.max(NEAR_LIMIT * limit_s);
    let count = (((last.0 - first.0) / PART_S) as usize).max(1);
    let mut rows = vec![
        TrialRow {
            requests: 0,
            slow: 0
        };
        count
    ];
    for (at_s, response_s) in times {
        let row = (((at_s - first.0) / PART_S) as usize).min(count - 1);
        rows[row].requests += 1;
        rows[row].slow += u64::from(*response_s > slow_s);
    }
    rows
}
