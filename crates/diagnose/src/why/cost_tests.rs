//! Verdicts that name a part of the CPU time, or a mechanism that uses it. Also requests in flight
//! without a response.

use floodmark_record::cause::Cause;
use floodmark_record::run::{Run, SteadyClass};
use floodmark_record::watch::ServerThread;

use super::queue_tests::rows;
use super::tests::{is, rules_out, run_with, series};
use super::waiting_tests::{blocked, keys};

/// Returns a run that saturates 4 CPUs and opens a connection for one request in ten.
fn reopening() -> Run {
    let mut run = run_with(3.98, 3.8, 0.6);
    run.connections.opened = 1_050;
    run
}

#[test]
fn names_the_share_of_new_connections_beside_a_saturated_cpu() {
    let verdict = is(&reopening(), Cause::ServerCpu);
    assert_eq!(verdict.also, [Cause::KeepaliveLimit]);
    let cost = &verdict.costs[0];
    assert_eq!(
        (cost.cause, verdict.costs.len()),
        (Cause::KeepaliveLimit, 1)
    );
    assert!((cost.share - 1.0 / 3.0).abs() < 1e-9, "{cost:?}");
    assert!(cost.summary.contains("33 % of the CPU time"), "{cost:?}");
    let mut rare = reopening();
    rare.connections.opened = 200;
    let verdict = is(&rare, Cause::ServerCpu);
    assert!(
        verdict.also.is_empty() && verdict.costs.is_empty(),
        "{verdict:#?}"
    );
}

#[test]
fn names_the_share_of_the_runtime_beside_a_saturated_cpu() {
    let mut run = run_with(3.98, 3.8, 0.6);
    run.observations.extend([
        series("jvm", "compiler_threads", 0.57),
        series("jvm", "gc_time", 0.05),
        series("jvm", "collector_threads", 0.76),
    ]);
    let verdict = is(&run, Cause::ServerCpu);
    let costs: Vec<(Cause, String)> = verdict
        .costs
        .iter()
        .map(|cost| (cost.cause, format!("{:.2}", cost.share)))
        .collect();
    let expected = [(Cause::Gc, "0.20"), (Cause::Jit, "0.15")];
    assert_eq!(
        costs,
        expected.map(|(cause, share)| (cause, share.to_owned()))
    );
}

#[test]
fn the_collector_of_any_runtime_ranks_before_the_cpu_it_uses() {
    let collecting = |busy, server, busiest, share: f64| {
        let mut run = run_with(busy, server, busiest);
        // Four fifths of the CPU time are in user mode.
        run.observations.extend([
            series("server code", "all code", 1.0),
            series("server code", "garbage collection", share / 0.8),
        ]);
        run
    };
    let verdict = is(&collecting(3.98, 3.8, 0.6, 0.45), Cause::Gc);
    assert_eq!(verdict.also, [Cause::ServerCpu]);
    let evidence = verdict.evidence.join("\n");
    assert!(evidence.contains("45 % of the server's CPU"), "{evidence}");
    let verdict = is(&collecting(1.2, 1.0, 0.99, 0.45), Cause::Gc);
    assert_eq!(keys(&verdict)[..2], ["threads server", "cpu server"]);
    // Threads that run one at a time.
    let mut run = collecting(1.2, 1.0, 0.3, 0.45);
    run.least_service_time_us = Some(1_000.0);
    is(&run, Cause::Gc);
    // Other threads collect on idle CPUs while one thread runs the program.
    let verdict = is(&collecting(2.0, 1.6, 0.99, 0.47), Cause::ServerCpuOneThread);
    assert_eq!(verdict.also, [Cause::Gc]);
    let verdict = super::tests::judged(&collecting(2.0, 1.6, 0.99, 0.4));
    assert!(rules_out(&verdict, Cause::Gc), "{verdict:#?}");
    // Idle threads wait for a lock while the others use about one of four CPUs.
    let mut run = collecting(1.2, 1.0, 0.3, 0.45);
    run.observations
        .extend(blocked("app", &[("own lock", 40.0)], 2_000.0));
    let verdict = super::tests::judged(&run);
    assert!(rules_out(&verdict, Cause::Gc), "{verdict:#?}");
    // A healthy Go server.
    let verdict = is(&collecting(3.98, 3.8, 0.6, 0.24), Cause::ServerCpu);
    assert_eq!(verdict.also, [Cause::Gc]);
    // The collector can run on idle CPUs without delaying requests.
    let verdict = super::tests::judged(&collecting(1.0, 0.5, 0.1, 0.6));
    assert!(rules_out(&verdict, Cause::Gc), "{verdict:#?}");
}

