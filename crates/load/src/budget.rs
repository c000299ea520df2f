//! What a plan needs of local ports and open files, worked out before anything is sent.
//!
//! A connection that the client closes first keeps its local port in TIME_WAIT (RFC 9293, section 3.6) for 60 s on Linux, or
//! until `tcp_tw_reuse` lets a new connection have it.

use floodmark_record::Profile;
use floodmark_record::plan::{CloseFirst, ConnectionUse, Model, Plan};
use floodmark_record::units::{show_count, show_rate};

use crate::course::arrivals_before;
use crate::sources;

/// Linux holds TIME_WAIT this long (`TCP_TIMEWAIT_LEN`), seconds; it cannot be set.
pub const TIME_WAIT_S: f64 = 60.0;

/// File descriptors a worker needs beside its connections: standard streams, epoll, files.
pub const OTHER_FDS: u64 = 64;

/// Where the sockets of a load process live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// Among its open files.
    Files,
    /// In tables of io_uring, one for each thread. They are no open files, but a table has at most as many entries as a process may have
    /// open files.
    Tables,
}

/// A process's limit on open files, and what it was before it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimit {
    /// Before.
    pub before: u64,
    /// Now.
    pub now: u64,
}

/// What the machine offers; none for what could not be read, which then stops nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Local ports of each source address towards each address of the target.
    pub ports: Option<u64>,
    /// Open files that the worker may have: its hard limit.
    pub fds: Option<u64>,
    /// Where its sockets live.
    pub sockets: Sockets,
    /// How long a port that the client closed first stays taken, seconds.
    pub time_wait_s: Option<f64>,
}

/// How long TIME_WAIT keeps a client's port, by `tcp_tw_reuse` (0 never reused, 1 always, 2 on loopback) and its delay.
#[must_use]
pub fn time_wait_s(tw_reuse: u64, reuse_delay_s: f64, loopback: bool) -> f64 {
    match (tw_reuse, loopback) {
        (1, _) | (2, true) => reuse_delay_s.min(TIME_WAIT_S),
        _ => TIME_WAIT_S,
    }
}

/// Ports over all source addresses and all addresses of the target: a port is taken only towards one address. None where a
/// connection needs no port, as on a unix socket, or how many there are is not known.
#[must_use]
pub fn ports_in_all(plan: &Plan, offer: &Offer) -> Option<u64> {
    let targets = plan.target.ip_addresses().count() as u128;
    if targets == 0 {
        return None;
    }
    let pairs = plan
        .sources
        .map_or(1, sources::count)
        .saturating_mul(targets);
    let ports = u128::from(offer.ports?).saturating_mul(pairs);
    Some(u64::try_from(ports).unwrap_or(u64::MAX))
}

/// The most connections that ports and open files allow at once, as far as is known.
#[must_use]
pub fn most_connections(plan: &Plan, offer: &Offer) -> Option<u64> {
    let sockets = offer.fds.map(|fds| most_sockets(plan, offer.sockets, fds));
    ports_in_all(plan, offer).into_iter().chain(sockets).min()
}

fn most_sockets(plan: &Plan, sockets: Sockets, fds: u64) -> u64 {
    match sockets {
        Sockets::Files => fds.saturating_sub(OTHER_FDS),
        Sockets::Tables => fds.saturating_mul(plan.threads.max(1).into()),
    }
}

/// The limit on open files that a plan needs.
#[must_use]
pub fn files_needed(plan: &Plan, sockets: Sockets) -> u64 {
    let (connections, threads) = (plan.connections, plan.threads.max(1));
    match sockets {
        Sockets::Files => u64::from(connections) + OTHER_FDS,
        // Each thread has its ring besides, which is a file.
        Sockets::Tables => {
            u64::from(connections.div_ceil(threads)).max(OTHER_FDS + u64::from(threads))
        }
    }
}

/// Why all connections of a plan cannot have a socket at once.
fn too_few_files(plan: &Plan, offer: &Offer) -> Option<String> {
    let connections = u64::from(plan.connections);
    let fds = offer.fds?;
    let most = most_sockets(plan, offer.sockets, fds);
    if connections <= most {
        return None;
    }
    let (asked, allowed) = (show_count(connections), show_count(fds));
    let most = most.max(1);
    Some(match offer.sockets {
        Sockets::Files => format!(
            "{asked} connections need {} open files, this process may have {allowed}; raise the limit (ulimit -n {}) or use -c {most}",
            show_count(connections + OTHER_FDS),
            connections + OTHER_FDS,
        ),
        Sockets::Tables => {
            let threads = plan.threads.max(1);
            let each = u64::from(plan.connections.div_ceil(threads));
            format!(
                "{asked} connections need {} sockets for {}, whose {} as many as this process may have open files, {allowed}; \
                 use -t {}, raise the limit (ulimit -n {each}) or use -c {most}",
                show_count(each),
                match threads {
                    1 => "the load thread".to_owned(),
                    n => format!("each of {n} load threads"),
                },
                match threads {
                    1 => "table (io_uring) holds",
                    _ => "tables (io_uring) hold",
                },
                connections.div_ceil(fds.max(1)),
            )
        }
    })
}

