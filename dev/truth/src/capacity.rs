//! Servers with known capacities, and formulas for the share of requests that they reject or answer
//! slowly. A capacity is the highest rate of Poisson arrivals at which the long-run figures of a
//! scenario meet an objective. Unless an identifier says otherwise, times are in seconds and rates
//! are in requests per second.

use std::fmt;

use crate::scenario::{Scenario, Service, Speed};
use crate::service::{Crossing, Limiter, Pauses};

/// What a search for the capacity should find.
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
    /// The highest rate at which the client can send on time; the server meets the objective at
    /// this rate.
    ClientLimit(f64),
    /// The objective is missed at any rate.
    Never,
}

/// A named server, described by a scenario and an objective.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownServer {
    /// Name of the server.
    pub name: &'static str,
    /// The scenario.
    pub scenario: Scenario,
    /// The objective.
    pub objective: KnownObjective,
}

impl KnownServer {
    /// Returns what a search should find. With scatter, the answer is the median of the trials'
    /// capacities.
    #[must_use]
    pub fn answer(&self) -> KnownAnswer {
        let capacity = |speed: f64| capacity_per_s(&self.scenario, self.objective, speed);
        match self.scenario.speed {
            Some(Speed::Degrading { .. }) => KnownAnswer::NotStationary,
            Some(Speed::Hysteresis { factor, .. }) => KnownAnswer::Hysteresis {
                rising: capacity(1.0),
                falling: capacity(factor),
            },
            Some(Speed::Scatter { .. }) | None if capacity(1.0) == 0.0 => KnownAnswer::Never,
            Some(Speed::Scatter { .. }) | None => KnownAnswer::Capacity(capacity(1.0)),
        }
    }
}

/// Returns servers with known capacities of 3,000 to 4,000/s. At these rates, the client and the
/// server together use a quarter of a CPU. Response times are long compared with the usual lateness
/// of a client. Transferring a request and its response takes about 50 µs, which lowers each
/// capacity by at most 0.3 %.
#[must_use]
pub fn known_servers() -> Vec<KnownServer> {
    let percentile = |percentile, limit_ms| KnownObjective::ResponseTime {
        percentile,
        limit_ms,
    };
    let exponential = |mean_us, servers| Service::Exponential { mean_us, servers };
    let deterministic = |time_us, pauses| Service::Deterministic { time_us, pauses };
    let pauses = Pauses {
        mean_gap_ms: 50.0,
        length_us: 3_000.0,
    };
    let limiter = Service::Limiter(Limiter {
        rate_per_s: 4_000.0,
        burst: 40,
        delay_us: 20_000,
    });
    let crossing = Service::Crossing(Crossing {
        mean_us: 4_000.0,
        at_per_s: 3_000.0,
        power: 2.0,
        window_ms: 100,
    });
    // A lower limit would require trials of more than a minute, because rejections come in
    // clusters.
    let errors = KnownObjective::Errors(1.0);
    let (p95, slow) = (percentile(95.0, 5.0), percentile(99.0, 20.0));
    let scatter = |deviation| Some(Speed::Scatter { deviation });
    let degrading = Speed::Degrading { per_s: 0.003 };
    let hysteresis = Speed::Hysteresis {
        factor: 0.8,
        rejected_share: 0.1,
    };
    [
        ("M/M/1", exponential(250.0, 1), None, p95),
        (
            "M/M/4",
            exponential(1_000.0, 4),
            None,
            percentile(95.0, 6.0),
        ),
        (
            "M/D/1",
            deterministic(250.0, None),
            None,
            percentile(95.0, 4.0),
        ),
        ("pauses", deterministic(200.0, Some(pauses)), None, p95),
        ("limiter", limiter, None, errors),
        ("limiter, scatter 3 %", limiter, scatter(0.03), errors),
        ("slow crossing", crossing, None, slow),
        ("slow crossing, scatter 2 %", crossing, scatter(0.02), slow),
        ("hysteresis", limiter, Some(hysteresis), errors),
        ("degrading", limiter, Some(degrading), errors),
        ("never", Service::Fixed { delay_us: 10_000 }, None, p95),
    ]
    .map(|(name, service, speed, objective)| KnownServer {
        name,
        scenario: Scenario {
            speed,
            ..service.into()
        },
        objective,
    })
    .into()
}

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
    /// The share of errors, in percent, is below a limit.
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

