//! Services with known response times. A service only computes when each response is due, so
//! serving a request takes almost no CPU time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::scenario::{Scenario, ServiceChange, exponential_ns, normal};

/// The service time of the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Service {
    /// Each response is sent after this delay. Any number of responses can be pending at the same
    /// time.
    Fixed {
        /// Delay, in microseconds.
        delay_us: u64,
    },
    /// One FIFO queue and exponential service times.
    Exponential {
        /// Mean service time, in microseconds.
        mean_us: f64,
        /// Maximum number of requests in service at once.
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
    /// Requests in excess of a rate are rejected. Any number of responses can be pending at the
    /// same time.
    Limiter(Limiter),
    /// Response times that grow with the arrival rate. Any number of responses can be pending at
    /// the same time.
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
    /// Rate, in requests per second, at which the mean response time is `mean_us`.
    pub at_per_s: f64,
    /// Exponent of the rate.
    pub power: f64,
    /// Length of the window, in milliseconds.
    pub window_ms: u32,
}

impl Crossing {
    /// Returns the mean response time, in microseconds, for this number of arrivals in the window.
    #[must_use]
    pub fn mean_us_after(&self, arrivals: f64) -> f64 {
        let rate_per_s = arrivals / (f64::from(self.window_ms) / 1e3);
        self.mean_us * (rate_per_s / self.at_per_s).powf(self.power)
    }
}

/// A token bucket. A request that finds no token is rejected immediately with status 503.
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

/// Pauses at exponentially distributed intervals. A pause that begins while requests are queued
/// waits in the queue like a request, just as a garbage collection waits for a safepoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pauses {
    /// Mean time between the beginnings of two pauses, in milliseconds.
    pub mean_gap_ms: f64,
    /// Length of each pause, in microseconds.
    pub length_us: f64,
}

/// Minimum idle period, in milliseconds, that separates two bursts, such as two trials of a client.
/// With Poisson arrivals at 300/s, the probability that a gap is at least this long is 3·10⁻⁷.
const IDLE_MS: u64 = 50;

/// Number of consecutive requests that are examined for an overload.
const OVERLOAD_REQUESTS: u64 = 500;

/// The speed of the server, as a factor: at half the speed, everything takes twice as long. A
/// *burst* is the load between two idle periods of at least [`IDLE_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Speed {
    /// The speed falls exponentially, starting at the first request, as with a resource leak.
    Degrading {
        /// Decrease of the speed's natural logarithm, per second.
        per_s: f64,
    },
    /// Each burst has its own speed. The speeds are log-normal with a median of 1.
    Scatter {
        /// Standard deviation of the logarithm.
        deviation: f64,
    },
    /// After an overload, the speed is lower until the end of the burst, even if the rate falls. An
    /// overload is a large share of rejected requests among 500 consecutive requests.
    Hysteresis {
        /// Speed after an overload, from 0 to 1.
        factor: f64,
        /// Minimum share of rejected requests that counts as an overload. Must be well above the
        /// share that an objective allows, so that no burst below the capacity reaches it by
        /// chance.
        rejected_share: f64,
    },
}

impl Speed {
    /// Validates the speed.
    ///
    /// # Errors
    /// A value is out of range. The error contains the value and its range.
    pub fn check(&self) -> Result<(), String> {
        let range = |name: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!(
                "speed: {name} is {value}; it must be from {least} to {most}"
            ))
        };
        match *self {
            Speed::Degrading { per_s } => range("per_s", per_s, 0.0, 1.0),
            Speed::Scatter { deviation } => range("deviation", deviation, 0.0, 1.0),
            Speed::Hysteresis {
                factor,
                rejected_share,
            } => range("factor", factor, 0.01, 1.0)
                .and_then(|()| range("rejected_share", rejected_share, 0.0, 1.0)),
        }
    }
}

/// A server that decides when responses are due, based on a clock that the caller supplies. The due
/// times depend only on the scenario and the arrival times.
#[derive(Debug, Clone)]
pub struct VirtualServer {
    seed: u64,
    change: Option<ServiceChange>,
    service: ServiceState,
    clock: SpeedClock,
    first_ns: Option<u64>,
    requests: u64,
}

/// A service and its state.
#[derive(Debug, Clone)]
struct ServiceState {
    service: Service,
    queue: FifoQueue,
    pauses: Option<PauseClock>,
    /// Time when the token bucket will be full if no more requests arrive: the bucket's state in
    /// the generic cell rate algorithm (ITU-T I.371).
    full_ns: u64,
    /// Arrival times in the window of [`Crossing`]. Their number is limited by the client's rate.
    window_ns: VecDeque<u64>,
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

