//! Simulated queues: which share of requests takes longer than the objective allows.

use floodmark_stats::capacity::TrialLength;
use floodmark_truth::capacity::{deterministic_share_over, exponential_share_over};

use super::random::Random;

/// How a server serves requests, in the order of their arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Queue {
    /// Exponential service times and Poisson arrivals at a number of servers.
    Exponential {
        /// Number of servers that share the queue.
        servers: usize,
    },
    /// Equal service times.
    Deterministic,
    /// Equal service times, and pauses about every 25 ms in which nothing is served.
    Pauses,
}

/// Shortest and longest pause in seconds.
const PAUSE_S: (f64, f64) = (0.0005, 0.001);

/// Shortest and longest time between the starts of two pauses in seconds.
const PAUSE_GAP_S: (f64, f64) = (0.013, 0.037);

impl Queue {
    /// Simulates a trial that starts with an empty queue. Returns the arrival time and response
    /// time of each judged request, in seconds. `speed_per_s` is the rate at which busy servers
    /// complete requests.
    pub fn simulate(
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

    /// Returns the rate at which the long-run share of requests that take longer than `limit_s` is
    /// `share`.
    pub fn capacity_per_s(self, speed_per_s: f64, limit_s: f64, share: f64) -> f64 {
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
pub fn share_over(times: &[(f64, f64)], limit_s: f64) -> f64 {
    let over = times
        .iter()
        .filter(|(_, response_s)| *response_s > limit_s)
        .count();
    over as f64 / times.len().max(1) as f64
}

/// The simulation that yields a capacity without a formula.
const LONG_RUN: TrialLength = TrialLength {
    transient_s: 1.0,
    judged_s: 500.0,
};

/// Number of bisections; the result is exact to 1/65,536 of the speed.
const BISECTIONS: usize = 16;
