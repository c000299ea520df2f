//! Tests of exact request counts, compared with the server's log.

use floodmark_record::Event;
use floodmark_record::events::Phase;
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

/// Returns the start of the measurement, in ns on the server log's clock, and the number of ok
/// responses in the sending window.
fn measured(load: &Load) -> (u64, u64) {
    let text = std::fs::read_to_string(load.events()).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let (mut origin_ns, mut start_ns, mut ok) = (None, None, 0);
    for event in events {
        match event {
            Event::Ready(ready) => origin_ns = ready.clock_origin_ns,
            Event::Began { at_ns, .. } => start_ns = Some(at_ns),
            Event::Second(row) if row.phase == Phase::Measure => ok += row.ok_in_window,
            _ => {}
        }
    }
    (origin_ns.unwrap() + start_ns.unwrap(), ok)
}

#[test]
fn no_row_step_or_bar_has_more_responses_than_the_server_sent() {
    for arguments in [
        // The last row covers a few milliseconds, unless it is joined to the previous row.
        "-c 20 -n 301",
        "-c 20 -r 50000 -d 2300ms --no-drain",
        "-c 20 --steps 50,400,80 -d 3900ms",
    ] {
        // 100 responses per second, one every 10 ms.
        let (server, url) = truth(Scenario::from(Service::Deterministic {
            time_us: 10_000.0,
            pauses: None,
        }));
        let arguments = Vec::from_iter(arguments.split(' '));
        let load = load(&url, &[&arguments[..], &["--anyway"]].concat());
        load.ends_with(0);
        let log = stop(server);
        let run = load.run();
        let (start_ns, ok) = measured(&load);
        // A response that was sent before a row starts can be read within the row. A stall is
        // measured from the end of the preceding wait, which lasts up to 50 ms.
        let read_after_ns = run.longest_stall_ns.unwrap() + 100_000_000;
        let sent = |from_s: f64, to_s: f64| {
            let at_ns = |s: f64| start_ns + (s * 1e9).round() as u64;
            let within = at_ns(from_s) - read_after_ns..=at_ns(to_s);
            let entries = log.requests.iter();
            entries
                .filter(|of| within.contains(&of.departure_ns))
                .count() as f64
        };
        let mut total = 0.0;
        for row in &run.series {
            let is_drain = row.from_s >= run.sending_s;
            let length_s = row.to_s.min(run.sending_s) - row.from_s;
            assert!(is_drain || length_s >= 0.5, "{arguments:?}: {row:?}");
            let shown = row.throughput_per_s * length_s.max(0.0);
            total += shown;
            let most = sent(row.from_s, row.to_s);
            assert!(
                shown <= most + 1e-6,
                "{arguments:?}: {shown} > {most}: {row:?}"
            );
        }
        assert!(
            (total - ok as f64).abs() < 1e-3,
            "{arguments:?}: {total} of {ok}"
        );
        for step in &run.steps {
            let shown = step.throughput_per_s * (step.to_s - step.from_s);
            let most = sent(step.from_s, step.to_s);
            assert!(
                shown <= most + 1e-6,
                "{arguments:?}: {shown} > {most}: {step:?}"
            );
        }
        let fine = run.fine_throughput.as_ref().unwrap();
        let mut read = 0;
        for (i, ok) in (1..).zip(&fine.ok) {
            read += *ok;
            let to_s = f64::from(i) * fine.step_s;
            let most = sent(0.0, to_s);
            assert!(
                read as f64 <= most,
                "{arguments:?}: {read} > {most} until {to_s} s"
            );
        }
    }
}
