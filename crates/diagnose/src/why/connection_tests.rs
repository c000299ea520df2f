//! Tests of verdicts on runs that are limited by their connections.

use floodmark_record::cause::Cause;
use floodmark_record::plan::{ConnectionUse, Http, Http2};
use floodmark_record::run::{Run, Silence};

use super::tests::{is, judged, rules_out, run_with, series};
use super::waiting_tests::{blocked, keys};
use crate::testing::{open, thread};

#[test]
fn finds_missing_ports_and_file_descriptors() {
    for (error, cause) in [
        ("ports_exhausted", Cause::EphemeralPorts),
        ("fds_exhausted", Cause::ClientFds),
    ] {
        let mut run = run_with(1.0, 0.1, 0.1);
        run.plan.connection_use = ConnectionUse::Fresh;
        run.connections.ports_per_source = Some(4_000);
        run.observations
            .push(series("client sockets", "time_wait", 3_900.0));
        run.errors.insert(error.to_owned(), 5_000);
        run.requests.connect_failed = 5_000;
        run.requests.intended += 5_000;
        // The search for a port takes all of the client's time.
        run.client.threads = vec![thread(0.97, 0.0)];
        run.requests.sent = 4_000;
        run.throughput_per_s = Some(390.0);
        let verdict = judged(&run);
        if cause == Cause::EphemeralPorts {
            assert_eq!(verdict.cause, cause, "{verdict:#?}");
            // Each port is used only once within 10 s.
            assert!((verdict.limit_per_s.unwrap() - 400.0).abs() < 1e-6);
            assert!(verdict.also.is_empty() && verdict.summary.contains("TIME_WAIT"));
            // Ports of open connections are not in TIME_WAIT.
            let resting = run.observations.pop().unwrap();
            let verdict = is(&run, cause);
            assert!(verdict.limit_per_s.is_none() && !verdict.summary.contains("TIME_WAIT"));
            run.observations.push(resting);
            // An HTTP/2 server cannot be asked to close.
            let mut version_2 = run.clone();
            version_2.plan.http = Http::V2(Http2::default());
            assert!(judged(&version_2).next.contains("--close-first reset"));
            assert!(judged(&run).next.contains("--close-first server"));
        } else {
            assert_eq!(verdict.cause, cause, "{verdict:#?}");
        }
        // A few failures do not limit throughput.
        run.errors.insert(error.to_owned(), 5);
        assert_ne!(judged(&run).cause, cause);
    }
}

#[test]
fn names_a_queue_only_if_it_overflows_often() {
    let mut run = run_with(1.0, 0.1, 0.1);
    run.observations[5] = series("network", "ListenOverflows", 50.0);
    run.observations[6] = series("network", "ActiveOpens", 900.0);
    is(&run, Cause::ListenBacklog);
    // The overflows belong to other listeners, because this queue has room for all connections.
    let mut roomy = run.clone();
    roomy.observations.extend([
        series("listener", "accept_queue", 0.0),
        series("listener", "accept_queue_limit", 1_024.0),
    ]);
    is(&roomy, Cause::Unknown);
    run.observations[5] = series("network", "ListenOverflows", 0.1);
    is(&run, Cause::Unknown);
    // A few of many kept connections were delayed when they were opened.
    run.observations[5] = series("network", "ListenOverflows", 5.0);
    run.observations[6] = series("network", "ActiveOpens", 0.0);
    is(&run, Cause::Unknown);
    run.plan.connection_use = ConnectionUse::Fresh;
    is(&run, Cause::ListenBacklog);
    // The server closes kept connections.
    run.plan.connection_use = ConnectionUse::Kept;
    run.connections.opened = 500;
    is(&run, Cause::ListenBacklog);
}

#[test]
fn keepalive_limit_ignores_broken_connections() {
    let mut run = run_with(3.98, 3.8, 0.6);
    run.connections.opened = 3_000;
    assert_eq!(is(&run, Cause::KeepaliveLimit).also, [Cause::ServerCpu]);
    run.requests.reset = 2_900;
    is(&run, Cause::ServerCpu);
}

#[test]
fn keepalive_limit_ignores_connections_that_are_cheap_for_the_client() {
    let mut run = run_with(3.98, 3.8, 0.6);
    run.connections.opened = 3_000;
    run.client.cpu_us_per_request = Some(90.0);
    run.server.as_mut().unwrap().cpu_us_per_request = Some(1_000.0);
    assert_eq!(is(&run, Cause::ServerCpu).also, []);
}

#[test]
fn keepalive_limit_ignores_servers_whose_requests_sleep() {
    // One thread sleeps for 20 ms per request, and other programs use the rest of the CPUs.
    let mut run = run_with(3.98, 0.02, 0.02);
    run.throughput_per_s = Some(48.0);
    run.least_service_time_us = Some(20_000.0);
    run.client.threads = vec![thread(0.01, 0.03)];
    run.observations[3] = series("server", "run_delay", 0.05);
    run.connections.opened = 480;
    run.requests.sent = 480;
    let threads = blocked("python", &[("timer", 0.97), ("accept", 0.03)], 48.0);
    run.observations.extend(threads);
    is(&run, Cause::WorkerPool);
    // Most connections wait to be accepted, and the main thread waits for the worker to end.
    run.observations
        .extend(blocked("python (main)", &[("own lock", 1.0)], 0.1));
    run.observations.extend([
        series("listener", "accept_queue", 49.0),
        series("server sockets", "established", 50.0),
        series("server sockets", "receive_queue", 49.0 * 80.0),
    ]);
    run.bytes.sent = 480 * 80;
    let verdict = is(&run, Cause::WorkerPool);
    assert_eq!(verdict.also, [Cause::MaxConnections]);
    let gain = verdict.gain.unwrap();
    assert!(
        gain.high_per_s > 2_000.0,
        "other programs can be stopped: {gain:?}"
    );
}