    /// Returns the due time of the response to a request that arrives at `now_ns`, or `None` if the
    /// request is rejected. Times are in ns. Successive calls must not go back in time.
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
        let servers = match service {
            Service::Exponential { servers, .. } => servers,
            _ => 1,
        };
        let pauses = match service {
            Service::Deterministic { pauses, .. } => pauses,
            _ => None,
        };
        ServiceState {
            service,
            queue: FifoQueue::new(servers),
            pauses: pauses.map(|pauses| PauseClock::new(pauses, seed)),
            full_ns: 0,
            window_ns: VecDeque::new(),
        }
    }

    /// Returns the due time of a response. `draw_ns` draws an exponentially distributed time with
    /// a given mean.
    fn due_ns(&mut self, now_ns: u64, draw_ns: impl Fn(f64) -> u64) -> Option<u64> {
        match self.service {
            Service::Fixed { delay_us } => Some(now_ns + delay_us * 1000),
            Service::Exponential { mean_us, .. } => {
                Some(self.queue.complete_ns(now_ns, draw_ns(mean_us * 1e3)))
            }
            Service::Deterministic { time_us, .. } => {
                if let Some(pauses) = &mut self.pauses {
                    pauses.advance(now_ns, &mut self.queue);
                }
                Some(self.queue.complete_ns(now_ns, (time_us * 1e3) as u64))
            }
            Service::Limiter(limiter) => {
                let token_ns = 1e9 / limiter.rate_per_s;
                let full_ns = self.full_ns.max(now_ns);
                let burst = f64::from(limiter.burst);
                let is_available = (full_ns - now_ns) as f64 <= token_ns * (burst - 1.0);
                if is_available {
                    self.full_ns = full_ns + token_ns as u64;
                }
                is_available.then(|| now_ns + limiter.delay_us * 1000)
            }
            Service::Crossing(crossing) => {
                let begin_ns = now_ns.saturating_sub(u64::from(crossing.window_ms) * 1_000_000);
                while self.window_ns.front().is_some_and(|at| *at < begin_ns) {
                    self.window_ns.pop_front();
                }
                let mean_us = crossing.mean_us_after(self.window_ns.len() as f64);
                self.window_ns.push_back(now_ns);
                Some(now_ns + draw_ns(mean_us * 1e3))
            }
        }
    }
}

/// A FIFO queue in front of identical servers.
#[derive(Debug, Clone)]
struct FifoQueue {
    /// Time when each server becomes free.
    free_ns: Vec<u64>,
}

impl FifoQueue {
    fn new(servers: u32) -> FifoQueue {
        FifoQueue {
            free_ns: vec![0; servers as usize],
        }
    }

    /// Adds a job, and returns the time when it is complete. Jobs are added in order of arrival.
    fn complete_ns(&mut self, now_ns: u64, takes_ns: u64) -> u64 {
        let Some(next) = self.free_ns.iter_mut().min() else {
            return now_ns;
        };
        *next = now_ns.max(*next) + takes_ns;
        *next
    }
}

/// The pauses of a queue with one server.
#[derive(Debug, Clone)]
struct PauseClock {
    pauses: Pauses,
    seed: u64,
    begun: u64,
    next_ns: Option<u64>,
}

impl PauseClock {
    fn new(pauses: Pauses, seed: u64) -> PauseClock {
        PauseClock {
            pauses,
            seed,
            begun: 0,
            next_ns: None,
        }
    }

    /// Adds to the queue all pauses that begin by `now_ns`. The first call starts the clock.
    fn advance(&mut self, now_ns: u64, queue: &mut FifoQueue) {
        let length_ns = (self.pauses.length_us * 1e3) as u64;
        let mean_ns = self.pauses.mean_gap_ms * 1e6;
        let mut next_ns = self
            .next_ns
            .unwrap_or_else(|| now_ns + exponential_ns(self.seed, 0, mean_ns));
        while next_ns <= now_ns {
            queue.complete_ns(next_ns, length_ns);
            self.begun += 1;
            next_ns += exponential_ns(self.seed, self.begun, mean_ns);
        }
        self.next_ns = Some(next_ns);
    }
}