/// Number of bisections. The relative error of the result is at most 10⁻⁹.
const BISECTIONS: usize = 60;

/// Returns the capacity at a constant speed, in requests per second. A speed of 0.5 halves all
/// rates and doubles all times of the scenario. The scenario's own `speed` is ignored.
///
/// Returns infinity if the objective is met at every rate, and 0 if it is met at no rate.
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
            limiter_rejected_share(rate_per_s, limiter)
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
                Service::Crossing(crossing) => crossing_share_over(rate_per_s, crossing, limit_s),
            }
        }
    }
}

/// Returns the share of requests whose response time exceeds `limit_s` in an M/M/c queue. While all
/// servers are busy, they complete a total of `speed_per_s` requests per second. The waiting time
/// is 0 or exponentially distributed (Erlang C). For one server, p99 = ln 100 / (speed − rate).
#[must_use]
pub fn exponential_share_over(
    servers: usize,
    rate_per_s: f64,
    speed_per_s: f64,
    limit_s: f64,
) -> f64 {
    if rate_per_s >= speed_per_s {
        return 1.0;
    }
    let own = speed_per_s / servers as f64;
    let load = rate_per_s / own;
    // Erlang B by recursion, then Erlang C.
    let blocked = (1..=servers).fold(1.0, |b, n| load * b / (n as f64 + load * b));
    let waits = blocked / (1.0 - rate_per_s / speed_per_s * (1.0 - blocked));
    let left = speed_per_s - rate_per_s;
    let served = (-own * limit_s).exp();
    if servers == 1 {
        return (-left * limit_s).exp();
    }
    // Sum of an exponential waiting time and an exponential service time. Equal rates need a
    // different formula, but slightly different rates give nearly the same result.
    let left = if left == own {
        left * (1.0 + 1e-6)
    } else {
        left
    };
    (1.0 - waits) * served + waits * (left * served - own * (-left * limit_s).exp()) / (left - own)
}

/// Returns the share of requests whose response time exceeds `limit_s` in an M/D/1 queue, with or
/// without pauses. A pause waits in the queue like a request.
#[must_use]
pub fn deterministic_share_over(
    rate_per_s: f64,
    takes_s: f64,
    pauses: Option<&Pauses>,
    limit_s: f64,
) -> f64 {
    let pauses = pauses.map(|pauses| QueuedJobs {
        rate_per_s: 1e3 / pauses.mean_gap_ms,
        takes_s: pauses.length_us / 1e6,
    });
    let requests = QueuedJobs {
        rate_per_s,
        takes_s,
    };
    let jobs: Vec<QueuedJobs> = [requests].into_iter().chain(pauses).collect();
    let (load, longest_wait_s) = (load(&jobs), limit_s - takes_s);
    if load >= 1.0 || longest_wait_s < 0.0 {
        return 1.0;
    }
    1.0 - (1.0 - load) * work_at_most(longest_wait_s, &jobs)
}

/// Returns the share of requests that a token bucket rejects.
///
/// The bucket behaves like an M/D/1 queue whose requests leave at once if they would have to wait
/// for more than burst − 1 tokens (A. G. de Kok and H. C. Tijms, "A Queueing System with Impatient
/// Customers", Journal of Applied Probability 22, 1985).
fn limiter_rejected_share(rate_per_s: f64, limiter: &Limiter) -> f64 {
    let takes_s = 1.0 / limiter.rate_per_s;
    let jobs = [QueuedJobs {
        rate_per_s,
        takes_s,
    }];
    let load = load(&jobs);
    let h = work_at_most(takes_s * f64::from(limiter.burst - 1), &jobs);
    (1.0 - (1.0 - load) * h) / (1.0 + load * h)
}

/// Returns the share of requests whose response time exceeds `limit_s` if response times grow with
/// the arrival rate. The number of arrivals in the window has a Poisson distribution.
fn crossing_share_over(rate_per_s: f64, crossing: &Crossing, limit_s: f64) -> f64 {
    let mean = rate_per_s * f64::from(crossing.window_ms) / 1e3;
    let most = (mean + 10.0 * mean.sqrt()).ceil() as u64 + 10;
    let mut log_probability = -mean;
    let mut share = 0.0;
    for arrivals in 0..=most {
        if arrivals > 0 {
            log_probability += (mean / arrivals as f64).ln();
        }
        let mean_s = crossing.mean_us_after(arrivals as f64) / 1e6;
        share += (log_probability - limit_s / mean_s).exp();
    }
    share
}

