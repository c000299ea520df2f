//! Tests of verdicts on CPU-bound runs, and of what those verdicts say about CPU use.

use floodmark_record::cause::Cause;
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::path::PathStep;
use floodmark_record::run::Run;
use floodmark_record::tls::{TlsRun, TlsUse};
use floodmark_record::verdict::Verdict;
use floodmark_record::{Metric, Observation};

use super::tests::{is, judged, rules_out, run_with, series};
use super::waiting_tests::{blocked, upstream};
use crate::testing::thread;

#[test]
fn saturated_client_is_the_cause() {
    let mut run = run_with(1.5, 0.4, 0.2);
    run.client.threads = vec![thread(0.98, 0.0)];
    let verdict = is(&run, Cause::ClientCpu);
    assert_eq!(verdict.next, "add a client thread: -t 2");
    assert!((verdict.limit_per_s.unwrap() - 1_000.0 / 0.98).abs() < 1e-6);
    run.client.threads = vec![thread(0.5, 0.0)];
    is(&run, Cause::Unknown);
}

#[test]
fn distinguishes_a_saturated_thread_from_saturated_cpus() {
    is(&run_with(1.2, 1.0, 0.99), Cause::ServerCpuOneThread);
    let all = is(&run_with(3.98, 3.8, 0.96), Cause::ServerCpu);
    assert!(rules_out(&all, Cause::ServerCpuOneThread));
    is(&run_with(2.0, 1.5, 0.5), Cause::Unknown);
    // A thread is the cause only if it is closer to saturation than the CPUs, which are 85 % busy.
    let ready = |on_cpu: f64| {
        let mut run = run_with(3.4, 3.3, on_cpu);
        run.server.as_mut().unwrap().seen.threads[0].run_delay_s = (0.95 - on_cpu) * 10.0;
        run
    };
    is(&ready(0.88), Cause::ServerCpuOneThread);
    is(&ready(0.5), Cause::Unknown);
}

#[test]
fn threads_behind_an_interpreter_lock_run_one_at_a_time() {
    // The service time is shorter than the CPU time of a request, and system calls run without the
    // lock.
    let mut run = run_with(1.4, 1.15, 0.06);
    run.least_service_time_us = Some(600.0);
    is(&run, Cause::Unknown);
    let waiting = blocked(
        "python",
        &[("timed lock", 15.0), ("client read", 3.0)],
        9_000.0,
    );
    run.observations.extend(waiting);
    let verdict = is(&run, Cause::ServerCpuOneThread);
    assert!(verdict.summary.contains("interpreter lock"), "{verdict:#?}");
    run.observations.push(series("jvm", "java_threads", 30.0));
    assert_ne!(judged(&run).cause, Cause::ServerCpuOneThread);
}

#[test]
fn run_delay_of_client_and_server_means_shared_cpus() {
    let mut run = run_with(3.98, 3.0, 0.8);
    run.client.threads = vec![thread(0.8, 0.25)];
    run.observations[3] = series("server", "run_delay", 1.0);
    let verdict = is(&run, Cause::SharedCpu);
    assert_eq!(verdict.also, [Cause::ServerCpu]);
    // If the client has little run delay, the server's CPU is the cause.
    run.client.threads = vec![thread(0.7, 0.05)];
    is(&run, Cause::ServerCpu);
}

#[test]
fn saturated_thread_on_busy_cpus_is_server_cpu() {
    // 3.75 of 4 CPUs are busy, so a second thread would gain too little.
    let mut run = run_with(3.75, 2.0, 0.98);
    run.client.threads = vec![thread(0.8, 0.02), thread(0.8, 0.02)];
    let verdict = is(&run, Cause::ServerCpu);
    assert!((verdict.limit_per_s.unwrap() - 1_000.0 * 4.0 / 3.75).abs() < 1e-6);
    run.server.as_mut().unwrap().seen.threads[0].on_cpu_s = 5.0;
    is(&run, Cause::Unknown);
}

#[test]
fn shared_cpus_may_be_idle_briefly() {
    let handing = |busy: f64, client: f64| {
        let mut run = run_with(busy, busy - client, 0.6);
        run.client.threads = vec![thread(client / 2.0, 0.2); 2];
        run.observations[3] = series("server", "run_delay", 1.5);
        run
    };
    let verdict = is(&handing(3.4, 0.8), Cause::SharedCpu);
    assert!((verdict.limit_per_s.unwrap() - 1_000.0 * 4.0 / 3.4).abs() < 1e-6);
    // More CPUs are idle than the client uses.
    is(&handing(3.4, 0.55), Cause::Unknown);
    // A runnable thread can find an idle CPU.
    is(&handing(2.9, 1.2), Cause::Unknown);
}

