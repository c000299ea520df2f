//! Limits on the client's side: its CPU, its standstills, its ports and files.

use floodmark_record::cause::Cause;
use floodmark_record::plan::{ConnectionUse, Model, Sources};
use floodmark_record::units::{show_count, show_ns};

use super::{FULL, SHARED, STOPPED, could_have, per_s, percent};
use crate::validity::{STALL_S, load_threads};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::Facts;

/// Failures by one cause that are this share of what was intended decide what the figure is.
const VICTIMS: f64 = 0.01;

/// Its CPU.
pub(super) fn cpu(facts: &Facts<'_>, findings: &mut Findings) {
    let client = &facts.client;
    let (used, how) = match (
        load_threads(&facts.run.client.threads),
        facts.run.client.name.is_none(),
    ) {
        // What decides whether a figure is a bound of floodmark's decides here too, but for threads that wait for CPUs a good part of the
        // time: it is not their own work that fills these.
        (Some(threads), true) => (
            match threads.waiting {
                Some(waiting) if waiting >= SHARED * threads.on_cpu => threads.on_cpu,
                _ => threads.busy(),
            },
            format!(
                "client threads on a CPU for {} of their time{}",
                percent(threads.on_cpu),
                threads.waiting.map_or_else(String::new, |waiting| format!(
                    ", ready for one for {}",
                    percent(waiting)
                ))
            ),
        ),
        _ => {
            let own = facts
                .run
                .place
                .as_ref()
                .is_some_and(|place| place.client.cpus.is_some());
            let server = facts.server.as_ref().map_or(0.0, |server| server.used);
            let beside = if own { 0.0 } else { server };
            let has = could_have(facts.host_busy, client, own, beside);
            (
                (client.used / has).min(1.0),
                format!(
                    "client: {:.2} of the {has:.2} CPUs that it could have (/proc/PID/stat)",
                    client.used
                ),
            )
        }
    };
    if used < FULL {
        return findings.not(Cause::ClientCpu, how);
    }
    // Of two that fill the CPUs together the one that takes less is not what to mend first.
    let server = facts.server.as_ref().map_or(0.0, |server| server.used);
    if client.busiest.is_none() && !facts.server_is_apart() && client.used < server {
        return findings.not(Cause::ClientCpu, how);
    }
    // A thread that spends its time looking for a port that is not there could send far more.
    if facts
        .run
        .errors
        .get("ports_exhausted")
        .is_some_and(|n| *n > facts.run.requests.sent)
    {
        return findings.not(
            Cause::ClientCpu,
            "its CPU went into looking for local ports, of which there were none",
        );
    }
    let threads = facts.run.plan.threads;
    let more = client.busiest.is_some() && f64::from(threads) < client.may_use;
    findings.found(Candidate {
        cause: Cause::ClientCpu,
        shown: Shown::Full,
        used,
        limit_per_s: Some(facts.answered_per_s / used),
        summary: format!(
            "the load generator has no CPU left: it takes {} of CPU for each request, and that is all it has; the server may do more",
            us(client.cpu_us)
        ),
        evidence: vec![how, format!("client: {} of CPU per request", us(client.cpu_us))],
        next: if more {
            format!("give it another thread: -t {}", threads + 1)
        } else if facts.run.client.name.is_some() {
            "load it with floodmark, which takes less, or from more machines".to_owned()
        } else {
            "load it from another machine, or from several".to_owned()
        },
        takes: None,
    });
}

fn us(us: Option<f64>) -> String {
    us.map_or_else(|| "an unknown time".to_owned(), |us| show_ns(us * 1e3))
}

/// Its standstills.
pub(super) fn stall(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(longest) = facts.run.longest_stall_ns.map(|ns| ns as f64 / 1e9) else {
        return;
    };
    let window = facts.run.sending_s;
    if longest < STALL_S || longest < 0.02 * window {
        return findings.not(
            Cause::ClientStall,
            format!(
                "the longest standstill of the client was {}",
                show_ns(longest * 1e9)
            ),
        );
    }
    // A standstill costs as much of the throughput as it takes of the time: one that costs less than that is not what limits it.
    let shown = match longest < STOPPED * window {
        true => Shown::Lesser,
        false => Shown::Counted,
    };
    findings.found(Candidate {
        cause: Cause::ClientStall,
        shown,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "the load generator stood still for {} at a stretch, in which it neither sent nor read",
            show_ns(longest * 1e9)
        ),
        evidence: vec![format!(
            "longest_stall_ns: a load thread came back {} late from a wait",
            show_ns(longest * 1e9)
        )],
        next: "find out what stopped it (other programs, a paused machine, SIGSTOP), and repeat"
            .to_owned(),
        takes: None,
    });
}

