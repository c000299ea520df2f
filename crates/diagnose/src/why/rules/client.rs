//! Limits in the client: CPU, stalls, local ports and open files.

use floodmark_record::metric::{Role, SocketFigure};
use floodmark_record::path::{Actor, StepKind};
use floodmark_record::plan::{ConnectionUse, Sources};
use floodmark_record::run::Run;
use floodmark_record::units::{show_count, show_ns};

use crate::text::{plural, show_available, show_us};
use crate::validity::{ClientThreads, SATURATED_SHARE, STALL_S};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::{RunFacts, used};
use crate::why::thresholds::{CONTENDED, NOTICEABLE, RARE};

/// Detects a client that is limited by its CPU.
pub(in crate::why) fn cpu(facts: &RunFacts<'_>) -> Option<Finding> {
    let client = &facts.client;
    let run = facts.run;
    let external = run.client.name.is_some();
    let server = used(&facts.server);
    let (busy, figure) = match ClientThreads::of(&run.client.threads).filter(|_| !external) {
        Some(threads) => (
            // Threads that often wait for a CPU are not saturated by their own work.
            match threads.used.runnable {
                Some(runnable) if runnable >= CONTENDED * threads.used.on_cpu => {
                    threads.used.on_cpu
                }
                _ => threads.busy(),
            },
            format!("client: {}", threads.used),
        ),
        None => {
            let available = facts.available_to_client();
            let figure = show_available("client", client.used, available);
            ((client.used / available).min(1.0), figure)
        }
    };
    // If client and server saturate the same CPUs, the larger consumer is the cause.
    let server_uses_more =
        client.busiest.is_none() && !facts.is_client_separate() && client.used < server;
    if busy < SATURATED_SHARE || server_uses_more {
        return ruled_out(figure);
    }
    if error_count(run, "ports_exhausted") > run.requests.sent {
        return ruled_out("the client used its CPU to search for free local ports");
    }
    let threads = run.plan.threads;
    let cost = show_us(client.cpu_us);
    Candidate::new(
        EvidenceRank::Saturated,
        format!("the load generator is CPU-bound ({cost} per request); the server may be faster"),
        vec![figure],
        if client.busiest.is_some() && facts.client_threads() < client.allowed {
            format!("add a client thread: -t {}", threads + 1)
        } else if external {
            "use floodmark as the client, or run the client on several hosts".to_owned()
        } else {
            "run the client on another host, or on several (--agents)".to_owned()
        },
    )
    .at([(StepKind::Cpu, Actor::Client)])
    .with_utilization(busy, facts.responses_per_s)
    .found()
}

/// Detects stalls of the client.
pub(in crate::why) fn stall(facts: &RunFacts<'_>) -> Option<Finding> {
    let longest_ns = facts.run.longest_stall_ns? as f64;
    let stall_s = longest_ns / 1e9;
    let window = facts.run.sending_s;
    let longest = show_ns(longest_ns);
    if stall_s < STALL_S || stall_s < 0.02 * window {
        return ruled_out(format!("longest client stall: {longest}"));
    }
    Candidate::new(
        // Throughput falls by the stall's share of the time.
        EvidenceRank::Counted.unless_minor(stall_s < NOTICEABLE * window),
        format!("the load generator stalled for {longest}: it neither sent nor received"),
        vec![format!(
            "longest_stall_ns: a client thread woke up {longest} late"
        )],
        "find out what stopped the client (another program, a paused host, SIGSTOP), then repeat",
    )
    .at([(StepKind::Stall, Actor::Client)])
    .found()
}

/// Detects a shortage of local ports in the client.
pub(in crate::why) fn ports(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    let failed = error_count(run, "ports_exhausted");
    let failures = show_count(failed);
    if !affects(run, failed) {
        return ruled_out(format!("connections without a local port: {failures}"));
    }
    let ports = run.connections.ports_per_source;
    let sources = run.plan.sources.as_ref().map_or(1, Sources::count);
    let time_wait = facts.samples.sockets(Role::Client, SocketFigure::TimeWait);
    let mut evidence = vec![format!(
        "errors.ports_exhausted: {failures} (connect() returned EADDRNOTAVAIL)"
    )];
    if let Some(sockets) = time_wait {
        evidence.push(format!(
            "client sockets in TIME_WAIT: {sockets:.0} on average (sock_diag)"
        ));
    }
    // Open connections also occupy ports, so most of the ports must be in TIME_WAIT.
    let all_ports = ports.map(|n| n as f64 * sources as f64);
    let in_time_wait = all_ports
        .zip(time_wait)
        .is_some_and(|(ports, sockets)| sockets >= ports / 2.0);
    // TIME_WAIT lasts 60 s (TCP_TIMEWAIT_LEN), so each port can be used at the start and then once
    // a minute.
    let seconds = run.sending_s;
    let uses = 1.0 + (seconds / 60.0).floor();
    let limit = all_ports
        .filter(|_| in_time_wait && seconds > 0.0)
        .map(|ports| ports * uses / seconds);
    if limit.is_some_and(|limit| limit >= facts.ok_per_s) {
        evidence.push(format!(
            "TIME_WAIT lasts 60 s, so each port can be used {} in {seconds:.0} s",
            plural(uses as u64, "time")
        ));
    }
    let number = ports
        .map(|n| format!(" ({})", show_count(n)))
        .unwrap_or_default();
    let holder = match in_time_wait {
        true => "each closed connection holds a port for 60 s (TIME_WAIT)",
        false => "each connection holds a port",
    };
    Candidate::new(
        EvidenceRank::Counted,
        format!("the client ran out of local ports{number}: {holder}"),
        evidence,
        if run.plan.connection_use == ConnectionUse::Fresh {
            "keep connections (omit --fresh), use --close-first server, or add source addresses"
        } else {
            "add source addresses (--sources), or use fewer connections"
        },
    )
    .at([(StepKind::Ports, Actor::Client)])
    .with_limit(limit)
    .found()
}

/// Detects a shortage of file descriptors in the client.
pub(in crate::why) fn files(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    let failed = error_count(run, "fds_exhausted");
    let failures = show_count(failed);
    if !affects(run, failed) {
        return ruled_out(format!("connections without a file descriptor: {failures}"));
    }
    let show = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), show_count);
    let limit = show(run.connections.fd_limit);
    Candidate::new(
        EvidenceRank::Counted,
        format!("the load generator reached its limit on open files ({limit})"),
        vec![format!(
            "errors.fds_exhausted: {failures} (EMFILE); connections.peak: {}, \
             connections.fd_limit: {limit}",
            show(run.connections.peak)
        )],
        format!(
            "raise the limit (ulimit -n {}), or use fewer connections (-c)",
            run.plan.connections * 2 + 100
        ),
    )
    .at([(StepKind::Files, Actor::Client)])
    .found()
}

fn error_count(run: &Run, name: &str) -> u64 {
    run.errors.get(name).copied().unwrap_or(0)
}

/// Returns whether an error is frequent enough to limit throughput.
fn affects(run: &Run, failed: u64) -> bool {
    failed > 0 && failed as f64 >= RARE * run.requests.intended as f64
}
