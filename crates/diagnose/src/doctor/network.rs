//! Findings on connections: open files, local ports, TIME_WAIT, accept queues and connection
//! tracking.

use floodmark_record::host::{HostFacts, HostFinding, Level};
use floodmark_record::units::show_count;

use super::{fine, level, problem};

/// Duration of TIME_WAIT in seconds (`TCP_TIMEWAIT_LEN`, a kernel constant).
const TIME_WAIT_S: f64 = 60.0;

const MORE_SOURCES: &str = "# or use several source addresses: --sources 127.0.0.2-127.0.0.20";

pub(super) fn open_files(facts: &HostFacts) -> Option<HostFinding> {
    // Limit that allows 10,000 connections in the client or the server.
    const ENOUGH: u64 = 10_240;
    let limit = facts.open_files?;
    let show = |n: u64| match n {
        u64::MAX => "unlimited".to_owned(),
        n => show_count(n),
    };
    let (hard, soft) = (show(limit.hard), show(limit.soft));
    let connections = |files: u64| show_count(files.saturating_sub(20));
    let (hard_connections, soft_connections) = (connections(limit.hard), connections(limit.soft));
    Some(match (limit.hard, limit.soft) {
        (0..ENOUGH, _) => problem(
            match limit.hard {
                0..4_096 => Level::Warning,
                _ => Level::Note,
            },
            format!("hard limit {hard}"),
            &format!(
                "client and server can each open at most about {hard_connections} connections"
            ),
            &["sudo prlimit --pid $$ --nofile=1048576:1048576"],
        ),
        (_, 0..ENOUGH) => problem(
            Level::Note,
            format!("soft limit {soft}, hard limit {hard}"),
            &format!(
                "a server started from this shell can open at most about {soft_connections} connections; floodmark raises its own limit"
            ),
            &["ulimit -n $(ulimit -Hn)"],
        ),
        _ => fine(soft),
    })
}

pub(super) fn ports(facts: &HostFacts) -> Option<HostFinding> {
    // The kernel's default range is 32768–60999.
    const DEFAULT: u64 = 28_232;
    let ports = facts.ports?;
    let usable = show_count(ports.usable());
    let reserved = match ports.reserved {
        0 => String::new(),
        n => format!(", {} of them reserved", show_count(n.into())),
    };
    let found = format!(
        "{usable} per source address and target ({}–{}{reserved})",
        ports.low, ports.high
    );
    let level = match ports.usable() {
        0..10_000 => Level::Warning,
        // A few hundred reserved ports are not a problem.
        n if n < DEFAULT - 1_000 => Level::Note,
        _ => Level::Ok,
    };
    Some(problem(
        level,
        found,
        &format!(
            "each source address allows at most {usable} connections at once, and fewer if connections are fresh"
        ),
        &[
            "sudo sysctl -w net.ipv4.ip_local_port_range=\"16384 65535\"",
            MORE_SOURCES,
        ],
    ))
}

