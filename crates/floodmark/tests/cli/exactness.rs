//! Tests of exact request counts, compared with the server's log.

use floodmark_truth::log::ClosedBy;
use floodmark_truth::scenario::Service;
use floodmark_truth::{Log, Scenario, TruthServer};

use crate::support::{Load, Serve, load, truth};

/// Runs a load against a fresh known-truth server. Compares the counts of requests, connections and
/// bytes.
fn agree(arguments: &[&str]) -> (Load, Log) {
    agree_on(Scenario::default(), arguments)
}

fn agree_on(scenario: Scenario, arguments: &[&str]) -> (Load, Log) {
    let (server, url) = truth(scenario);
    // Without --anyway, floodmark sends one more request, which it does not count.
    let load = load(&url, &[arguments, &["--anyway"]].concat());
    // Wait until the server has seen all connections close.
    server.settle().unwrap();
    let log = stop(server);
    load.ends_with(0);
    let run =
        |what: fn(&floodmark_record::Run) -> u64| load.record.runs.iter().map(what).sum::<u64>();
    let warm: u64 = load
        .record
        .runs
        .iter()
        .flat_map(|r| &r.warmup)
        .map(|w| w.requests.sent)
        .sum();
    assert_eq!(run(|r| r.requests.sent) + warm, log.totals.requests);
    assert_eq!(run(|r| r.requests.ok), run(|r| r.requests.intended));
    assert_eq!(run(|r| r.connections.opened), log.totals.accepted);
    if warm == 0 {
        assert_eq!(run(|r| r.bytes.sent), log.totals.bytes_in);
        assert_eq!(run(|r| r.bytes.received), log.totals.bytes_out);
    }
    assert_eq!(log.totals.bad_requests, 0);
    (load, log)
}

fn stop(server: TruthServer) -> Log {
    server.stop().unwrap()
}

#[test]
fn closed_model_sends_the_requested_number() {
    for (arguments, requests, connections) in [
        (&["-n", "1000", "-c", "7"][..], 1000, 7),
        // Kept connections are opened before the clock starts, even if some remain unused.
        (&["-n", "10", "-c", "50"], 10, 50),
        (&["-n", "5000", "-t", "2", "-c", "3"], 5000, 3),
        (&["-n", "1", "-t", "2", "-c", "1"], 1, 1),
        (&["-n", "1001", "-c", "5", "--fresh"], 1001, 1001),
        (&["-n", "10", "-c", "50", "--fresh"], 10, 10),
        (&["-n", "200", "-c", "3", "-b", "0123456789"], 200, 3),
    ] {
        let (load, log) = agree(arguments);
        assert_eq!(load.counts().intended, requests, "{arguments:?}");
        assert_eq!(log.totals.accepted, connections, "{arguments:?}");
        assert_eq!(load.run().response_time_us.count, requests);
    }
}

#[test]
fn a_rate_and_a_duration_give_the_number_of_requests() {
    let (load, _) = agree(&["-r", "500", "-d", "2s", "-t", "2", "-c", "100"]);
    assert_eq!(load.counts().intended, 1000);
    assert_eq!(load.run().plan.request_limit(), None);
    let (load, _) = agree(&["-r", "400", "-n", "333"]);
    assert_eq!(load.counts().intended, 333);
}

#[test]
fn a_load_ends_at_the_earlier_limit() {
    for model in [
        &[][..],
        &["-r", "500"],
        &["-r", "500", "--arrivals", "poisson"],
    ] {
        for backend in ["uring", "epoll"] {
            let limits = |requests, duration| {
                let limits = ["-n", requests, "-d", duration, "-t", "2", "-c", "20"];
                let (load, _) = agree(&[model, &limits, &["--backend", backend]].concat());
                load
            };
            let load = limits("300", "60s");
            assert_eq!(load.counts().intended, 300, "{model:?}");
            assert!(load.run().sending_s < 2.0, "{model:?}");
            let load = limits("1M", "300ms");
            assert!(load.counts().intended < 1_000_000, "{model:?}");
            assert!((load.run().sending_s - 0.3).abs() < 0.01, "{model:?}");
        }
    }
}

