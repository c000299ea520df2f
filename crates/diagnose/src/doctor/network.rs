//! Findings on connections: open files, ports, TIME_WAIT, accept queues, connection tracking.

use floodmark_record::host::{Facts, Finding, Level};
use floodmark_record::units::show_count;

use super::{fine, spoils, unread};

/// How long a closed connection rests, seconds (`TCP_TIMEWAIT_LEN` of the kernel, fixed).
const TIME_WAIT_S: f64 = 60.0;

pub(super) fn open_files(facts: &Facts) -> Finding {
    const TOPIC: &str = "open files";
    // Enough for the largest plain test, 10,000 connections, on either side.
    const ENOUGH: u64 = 10_240;
    let Some(limit) = facts.open_files else {
        return unread(TOPIC);
    };
    let show = |n: u64| match n {
        u64::MAX => "no limit".to_owned(),
        n => show_count(n),
    };
    if limit.hard < ENOUGH {
        return spoils(
            TOPIC,
            if limit.hard < 4_096 {
                Level::Warning
            } else {
                Level::Note
            },
            format!("{} at most, and no more may be asked for", show(limit.hard)),
            format!(
                "beyond about {} connections, neither client nor server can open one more",
                show_count(limit.hard.saturating_sub(20))
            ),
            ["sudo prlimit --pid $$ --nofile=1048576:1048576"],
        );
    }
    if limit.soft < ENOUGH {
        return spoils(
            TOPIC,
            Level::Note,
            format!(
                "{}, may be raised to {}",
                show(limit.soft),
                show(limit.hard)
            ),
            format!(
                "nothing for floodmark, which raises its own; a server started from this shell stops at about {} connections",
                show_count(limit.soft.saturating_sub(20))
            ),
            ["ulimit -n $(ulimit -Hn)"],
        );
    }
    fine(TOPIC, show(limit.soft))
}

pub(super) fn ports(facts: &Facts) -> Finding {
    const TOPIC: &str = "local ports";
    // The kernel's default range, 32768–60999.
    const DEFAULT: u64 = 28_232;
    let Some(ports) = facts.ports else {
        return unread(TOPIC);
    };
    let usable = ports.usable();
    let found = format!(
        "{} for each source address and target ({}–{}{})",
        show_count(usable),
        ports.low,
        ports.high,
        if ports.reserved > 0 {
            format!(", {} of them reserved", show_count(ports.reserved.into()))
        } else {
            String::new()
        }
    );
    // A few hundred reserved ports of the default range change nothing.
    if usable >= DEFAULT - 1_000 {
        return fine(TOPIC, found);
    }
    spoils(
        TOPIC,
        if usable < 10_000 {
            Level::Warning
        } else {
            Level::Note
        },
        found,
        format!(
            "no more than {} connections at once from one address, and fresh ones run out of ports sooner",
            show_count(usable)
        ),
        [
            "sudo sysctl -w net.ipv4.ip_local_port_range=\"16384 65535\"",
            "# or spread over several addresses: --sources 127.0.0.2-127.0.0.20",
        ],
    )
}

pub(super) fn time_wait(facts: &Facts) -> Finding {
    const TOPIC: &str = "TIME_WAIT";
    // Fewer fresh connections a second than this is less than a small server accepts.
    const LOW_RATE: f64 = 10_000.0;
    let (rules, Some(ports)) = (&facts.time_wait, facts.ports) else {
        return unread(TOPIC);
    };
    let Some(reuse) = rules.reuse else {
        return unread(TOPIC);
    };
    let usable = ports.usable() as f64;
    let resting = show_count((usable / TIME_WAIT_S) as u64);
    let why_never = match (reuse, rules.timestamps) {
        (0, _) => Some((
            "net.ipv4.tcp_tw_reuse = 0",
            "sudo sysctl -w net.ipv4.tcp_tw_reuse=2",
        )),
        (_, Some(0)) => Some((
            "net.ipv4.tcp_timestamps = 0, without which no port is reused",
            "sudo sysctl -w net.ipv4.tcp_timestamps=1",
        )),
        _ => None,
    };
    if let Some((found, mend)) = why_never {
        let found = match rules.ports_held {
            Some(held) if held > 0 => format!("{found}; {} local ports rest now", show_count(held)),
            _ => found.to_owned(),
        };
        return spoils(
            TOPIC,
            Level::Warning,
            found,
            format!(
                "a port whose connection the client closed first rests 60 s, on loopback too: {resting} fresh connections per second and source address in the long run"
            ),
            [mend],
        );
    }
    let delay_ms = rules.reuse_delay_ms.unwrap_or(1_000);
    let rate = usable * 1e3 / delay_ms.max(1) as f64;
    let found = format!(
        "ports reused after {:.1} s {} ({} fresh connections/s per source address)",
        delay_ms as f64 / 1e3,
        if reuse == 1 {
            "everywhere"
        } else {
            "on loopback"
        },
        show_count(rate as u64),
    );
    if rate < LOW_RATE {
        return spoils(
            TOPIC,
            Level::Note,
            found,
            "with --close-first client, fresh connections beyond that rate fail for want of a port",
            [
                "sudo sysctl -w net.ipv4.tcp_tw_reuse_delay=1000",
                "# or spread over several addresses: --sources 127.0.0.2-127.0.0.20",
            ],
        );
    }
    if let Some(held) = rules.ports_held.filter(|held| *held as f64 >= usable / 2.0) {
        return spoils(
            TOPIC,
            Level::Note,
            format!("{found}; {} of the local ports rest now", show_count(held)),
            "a fresh connection searches longer for a free port, which costs client CPU",
            ["sleep 60    # they are free again then"],
        );
    }
    if reuse == 1 {
        return fine(TOPIC, found);
    }
    fine(TOPIC, format!("{found}, else 60 s ({resting}/s)"))
}

