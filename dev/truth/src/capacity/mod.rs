//! Known capacities: the highest rate of Poisson arrivals at which the long-run figures of a
//! scenario meet an objective.

mod formulas;
mod known;

use std::fmt;

use crate::scenario::{Scenario, Service};
use crate::service::Limiter;

pub use formulas::{deterministic_share_over, exponential_share_over};
pub use known::{KnownAnswer, KnownServer, known_servers};

/// What a server should achieve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KnownObjective {
    /// A percentile of the response times is below a limit.
    ResponseTime {
        /// Percentile, such as 99.
        percentile: f64,
        /// Limit, in milliseconds.
        limit_ms: f64,
    },
    /// The share of errors is below a limit, in percent.
    Errors(f64),
}

impl KnownObjective {
    /// Returns the largest share of requests that may be errors or slower than the limit.
    #[must_use]
    pub fn allowed_share(self) -> f64 {
        match self {
            KnownObjective::ResponseTime { percentile, .. } => 1.0 - percentile / 100.0,
            KnownObjective::Errors(percent) => percent / 100.0,
        }
    }
}

impl fmt::Display for KnownObjective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnownObjective::ResponseTime {
                percentile,
                limit_ms,
            } => write!(f, "p{percentile} < {limit_ms}ms"),
            KnownObjective::Errors(percent) => write!(f, "errors < {percent}%"),
        }
    }
}

/// Number of bisections; the result is exact to 1 in 10⁹.
const BISECTIONS: usize = 60;

/// Returns the capacity at a constant speed, in requests per second. A speed of 0.5 halves all rates
/// and doubles all times of the scenario, whose own `speed` is ignored.
///
/// Returns infinity if the objective is met at any rate, and 0 if it never is.
#[must_use]
pub fn capacity_per_s(scenario: &Scenario, objective: KnownObjective, speed: f64) -> f64 {
    let objective = match objective {
        KnownObjective::ResponseTime {
            percentile,
            limit_ms,
        } => KnownObjective::ResponseTime {
            percentile,
            limit_ms: limit_ms * speed,
        },
        KnownObjective::Errors(_) => objective,
    };
    let meets = |rate_per_s: f64| {
        missed_share(&scenario.service, objective, rate_per_s) <= objective.allowed_share()
    };
    let (mut low, mut high) = (0.0, 1.0);
    while meets(high) {
        if high > 1e9 {
            return f64::INFINITY;
        }
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (low + high);
        if meets(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low * speed
}

/// Returns the long-run share of requests that are errors or slower than the limit.
fn missed_share(service: &Service, objective: KnownObjective, rate_per_s: f64) -> f64 {
    match (objective, service) {
        (KnownObjective::Errors(_), Service::Limiter(limiter)) => {
            formulas::limiter_rejected_share(rate_per_s, limiter)
        }
        (KnownObjective::Errors(_), _) => 0.0,
        (KnownObjective::ResponseTime { limit_ms, .. }, service) => {
            let limit_s = limit_ms / 1e3;
            match service {
                Service::Fixed { delay_us } | Service::Limiter(Limiter { delay_us, .. }) => {
                    f64::from(*delay_us as f64 / 1e6 >= limit_s)
                }
                Service::Exponential { mean_us, servers } => {
                    let speed_per_s = f64::from(*servers) * 1e6 / mean_us;
                    exponential_share_over(*servers as usize, rate_per_s, speed_per_s, limit_s)
                }
                Service::Deterministic { time_us, pauses } => {
                    let pauses = pauses.as_ref();
                    deterministic_share_over(rate_per_s, time_us / 1e6, pauses, limit_s)
                }
                Service::Crossing(crossing) => {
                    formulas::crossing_share_over(rate_per_s, crossing, limit_s)
                }
            }
        }
    }
}