#[test]
fn sends_an_exact_number_of_poisson_arrivals() {
    let poisson = |seed| {
        let (load, log) = agree(&[
            "-r",
            "1k",
            "--arrivals",
            "poisson",
            "-n",
            "777",
            "--seed",
            seed,
        ]);
        assert_eq!(load.counts().intended, 777);
        log.requests
            .iter()
            .map(|r| r.arrival_ns)
            .collect::<Vec<_>>()
    };
    let gaps = |times: &[u64]| -> f64 {
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        gaps.iter().map(|g| (g / mean - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64
    };
    // The squared coefficient of variation is 1 for exponential intervals and 0 for equal
    // intervals.
    assert!(gaps(&poisson("1")) > 0.5);
}

#[test]
fn sends_a_burst_over_fresh_connections() {
    let (load, log) = agree(&["--burst", "300", "--within", "500ms", "--fresh"]);
    assert_eq!(load.counts().intended, 300);
    assert_eq!(log.totals.accepted, 300);
    assert!((load.run().sending_s - 0.5).abs() < 0.01);
}

#[test]
fn limits_requests_per_connection() {
    let (load, log) = agree(&["-n", "100", "-c", "4", "--requests-per-connection", "3"]);
    assert_eq!(load.counts().intended, 100);
    let most = log.connections.iter().map(|c| c.requests).max();
    assert_eq!(most, Some(3));
    // The four connections in use at the end may have served fewer requests.
    let full = log.connections.iter().filter(|c| c.requests == 3).count() as u64;
    assert!((31..=33).contains(&full), "{full}");
    assert!(
        (34..=full + 4).contains(&log.totals.accepted),
        "{}",
        log.totals.accepted
    );
}

#[test]
fn the_chosen_peer_closes_first() {
    for (who, by) in [
        ("server", ClosedBy::Server),
        ("client", ClosedBy::Client),
        ("reset", ClosedBy::ClientReset),
    ] {
        let (_, log) = agree(&["-n", "200", "-c", "4", "--fresh", "--close-first", who]);
        assert_eq!(log.closed(by), 200, "{who}: {:?}", log.totals.closed);
    }
}

#[test]
fn counts_the_warm_up_separately() {
    let (load, log) = agree(&["-n", "500", "-c", "2", "--warmup", "300ms"]);
    let warmup = load.run().warmup.as_ref().unwrap();
    assert_eq!(load.counts().intended, 500);
    assert!(warmup.requests.ok > 0 && (0.3..20.0).contains(&warmup.duration_s));
    assert_eq!(log.totals.requests, 500 + warmup.requests.sent);
    let (load, _) = agree(&["-r", "200", "-d", "1s", "--warmup", "500ms", "-c", "100"]);
    assert_eq!(load.counts().intended, 200);
    assert_eq!(load.run().warmup.as_ref().unwrap().requests.intended, 100);
}

#[test]
fn measures_several_attempts_on_one_server() {
    let (load, log) = agree(&["-n", "100", "-c", "5", "--attempts", "3"]);
    assert_eq!(load.record.runs.len(), 3);
    for (i, run) in load.record.runs.iter().enumerate() {
        assert_eq!((run.attempt as usize, run.requests.ok), (i + 1, 100));
    }
    assert_eq!(load.record.overall.as_ref().unwrap().attempts, 3);
    assert_eq!(log.totals.requests, 300);
}

#[test]
fn goodput_counts_responses_within_the_deadline() {
    let slow = Scenario {
        service: Service::Fixed { delay_us: 60_000 },
        ..Scenario::default()
    };
    for (deadline, good) in [("10ms", false), ("4s", true)] {
        let (load, _) = agree_on(
            slow.clone(),
            &["-n", "40", "-c", "8", "--deadline", deadline],
        );
        let run = load.run();
        if good {
            assert_eq!(run.goodput_per_s, run.throughput_per_s);
        } else {
            assert_eq!(run.goodput_per_s, Some(0.0));
        }
        assert!(run.throughput_per_s > Some(0.0));
    }
}

#[test]
#[cfg_attr(not(ipv6), ignore = "this host has no IPv6")]
fn loads_an_ipv6_address() {
    let server = Serve::start_on("[::1]:0", &["hello"]);
    let taken = load(&server.url, &["-n", "100", "-c", "3"]);
    taken.ends_with(0);
    assert_eq!(taken.counts().ok, 100);
    let address = taken.run().plan.target.address.ip();
    assert!(address.is_some_and(|address| address.is_ipv6()));
}

#[test]
fn uses_the_source_addresses() {
    let (load, log) = agree(&[
        "-n",
        "60",
        "-c",
        "6",
        "--fresh",
        "--sources",
        "127.0.0.2-127.0.0.9",
    ]);
    assert_eq!((load.counts().ok, log.totals.accepted), (60, 60));
}
