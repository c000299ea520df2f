//! Client and server on CPUs or machines of their own, and sides that share CPUs with others that take more.

use floodmark_record::cause::Cause;
use floodmark_record::elsewhere::{Aligned, Elsewhere, Method};
use floodmark_record::run::{Environment, Run};

use super::tests::{is, seen, series};
use crate::testing::thread;

/// The server's machine has two CPUs, of which `busy` were busy; the load's has four, which were idle.
fn observed_elsewhere(busy: f64, server: f64, busiest: f64) -> Run {
    let mut run = seen(0.2, server, busiest);
    run.elsewhere = Some(Elsewhere {
        environment: Environment {
            cpus: 2,
            ..Environment::default()
        },
        aligned: Aligned {
            method: Method::WallClocks,
            offset_ms: 0.0,
            error_ms: 1.0,
            correlation: None,
            but: None,
        },
        from_ms: 0,
        to_ms: 10_000,
        watcher_cpu_s: 0.1,
    });
    run.observations.push(series("server host", "busy", busy));
    run
}

#[test]
fn idle_cpus_of_the_load_s_machine_are_none_of_the_server_s() {
    // Both CPUs of its machine are busy with it.
    is(&observed_elsewhere(1.99, 1.95, 0.97), Cause::ServerCpu);
    // One of them is.
    is(
        &observed_elsewhere(1.02, 1.0, 0.99),
        Cause::ServerCpuOneThread,
    );
}

#[test]
fn of_a_server_that_is_not_seen_only_waiting_for_nothing_is_told() {
    let mut run = seen(0.2, 0.1, 0.1);
    run.server = None;
    run.warmup = Some(floodmark_record::run::Warmup {
        duration_s: 1.0,
        requests: run.requests.clone(),
    });
    // One request at a time is worked on: by a lock, a thread or a CPU.
    run.least_service_time_us = Some(1_000.0);
    let verdict = is(&run, Cause::Unknown);
    let told = |line: &String| line.contains("all look alike from here");
    assert!(verdict.unseen.iter().any(told), "{verdict:#?}");
    // All of them are.
    run.least_service_time_us = Some(49_000.0);
    is(&run, Cause::Concurrency);
}

#[test]
fn another_load_generator_that_fills_the_cpus_is_the_limit_though_the_server_takes_some() {
    let mut run = seen(3.95, 0.3, 0.1);
    run.client.threads.clear();
    run.client.name = Some("curl-loop".to_owned());
    // Most of it by processes that came and went: only their parent's account has them.
    (run.client.user_s, run.client.system_s) = (25.0, 11.5);
    run.observations.push(series("client", "run_delay", 9.0));
    is(&run, Cause::ClientCpu);
    // The server takes more of what both take.
    let mut run = seen(3.95, 3.0, 0.8);
    run.client.threads = vec![thread(0.6, 0.38)];
    is(&run, Cause::ServerCpu);
}

#[test]
fn a_store_that_takes_the_cpus_is_told_from_two_that_share_them() {
    let mut run = seen(3.98, 0.8, 0.3);
    run.client.threads = vec![thread(0.7, 0.25)];
    run.observations[3] = series("server", "run_delay", 1.0);
    is(&run, Cause::SharedCpu);
    let mut store = run.server.clone().unwrap();
    store.cpu_s = 26.0;
    run.store = Some(store);
    run.observations
        .extend([series("store", "user", 2.4), series("store", "system", 0.2)]);
    let verdict = is(&run, Cause::StoreCpu);
    assert!(!verdict.also.contains(&Cause::SharedCpu), "{verdict:#?}");
}
