//! The server that decides when responses are due.

use super::queue::{FifoQueue, PauseClock};
use super::speed::SpeedClock;
use super::{ArrivalWindow, Crossing, Service, TokenBucket};
use crate::choice::exponential_ns;
use crate::scenario::{Scenario, ServiceChange};

/// A server on a clock that its caller supplies. Its times depend only on the scenario and the
/// arrival times.
#[derive(Debug, Clone)]
pub struct VirtualServer {
    seed: u64,
    change: Option<ServiceChange>,
    service: ServiceState,
    clock: SpeedClock,
    first_ns: Option<u64>,
    requests: u64,
}

/// A service and what it remembers.
#[derive(Debug, Clone)]
enum ServiceState {
    Fixed {
        delay_ns: u64,
    },
    Exponential {
        mean_ns: f64,
        queue: FifoQueue,
    },
    Deterministic {
        time_ns: u64,
        queue: FifoQueue,
        pauses: Option<PauseClock>,
    },
    Limiter(TokenBucket),
    Crossing {
        crossing: Crossing,
        arrivals: ArrivalWindow,
    },
}

impl VirtualServer {
    /// Creates an idle server.
    #[must_use]
    pub fn new(scenario: &Scenario) -> VirtualServer {
        VirtualServer {
            seed: scenario.seed,
            change: scenario.change,
            service: ServiceState::new(scenario.service, scenario.seed),
            clock: SpeedClock::new(scenario.speed, scenario.seed),
            first_ns: None,
            requests: 0,
        }
    }

    /// Returns the due time of the response to a request that arrives now, or `None` if the request
    /// is rejected. Times are in ns. Requests arrive in order.
    pub fn serve(&mut self, now_ns: u64) -> Option<u64> {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        let is_due = |change: &mut ServiceChange| now_ns - first_ns >= change.at_ms * 1_000_000;
        if let Some(change) = self.change.take_if(is_due) {
            self.service = ServiceState::new(change.service, self.seed);
        }
        let arrival_ns = self.clock.arrive(first_ns, now_ns);
        let draw_ns = |mean_ns: f64| exponential_ns(!self.seed, self.requests, mean_ns);
        let due_ns = self.service.due_ns(arrival_ns, draw_ns);
        self.requests += 1;
        self.clock.reply(due_ns)
    }
}

impl ServiceState {
    fn new(service: Service, seed: u64) -> ServiceState {
        match service {
            Service::Fixed { delay_us } => ServiceState::Fixed {
                delay_ns: delay_us * 1000,
            },
            Service::Exponential { mean_us, servers } => ServiceState::Exponential {
                mean_ns: mean_us * 1e3,
                queue: FifoQueue::new(servers),
            },
            Service::Deterministic { time_us, pauses } => ServiceState::Deterministic {
                time_ns: (time_us * 1e3) as u64,
                queue: FifoQueue::new(1),
                pauses: pauses.map(|pauses| PauseClock::new(pauses, seed)),
            },
            Service::Limiter(limiter) => ServiceState::Limiter(TokenBucket::new(limiter)),
            Service::Crossing(crossing) => ServiceState::Crossing {
                crossing,
                arrivals: ArrivalWindow::new(crossing.window_ms),
            },
        }
    }

    /// Returns the due time of a response. `draw_ns` draws an exponential time with a given mean.
    fn due_ns(&mut self, now_ns: u64, draw_ns: impl Fn(f64) -> u64) -> Option<u64> {
        match self {
            ServiceState::Fixed { delay_ns } => Some(now_ns + *delay_ns),
            ServiceState::Exponential { mean_ns, queue } => {
                Some(queue.complete_ns(now_ns, draw_ns(*mean_ns)))
            }
            ServiceState::Deterministic {
                time_ns,
                queue,
                pauses,
            } => {
                if let Some(pauses) = pauses {
                    pauses.advance(now_ns, queue);
                }
                Some(queue.complete_ns(now_ns, *time_ns))
            }
            ServiceState::Limiter(bucket) => bucket.take(now_ns),
            ServiceState::Crossing { crossing, arrivals } => {
                let mean_us = crossing.mean_us_after(arrivals.count(now_ns) as f64);
                Some(now_ns + draw_ns(mean_us * 1e3))
            }
        }
    }
}
