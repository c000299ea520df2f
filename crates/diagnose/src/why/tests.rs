//! Verdicts on runs that have one known limit.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::client::ExternalRun;
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::outcome::Counts;
use floodmark_record::path::PathStep;
use floodmark_record::plan::ConnectionUse;
use floodmark_record::run::{Environment, Run};
use floodmark_record::times::Times;
use floodmark_record::tls::{TlsRun, TlsUse};
use floodmark_record::verdict::{Confidence, Verdict};
use floodmark_record::watch::{Server, ServerSeen, ServerThread};
use floodmark_record::{Metric, Observation};

use super::queue_tests::rows;
use super::verdict;
use super::waiting_tests::upstream;
use crate::next::tests::run;
use crate::testing::{closed, open, thread};

/// Returns a host with 4 CPUs.
pub(crate) fn machine() -> Environment {
    Environment {
        cpus: 4,
        ..Environment::default()
    }
}

/// Returns a series with the same value in each second of a ten-second run.
pub(crate) fn series(subject: &str, metric: &str, value: f64) -> Observation {
    let metric = Metric::parse(subject.to_owned(), metric.to_owned(), String::new());
    assert!(!matches!(metric, Metric::Other { .. }), "{metric:?}");
    Observation {
        metric,
        is_peak: false,
        source: String::new(),
        start_ms: 0,
        step_ms: 1_000,
        values: vec![value; 10],
    }
}

/// Returns a closed-model run with 50 connections at 1,000/s and a mostly idle client. In total,
/// `busy` CPUs of the host are in use. The server uses `server` CPUs with four threads. The busiest
/// thread uses `busiest` CPUs.
pub(crate) fn run_with(busy: f64, server: f64, busiest: f64) -> Run {
    let mut run = run(closed());
    run.client.threads = vec![thread(0.1, 0.0)];
    run.service_time_us = Times {
        count: 10_000,
        mean: Some(50_000.0),
        p50: Some(50_000.0),
        p90: Some(51_000.0),
        p99: Some(52_000.0),
        ..Times::default()
    };
    run.server = Some(Server {
        cpu_s: server * 10.0,
        wall_s: 10.0,
        seen: ServerSeen {
            name: "server".to_owned(),
            threads: vec![ServerThread {
                name: "worker-1".to_owned(),
                on_cpu_s: busiest * 10.0,
                ..ServerThread::default()
            }],
            ..ServerSeen::default()
        },
        ..Server::default()
    });
    run.observations = vec![
        series("host", "busy", busy),
        series("server", "user", server * 0.8),
        series("server", "system", server * 0.2),
        series("server", "run_delay", 0.01),
        series("client", "run_delay", 0.0),
        series("network", "ListenOverflows", 0.0),
        series("network", "ActiveOpens", 0.0),
        series("cgroup", "nr_throttled", 0.0),
        series("cgroup", "throttled_time", 0.0),
    ];
    run
}

fn judged(run: &Run) -> Verdict {
    let verdict = verdict(run, &machine()).unwrap();
    assert!(!verdict.summary.is_empty() && !verdict.next.is_empty());
    if verdict.cause == Cause::Unknown {
        assert_eq!(verdict.confidence, Confidence::Unknown);
    } else {
        assert!(!verdict.evidence.is_empty(), "{verdict:?}");
    }
    let named = |line: &String| line.starts_with(&format!("{}: ", verdict.cause));
    assert!(!verdict.ruled_out.iter().any(named), "{verdict:?}");
    verdict
}

pub(super) fn is(run: &Run, cause: Cause) -> Verdict {
    let verdict = judged(run);
    assert_eq!(verdict.cause, cause, "{verdict:#?}");
    verdict
}

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
    assert!(
        all.ruled_out
            .iter()
            .any(|line| line.starts_with("server-cpu-one-thread: "))
    );
    is(&run_with(2.0, 1.5, 0.5), Cause::Unknown);
    // A runnable thread lacks a CPU if hardly any CPU is idle.
    let ready = |on_cpu: f64| {
        let mut run = run_with(3.4, 3.3, on_cpu);
        run.server.as_mut().unwrap().seen.threads[0].run_delay_s = (0.95 - on_cpu) * 10.0;
        run
    };
    is(&ready(0.88), Cause::ServerCpuOneThread);
    is(&ready(0.5), Cause::Unknown);
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
fn explains_a_run_without_responses() {
    let mut run = run_with(0.5, 0.0, 0.0);
    run.requests = Counts {
        intended: 300,
        connect_failed: 300,
        ..Counts::default()
    };
    run.errors.insert("connect_refused".to_owned(), 300);
    let verdict = is(&run, Cause::Errors);
    let outcomes = "requests: 300 could not connect, 0 responses";
    assert_eq!(
        verdict.evidence,
        [outcomes, "errors: connect_refused × 300"]
    );
    assert!(verdict.next.contains("listens on localhost:8080"));
    // A shortage of local ports is a limit of the client.
    run.errors.insert("ports_exhausted".to_owned(), 300);
    is(&run, Cause::EphemeralPorts);
}

