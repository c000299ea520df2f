//! Services with known response times. A service decides when each response is due, without using
//! CPU time: queued requests are stored as due times.

mod crossing;
mod limiter;
mod queue;
mod speed;
mod virtual_server;

use serde::{Deserialize, Serialize};

pub use crossing::Crossing;
pub use limiter::Limiter;
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