#[test]
fn names_connections_that_a_busy_server_never_serves() {
    // Four threads serve one connection each, so 28 of 32 accepted connections starve.
    let mut run = run_with(3.98, 2.0, 0.6);
    run.plan.connections = 32;
    run.client.threads = vec![thread(0.8, 0.5), thread(0.8, 0.5)];
    run.observations[3] = series("server", "run_delay", 1.0);
    run.service_time_us.p99 = Some(300.0);
    run.connections.opened = 32;
    is(&run, Cause::SharedCpu);
    run.connections.silent = 28;
    let verdict = is(&run, Cause::MaxConnections);
    assert!(
        verdict.summary.starts_with("28 of 32 connections"),
        "{verdict:#?}"
    );
    assert_eq!(keys(&verdict), ["permits server"]);
    // A server that serves all connections slowly leaves some without a response by chance.
    run.service_time_us.p99 = Some(3e6);
    is(&run, Cause::SharedCpu);
}

#[test]
fn names_a_storm_of_connections_at_a_rate_that_the_server_meets() {
    let mut run = run_with(2.0, 0.6, 0.6);
    run.plan = open();
    run.plan.connections = 4_000;
    run.service_time_us.p50 = Some(600.0);
    run.connect_time_us.p99 = Some(2.1e6);
    run.blocked_us.p99 = Some(2.6e6);
    run.connections.opened = 1_559;
    let verdict = is(&run, Cause::ConnectionStorm);
    assert!(rules_out(&verdict, Cause::None), "{verdict:#?}");
    assert_eq!(
        verdict.next,
        "use fewer connections and keep them open: -c 50 --hold"
    );
    // The accept queue overflows because of the storm.
    run.observations[5] = series("network", "ListenOverflows", 472.0);
    run.observations[6] = series("network", "ActiveOpens", 155.0);
    run.service_time_us.mean = Some(600.0);
    assert_eq!(
        is(&run, Cause::ConnectionStorm).also,
        [Cause::ListenBacklog]
    );
    run.observations[5] = series("network", "ListenOverflows", 0.0);
    // Connections that open without delay do no harm.
    run.connect_time_us.p99 = Some(900.0);
    is(&run, Cause::None);
    run.connect_time_us.p99 = Some(2.1e6);
    run.blocked_us.p99 = Some(900.0);
    is(&run, Cause::None);
    run.blocked_us.p99 = Some(2.6e6);
    // A server that falls behind has another limit.
    run.connect_time_us.p99 = Some(2.1e6);
    run.throughput_per_s = Some(700.0);
    assert_ne!(judged(&run).cause, Cause::ConnectionStorm);
}

#[test]
fn a_met_rate_names_where_slow_requests_wait() {
    let mut run = run_with(2.0, 0.6, 0.6);
    run.plan = open();
    run.response_time_us.p50 = Some(590.0);
    let at = |run: &mut Run, p99_us: f64| {
        run.response_time_us.p99 = Some(p99_us);
        is(run, Cause::None).summary
    };
    assert!(at(&mut run, 5_000.0).ends_with("capacity was not reached"));
    let in_server = at(&mut run, 72_800.0);
    assert!(
        in_server.ends_with("p99 (72.8 ms) is 123 × p50: the slowest requests wait in the server"),
        "{in_server}"
    );
    run.observations[3] = series("server", "run_delay", 0.4);
    let for_cpu = at(&mut run, 72_800.0);
    assert!(
        for_cpu.contains("threads wait for a CPU (0.40 threads"),
        "{for_cpu}"
    );
    run.silence = Some(Silence {
        from_s: 2.0,
        to_s: 2.3,
        in_flight: 3,
        total_s: 0.3,
    });
    let silent = at(&mut run, 272_800.0);
    assert!(
        silent.ends_with("sent no response for 300 ms from 2.0 s on"),
        "{silent}"
    );
    run.blocked_us.p99 = Some(70_000.0);
    assert!(at(&mut run, 72_800.0).ends_with("for a free connection"));
    run.connect_time_us.p99 = Some(60_000.0);
    assert!(at(&mut run, 72_800.0).ends_with("for a new connection"));
    // Few requests wait for the slow connections.
    run.blocked_us.p99 = Some(900.0);
    assert!(!at(&mut run, 72_800.0).contains("connection"));
    run.lateness_us.p99 = Some(50_000.0);
    assert!(at(&mut run, 72_800.0).contains("in the client"));
}

#[test]
fn finds_delayed_acks() {
    let mut run = run_with(0.3, 0.1, 0.1);
    run.service_time_us.p50 = Some(44_000.0);
    run.service_time_us.p90 = Some(44_100.0);
    run.first_byte_us.p50 = Some(300.0);
    is(&run, Cause::DelayedAck);
    run.observations
        .push(series("network", "DelayedACKs", 990.0));
    is(&run, Cause::DelayedAck);
    run.observations.pop();
    run.observations.push(series("network", "DelayedACKs", 9.0));
    is(&run, Cause::Unknown);
    run.observations.pop();
    // After a 44 ms pause in the server, the first byte is also late.
    run.first_byte_us.p50 = Some(43_900.0);
    is(&run, Cause::Unknown);
    // The server works for 10 ms before the first byte.
    run.service_time_us.p50 = Some(51_000.0);
    run.service_time_us.p90 = Some(53_000.0);
    run.first_byte_us.p50 = Some(10_300.0);
    is(&run, Cause::DelayedAck);
    run.service_time_us.p50 = Some(38_000.0);
    is(&run, Cause::Unknown);
}