#[test]
fn suggests_checking_the_path_after_404() {
    let mut run = run_with(3.0, 1.0, 0.5);
    run.requests.wrong = run.requests.ok;
    run.requests.ok = 0;
    run.requests.statuses = [(404, run.requests.wrong)].into();
    assert!(is(&run, Cause::Errors).next.contains("path"));
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

#[test]
fn judges_rejections_failures_and_offered_rates() {
    let mut limited = run_with(1.0, 0.1, 0.1);
    limited.requests.rejected = 20_000;
    limited.requests.statuses.insert(503, 20_000);
    is(&limited, Cause::RateLimiter);
    // Without status 429, a rate limiter accepts some requests in each second.
    limited.series = rows(&[3_000.0, 500.0, 0.0, 0.0]);
    limited.requests.statuses = BTreeMap::from([(429, 20_000)]);
    is(&limited, Cause::RateLimiter);
    limited.requests.statuses = BTreeMap::from([(503, 20_000)]);
    let failing = is(&limited, Cause::Errors);
    assert!(failing.summary.starts_with("67 % ") && failing.summary.contains("503: 20,000"));
    assert!(
        failing.gain.is_none() && failing.limit_per_s.is_none(),
        "{failing:?}"
    );
    limited.requests.rejected = 2_000;
    is(&limited, Cause::Errors);
    limited.series.clear();
    limited.requests.ok = 0;
    limited.throughput_per_s = Some(0.0);
    let failing = is(&limited, Cause::Errors);
    assert!(!failing.summary.contains("successes"), "{failing:?}");
    let no_limiter = "rate-limiter: no response was ok".to_owned();
    assert!(failing.ruled_out.contains(&no_limiter), "{failing:?}");
    let mut wrong = run_with(1.0, 0.1, 0.1);
    wrong.requests.wrong = 4_000;
    is(&wrong, Cause::Errors);
    // Another cause ranks first unless at least half of the responses are failures.
    wrong.least_service_time_us = Some(1_000.0);
    assert_eq!(is(&wrong, Cause::Serialised).also, [Cause::Errors]);
    wrong.requests.wrong = 12_000;
    is(&wrong, Cause::Errors);
    let mut offered = run_with(1.0, 0.1, 0.1);
    offered.plan = open();
    is(&offered, Cause::None);
    offered.client.name = Some("wrk2".to_owned());
    offered.client.tool = None::<ExternalRun>;
    is(&offered, Cause::OfferedRate);
    offered.throughput_per_s = Some(500.0);
    assert_ne!(judged(&offered).cause, Cause::None);
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
    let verdict = is(&run, Cause::ServerCpu);
    assert_eq!(path(&verdict), ["cpu server", "compression server"]);
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

#[test]
fn ledger_adds_up_and_ceilings_ascend() {
    let verdict = judged(&run_with(1.2, 1.0, 0.99));
    let ledger = verdict.ledger.unwrap();
    let seen: f64 = ledger.places.iter().map(|place| place.mean).sum();
    assert!((ledger.under_way - 50.0).abs() < 1e-9);
    assert!((seen + ledger.unexplained - ledger.under_way).abs() < 1e-9);
    let limits: Vec<f64> = verdict
        .ceilings
        .iter()
        .map(|ceiling| ceiling.limit_per_s)
        .collect();
    assert!(limits.is_sorted() && limits.len() >= 3, "{limits:?}");
    assert_eq!(verdict.ceilings[0].resource, "server thread worker-1");
}

#[test]
fn names_evidence_missing_without_server_metrics() {
    let mut run = run_with(1.0, 0.1, 0.1);
    run.server = None;
    let verdict = is(&run, Cause::Unknown);
    assert!(
        verdict
            .unseen
            .iter()
            .any(|line| line.contains("runtime of the server")),
        "{verdict:#?}"
    );
    // Kernel counters apply only if the server is on this host.
    let of_queue = |verdict: &Verdict| {
        let backlog = |line: &String| line.starts_with("listen-backlog: ");
        verdict.ruled_out.iter().any(backlog)
    };
    assert!(!of_queue(&verdict), "{verdict:#?}");
    run.observations
        .push(series("server sockets", "established", 50.0));
    assert!(of_queue(&judged(&run)));
    run.throughput_per_s = None;
    assert_eq!(super::verdict(&run, &machine()), None);
}

#[test]
fn verdicts_are_deterministic() {
    let run = run_with(3.98, 3.8, 0.96);
    assert_eq!(verdict(&run, &machine()), verdict(&run, &machine()));
}

/// Returns a two-second run after a warm-up of one second. The series contains `values` in steps of
/// `step_s` seconds.
fn watched_seldom(metric: &str, step_s: u64, values: &[f64]) -> Run {
    let mut run = run_with(0.3, 0.1, 0.1);
    run.measured_from_ms = Some(1_040);
    run.window.from_s = 0.0;
    run.window.to_s = 2.0;
    run.observations.push(Observation {
        step_ms: step_s * 1_000,
        values: values.to_vec(),
        ..series("server", metric, 0.0)
    });
    run
}

#[test]
fn ignores_samples_outside_the_window() {
    let open_files = |step_s, values: &[f64]| {
        let run = watched_seldom("open_files", step_s, values);
        let facts = super::facts::RunFacts::of(&run, &machine()).unwrap();
        let metric = Metric::Process(Role::Server, ProcessFigure::OpenFiles);
        facts.samples.level(metric)
    };
    assert_eq!(open_files(1, &[5.0, 41.0, 41.0, 27.0]), Some(41.0));
    assert_eq!(open_files(2, &[45.5, 0.0]), Some(45.5));
    // The last step of a counter ends when the load ends.
    let mut run = watched_seldom("user", 2, &[0.1, 0.5]);
    run.observations.remove(1);
    let facts = super::facts::RunFacts::of(&run, &machine()).unwrap();
    let used = facts.server.unwrap().used;
    let expected = 0.5 / 1.04 + 0.02;
    assert!((used - expected).abs() < 1e-9, "{used} {expected}");
}
