//! Servers whose capacity is known.

use super::{KnownObjective, capacity_per_s};
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
    /// The client sends at most this rate on time, and the server passes there.
    ClientLimit(f64),
    /// The objective is missed at any rate.
    Never,
}

/// A scenario, an objective, and their name.
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
    /// Returns what a search should find. With scatter, the answer is the median of the capacities
    /// of trials.
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

/// Returns servers with known capacities of 3,000 to 4,000/s. At these rates, client and server use
/// a quarter of a CPU. Response times are long compared with the usual lateness of a client. Transferring
/// a request and its response takes about 50 µs, which lowers each capacity by at most 0.3 %.
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
    // Rarer errors would need trials of more than a minute, because rejections come in clusters.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::exponential_ns;
    use crate::service::VirtualServer;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Sends requests from `begin_ns` on. Returns the share that miss the objective, and the time
    /// of the last response.
    fn load(
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
            // A long run at the capacity would average over the speeds.
            let scenario = Scenario {
                speed: None,
                ..scenario
            };
            let capacity = capacity_per_s(&scenario, objective, 1.0);
            let allowed = objective.allowed_share();
            if capacity == 0.0 {
                let mut server = VirtualServer::new(&scenario);
                let (share, _) = load(&mut server, objective, SECOND_NS, 1.0, 100);
                assert!(share > allowed, "{name}");
                continue;
            }
            for (factor, is_met) in [(0.98, true), (1.02, false)] {
                let mut server = VirtualServer::new(&scenario);
                let rate = factor * capacity;
                let (share, _) = load(&mut server, objective, SECOND_NS, rate, 1_000_000);
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
        // Everything takes twice the time.
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
            let (share, last_ns) = load(&mut server, *objective, begin_ns, rate, requests);
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
}