/// The server's virtual clock, which runs at the speed of the server.
#[derive(Debug, Clone)]
struct SpeedClock {
    speed: Option<Speed>,
    seed: u64,
    /// Real time of the last arrival; `virtual_ns` is the virtual time of the same arrival.
    last_ns: u64,
    virtual_ns: f64,
    factor: f64,
    bursts: u64,
    /// Number of requests since the burst started or since the last check for an overload,
    /// whichever is later; `rejected` counts those that were rejected.
    requests: u64,
    rejected: u64,
}

impl SpeedClock {
    fn new(speed: Option<Speed>, seed: u64) -> SpeedClock {
        SpeedClock {
            speed,
            seed,
            last_ns: 0,
            virtual_ns: 0.0,
            factor: 1.0,
            bursts: 0,
            requests: 0,
            rejected: 0,
        }
    }

    /// Advances the virtual clock to the arrival of a request at `now_ns`, and returns the clock's
    /// reading in ns. Successive calls must not go back in time. The first request arrives at
    /// `first_ns`.
    fn arrive(&mut self, first_ns: u64, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns - self.last_ns;
        self.virtual_ns += elapsed_ns as f64 * self.factor;
        let begins_burst = elapsed_ns >= IDLE_MS * 1_000_000;
        match self.speed {
            Some(Speed::Degrading { per_s }) => {
                self.factor = (-per_s * (now_ns - first_ns) as f64 / 1e9).exp();
            }
            Some(Speed::Scatter { deviation }) if begins_burst => {
                self.factor = (deviation * normal(self.seed, self.bursts)).exp();
            }
            Some(Speed::Hysteresis { .. }) if begins_burst => self.factor = 1.0,
            _ => {}
        }
        if begins_burst {
            self.bursts += 1;
            (self.requests, self.rejected) = (0, 0);
        }
        self.last_ns = now_ns;
        self.virtual_ns as u64
    }

