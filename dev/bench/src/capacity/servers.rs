//! Simulated servers with known capacities, their queues, and a random number generator.

use std::collections::VecDeque;
use std::f64::consts::FRAC_1_SQRT_2;

use floodmark_stats::capacity::{
    LATEST_TRIALS, SHORTEST_TRIAL_S, SLOW_QUANTILE, TrialLength, TrialOutcome, TrialRow,
    design_effect, trial_length,
};
use floodmark_truth::capacity::{KnownAnswer, deterministic_share_over, exponential_share_over};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::function::erf::erfc;

use super::quantile;

/// Capacity or speed of the simulated servers, in requests per second.
pub const SPEED_PER_S: f64 = 20_000.0;

/// Share of requests that may be slower than the limit for p99.
const SHARE: f64 = 0.01;

/// How a simulated server behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Behavior {
    /// Requests wait in a queue; the objective limits p99.
    Queue {
        queue: Queue,
        /// Limit for p99, in seconds.
        limit_s: f64,
        /// Maximum length of a trial in seconds, excluding its transient.
        longest_s: f64,
    },
    /// Requests in excess of the capacity fail. Arrivals form a Poisson process; the objective
    /// allows 0.1 % errors.
    Limiter,
    /// A limiter with equal gaps between arrivals. A trial passes if and only if its rate is at
    /// most the capacity.
    Constant,
    /// Response times are log-normal and grow with the square of the rate; the objective limits
    /// p99.
    SlowlyCrossing,
    /// After an overload, the capacity is 20 % lower until a trial passes.
    Hysteresis,
    /// The capacity falls by 0.5 % per trial.
    Degrading,
    /// The client's maximum rate is half of the capacity.
    ClientLimit,
    /// A limiter whose trials are disturbed with a probability of 40 %. Regardless of its rate, a
    /// disturbed trial misses the objective with a probability of at least 80 %.
    Disturbed,
    /// Every trial misses the objective.
    Never,
}

/// A simulated server with its state.
#[derive(Debug, Clone)]
pub struct SimulatedServer {
    behavior: Behavior,
    /// Standard deviation of the capacity across trials, as a share of the capacity.
    scatter: f64,
    random: Random,
    /// Number of trials so far.
    pub trials: u32,
    is_collapsed: bool,
    /// Whether the last trial was disturbed.
    pub is_disturbed: bool,
    /// The latest trials that passed, divided into parts.
    passed: VecDeque<Vec<TrialRow>>,
    /// Simulated time in seconds.
    pub time_s: f64,
    /// Smallest ratio of judged time to required judged time in any trial so far.
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

