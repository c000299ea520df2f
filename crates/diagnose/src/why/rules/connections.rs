//! Limits where connections are made and kept.

use floodmark_record::cause::Cause;
use floodmark_record::plan::ConnectionUse;
use floodmark_record::units::{show_count, show_ns};

use super::{HALF, NEARLY, per_s, percent, working};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::Facts;

/// From this share of connects on that met a full queue, it decides throughput or p99: each of them waits a second or more.
const OVERFLOWED: f64 = 0.01;

/// From this many new connections for each request on, making them takes at least half of the CPU: a request on a fresh connection takes
/// about five times what one on a kept connection does (README, 22 against 4 µs).
const REOPENED: f64 = 0.2;

/// The queue of connections that wait to be accepted.
pub(super) fn backlog(facts: &Facts<'_>, findings: &mut Findings) {
    let network = &facts.network;
    let (Some(overflows), Some(opened)) =
        (network.listen_overflows_per_s, network.active_opens_per_s)
    else {
        findings.unseen.push(
            "the kernel's counters of the server's side (ListenOverflows), which tell of a full accept queue".to_owned(),
        );
        return;
    };
    let share = overflows / opened.max(1.0);
    // They are of all listeners of the machine: a queue that all of our connections fit into is not the one.
    let roomy = network
        .accept_queue
        .zip(network.accept_queue_limit)
        .filter(|(queue, limit)| {
            *limit >= 2.0 * f64::from(facts.run.plan.connections) && *queue < HALF * limit
        });
    if let Some((queue, limit)) = roomy {
        let said = format!(
            "the accept queue of {limit:.0} had {queue:.0} connections in it on average (sock_diag)"
        );
        return findings.not(Cause::ListenBacklog, said);
    }
    if overflows == 0.0 || share < OVERFLOWED {
        return findings.not(
            Cause::ListenBacklog,
            format!(
                "ListenOverflows grew by {overflows:.1} per second beside {} connections",
                per_s(opened)
            ),
        );
    }
    let mut evidence = vec![format!(
        "ListenOverflows {} beside ActiveOpens {} (/proc/net/netstat, /proc/net/snmp)",
        per_s(overflows),
        per_s(opened)
    )];
    if let (Some(queue), Some(limit)) = (network.accept_queue, network.accept_queue_limit) {
        evidence.push(format!(
            "accept queue {queue:.0} of {limit:.0} on average (sock_diag)"
        ));
    }
    if let Some(again) = network.syn_retransmits_per_s {
        evidence.push(format!(
            "TCPSynRetrans {}: connects that were tried again after a second or more",
            per_s(again)
        ));
    }
    findings.found(Candidate {
        cause: Cause::ListenBacklog,
        shown: Shown::Counted,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "connections come faster than the server accepts them, and its accept queue{} is full: those that do not fit try again a second \
             later",
            network.accept_queue_limit.map_or_else(String::new, |n| format!(" of {n:.0}"))
        ),
        evidence,
        next: "raise the server's backlog and net.core.somaxconn, accept with more threads, or keep connections".to_owned(),
        takes: None,
    });
}