    /// Takes the time at which the response to the last request is due on the virtual clock, and
    /// converts it to real time. `None` means that the request was rejected; the clock counts such
    /// requests. Both times are in ns.
    fn reply(&mut self, due_ns: Option<u64>) -> Option<u64> {
        let after_ns = |due_ns: u64| (due_ns as f64 - self.virtual_ns).max(0.0) / self.factor;
        let reply_ns = due_ns.map(|due_ns| self.last_ns + after_ns(due_ns) as u64);
        self.requests += 1;
        self.rejected += u64::from(due_ns.is_none());
        if self.requests == OVERLOAD_REQUESTS {
            if let Some(Speed::Hysteresis {
                factor,
                rejected_share,
            }) = self.speed
                && self.rejected as f64 >= rejected_share * self.requests as f64
            {
                self.factor = factor;
            }
            (self.requests, self.rejected) = (0, 0);
        }
        reply_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FIRST_NS: u64 = 1_000 * MS;

    /// Sends a request every millisecond from `begin_ms` to `end_ms` after the first request, and
    /// rejects all requests before `rejects_to_ms`. Returns the response time of the last accepted
    /// request, in ms. Each response takes 1 ms of virtual time.
    fn load(clock: &mut SpeedClock, begin_ms: u64, end_ms: u64, rejects_to_ms: u64) -> f64 {
        let mut last_ms = 0.0;
        for ms in begin_ms..end_ms {
            let now_ns = FIRST_NS + ms * MS;
            let due_ns = clock.arrive(FIRST_NS, now_ns) + MS;
            let reply = clock.reply((ms >= rejects_to_ms).then_some(due_ns));
            if let Some(due_ns) = reply {
                last_ms = (due_ns - now_ns) as f64 / 1e6;
            }
        }
        last_ms
    }

    #[test]
    fn a_constant_speed_is_exact() {
        let mut clock = SpeedClock::new(None, 1);
        let now_ns = 86_400_000_000_001;
        assert_eq!(clock.arrive(now_ns, now_ns), now_ns);
        assert_eq!(clock.reply(Some(now_ns + 7)), Some(now_ns + 7));
    }

    #[test]
    fn a_degrading_server_slows_from_its_first_request() {
        let mut clock = SpeedClock::new(Some(Speed::Degrading { per_s: 0.1 }), 1);
        assert!((load(&mut clock, 0, 1, 0) - 1.0).abs() < 1e-6);
        let slow = load(&mut clock, 4_999, 5_001, 0);
        assert!((slow - 0.5f64.exp()).abs() < 1e-5, "{slow}");
    }

    #[test]
    fn each_burst_has_its_own_speed() {
        let mut clock = SpeedClock::new(Some(Speed::Scatter { deviation: 0.03 }), 1);
        let mut logs = Vec::new();
        for burst in 0..1_000 {
            let begin_ms = burst * 100;
            let early = load(&mut clock, begin_ms, begin_ms + 1, 0);
            let late = load(&mut clock, begin_ms + 1, begin_ms + 51, 0);
            assert!((early - late).abs() < 1e-5, "{early} {late}");
            logs.push(early.ln());
        }
        let mean = logs.iter().sum::<f64>() / 1e3;
        let deviation = (logs.iter().map(|log| log * log).sum::<f64>() / 1e3).sqrt();
        assert!(mean.abs() < 0.003, "{mean}");
        assert!((deviation - 0.03).abs() < 0.002, "{deviation}");
    }

    #[test]
    fn an_overload_slows_the_server_until_it_is_idle() {
        let speed = Speed::Hysteresis {
            factor: 0.8,
            rejected_share: 0.1,
        };
        let mut clock = SpeedClock::new(Some(speed), 1);
        let mut last_ms = |begin_ms: u64, end_ms: u64, rejected: u64| {
            let ms = load(&mut clock, begin_ms, end_ms, begin_ms + rejected);
            (ms * 100.0).round() as u32
        };
        assert_eq!(last_ms(0, 500, 49), 100);
        assert_eq!(last_ms(500, 1_000, 50), 100);
        assert_eq!(last_ms(1_000, 5_000, 0), 125);
        // Slower arrivals do not count as an idle period.
        assert_eq!(last_ms(5_040, 5_041, 0), 125);
        assert_eq!(last_ms(5_091, 5_092, 0), 100);
    }

    #[test]
    fn a_crossing_counts_its_window_and_scales_the_mean() {
        let crossing = Crossing {
            mean_us: 4_000.0,
            at_per_s: 2_000.0,
            power: 2.0,
            window_ms: 100,
        };
        assert!((crossing.mean_us_after(100.0) - 1_000.0).abs() < 1e-9);
        let mut service = ServiceState::new(Service::Crossing(crossing), 1);
        let ms = 1_000_000;
        let counts: Vec<usize> = (0..300)
            .map(|i| {
                service.due_ns(i * ms, |mean_ns| mean_ns as u64);
                service.window_ns.len() - 1
            })
            .collect();
        assert_eq!((counts[0], counts[99], counts[299]), (0, 99, 100));
    }

    #[test]
    fn a_limiter_passes_a_burst_and_then_the_rate() {
        let limiter = Limiter {
            rate_per_s: 1_000.0,
            burst: 5,
            delay_us: 7,
        };
        let mut service = ServiceState::new(Service::Limiter(limiter), 1);
        let ms = 1_000_000;
        let mut taken = |at: u64, n: usize| {
            let due_ns = (0..n).filter_map(|_| service.due_ns(at, |_| 0));
            let dues: Vec<u64> = due_ns.collect();
            assert!(dues.iter().all(|due| *due == at + 7_000));
            dues.len()
        };
        assert_eq!(taken(10 * ms, 7), 5);
        assert_eq!(taken(11 * ms - 1, 1), 0);
        assert_eq!(taken(11 * ms, 2), 1);
        assert_eq!(taken(100 * ms, 9), 5);
    }

    #[test]
    fn jobs_wait_for_the_first_free_server() {
        let mut one = FifoQueue::new(1);
        assert_eq!([0, 1, 100].map(|at| one.complete_ns(at, 10)), [10, 20, 110]);
        let mut two = FifoQueue::new(2);
        let takes = [(0, 30), (0, 10), (1, 10), (2, 10)];
        let complete = takes.map(|(at, takes)| two.complete_ns(at, takes));
        assert_eq!(complete, [30, 10, 20, 30]);
    }

    #[test]
    fn pauses_take_their_share_of_the_time() {
        let pauses = Pauses {
            mean_gap_ms: 10.0,
            length_us: 2_000.0,
        };
        let (mut clock, mut queue) = (PauseClock::new(pauses, 1), FifoQueue::new(1));
        let second = 1_000_000_000;
        let waits = (0..100_000u64).filter(|i| {
            let now = i * second / 1_000;
            clock.advance(now, &mut queue);
            queue.complete_ns(now, 0) > now
        });
        // Pauses occupy 20 % of the time. The total length of 10,000 pauses has a standard
        // deviation of 1 %.
        let share = waits.count() as f64 / 100_000.0;
        assert!((share - 0.2).abs() < 0.01, "{share}");
    }
}