pub(super) fn time_wait(facts: &HostFacts) -> Option<HostFinding> {
    // Even a small server can accept this many fresh connections per second.
    const LOW_RATE: f64 = 10_000.0;
    let rules = &facts.time_wait;
    let usable = facts.ports?.usable() as f64;
    let reuse = rules.reuse?;
    let without_reuse = show_count((usable / TIME_WAIT_S) as u64);
    let held = rules.ports_held.unwrap_or(0);
    let with_held = |found: &str| match held {
        0 => found.to_owned(),
        held => format!("{found}; {} local ports in TIME_WAIT", show_count(held)),
    };
    let no_reuse = match (reuse, rules.timestamps) {
        (0, _) => Some((
            "net.ipv4.tcp_tw_reuse = 0",
            "sudo sysctl -w net.ipv4.tcp_tw_reuse=2",
        )),
        (_, Some(0)) => Some((
            "net.ipv4.tcp_timestamps = 0, which prevents port reuse",
            "sudo sysctl -w net.ipv4.tcp_timestamps=1",
        )),
        _ => None,
    };
    if let Some((found, fix)) = no_reuse {
        return Some(problem(
            Level::Warning,
            with_held(found),
            &format!(
                "if the client closes first, its port stays in TIME_WAIT for 60 s, even on loopback: at most {without_reuse} fresh connections/s per source address"
            ),
            &[fix],
        ));
    }
    let delay_ms = rules.reuse_delay_ms.unwrap_or(1_000);
    let rate = usable * 1e3 / delay_ms.max(1) as f64;
    let (scope, elsewhere) = match reuse {
        1 => ("everywhere", String::new()),
        _ => (
            "on loopback",
            format!(", elsewhere after 60 s ({without_reuse}/s)"),
        ),
    };
    let found = format!(
        "ports reused after {:.1} s {scope} ({} fresh connections/s per source address)",
        delay_ms as f64 / 1e3,
        show_count(rate as u64),
    );
    if rate < LOW_RATE {
        return Some(problem(
            Level::Note,
            found,
            "with --close-first client, a higher rate of fresh connections exhausts the local ports",
            &[
                "sudo sysctl -w net.ipv4.tcp_tw_reuse_delay=1000",
                MORE_SOURCES,
            ],
        ));
    }
    if held as f64 >= usable / 2.0 {
        return Some(problem(
            Level::Note,
            with_held(&found),
            "finding a free port takes longer, which costs CPU time in the client",
            &["sleep 60    # until the ports are free"],
        ));
    }
    Some(fine(found + &elsewhere))
}

pub(super) fn accept_queue(facts: &HostFacts) -> Option<HostFinding> {
    // The kernel's default since Linux 5.4. Older kernels use 128.
    const DEFAULT: u64 = 4_096;
    let queue = &facts.accept_queue;
    let somaxconn = queue.somaxconn?;
    let limit = show_count(somaxconn);
    let found = format!("net.core.somaxconn = {limit}");
    if somaxconn < 1_024 {
        return Some(problem(
            Level::Warning,
            found,
            &format!(
                "the backlog of every server is limited: beyond {limit} waiting connections, SYNs are dropped and retried after 1 s"
            ),
            &[
                &format!("sudo sysctl -w net.core.somaxconn={DEFAULT}"),
                "# then restart the server: the new limit applies only to new listening sockets",
            ],
        ));
    }
    Some(match (queue.syncookies, queue.syn_backlog) {
        (Some(0), Some(backlog @ 0..1_024)) => problem(
            Level::Note,
            format!(
                "{found}, net.ipv4.tcp_max_syn_backlog = {} without SYN cookies",
                show_count(backlog)
            ),
            "during bursts of fresh connections over a network, SYNs beyond this number of half-open connections are dropped",
            &["sudo sysctl -w net.ipv4.tcp_syncookies=1"],
        ),
        _ => fine(found),
    })
}

pub(super) fn conntrack(facts: &HostFacts) -> Option<HostFinding> {
    let conntrack = facts.conntrack?;
    let found = format!(
        "{} of {} connections tracked",
        show_count(conntrack.count),
        show_count(conntrack.max)
    );
    if conntrack.count == 0 {
        return Some(fine(format!("{found} (loaded, not used by any rule)")));
    }
    let free = conntrack.max.saturating_sub(conntrack.count);
    let share = conntrack.count as f64 / conntrack.max.max(1) as f64;
    // A closed connection stays in the table for two minutes (nf_conntrack_tcp_timeout_time_wait,
    // default 120 s), so 1,000 fresh connections/s need 120,000 entries.
    let level = match level(share, 0.5, 0.8) {
        Level::Ok if free < 120_000 => Level::Note,
        level => level,
    };
    let larger = conntrack.max.saturating_mul(4).max(1_048_576);
    Some(problem(
        level,
        found,
        &format!(
            "each fresh connection occupies an entry for 2 minutes; with {} free entries, SYNs are dropped silently above {} fresh connections/s",
            show_count(free),
            show_count(free / 120)
        ),
        &[
            &format!("sudo sysctl -w net.netfilter.nf_conntrack_max={larger}"),
            "# or exclude loopback:",
            "sudo iptables -t raw -A OUTPUT -o lo -j NOTRACK && sudo iptables -t raw -A PREROUTING -i lo -j NOTRACK",
        ],
    ))
}