/// Number of grid steps in the duration of the shortest job.
const STEPS_PER_JOB: f64 = 200.0;

/// Jobs of one kind.
#[derive(Debug, Clone, Copy)]
struct QueuedJobs {
    /// Rate of the Poisson arrivals, per second.
    rate_per_s: f64,
    /// Time that each job takes, in seconds.
    takes_s: f64,
}

/// Returns the server's load: the total time, in seconds, that the jobs arriving in one second
/// take.
fn load(jobs: &[QueuedJobs]) -> f64 {
    jobs.iter().map(|job| job.rate_per_s * job.takes_s).sum()
}

/// Returns H(x), the probability that the server has at most `x_s` seconds of work left, divided by
/// the probability that the server is idle. For a load below 1, the server is idle with a
/// probability of 1 − load. For a higher load, H describes queues that reject jobs.
///
/// H solves H(x) = 1 + Σᵢ λᵢ ∫ H(y) dy from x − bᵢ to x, for jobs of length bᵢ that arrive at the
/// rate λᵢ. This is the Pollaczek–Khinchine formula as a renewal equation (S. Asmussen, "Applied
/// Probability and Queues", 2003, VIII.5). The function solves the equation with the trapezoidal
/// rule.
fn work_at_most(x_s: f64, jobs: &[QueuedJobs]) -> f64 {
    let shortest_s = jobs.iter().map(|job| job.takes_s).fold(x_s, f64::min);
    if shortest_s <= 0.0 {
        return 1.0;
    }
    let steps = (x_s / shortest_s * STEPS_PER_JOB).ceil() as usize;
    let step_s = x_s / steps as f64;
    let rate_per_s: f64 = jobs.iter().map(|job| job.rate_per_s).sum();
    // Latest value of H, and the integrals of H from 0 to each step.
    let mut last = 1.0;
    let mut integrals = Vec::with_capacity(steps + 1);
    integrals.push(0.0);
    for step in 1..=steps {
        let half = integrals[step - 1] + 0.5 * step_s * last;
        let mut sum = 1.0 + rate_per_s * half;
        for job in jobs {
            let from = step as f64 - job.takes_s / step_s;
            if from > 0.0 {
                let (below, part) = (from.floor() as usize, from.fract());
                let above = integrals.get(below + 1).copied().unwrap_or(half);
                let integral = integrals[below] + part * (above - integrals[below]);
                sum -= job.rate_per_s * integral;
            }
        }
        last = sum / (1.0 - 0.5 * step_s * rate_per_s);
        integrals.push(half + 0.5 * step_s * last);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::exponential_ns;
    use crate::service::VirtualServer;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Sends requests, starting at `begin_ns`. Returns the share of requests that miss the
    /// objective, and the time of the last response.
    fn serve(
        server: &mut VirtualServer,
        objective: KnownObjective,
        begin_ns: u64,
        rate_per_s: f64,
        requests: u64,
    ) -> (f64, u64) {
        let (mut now_ns, mut last_ns, mut missed) = (begin_ns, begin_ns, 0);
        for index in 0..requests {
            let due_ns = server.serve(now_ns);
            last_ns = last_ns.max(due_ns.unwrap_or(now_ns));
            let is_missed = match objective {
                KnownObjective::Errors(_) => due_ns.is_none(),
                KnownObjective::ResponseTime { limit_ms, .. } => {
                    due_ns.is_none_or(|due_ns| (due_ns - now_ns) as f64 > limit_ms * 1e6)
                }
            };
            missed += u64::from(is_missed);
            now_ns += exponential_ns(begin_ns, index, 1e9 / rate_per_s);
        }
        (missed as f64 / requests as f64, last_ns)
    }

    #[test]
    fn servers_meet_their_objective_up_to_the_capacity() {
        for KnownServer {
            name,
            scenario,
            objective,
        } in known_servers()
        {
            // Use a constant speed, because a long run would average over all speeds.
            let scenario = Scenario {
                speed: None,
                ..scenario
            };
            let capacity = capacity_per_s(&scenario, objective, 1.0);
            let allowed = objective.allowed_share();
            if capacity == 0.0 {
                let mut server = VirtualServer::new(&scenario);
                let (share, _) = serve(&mut server, objective, SECOND_NS, 1.0, 100);
                assert!(share > allowed, "{name}");
                continue;
            }
            for (factor, is_met) in [(0.98, true), (1.02, false)] {
                let mut server = VirtualServer::new(&scenario);
                let rate = factor * capacity;
                let (share, _) = serve(&mut server, objective, SECOND_NS, rate, 1_000_000);
                assert_eq!(share <= allowed, is_met, "{name}: {share} at {factor}");
            }
        }
    }

    #[test]
    fn the_transfer_lowers_capacities_a_little() {
        for server in known_servers() {
            let KnownObjective::ResponseTime {
                percentile,
                limit_ms,
            } = server.objective
            else {
                continue;
            };
            let objective = KnownObjective::ResponseTime {
                percentile,
                limit_ms: limit_ms - 0.05,
            };
            let capacity = |objective| capacity_per_s(&server.scenario, objective, 1.0);
            let (longer, shorter) = (capacity(server.objective), capacity(objective));
            assert!(shorter >= 0.997 * longer, "{}: {shorter}", server.name);
        }
    }

    #[test]
    fn one_exponential_server_has_the_textbook_capacity() {
        let mm1 = &known_servers()[0];
        let p99 = KnownObjective::ResponseTime {
            percentile: 99.0,
            limit_ms: 10.0,
        };
        let capacity = capacity_per_s(&mm1.scenario, p99, 1.0);
        assert!((capacity - (4_000.0 - 100f64.ln() / 0.01)).abs() < 1e-3);
        // Everything takes twice as long.
        let slow = capacity_per_s(&mm1.scenario, p99, 0.5);
        assert!((slow - (2_000.0 - 100f64.ln() / 0.01)).abs() < 1e-3);
    }

    #[test]
    fn an_overload_lowers_the_capacity_until_the_server_is_idle() {
        let servers = known_servers();
        let server = servers.iter().find(|server| server.name == "hysteresis");
        let KnownServer {
            scenario,
            objective,
            ..
        } = server.unwrap();
        let answer = server.unwrap().answer();
        let KnownAnswer::Hysteresis { rising, falling } = answer else {
            panic!("{answer:?}");
        };
        assert!((falling / rising - 0.8).abs() < 1e-9);
        let mut server = VirtualServer::new(scenario);
        let mut is_met = |begin_ns: u64, rate: f64, length_s: f64| {
            let requests = (length_s * rate) as u64;
            let (share, last_ns) = serve(&mut server, *objective, begin_ns, rate, requests);
            (share <= objective.allowed_share(), last_ns)
        };
        let mut begin_ns = SECOND_NS;
        for (factor, is_met_after) in [(0.96, true), (1.04, false)] {
            let (is_met_before, last_ns) = is_met(begin_ns, factor * rising, 10.0);
            assert_eq!(is_met_before, factor < 1.0, "{factor} from idle");
            let (_, last_ns) = is_met(last_ns + SECOND_NS, 1.5 * rising, 0.5);
            let (after, last_ns) = is_met(last_ns + 100_000, factor * falling, 10.0);
            assert_eq!(after, is_met_after, "{factor} after an overload");
            begin_ns = last_ns + SECOND_NS;
        }
    }

    #[test]
    fn equals_the_formula_for_short_queues() {
        // Erlang's formula for M/D/1: exp(λx) up to the length of a job; for larger x, a second
        // term is subtracted.
        let (rate_per_s, takes_s) = (800.0, 0.001);
        let jobs = [QueuedJobs {
            rate_per_s,
            takes_s,
        }];
        for x in [0.0, 0.3, 0.999, 1.5, 1.9] {
            let later = rate_per_s * (x - 1.0) * takes_s;
            let second = if x > 1.0 { later * later.exp() } else { 0.0 };
            let formula = (rate_per_s * x * takes_s).exp() - second;
            let got = work_at_most(x * takes_s, &jobs);
            assert!((got / formula - 1.0).abs() < 1e-5, "{x}: {got} {formula}");
        }
    }

    #[test]
    fn tends_to_the_inverse_of_the_idle_share() {
        let pauses = QueuedJobs {
            rate_per_s: 10.0,
            takes_s: 0.01,
        };
        let requests = QueuedJobs {
            rate_per_s: 500.0,
            takes_s: 0.001,
        };
        let jobs = [requests, pauses];
        let h = work_at_most(0.3, &jobs);
        assert!((h * (1.0 - load(&jobs)) - 1.0).abs() < 1e-4, "{h}");
    }
}