/// Its ports.
pub(super) fn ports(facts: &Facts<'_>, findings: &mut Findings) {
    let run = facts.run;
    let failed = run.errors.get("ports_exhausted").copied().unwrap_or(0);
    if (failed as f64) < VICTIMS * run.requests.intended as f64 || failed == 0 {
        let why = format!(
            "{} connections failed for want of a local port",
            show_count(failed)
        );
        return findings.not(Cause::EphemeralPorts, why);
    }
    let ports = run.connections.ports_per_source;
    let sources = run.plan.sources.as_ref().map_or(1, Sources::count);
    let resting = facts.network.client_time_wait;
    let mut evidence = vec![format!(
        "errors.ports_exhausted {}: connect() found no local port (EADDRNOTAVAIL)",
        show_count(failed)
    )];
    if let Some(resting) = resting {
        evidence.push(format!(
            "client sockets in TIME_WAIT: {:.0} on average (sock_diag){}",
            resting,
            ports.map_or_else(String::new, |n| format!(
                ", of {} local ports",
                show_count(n)
            ))
        ));
    }
    // Open connections hold ports too: only where most of them are seen to rest is that what there are none for.
    let all = ports.map(|n| n as f64 * sources as f64);
    let rests = all
        .zip(resting)
        .is_some_and(|(all, resting)| resting >= all / 2.0);
    // Linux lets a port rest for 60 s (TCP_TIMEWAIT_LEN), so that each serves once at the start and again each minute.
    let seconds = run.sending_s;
    let limit = all
        .filter(|_| rests && seconds > 0.0)
        .map(|all| all * (1.0 + (seconds / 60.0).floor()) / seconds);
    if let Some(limit) = limit {
        evidence.push(format!(
            "a port rests 60 s in TIME_WAIT: {} in {seconds:.0} s",
            per_s(limit)
        ));
    }
    findings.found(Candidate {
        cause: Cause::EphemeralPorts,
        shown: Shown::Counted,
        used: 1.0,
        limit_per_s: limit,
        summary: format!(
            "the client ran out of local ports: each connection takes one{}{}",
            if rests { ", which rests for 60 s after it was closed (TIME_WAIT)" } else { "" },
            ports.map_or_else(String::new, |n| format!(", and there are {}", show_count(n)))
        ),
        evidence,
        next: if run.plan.connection_use == ConnectionUse::Fresh {
            "keep connections (leave --fresh away), let the server close first (--close-first server), or use more source \
             addresses (--sources)"
        } else {
            "use more source addresses (--sources), or fewer connections"
        }
        .to_owned(),
        takes: None,
    });
}

/// Its open files.
pub(super) fn files(facts: &Facts<'_>, findings: &mut Findings) {
    let run = facts.run;
    let failed = run.errors.get("fds_exhausted").copied().unwrap_or(0);
    if failed == 0 || (failed as f64) < VICTIMS * run.requests.intended as f64 {
        return findings.not(
            Cause::ClientFds,
            format!(
                "{} connections failed for want of an open file in the client",
                show_count(failed)
            ),
        );
    }
    let limit = run.connections.fd_limit;
    findings.found(Candidate {
        cause: Cause::ClientFds,
        shown: Shown::Counted,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "the load generator may open no more files{}, and each connection is one",
            limit.map_or_else(String::new, |n| format!(" than {}", show_count(n)))
        ),
        evidence: vec![format!(
            "errors.fds_exhausted {} (EMFILE); connections.peak {} with connections.fd_limit {}",
            show_count(failed),
            run.connections
                .peak
                .map_or_else(|| "unknown".to_owned(), show_count),
            limit.map_or_else(|| "unknown".to_owned(), show_count)
        )],
        next: format!(
            "raise the limit (ulimit -n {}), or use fewer connections (-c)",
            run.plan.connections * 2 + 100
        ),
        takes: None,
    });
}

/// Whether all that a closed run may have under way is too little to fill anything.
pub(super) fn is_closed(facts: &Facts<'_>) -> bool {
    facts.run.plan.model == Model::Closed
}
