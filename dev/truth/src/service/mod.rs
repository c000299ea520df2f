//! Services with known response times. A service decides when each response is due, without using
//! CPU time: queued requests are stored as due times.

mod queue;
mod speed;
mod virtual_server;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

pub use queue::Pauses;
pub use speed::{IDLE_MS, Speed};
pub use virtual_server::VirtualServer;

/// The service time of the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Service {
    /// Each response is sent after this delay. Any number of responses can be due at once.
    Fixed {
        /// Delay, in microseconds.
        delay_us: u64,
    },
    /// One FIFO queue and exponential service times.
    Exponential {
        /// Mean service time, in microseconds.
        mean_us: f64,
        /// Number of requests in service at once.
        #[serde(default = "one")]
        servers: u32,
    },
    /// One FIFO queue and equal service times, one request at a time.
    Deterministic {
        /// Service time, in microseconds.
        time_us: f64,
        /// Periods in which nothing is served.
        #[serde(default)]
        pauses: Option<Pauses>,
    },
    /// Requests above a rate are rejected. Any number of responses can be due at once.
    Limiter(Limiter),
    /// Response times that grow with the rate of arrivals. Any number of responses can be due at
    /// once.
    Crossing(Crossing),
}

fn one() -> u32 {
    1
}

impl Service {
    /// Validates the service.
    ///
    /// # Errors
    /// A value is out of range. The error contains the value and its range.
    pub fn check(&self) -> Result<(), String> {
        let mut positive = Vec::new();
        match self {
            Service::Fixed { .. } => {}
            Service::Exponential { mean_us, servers } => {
                positive.extend([("mean_us", *mean_us), ("servers", f64::from(*servers))]);
            }
            Service::Deterministic { time_us, pauses } => {
                positive.push(("time_us", *time_us));
                let pauses = pauses.iter();
                positive.extend(pauses.flat_map(|pauses| {
                    [
                        ("pauses.mean_gap_ms", pauses.mean_gap_ms),
                        ("pauses.length_us", pauses.length_us),
                    ]
                }));
            }
            Service::Limiter(limiter) => {
                let burst = f64::from(limiter.burst);
                positive.extend([("rate_per_s", limiter.rate_per_s), ("burst", burst)]);
            }
            Service::Crossing(crossing) => positive.extend([
                ("mean_us", crossing.mean_us),
                ("at_per_s", crossing.at_per_s),
                ("power", crossing.power),
                ("window_ms", f64::from(crossing.window_ms)),
            ]),
        }
        let invalid = |value: f64| !(value > 0.0 && value.is_finite());
        match positive.into_iter().find(|(_, value)| invalid(*value)) {
            Some((name, value)) => Err(format!("service: {name} is {value}; it must be positive")),
            None => Ok(()),
        }
    }
}

/// Exponential response times with the mean `mean_us · (rate / at_per_s)^power`. The rate is the
/// number of earlier arrivals in a window, divided by the window's length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// Mean response time at `at_per_s`, in microseconds.
    pub mean_us: f64,
    /// Rate in requests per second.
    pub at_per_s: f64,
    /// Exponent of the rate.
    pub power: f64,
    /// Length of the window, in milliseconds.
    pub window_ms: u32,
}

impl Crossing {
    /// Returns the mean response time after a number of arrivals in the window, in microseconds.
    #[must_use]
    pub fn mean_us_after(&self, arrivals: f64) -> f64 {
        let rate_per_s = arrivals / (f64::from(self.window_ms) / 1e3);
        self.mean_us * (rate_per_s / self.at_per_s).powf(self.power)
    }
}

/// The arrivals in the window. Their number is limited by the client's rate.
#[derive(Debug, Clone)]
pub struct ArrivalWindow {
    length_ns: u64,
    arrivals_ns: VecDeque<u64>,
}

impl ArrivalWindow {
    pub(crate) fn new(length_ms: u32) -> ArrivalWindow {
        ArrivalWindow {
            length_ns: u64::from(length_ms) * 1_000_000,
            arrivals_ns: VecDeque::new(),
        }
    }

    /// Returns the number of earlier arrivals in the window, and adds an arrival.
    pub fn count(&mut self, now_ns: u64) -> usize {
        let begin_ns = now_ns.saturating_sub(self.length_ns);
        while self.arrivals_ns.front().is_some_and(|at| *at < begin_ns) {
            self.arrivals_ns.pop_front();
        }
        let count = self.arrivals_ns.len();
        self.arrivals_ns.push_back(now_ns);
        count
    }
}

/// A token bucket. A request without a token is rejected immediately with status 503.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limiter {
    /// Tokens per second.
    pub rate_per_s: f64,
    /// Maximum number of tokens. The bucket starts full and is refilled continuously.
    pub burst: u32,
    /// Time until the response to an accepted request, in microseconds.
    #[serde(default)]
    pub delay_us: u64,
}

/// The state of a token bucket in the generic cell rate algorithm (ITU-T I.371): the time when the
/// bucket would be full.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    limiter: Limiter,
    full_ns: u64,
}

impl TokenBucket {
    pub(crate) fn new(limiter: Limiter) -> TokenBucket {
        TokenBucket {
            limiter,
            full_ns: 0,
        }
    }

    /// Takes a token, and returns the due time of the response, or `None` if there was no token.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let token_ns = 1e9 / self.limiter.rate_per_s;
        let full_ns = self.full_ns.max(now_ns);
        let burst = f64::from(self.limiter.burst);
        let is_available = (full_ns - now_ns) as f64 <= token_ns * (burst - 1.0);
        if is_available {
            self.full_ns = full_ns + token_ns as u64;
        }
        is_available.then(|| now_ns + self.limiter.delay_us * 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_window_and_scales_the_mean() {
        let mut window = ArrivalWindow::new(100);
        let ms = 1_000_000;
        let counts: Vec<usize> = (0..300).map(|i| window.count(i * ms)).collect();
        assert_eq!((counts[0], counts[99], counts[299]), (0, 99, 100));
        let crossing = Crossing {
            mean_us: 4_000.0,
            at_per_s: 2_000.0,
            power: 2.0,
            window_ms: 100,
        };
        assert!((crossing.mean_us_after(100.0) - 1_000.0).abs() < 1e-9);
    }

    #[test]
    fn takes_a_burst_and_then_the_rate() {
        let mut bucket = TokenBucket::new(Limiter {
            rate_per_s: 1_000.0,
            burst: 5,
            delay_us: 7,
        });
        let ms = 1_000_000;
        let mut taken = |at: u64, n: usize| {
            let dues: Vec<u64> = (0..n).filter_map(|_| bucket.take(at)).collect();
            assert!(dues.iter().all(|due| *due == at + 7_000));
            dues.len()
        };
        assert_eq!(taken(10 * ms, 7), 5);
        assert_eq!(taken(11 * ms - 1, 1), 0);
        assert_eq!(taken(11 * ms, 2), 1);
        assert_eq!(taken(100 * ms, 9), 5);
    }
}