/// Connections that the server ends after so many requests.
pub(super) fn keepalive(facts: &Facts<'_>, findings: &mut Findings) {
    let run = facts.run;
    if run.plan.connection_use != ConnectionUse::Kept || run.plan.requests_per_connection.is_some()
    {
        return;
    }
    let (opened, sent) = (run.connections.opened, run.requests.sent);
    let first = u64::from(run.plan.connections);
    let again = opened.saturating_sub(first) as f64 / sent.max(1) as f64;
    // What broke or was given up was not ended after a number of requests.
    let broken = run.requests.reset + run.requests.timed_out + run.requests.malformed;
    // It takes CPU: where that is idle, something else is waited for. One CPU is all that a server may be able to use.
    let idle = working::has_time(facts)
        && facts
            .server
            .as_ref()
            .is_none_or(|server| server.used < NEARLY);
    let broke = opened.saturating_sub(first) <= 2 * broken;
    if again < REOPENED || broke || idle {
        return findings.not(
            Cause::KeepaliveLimit,
            format!(
                "{} connections for {} requests",
                show_count(opened),
                show_count(sent)
            ),
        );
    }
    let each = sent as f64 / opened as f64;
    findings.found(Candidate {
        cause: Cause::KeepaliveLimit,
        shown: Shown::Within,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "the server ends each connection after about {each:.0} requests, so that much of the time goes into making new ones"
        ),
        evidence: vec![
            format!("connections.opened {} for requests.sent {}", show_count(opened), show_count(sent)),
            format!(
                "a connect takes {} on average (connect_time_us)",
                run.connect_time_us.mean.map_or_else(|| "an unknown time".to_owned(), |us| show_ns(us * 1e3))
            ),
        ],
        next: "let the server keep connections longer (such as nginx keepalive_requests)".to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}

/// From this share of the connections on that nobody accepts, they are not just on their way in.
const LEFT_OUT: f64 = 0.1;

/// A connection that is not let in for so long, seconds, is not just waiting for a thread that accepts to have its turn.
const LONG_S: f64 = 0.1;

/// A process at its limit of open files opens and closes some as it goes.
const ALL_FILES: f64 = 0.98;

/// Connections that stand and are not let in, though nothing is full.
pub(super) fn not_let_in(facts: &Facts<'_>, findings: &mut Findings) {
    let network = &facts.network;
    let Some(waiting) = network.accept_queue else {
        return;
    };
    let files = network.open_files.zip(network.open_files_limit);
    let out_of_files = files.is_some_and(|(open, limit)| open >= ALL_FILES * limit);
    let said_files = files.map(|(open, limit)| {
        format!("{open:.0} of {limit:.0} files open in the server (/proc/PID/fd, /proc/PID/limits)")
    });
    let connections = f64::from(facts.run.plan.connections);
    let said = format!("{waiting:.1} connections waited to be accepted on average (sock_diag)");
    if !out_of_files {
        findings.not(
            Cause::ServerFds,
            said_files.clone().unwrap_or_else(|| said.clone()),
        );
    }
    // Where connections come and go with the requests, some are always on their way in: by Little's law each of them waited so long. Those
    // that the server cut off, as one that has no room does, are others.
    let run = facts.run;
    let broken = run.requests.reset + run.requests.timed_out + run.requests.malformed;
    let opened = run.connections.opened.saturating_sub(2 * broken) as f64;
    let stands_s = waiting * run.sending_s / opened.max(1.0);
    let go = opened >= REOPENED * run.requests.sent as f64;
    let left_out = waiting >= LEFT_OUT * connections && waiting >= 1.0;
    let left_out = left_out && (!go || stands_s >= LONG_S);
    if !left_out {
        return findings.not(Cause::MaxConnections, said);
    }
    // A server that has no CPU left accepts late because of that.
    if !out_of_files && !working::has_time(facts) {
        if let Some((idle, _)) = facts.idle_to_server() {
            findings.not(Cause::MaxConnections, working::idle(facts, idle));
        }
        return;
    }
    let mut evidence = vec![said];
    evidence.extend(said_files);
    let served = (connections - waiting).max(0.0);
    findings.found(if out_of_files {
        Candidate {
            cause: Cause::ServerFds,
            shown: Shown::Placed,
            used: 1.0,
            limit_per_s: None,
            summary: format!(
                "the server may open no more files, and each connection is one: {waiting:.0} connections stand and are not accepted"
            ),
            evidence,
            next: "raise the server's limit of open files (ulimit -n, LimitNOFILE)".to_owned(),
            takes: None,
        }
    } else {
        Candidate {
            cause: Cause::MaxConnections,
            shown: Shown::Placed,
            used: 1.0,
            limit_per_s: None,
            summary: format!(
                "the server serves about {served:.0} connections at a time: {waiting:.0} others stand and wait to be accepted, while CPUs \
                 are idle"
            ),
            evidence,
            next: "raise the server's most connections (max-connections, worker_connections, threads that accept)".to_owned(),
            takes: None,
        }
    });
}

/// One connection for each answer, as near as the two are counted at the same time.
const AS_MANY: std::ops::Range<f64> = 0.9..1.1;

/// A server that opens a connection to another one for each request.
pub(super) fn proxy(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(opened) = facts.network.opened_by_others_per_s else {
        return;
    };
    let each = opened / facts.answered_per_s.max(f64::MIN_POSITIVE);
    let to: Vec<&str> = facts.upstreams.iter().map(|u| u.address.as_str()).collect();
    // Connections that last for a part of a millisecond are seldom seen open. Those of another client are not told from them.
    let many = AS_MANY.contains(&each) && facts.run.client.name.is_none();
    if to.is_empty() && !many {
        return;
    }
    let (to, seen) = match &to[..] {
        [] => (
            "of which no connection was open when it was looked at".to_owned(),
            "as many connections as answers; no other program is known that opens just as many"
                .to_owned(),
        ),
        to => (
            to.join(", "),
            format!(
                "the server has connections of its own to {} (sock_diag)",
                to.join(", ")
            ),
        ),
    };
    let said = format!(
        "{} connections opened by others than the client, {each:.2} for each answer (ActiveOpens)",
        per_s(opened)
    );
    if each < HALF || working::has_time(facts) {
        return findings.not(Cause::ProxyHop, said);
    }
    findings.found(Candidate {
        cause: Cause::ProxyHop,
        shown: Shown::Within,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "the server asks another one ({}) over a new connection for {} of the requests: what is measured is mostly the way there",
            to,
            percent(each.min(1.0))
        ),
        evidence: vec![said, seen],
        next: "let it keep its connections (nginx: keepalive in the upstream), and load what is behind it directly for comparison".to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}