/// New connections per second that the ports allow for ever, where the client holds the TIME_WAIT.
#[must_use]
pub fn connections_per_s(plan: &Plan, offer: &Offer) -> Option<f64> {
    let client_holds =
        plan.connection_use != ConnectionUse::Kept && plan.close_first == CloseFirst::Client;
    client_holds
        .then(|| Some(ports_in_all(plan, offer)? as f64 / offer.time_wait_s?))
        .flatten()
}

/// Why a plan cannot be carried out on this machine, with the arithmetic and the mend; none where it can as far as is known.
#[must_use]
pub fn shortage(plan: &Plan, offer: &Offer) -> Option<String> {
    let connections = u64::from(plan.connections);
    // Of the open model's connections there are as many as it takes, but all of those that are held.
    let all_at_once = plan.model == Model::Closed || plan.hold;
    if let Some(shortage) = too_few_files(plan, offer).filter(|_| all_at_once) {
        return Some(shortage);
    }
    let ports = ports_in_all(plan, offer)?;
    if all_at_once && connections > ports {
        return Some(format!(
            "{} connections need as many local ports, there are {}; add source addresses (--sources) or use -c {}",
            show_count(connections),
            show_count(ports),
            ports.max(1)
        ));
    }
    let (per_s, time_wait_s) = (connections_per_s(plan, offer)?, offer.time_wait_s?);
    let uses = match plan.connection_use {
        ConnectionUse::PerConnection => plan.requests_per_connection.unwrap_or(1).max(1) as f64,
        _ => 1.0,
    };
    let rate = highest_rate_per_s(plan)? / uses;
    let held = most_arrivals_within(plan, time_wait_s)? / uses;
    (held > ports as f64).then(|| {
        format!(
            "{}/s new connections closed by the client hold {} local ports in TIME_WAIT ({} s each); there are {}, enough for {}/s. \
             Add source addresses (--sources), let the server close (--close-first server), or keep connections",
            show_rate(rate),
            show_count(arrivals_before(held)),
            show_rate(time_wait_s),
            show_count(ports),
            show_rate(per_s)
        )
    })
}

/// The highest rate of arrivals, per second; none in the closed model.
fn highest_rate_per_s(plan: &Plan) -> Option<f64> {
    plan.profile
        .as_ref()
        .map(Profile::peak_per_s)
        .or(plan.rate_per_s)
}