#[test]
fn a_cost_is_never_the_limit() {
    let mut run = reopening();
    // Neither the server nor the client is saturated, and too few CPUs are idle to rule out a cost.
    run.observations[0] = series("host", "busy", 3.5);
    run.observations[1] = series("server", "user", 1.0);
    run.observations[2] = series("server", "system", 0.2);
    let verdict = is(&run, Cause::Unknown);
    assert!(verdict.costs.is_empty(), "{verdict:#?}");
}

#[test]
fn requests_without_a_response_are_in_flight() {
    let in_flight = |run: &Run| {
        let verdict = super::tests::verdict(run, &super::tests::machine()).unwrap();
        verdict.ledger.unwrap().under_way
    };
    let mut run = run_with(0.3, 0.1, 0.1);
    run.service_time_us.mean = Some(4_000.0);
    assert!((in_flight(&run) - 4.0).abs() < 1e-9);
    run.requests.in_flight_at_end = 32;
    assert!((in_flight(&run) - 32.0).abs() < 1e-9);
    run.requests.in_flight_at_end = 0;
    run.requests.timed_out = 20;
    let timeout_s = run.plan.timeout.as_secs_f64();
    let expected = 4.0 + 20.0 * timeout_s / run.sending_s;
    assert!((in_flight(&run) - expected).abs() < 1e-9);
    run.requests.timed_out = 1_000_000;
    assert!((in_flight(&run) - 50.0).abs() < 1e-9);
}

#[test]
fn mechanism_ranks_before_the_cpu_it_uses() {
    let jvm = |compiling: f64, gc: f64, collecting: f64| {
        let mut run = run_with(3.98, 3.8, 0.6);
        run.observations.extend([
            series("jvm", "java_threads", 30.0),
            series("jvm", "compiler_threads", compiling),
            series("jvm", "collector_threads", collecting),
            series("jvm", "gc_time", gc),
        ]);
        run
    };
    assert_eq!(
        is(&jvm(1.5, 0.01, 0.1), Cause::Jit).also,
        [Cause::ServerCpu]
    );
    assert_eq!(is(&jvm(0.1, 0.6, 0.9), Cause::Gc).also, [Cause::ServerCpu]);
    // The larger consumer is the cause.
    is(&jvm(1.0, 0.4, 0.9), Cause::Gc);
    is(&jvm(1.0, 0.15, 0.4), Cause::Jit);
    // Compiler threads lack CPU time and never catch up, while throughput still rises.
    let mut starved = jvm(0.5, 0.02, 0.1);
    starved.series = rows(&[900.0, 1_000.0, 1_100.0]);
    let server = starved.server.as_mut().unwrap();
    server.seen.threads.push(ServerThread {
        name: "C2 CompilerThre".to_owned(),
        on_cpu_s: 2.0,
        run_delay_s: 7.5,
        ..ServerThread::default()
    });
    is(&starved, Cause::Jit);
    let server = starved.server.as_mut().unwrap();
    server.seen.threads[1].run_delay_s = 4.0;
    is(&starved, Cause::ServerCpu);
    let server = starved.server.as_mut().unwrap();
    server.seen.threads[1].run_delay_s = 7.5;
    starved.series.truncate(1);
    is(&starved, Cause::ServerCpu);
    let mut warm = jvm(0.5, 0.02, 0.1);
    is(&warm, Cause::ServerCpu);
    warm.steady.class = SteadyClass::Warming;
    is(&warm, Cause::Jit);
}