    /// Simulates a trial. To simulate scatter, the function divides the rate by a random factor.
    /// This is equivalent to multiplying the capacity by that factor.
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
                // Ignore trials that missed the objective: during an overload, the queue keeps
                // growing, so the response times of all requests are correlated.
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

/// Share of the trials that are disturbed.
const DISTURBED_TRIALS: f64 = 0.4;

/// Share of the disturbed trials that miss the objective regardless of their rate.
const DISTURBED_MISSES: f64 = 0.8;

/// Share of errors that the objective allows.
const MOST_ERRORS: f64 = 0.001;

/// Capacity after an overload, as a share of the capacity before it.
const FALLING_SHARE: f64 = 0.8;

/// Decrease of the capacity's natural logarithm, per trial.
const DEGRADATION: f64 = 0.005;

/// Highest rate at which the client can send, in requests per second.
const CLIENT_LIMIT_PER_S: f64 = 0.5 * SPEED_PER_S;

/// The 99th percentile of the standard normal distribution.
const Z_99: f64 = 2.326_348;

/// A request counts as slow only if its response time is above this share of the limit.
const NEAR_LIMIT: f64 = 0.7;

/// Counts all requests and the slow requests in each part of a trial.
fn rows(times: &[(f64, f64)], limit_s: f64) -> Vec<TrialRow> {
    /// Length of a part, in seconds, as in floodmark's events.
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

/// A queue of Poisson arrivals that are served in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Queue {
    /// Exponential service times at one or more servers.
    Exponential {
        /// Number of servers that share the queue.
        servers: usize,
    },
    /// Equal service times.
    Deterministic,
    /// Equal service times, and a pause about every 25 ms, during which nothing is served.
    Pauses,
}

/// Shortest and longest pause, in seconds.
const PAUSE_S: (f64, f64) = (0.0005, 0.001);

/// Shortest and longest time between the starts of successive pauses, in seconds.
const PAUSE_GAP_S: (f64, f64) = (0.013, 0.037);

impl Queue {
    /// Simulates a trial that starts with an empty queue. Returns the arrival time and response
    /// time of each judged request, in seconds. `speed_per_s` is the total rate at which the
    /// servers complete requests while all of them are busy.
    fn simulate(
        self,
        rate_per_s: f64,
        speed_per_s: f64,
        length: TrialLength,
        random: &mut Random,
    ) -> Vec<(f64, f64)> {
        let servers = match self {
            Queue::Exponential { servers } => servers,
            Queue::Deterministic | Queue::Pauses => 1,
        };
        let mean_s = servers as f64 / speed_per_s;
        let end_s = length.transient_s + length.judged_s;
        let mut free = vec![0.0; servers];
        let mut pause_s = random.between(0.0, PAUSE_GAP_S.1);
        let mut now = 0.0;
        let mut times = Vec::with_capacity((rate_per_s * length.judged_s * 1.1) as usize);
        loop {
            now += random.exponential() / rate_per_s;
            if now > end_s {
                return times;
            }
            let mut next = 0;
            for server in 1..servers {
                if free[server] < free[next] {
                    next = server;
                }
            }
            let service_s = match self {
                Queue::Exponential { .. } => mean_s * random.exponential(),
                Queue::Deterministic | Queue::Pauses => mean_s,
            };
            free[next] = now.max(free[next]) + service_s;
            if self == Queue::Pauses && free[next] > pause_s {
                free[next] = free[next].max(pause_s) + random.between(PAUSE_S.0, PAUSE_S.1);
                pause_s += random.between(PAUSE_GAP_S.0, PAUSE_GAP_S.1);
            }
            if now > length.transient_s {
                times.push((now, free[next] - now));
            }
        }
    }

    /// Returns the highest rate at which, in the long run, at most a fraction `share` of the
    /// requests takes longer than `limit_s`.
    fn capacity_per_s(self, speed_per_s: f64, limit_s: f64, share: f64) -> f64 {
        let over = |rate: f64| match self {
            Queue::Exponential { servers } => {
                exponential_share_over(servers, rate, speed_per_s, limit_s)
            }
            Queue::Deterministic => {
                deterministic_share_over(rate, 1.0 / speed_per_s, None, limit_s)
            }
            Queue::Pauses => {
                let times = self.simulate(rate, speed_per_s, LONG_RUN, &mut Random::new(1));
                share_over(&times, limit_s)
            }
        };
        let (mut low, mut high) = (0.0, speed_per_s);
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            if over(middle) <= share {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Returns the share of response times above a limit.
fn share_over(times: &[(f64, f64)], limit_s: f64) -> f64 {
    let over = times
        .iter()
        .filter(|(_, response_s)| *response_s > limit_s)
        .count();
    over as f64 / times.len().max(1) as f64
}

/// Length of the simulation that determines the capacity of a queue for which no formula exists.
const LONG_RUN: TrialLength = TrialLength {
    transient_s: 1.0,
    judged_s: 500.0,
};

/// Number of bisections. The error of the result is at most 1/65,536 of the speed.
const BISECTIONS: usize = 16;

/// A generator of random values.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns a uniformly distributed value in (0, 1].
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniformly distributed value between two bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns an exponentially distributed value with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Returns a value from the standard normal distribution (Box & Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let angle = 2.0 * std::f64::consts::PI * self.uniform();
        (2.0 * self.exponential()).sqrt() * angle.cos()
    }

    /// Returns a gamma-distributed value with scale 1 (Marsaglia & Tsang 2000). `shape` is at least
    /// 1.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        loop {
            let x = self.normal();
            let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }

    /// Returns a Poisson-distributed count.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        let mut count = 0;
        let mut time = self.exponential();
        while time <= mean {
            count += 1;
            time += self.exponential();
        }
        count
    }
}
