//! Limits where connections are made and kept.

use floodmark_record::cause::Cause;
use floodmark_record::plan::ConnectionUse;
use floodmark_record::units::{show_count, show_ns};

use super::per_s;
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
    if again < REOPENED || opened.saturating_sub(first) <= 2 * broken {
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
