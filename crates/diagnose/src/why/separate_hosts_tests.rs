//! Verdicts on runs with separate hosts, and on runs with a larger consumer on shared CPUs.

use floodmark_record::cause::Cause;
use floodmark_record::host::{BusyProcess, Environment};
use floodmark_record::run::{AgentRun, ClientUsage, Run};
use floodmark_record::watch::{AlignmentMethod, ClockAlignment, RemoteObservation};

use super::facts::RunFacts;
use super::tests::verdict;
use super::tests::{is, judged, machine, run_with, series};
use super::waiting_tests::blocked;
use crate::testing::thread;

/// Returns a run on separate hosts. The server's host has two CPUs, of which `busy` are busy. The
/// client's host has four idle CPUs.
fn observed_on_remote_host(busy: f64, server: f64, busiest: f64) -> Run {
    let mut run = run_with(0.2, server, busiest);
    run.remote = Some(RemoteObservation {
        environment: Environment {
            cpus: 2,
            ..Environment::default()
        },
        aligned: ClockAlignment {
            method: AlignmentMethod::WallClocks,
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
fn ignores_idle_cpus_of_the_clients_host() {
    // The server saturates both CPUs of its host.
    is(&observed_on_remote_host(1.99, 1.95, 0.97), Cause::ServerCpu);
    // The server saturates one CPU.
    is(
        &observed_on_remote_host(1.02, 1.0, 0.99),
        Cause::ServerCpuOneThread,
    );
}

#[test]
fn finds_low_concurrency_without_server_metrics() {
    let mut run = run_with(0.2, 0.1, 0.1);
    run.server = None;
    run.warmup = Some(floodmark_record::run::WarmupRun {
        duration_s: 1.0,
        requests: run.requests.clone(),
    });
    // With one request at a time, the limit may be a lock, a thread or a CPU.
    run.least_service_time_us = Some(1_000.0);
    let verdict = is(&run, Cause::Unknown);
    let ambiguous = |line: &String| line.contains("a lock and a pool look alike");
    assert!(verdict.unseen.iter().any(ambiguous), "{verdict:#?}");
    // No request waits in this run.
    run.least_service_time_us = Some(49_000.0);
    is(&run, Cause::Concurrency);
}

#[test]
fn external_client_that_saturates_the_cpus_is_the_cause() {
    let mut run = run_with(3.95, 0.3, 0.1);
    run.client.threads.clear();
    run.client.name = Some("curl-loop".to_owned());
    // Most processes are short-lived and appear only in their parent's total.
    (run.client.user_s, run.client.system_s) = (25.0, 11.5);
    run.observations.push(series("client", "run_delay", 9.0));
    is(&run, Cause::ClientCpu);
    // The server is the larger consumer of CPU time.
    let mut run = run_with(3.95, 3.0, 0.8);
    run.client.threads = vec![thread(0.6, 0.38)];
    is(&run, Cause::ServerCpu);
}

#[test]
fn an_inactive_process_lacks_no_cpu_time() {
    // Other programs use the CPUs. The main process of the server waits for data in a pipe.
    let mut run = run_with(3.98, 0.1, 0.02);
    run.least_service_time_us = Some(8_000.0);
    run.connections.opened = run.requests.sent;
    let objects = [("timer", 8.0)];
    run.observations
        .extend(blocked("worker", &objects, 1_000.0));
    is(&run, Cause::WorkerPool);
    run.observations
        .extend(blocked("main", &[("pipe read", 1.0)], 0.0));
    is(&run, Cause::WorkerPool);
}

#[test]
fn waiting_longer_than_running_is_a_lack_of_cpu_time() {
    // Other programs keep all CPUs busy. No thread is always running or runnable.
    let mut run = run_with(3.98, 0.3, 0.2);
    run.client.threads = vec![thread(0.2, 0.55)];
    run.observations[3] = series("server", "run_delay", 0.1);
    run.least_service_time_us = Some(8_000.0);
    is(&run, Cause::OtherProcesses);
    // The participants get the CPU time that they need.
    run.client.threads = vec![thread(0.2, 0.05)];
    assert_ne!(judged(&run).cause, Cause::OtherProcesses);
}

#[test]
fn other_programs_do_not_limit_a_server_that_sleeps() {
    let busy_beside = |server: f64, run_delay: f64| {
        let mut run = run_with(3.98, server, server / 2.0);
        run.client.threads = vec![thread(0.02, 0.05)];
        run.observations[3] = series("server", "run_delay", run_delay);
        run.least_service_time_us = Some(8_000.0);
        judged(&run).cause
    };
    assert_eq!(busy_beside(0.4, 0.6), Cause::OtherProcesses);
    assert_ne!(busy_beside(0.05, 0.2), Cause::OtherProcesses);
}

#[test]
fn distinguishes_store_cpu_from_shared_cpus() {
    let mut run = run_with(3.98, 0.8, 0.3);
    run.client.threads = vec![thread(0.7, 0.25)];
    // Programs outside the experiment use 2.48 CPUs, until one of them is known to be the store.
    run.observations[3] = series("server", "run_delay", 3.0);
    run.other_processes = vec![BusyProcess {
        pid: 7,
        name: "rustc".to_owned(),
        cpus: 0.5,
    }];
    let verdict = is(&run, Cause::OtherProcesses);
    let busiest = "busiest: rustc (pid 7) 0.50; kernel and all other processes: 1.98";
    assert!(
        verdict.evidence.iter().any(|line| line == busiest),
        "{verdict:#?}"
    );
    let mut store = run.server.clone().unwrap();
    store.cpu_s = 26.0;
    run.store = Some(store);
    run.observations
        .extend([series("store", "user", 2.4), series("store", "system", 0.2)]);
    let verdict = is(&run, Cause::StoreCpu);
    assert!(!verdict.also.contains(&Cause::SharedCpu), "{verdict:#?}");
}

/// Returns an agent whose load thread is on a CPU for a share of the time.
fn agent(name: &str, shares_host: bool, on_cpu: f64) -> AgentRun {
    AgentRun {
        shares_host,
        client: ClientUsage {
            threads: vec![thread(on_cpu, 0.1)],
            ..ClientUsage::default()
        },
        ..crate::testing::agent(name)
    }
}

/// Returns a run in which the server uses `server` of 4 CPUs, and two agents use 0.9 CPUs each. The
/// given number of agents run on the server's host, where `busy` CPUs are busy.
fn sent_by_agents(agents_here: usize, busy: f64, server: f64) -> Run {
    let mut run = run_with(busy, server, 0.5);
    let agents = (0..2).map(|i| agent(&format!("{i}"), i < agents_here, 0.9));
    run.agents = agents.collect();
    let threads = run.agents.iter().flat_map(|of| of.client.threads.clone());
    run.client.threads = threads.collect();
    run
}

#[test]
fn agents_on_other_hosts_use_none_of_the_servers_cpus() {
    let facts = |run: &Run| {
        let facts = RunFacts::of(run, &machine()).unwrap();
        let programs = facts.other_programs().unwrap();
        (facts.client_on_server_cpus(), facts.client.used, programs)
    };
    let near = |(a, b, c): (f64, f64, f64), other: (f64, f64, f64)| {
        let pairs = [(a, other.0), (b, other.1), (c, other.2)];
        let equal = pairs.iter().all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(equal, "{pairs:?}");
    };
    near(facts(&sent_by_agents(2, 3.8, 2.0)), (1.8, 1.8, 0.0));
    near(facts(&sent_by_agents(1, 3.8, 2.0)), (0.9, 1.8, 0.9));
    near(facts(&sent_by_agents(0, 3.8, 2.0)), (0.0, 1.8, 1.8));
}

#[test]
fn only_agents_on_the_servers_host_compete_with_the_server() {
    let compete = |agents_here| {
        let mut run = sent_by_agents(agents_here, 3.98, 2.0);
        run.observations[3] = series("server", "run_delay", 1.5);
        for agent in &mut run.agents {
            agent.client.threads = vec![thread(0.9, 0.4)];
        }
        let verdict = verdict(&run, &machine()).unwrap();
        verdict.cause == Cause::SharedCpu || verdict.also.contains(&Cause::SharedCpu)
    };
    assert!(compete(2));
    assert!(!compete(0));
}

#[test]
fn the_clients_threads_and_cpus_are_those_of_all_agents() {
    let mut run = sent_by_agents(0, 1.0, 0.9);
    let ceiling = |run: &Run, resource: &str| {
        let verdict = verdict(run, &machine()).unwrap();
        let mut ceilings = verdict.ceilings.into_iter();
        ceilings.find(|one| one.resource == resource)
    };
    let used = ceiling(&run, "the client's threads").unwrap().used;
    assert!((used - 0.9).abs() < 1e-6, "{used}");
    let all = "all CPUs of the host";
    assert!(ceiling(&run, all).is_some());
    // Neither the server nor an agent runs on this host.
    run.server = None;
    assert!(ceiling(&run, all).is_none());
    run.agents[0].shares_host = true;
    assert!(ceiling(&run, all).is_some());
    // Agents on one host share its CPUs.
    assert_eq!(run.client_cpus(4), 8);
    run.agents[1].host = run.agents[0].host.clone();
    assert_eq!(run.client_cpus(16), 4);
}

#[test]
fn starved_agents_on_other_hosts_do_not_compete_for_this_hosts_cpus() {
    let facts = |agents_here| {
        let mut run = sent_by_agents(agents_here, 2.0, 1.0);
        for agent in &mut run.agents {
            agent.client.threads = vec![thread(0.5, 0.5)];
        }
        let facts = RunFacts::of(&run, &machine()).unwrap();
        (facts.is_client_separate(), facts.lacks_cpu())
    };
    assert_eq!(facts(1), (false, true));
    assert_eq!(facts(0), (true, false));
}

#[test]
fn a_cpu_bound_client_needs_threads_only_if_its_agents_have_spare_cpus() {
    let next = |cpus| {
        let mut run = sent_by_agents(0, 0.5, 0.2);
        run.client.threads = vec![thread(0.99, 0.0); 2];
        for agent in &mut run.agents {
            agent.cpus = cpus;
        }
        is(&run, Cause::ClientCpu).next
    };
    assert_eq!(next(2), "add a client thread: -t 2");
    assert!(next(1).ends_with("(--agents)"));
}