pub(super) fn accept_queue(facts: &Facts) -> Finding {
    const TOPIC: &str = "accept queue";
    // The kernel's default since 5.4; before, it was 128.
    const DEFAULT: u64 = 4_096;
    let queue = &facts.accept_queue;
    let Some(somaxconn) = queue.somaxconn else {
        return unread(TOPIC);
    };
    let found = format!("net.core.somaxconn = {}", show_count(somaxconn));
    if somaxconn < 1_024 {
        return spoils(
            TOPIC,
            Level::Warning,
            found,
            format!(
                "whatever a server asks for, beyond {} connections waiting to be accepted a SYN is dropped and comes again after 1 s",
                show_count(somaxconn)
            ),
            [
                &format!("sudo sysctl -w net.core.somaxconn={DEFAULT}"),
                "# then start the server anew: the bound is taken when it begins to listen",
            ],
        );
    }
    if let (Some(0), Some(backlog)) = (queue.syncookies, queue.syn_backlog)
        && backlog < 1_024
    {
        return spoils(
            TOPIC,
            Level::Note,
            format!(
                "{found}, net.ipv4.tcp_max_syn_backlog = {} without SYN cookies",
                show_count(backlog)
            ),
            "a burst of fresh connections over a real network loses SYNs beyond that many half-open ones",
            ["sudo sysctl -w net.ipv4.tcp_syncookies=1"],
        );
    }
    fine(TOPIC, found)
}

pub(super) fn conntrack(facts: &Facts) -> Finding {
    const TOPIC: &str = "conntrack";
    let Some(conntrack) = facts.conntrack else {
        return fine(TOPIC, "not loaded");
    };
    let found = format!(
        "{} of {} connections tracked",
        show_count(conntrack.count),
        show_count(conntrack.max)
    );
    if conntrack.count == 0 {
        return fine(TOPIC, format!("{found} (loaded, but no rule uses it)"));
    }
    let free = conntrack.max.saturating_sub(conntrack.count);
    let share = conntrack.count as f64 / conntrack.max.max(1) as f64;
    // A closed connection stays in the table for two minutes (nf_conntrack_tcp_timeout_time_wait, 120 s by default), so a
    // thousand fresh ones per second take 120,000 places.
    let level = if share >= 0.8 {
        Level::Warning
    } else if share >= 0.5 || free < 120_000 {
        Level::Note
    } else {
        return fine(TOPIC, found);
    };
    spoils(
        TOPIC,
        level,
        found,
        format!(
            "each fresh connection takes a place for about 2 minutes; when the {} free ones are gone, SYNs are dropped without a word ({} fresh connections per second in the long run)",
            show_count(free),
            show_count(free / 120)
        ),
        [
            &format!(
                "sudo sysctl -w net.netfilter.nf_conntrack_max={}",
                conntrack.max.saturating_mul(4).max(1_048_576)
            ),
            "# or leave loopback out of it:",
            "sudo iptables -t raw -A OUTPUT -o lo -j NOTRACK && sudo iptables -t raw -A PREROUTING -i lo -j NOTRACK",
        ],
    )
}
