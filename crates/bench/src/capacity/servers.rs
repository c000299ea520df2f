//! Simulated servers whose capacity is known.

use floodmark_stats::capacity::{
    SLOW_QUANTILE, TrialOutcome, TrialRow, design_effect, trial_length,
};

use super::queues::{Queue, share_over};
use super::random::Random;
use super::score::quantile;

/// Capacity or speed of the simulated servers, in requests per second.
pub const SPEED_PER_S: f64 = 20_000.0;

/// Share of requests that may be slower than the limit of p99.
const SHARE: f64 = 0.01;

/// What a search should find.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KnownAnswer {
    /// One capacity in requests per second.
    Capacity(f64),
    /// Two capacities in requests per second.
    Hysteresis {
        /// Capacity when the load rises from idle.
        rising: f64,
        /// Capacity after an overload.
        falling: f64,
    },
    /// The capacity changes during the search.
    NotStationary,
    /// The client sends at most this rate on time, and the server passes there.
    ClientLimit(f64),
    /// The objective is missed at any rate.
    Never,
}

/// How a simulated server behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Behavior {
    /// Requests wait in a queue; the objective limits p99.
    Queue {
        queue: Queue,
        /// Limit of p99 in seconds.
        limit_s: f64,
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
    /// Every trial misses.
    Never,
}

/// A simulated server with its state.
#[derive(Debug, Clone)]
pub struct SimulatedServer {
    behavior: Behavior,
    /// Standard deviation between the speeds of trials, as a share.
    scatter: f64,
    random: Random,
    /// Number of trials so far.
    pub trials: u32,
    is_collapsed: bool,
    /// Design effects of the trials so far.
    design_effects: Vec<f64>,
    /// Simulated time in seconds.
    pub time_s: f64,
}

impl SimulatedServer {
    pub fn new(behavior: Behavior, scatter: f64, random: Random) -> Self {
        SimulatedServer {
            behavior,
            scatter,
            random,
            trials: 0,
            is_collapsed: false,
            design_effects: Vec::new(),
            time_s: 0.0,
        }
    }

    /// Returns the median design effect of the latest trials.
    fn design_effect(&self) -> f64 {
        let latest = self.design_effects.len().saturating_sub(LATEST);
        quantile(&self.design_effects[latest..], 0.5).unwrap_or(1.0)
    }

    /// Simulates a trial.
    pub fn trial(&mut self, rate_per_s: f64) -> TrialOutcome {
        let design_effect_before = self.design_effect();
        let random = &mut self.random;
        let speed = SPEED_PER_S * (self.scatter * random.normal()).exp();
        let trials = self.trials;
        self.trials += 1;
        self.time_s += 1.0;
        let is_pass = match self.behavior {
            Behavior::Queue { queue, limit_s } => {
                let mut length = trial_length(rate_per_s, 1.0 - SHARE, design_effect_before);
                length.judged_s = length.judged_s.min(LONGEST_TRIAL_S);
                let times = queue.simulate(rate_per_s, speed, length, random);
                // Other trials take 1 s.
                self.time_s += length.transient_s + length.judged_s - 1.0;
                let is_pass = share_over(&times, limit_s) <= SHARE;
                // During an overload, the queue grows, so all of its requests are correlated.
                if is_pass {
                    self.design_effects.extend(design_effect(&rows(&times)));
                }
                is_pass
            }
            Behavior::Limiter => random.poisson(rate_per_s) as f64 * (1.0 - MOST_ERRORS) <= speed,
            Behavior::Constant => rate_per_s <= speed,
            Behavior::SlowlyCrossing => {
                let over = normal_tail(Z_99 - 2.0 * (rate_per_s / speed).ln());
                random.poisson(rate_per_s * over) as f64 <= SHARE * rate_per_s
            }
            Behavior::Hysteresis => {
                let edge = if self.is_collapsed {
                    FALLING_SHARE
                } else {
                    1.0
                };
                self.is_collapsed = rate_per_s > edge * speed;
                !self.is_collapsed
            }
            Behavior::Degrading => rate_per_s <= speed * (-DEGRADATION * f64::from(trials)).exp(),
            Behavior::ClientLimit if rate_per_s > CLIENT_SHARE * SPEED_PER_S => {
                return TrialOutcome::Void;
            }
            Behavior::ClientLimit => rate_per_s <= speed,
            Behavior::Never => false,
        };
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
            Behavior::Queue { queue, limit_s } => {
                KnownAnswer::Capacity(queue.capacity_per_s(SPEED_PER_S, limit_s, SHARE))
            }
            Behavior::Limiter => KnownAnswer::Capacity(SPEED_PER_S / (1.0 - MOST_ERRORS)),
            Behavior::Constant | Behavior::SlowlyCrossing => KnownAnswer::Capacity(SPEED_PER_S),
            Behavior::Hysteresis => KnownAnswer::Hysteresis {
                rising: SPEED_PER_S,
                falling: FALLING_SHARE * SPEED_PER_S,
            },
            Behavior::Degrading => KnownAnswer::NotStationary,
            Behavior::ClientLimit => KnownAnswer::ClientLimit(CLIENT_SHARE * SPEED_PER_S),
            Behavior::Never => KnownAnswer::Never,
        }
    }
}

/// Share of errors that the objective allows.
const MOST_ERRORS: f64 = 0.001;

/// Capacity after an overload, as a share of the capacity before.
const FALLING_SHARE: f64 = 0.8;

/// Decrease of the capacity per trial, as a difference of logarithms.
const DEGRADATION: f64 = 0.005;

/// Highest rate of the client, as a share of the capacity.
const CLIENT_SHARE: f64 = 0.5;

/// The standard normal value that is exceeded with probability 1 %.
const Z_99: f64 = 2.326_348;

/// Returns the probability that a standard normal value exceeds `z` ≥ 0 (Abramowitz & Stegun,
/// formula 7.1.26; the error is below 1.5e-7).
fn normal_tail(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let sum = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ]
    .into_iter()
    .fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let tail = 0.5 * sum * (-x * x).exp();
    if z < 0.0 { 1.0 - tail } else { tail }
}

/// Maximum length of a trial in seconds, without its transient.
const LONGEST_TRIAL_S: f64 = 60.0;

/// Number of trials whose design effects determine the length of the next.
const LATEST: usize = 9;

/// Counts slow requests in parts of a trial.
fn rows(times: &[(f64, f64)]) -> Vec<TrialRow> {
    const ROWS: usize = 100;
    let response_s: Vec<f64> = times.iter().map(|time| time.1).collect();
    let (Some(first), Some(last), Some(slow_s)) = (
        times.first(),
        times.last(),
        quantile(&response_s, SLOW_QUANTILE),
    ) else {
        return Vec::new();
    };
    let per_row_s = (last.0 - first.0) / ROWS as f64;
    let mut rows = vec![
        TrialRow {
            requests: 0,
            slow: 0
        };
        ROWS
    ];
    for (at_s, response_s) in times {
        let row = (((at_s - first.0) / per_row_s) as usize).min(ROWS - 1);
        rows[row].requests += 1;
        rows[row].slow += u64::from(*response_s > slow_s);
    }
    rows
}