/// The most arrivals expected within any stretch of `seconds`; none in the closed model. Of a replay an upper bound, by its
/// fullest second.
fn most_arrivals_within(plan: &Plan, seconds: f64) -> Option<f64> {
    let Some(profile) = &plan.profile else {
        let rate = plan.rate_per_s?;
        let wanted_s = plan
            .duration_s
            .unwrap_or_else(|| plan.requests.unwrap_or(0) as f64 / rate);
        return Some(rate * wanted_s.min(seconds));
    };
    let by = |at_s: f64| profile.expected_by(at_s);
    if let Profile::Replay(replay) = profile {
        let n = plan.requests.unwrap_or(0) as f64;
        return Some(n.min(replay.peak_per_s as f64 * seconds.ceil()));
    }
    // Rates change in straight lines, so the fullest stretch begins or ends where one of them does.
    let ends = profile.stretches().into_iter().flat_map(|stretch| {
        let (from, to) = (stretch.from_s, stretch.from_s + stretch.length_s);
        [from, to - seconds, from - seconds, to]
    });
    ends.filter_map(|from_s| Some(by(from_s + seconds)? - by(from_s)?))
        .reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{closed_plan, open_plan, ramp_plan, replay_plan, steps_plan};
    use floodmark_record::plan::{Address, Arrivals, Sources};
    use proptest::prelude::*;
    use std::net::SocketAddr;

    const OFFER: Offer = Offer {
        ports: Some(28_232),
        fds: Some(20_000),
        sockets: Sockets::Files,
        time_wait_s: Some(60.0),
    };

    fn fresh(rate: f64, seconds: f64) -> Plan {
        Plan {
            connection_use: ConnectionUse::Fresh,
            close_first: CloseFirst::Client,
            ..open_plan(Arrivals::Constant, rate, Some(seconds), None)
        }
    }

    #[test]
    fn the_well_known_wall_of_470_per_second() {
        let per_s = connections_per_s(&fresh(100.0, 10.0), &OFFER).unwrap();
        assert_eq!(per_s.floor(), 470.0);
        assert_eq!(shortage(&fresh(470.0, 300.0), &OFFER), None);
        let text = shortage(&fresh(500.0, 300.0), &OFFER).unwrap();
        assert!(text.contains("30,000") && text.contains("471/s"), "{text}");
        assert_eq!(
            shortage(&fresh(5000.0, 5.0), &OFFER),
            None,
            "a short run fits into the range"
        );
    }

    #[test]
    fn other_ways_to_close_hold_no_port() {
        let by_server = Plan {
            close_first: CloseFirst::Server,
            ..fresh(50_000.0, 60.0)
        };
        assert_eq!(connections_per_s(&by_server, &OFFER), None);
        assert_eq!(shortage(&by_server, &OFFER), None);
        assert_eq!(time_wait_s(2, 1.0, true), 1.0);
        assert_eq!(time_wait_s(2, 1.0, false), 60.0);
        assert_eq!(time_wait_s(0, 1.0, true), 60.0);
    }

    #[test]
    fn rates_that_change_need_ports_for_their_fullest_minute() {
        let needed = |plan: &Plan| most_arrivals_within(plan, 60.0).unwrap().round();
        assert_eq!(needed(&ramp_plan(0.0, 1000.0, 120.0)), 45_000.0);
        assert_eq!(needed(&ramp_plan(1000.0, 0.0, 120.0)), 45_000.0);
        assert_eq!(needed(&ramp_plan(0.0, 1000.0, 20.0)), 10_000.0);
        let steps = steps_plan(&[(300.0, 600.0), (5000.0, 1.0), (100.0, 600.0)]);
        assert_eq!(needed(&steps), 5000.0 + 59.0 * 300.0);
        let closing = |plan: Plan| Plan {
            connection_use: ConnectionUse::Fresh,
            close_first: CloseFirst::Client,
            ..plan
        };
        assert_eq!(shortage(&closing(steps), &OFFER), None);
        let text = shortage(&closing(ramp_plan(0.0, 1000.0, 120.0)), &OFFER).unwrap();
        assert!(
            text.contains("1,000/s") && text.contains("45,000"),
            "{text}"
        );
        let replay = replay_plan(vec![0; 100], 1.0);
        assert_eq!(needed(&replay), 100.0);
    }

    #[test]
    fn source_addresses_multiply_ports() {
        let sources = Some(Sources {
            first: "127.0.0.2".parse().unwrap(),
            last: "127.0.0.200".parse().unwrap(),
        });
        let plan = Plan {
            sources,
            ..fresh(20_000.0, 10.0)
        };
        assert_eq!(ports_in_all(&plan, &OFFER), Some(199 * 28_232));
        assert_eq!(shortage(&plan, &OFFER), None);
    }

    #[test]
    fn more_connections_than_files_or_ports() {
        assert!(
            shortage(&closed_plan(30_000, 1), &OFFER)
                .unwrap()
                .contains("ulimit -n 30064")
        );
        let many_files = Offer {
            fds: Some(1_000_000),
            ..OFFER
        };
        assert!(
            shortage(&closed_plan(30_000, 1), &many_files)
                .unwrap()
                .contains("--sources")
        );
        assert_eq!(shortage(&closed_plan(19_936, 1), &OFFER), None);
        assert_eq!(most_connections(&closed_plan(1, 1), &OFFER), Some(19_936));
    }

    proptest! {
        #[test]
        fn each_pair_of_source_and_target_has_all_ports(
            ports in 1u64..500,
            sources in 1u8..9,
            targets in 1u8..9,
            beyond in 0u32..2,
        ) {
            let address = |i| SocketAddr::from(([127, 0, 1, i], 80));
            let offer = Offer { ports: Some(ports), fds: None, ..OFFER };
            let all = ports * u64::from(sources) * u64::from(targets);
            let mut plan = Plan {
                sources: Some(Sources {
                    first: [127, 0, 0, 1].into(),
                    last: [127, 0, 0, sources].into(),
                }),
                ..closed_plan(all as u32 + beyond, 1)
            };
            plan.target.further_addresses = (1..targets).map(address).collect();
            prop_assert_eq!(ports_in_all(&plan, &offer), Some(all));
            prop_assert_eq!(most_connections(&plan, &offer), Some(all));
            prop_assert_eq!(shortage(&plan, &offer).is_some(), beyond > 0);
        }

        #[test]
        fn a_unix_socket_takes_no_port(ports in 0u64..5, connections in 1u32..1_000_000, rate in 1.0f64..1e6) {
            let offer = Offer { ports: Some(ports), fds: None, ..OFFER };
            for plan in [closed_plan(connections, 1), fresh(rate, 300.0)] {
                let mut plan = plan;
                plan.target.address = Address::Unix("/run/app.sock".into());
                prop_assert_eq!(ports_in_all(&plan, &offer), None);
                prop_assert_eq!(connections_per_s(&plan, &offer), None);
                prop_assert_eq!(shortage(&plan, &offer), None);
                let files = Offer { fds: Some(1_000), ..offer };
                prop_assert_eq!(most_connections(&plan, &files), Some(1_000 - OTHER_FDS));
            }
        }
    }

    #[test]
    fn what_is_not_known_stops_nothing() {
        let unknown = Offer {
            ports: None,
            fds: None,
            sockets: Sockets::Files,
            time_wait_s: None,
        };
        for plan in [closed_plan(1_000_000, 1), fresh(1e6, 300.0)] {
            assert_eq!(shortage(&plan, &unknown), None);
            assert_eq!(connections_per_s(&plan, &unknown), None);
            assert_eq!(most_connections(&plan, &unknown), None);
        }
        let files_only = Offer {
            fds: Some(100),
            ..unknown
        };
        assert_eq!(most_connections(&fresh(1.0, 1.0), &files_only), Some(36));
        assert!(shortage(&closed_plan(37, 1), &files_only).is_some());
        let ports_only = Offer {
            time_wait_s: None,
            ..OFFER
        };
        assert_eq!(shortage(&fresh(500.0, 300.0), &ports_only), None);
    }

    #[test]
    fn a_hundred_thousand_from_one_process_of_twenty_thousand_files() {
        let tables = Offer {
            sockets: Sockets::Tables,
            ..OFFER
        };
        let plan = |threads| Plan {
            threads,
            sources: Some(Sources {
                first: "127.0.0.2".parse().unwrap(),
                last: "127.0.0.9".parse().unwrap(),
            }),
            hold: true,
            connections: 100_000,
            ..open_plan(Arrivals::Constant, 10_000.0, Some(10.0), None)
        };
        assert_eq!(shortage(&plan(5), &tables), None);
        let text = shortage(&plan(4), &tables).unwrap();
        for word in ["25,000", "4 load threads", "20,000", "use -t 5", "-c 80000"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let text = shortage(&plan(1), &tables).unwrap();
        assert!(
            text.contains("for the load thread, whose table (io_uring) holds"),
            "{text}"
        );
        assert!(shortage(&plan(5), &OFFER).unwrap().contains("open files"));
        // What is not held is opened only as it takes.
        let capped = Plan {
            hold: false,
            ..plan(1)
        };
        assert_eq!(shortage(&capped, &tables), None);
    }

    fn sockets() -> impl Strategy<Value = Sockets> {
        prop_oneof![Just(Sockets::Files), Just(Sockets::Tables)]
    }

    proptest! {
        #[test]
        fn exactly_enough_is_enough_and_one_more_is_not(
            fds in 100u64..50_000,
            ports in 100u64..60_000,
            addresses in 1u8..20,
            threads in 1u32..20,
            sockets in sockets(),
            held in any::<bool>(),
        ) {
            let offer = Offer { ports: Some(ports), fds: Some(fds), sockets, ..OFFER };
            let base = if held {
                open_plan(Arrivals::Constant, 100.0, Some(1.0), None)
            } else {
                closed_plan(1, 1)
            };
            let plan = |connections: u64| Plan {
                connections: connections as u32,
                threads,
                hold: held,
                sources: Some(Sources {
                    first: [127, 0, 0, 1].into(),
                    last: [127, 0, 0, addresses].into(),
                }),
                ..base.clone()
            };
            let most = most_connections(&plan(1), &offer).unwrap();
            prop_assert_eq!(shortage(&plan(most), &offer), None);
            prop_assert!(files_needed(&plan(most), sockets) <= fds.max(OTHER_FDS + u64::from(threads)));
            let text = shortage(&plan(most + 1), &offer).unwrap();
            let by_ports = ports * u64::from(addresses) == most;
            let mend = if by_ports { "--sources" } else { "ulimit -n" };
            prop_assert!(text.contains(mend) || text.contains("ulimit -n"), "{}", text);
            // Each mend that is named is one.
            let advised = format!("use -c {most}");
            prop_assert!(text.contains(&advised), "{} lacks {}", text, advised);
        }

        #[test]
        fn the_limit_that_is_needed_is_enough_and_one_less_is_not(
            connections in 1u32..200_000,
            threads in 1u32..50,
            sockets in sockets(),
        ) {
            let plan = Plan { threads, ..closed_plan(connections, 1) };
            let needed = files_needed(&plan, sockets);
            let offer = |fds| Offer { ports: None, fds: Some(fds), sockets, ..OFFER };
            prop_assert_eq!(shortage(&plan, &offer(needed)), None);
            // Below this the rings themselves need more than their tables.
            if needed > OTHER_FDS + u64::from(threads) {
                prop_assert!(shortage(&plan, &offer(needed - 1)).is_some());
            }
        }
    }
}
