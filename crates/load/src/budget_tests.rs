//! Tests of [`super`].

use super::*;
use crate::testing::{closed_plan, held_plan, open_plan, ramp_plan, replay_plan, steps_plan};
use floodmark_record::plan::{Address, Arrivals, Sources};
use proptest::prelude::*;
use std::net::SocketAddr;

const OFFER: Offer = Offer {
    ports: Some(28_232),
    fds: Some(20_000),
    sockets: SocketLocation::Files,
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
fn reports_the_limit_of_470_fresh_connections_per_second() {
    let per_s = connections_per_s(&fresh(100.0, 10.0), &OFFER).unwrap();
    assert_eq!(per_s.floor(), 470.0);
    assert_eq!(shortage(&fresh(470.0, 300.0), &OFFER), None);
    let text = shortage(&fresh(500.0, 300.0), &OFFER).unwrap();
    assert!(text.contains("30,000") && text.contains("471/s"), "{text}");
    assert_eq!(
        shortage(&fresh(5000.0, 5.0), &OFFER),
        None,
        "a short run needs fewer ports"
    );
}

#[test]
fn needs_no_port_in_time_wait_if_the_server_closes() {
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
fn sizes_ports_for_the_busiest_minute() {
    let needed = |plan: &Plan| most_arrivals_within(plan.schedule().unwrap(), 60.0).round();
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
        text.contains("1,000 new connections per second") && text.contains("45,000"),
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
fn reports_too_few_files_or_ports() {
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
fn ignores_unknown_limits() {
    let unknown = Offer {
        ports: None,
        fds: None,
        sockets: SocketLocation::Files,
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
fn counts_files_with_delayed_closing() {
    let plan = |backend| Plan {
        backend,
        threads: 4,
        ..closed_plan(1_000, 1)
    };
    assert_eq!(
        files_needed(&plan(Backend::Epoll), SocketLocation::Files),
        1_064
    );
    let uring = plan(Backend::Uring);
    assert_eq!(files_needed(&uring, SocketLocation::Files), 1_064 + 4 * 161);
    let offer = Offer {
        fds: Some(1_707),
        ..OFFER
    };
    assert!(shortage(&uring, &offer).unwrap().contains("ulimit -n 1708"));
    let few = Plan {
        connections: 10,
        ..uring
    };
    assert_eq!(files_needed(&few, SocketLocation::Files), 64 + 4 + 2 * 10);
}

#[test]
fn one_process_opens_more_connections_than_files() {
    let tables = Offer {
        sockets: SocketLocation::Tables,
        ..OFFER
    };
    let capped = |threads| Plan {
        threads,
        sources: Some(Sources {
            first: "127.0.0.2".parse().unwrap(),
            last: "127.0.0.9".parse().unwrap(),
        }),
        connections: 100_000,
        ..open_plan(Arrivals::Constant, 10_000.0, Some(10.0), None)
    };
    let plan = |threads| held_plan(capped(threads));
    assert_eq!(shortage(&plan(5), &tables), None);
    let text = shortage(&plan(4), &tables).unwrap();
    for word in [
        "25,000",
        "per load thread",
        "20,000",
        "use -t 5",
        "-c 80000",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let text = shortage(&plan(1), &tables).unwrap();
    assert!(text.contains("per load thread, but"), "{text}");
    assert!(shortage(&plan(5), &OFFER).unwrap().contains("open files"));
    // Without `hold`, connections are opened only when requests need them.
    assert_eq!(shortage(&capped(1), &tables), None);
}

/// Generates a socket location and a backend.
fn sockets() -> impl Strategy<Value = (SocketLocation, Backend)> {
    prop_oneof![
        Just((SocketLocation::Files, Backend::Epoll)),
        Just((SocketLocation::Files, Backend::Uring)),
        Just((SocketLocation::Tables, Backend::Uring)),
    ]
}

proptest! {
    #[test]
    fn accepts_the_maximum_and_refuses_one_more(
        fds in 100u64..50_000,
        ports in 100u64..60_000,
        addresses in 1u8..20,
        threads in 1u32..20,
        (sockets, backend) in sockets(),
        held in any::<bool>(),
    ) {
        let offer = Offer { ports: Some(ports), fds: Some(fds), sockets, ..OFFER };
        let base = if held {
            held_plan(open_plan(Arrivals::Constant, 100.0, Some(1.0), None))
        } else {
            closed_plan(1, 1)
        };
        let plan = |connections: u64| Plan {
            connections: connections as u32,
            threads,
            backend,
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
        let fix = if by_ports { "--sources" } else { "ulimit -n" };
        prop_assert!(text.contains(fix) || text.contains("ulimit -n"), "{}", text);
        // Each suggested fix must work.
        let advised = format!("use -c {most}");
        prop_assert!(text.contains(&advised), "{} lacks {}", text, advised);
    }

    #[test]
    fn accepts_the_needed_limit_and_refuses_one_less(
        connections in 1u32..200_000,
        threads in 1u32..50,
        (sockets, backend) in sockets(),
    ) {
        let plan = Plan { threads, backend, ..closed_plan(connections, 1) };
        let needed = files_needed(&plan, sockets);
        let offer = |fds| Offer { ports: None, fds: Some(fds), sockets, ..OFFER };
        prop_assert_eq!(shortage(&plan, &offer(needed)), None);
        // Otherwise, the needed limit is set by the rings, not by the connections.
        if needed > OTHER_FDS + u64::from(threads) {
            prop_assert!(shortage(&plan, &offer(needed - 1)).is_some());
        }
    }
}
