//! Simulated servers whose capacity is known.

use floodmark_stats::capacity::TrialOutcome;

use super::queues::Queue;
use super::random::Random;

/// Capacity or speed of the simulated servers, in requests per second.
const SPEED_PER_S: f64 = 20_000.0;

/// Response time that 99 % of the requests may not exceed, in seconds.
const LIMIT_S: f64 = 0.005;

/// Share of requests that may exceed the limit.
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
    /// Requests wait in a queue; the objective is p99 < 5 ms.
    Queue(Queue),
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
    trials: u32,
    is_collapsed: bool,
}

impl SimulatedServer {
    pub fn new(behavior: Behavior, scatter: f64, random: Random) -> Self {
        SimulatedServer {
            behavior,
            scatter,
            random,
            trials: 0,
            is_collapsed: false,
        }
    }

    /// Simulates a trial of 1 s.
    pub fn trial(&mut self, rate_per_s: f64) -> TrialOutcome {
        let random = &mut self.random;
        let speed = SPEED_PER_S * (self.scatter * random.normal()).exp();
        let trials = self.trials;
        self.trials += 1;
        let is_pass = match self.behavior {
            Behavior::Queue(queue) => {
                queue.share_over(rate_per_s, speed, LIMIT_S, 1.0, random) <= SHARE
            }
            Behavior::Limiter => random.poisson(rate_per_s) as f64 * (1.0 - MOST_ERRORS) <= speed,
            Behavior::Constant => rate_per_s <= speed,
            Behavior::SlowlyCrossing => {
                let over = normal_tail(Z_99 - 2.0 * (rate_per_s / speed).ln());
                random.poisson(rate_per_s * over) as f64 <= SHARE * rate_per_s
            }
            Behavior::Hysteresis => {
                let edge = if self.is_collapsed { FALLING_SHARE } else { 1.0 };
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
        if is_pass { TrialOutcome::Pass } else { TrialOutcome::Miss }
    }
}

impl Behavior {
    /// Returns what a search should find.
    pub fn answer(self) -> KnownAnswer {
        match self {
            Behavior::Queue(queue) => {
                KnownAnswer::Capacity(queue.capacity_per_s(SPEED_PER_S, LIMIT_S, SHARE))
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
    let sum = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]
        .into_iter()
        .fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let tail = 0.5 * sum * (-x * x).exp();
    if z < 0.0 { 1.0 - tail } else { tail }
}