#[test]
fn shared_cpus_rank_before_client_and_server_cpu() {
    let mut run = run_with(3.8, 3.0, 0.8);
    run.client.threads = vec![thread(0.97, 0.25)];
    run.observations[3] = series("server", "run_delay", 1.0);
    run.client.threads[0].run_delay_s = Some(4.0);
    let verdict = is(&run, Cause::SharedCpu);
    // The client uses 97 % of its limit, and the server uses 99 %.
    assert_eq!(verdict.also, [Cause::ServerCpu, Cause::ClientCpu]);
}

#[test]
fn steal_is_the_cause_if_it_takes_most_cpu_time() {
    let stolen = |cpus: f64| {
        let mut run = run_with(4.0 - cpus, 3.8 - cpus, 0.6);
        run.observations.push(series("host", "steal", cpus));
        run
    };
    let full = |mut run: Run| {
        run.observations[0] = series("host", "busy", 4.0);
        run
    };
    assert_eq!(
        is(&full(stolen(0.8)), Cause::ServerCpu).also,
        [Cause::Steal]
    );
    is(&stolen(2.2), Cause::Steal);
}

#[test]
fn finds_a_cpu_quota_on_an_idle_host() {
    let mut run = run_with(0.6, 0.5, 0.5);
    run.observations[7] = series("cgroup", "nr_throttled", 10.0);
    run.observations[8] = series("cgroup", "throttled_time", 0.5);
    is(&run, Cause::CpuQuota);
}

/// Returns the series for the code that the server executes.
fn code(cryptography: f64, compression: f64) -> [Observation; 3] {
    [
        series("server code", "all code", 1.0),
        series("server code", "cryptography", cryptography),
        series("server code", "compression", compression),
    ]
}

#[test]
fn names_the_code_that_takes_most_of_the_cpu_time() {
    let path = |verdict: &Verdict| -> Vec<String> {
        let steps = verdict.path.iter().skip(1);
        steps.map(PathStep::key).collect()
    };
    let mut run = run_with(3.98, 3.8, 0.6);
    run.observations.extend(code(0.0, 0.9));
    let verdict = is(&run, Cause::Compression);
    assert_eq!(path(&verdict), ["cpu server", "compression server"]);
    assert_eq!(verdict.also, [Cause::ServerCpu]);
    // A smaller share is only a cost; the saturated CPU is the cause.
    let mut run = run_with(3.98, 3.8, 0.6);
    run.observations.extend(code(0.0, 0.4));
    let verdict = is(&run, Cause::ServerCpu);
    assert_eq!(verdict.also, [Cause::Compression]);
    assert!((verdict.costs[0].share - 0.32).abs() < 1e-9, "{verdict:?}");
    // On an idle server, nothing waits for compression.
    let mut run = run_with(1.0, 0.5, 0.1);
    run.observations.extend(code(0.0, 0.9));
    let verdict = judged(&run);
    assert_ne!(verdict.cause, Cause::Compression);
    assert!(!verdict.also.contains(&Cause::Compression), "{verdict:?}");
    // Without new connections, CPU time in cryptography does not come from TLS handshakes.
    let mut run = run_with(3.98, 3.8, 0.6);
    run.observations.extend(code(0.9, 0.0));
    assert_eq!(path(&is(&run, Cause::ServerCpu)), ["cpu server"]);
    run.observations[6] = series("network", "ActiveOpens", 1_000.0);
    let verdict = is(&run, Cause::TlsHandshake);
    assert_eq!(path(&verdict), ["cpu server", "tls server"]);
}

#[test]
fn handshakes_and_upstream_connections_rank_before_the_cpu() {
    let mut run = run_with(3.98, 3.8, 0.6);
    run.tls = Some(TlsRun {
        handshake_cpu_share: None,
        used: TlsUse {
            handshakes: 10_000,
            ..TlsUse::default()
        },
    });
    assert_eq!(is(&run, Cause::TlsHandshake).also, [Cause::ServerCpu]);
    if let Some(tls) = &mut run.tls {
        tls.used.resumed = 9_000;
    }
    is(&run, Cause::ServerCpu);

    let mut run = run_with(3.98, 3.8, 0.6);
    run.observations[6] = series("network", "ActiveOpens", 600.0);
    is(&run, Cause::ServerCpu);
    // Short-lived connections are rarely sampled, but there is one new connection per response.
    let mut at_once = run.clone();
    at_once.observations[6] = series("network", "ActiveOpens", 1_000.0);
    is(&at_once, Cause::ProxyHop);
    run.observations.extend(upstream(20.0, 10.0));
    assert_eq!(is(&run, Cause::ProxyHop).also, [Cause::ServerCpu]);
    // The kernel opens connections, so CPU time in user mode has another cause.
    let is_mode = |of: &Observation| {
        use ProcessFigure::{System, User};
        matches!(of.metric, Metric::Process(Role::Server, System | User))
    };
    run.observations.retain(|of| !is_mode(of));
    run.observations.extend([
        series("server", "user", 3.7),
        series("server", "system", 0.1),
    ]);
    is(&run, Cause::ServerCpu);
}
