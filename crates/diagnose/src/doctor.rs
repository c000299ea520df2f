//! `floodmark doctor`: finds host properties that distort measurements.
//!
//! Each finding reports figures, the effect on measurements, and commands that fix the problem.

use floodmark_record::host::{BusyProcess, Checkup, HostFacts, HostFinding, Level};
use floodmark_record::units::{show_count, show_ns};

use crate::text::show_processes;

/// A function that checks one topic. It leaves the topic of the finding empty. It returns `None` if
/// data is missing.
type HostCheck = fn(&HostFacts) -> Option<HostFinding>;

/// A topic and the function that checks it. If data is missing, the pair in the middle provides the
/// level and the text of the finding.
type DoctorCheck = (&'static str, (Level, &'static str), HostCheck);

const NOT_AVAILABLE: (Level, &str) = (Level::Unknown, "not available on this host");
const NOT_VISIBLE: (Level, &str) = (Level::Unknown, "not visible in this virtual machine");

const CHECKS: [DoctorCheck; 12] = [
    ("CPUs", NOT_AVAILABLE, cpus),
    ("CPU quota", (Level::Ok, "none"), quota),
    ("frequency", NOT_VISIBLE, governor),
    ("steal", NOT_AVAILABLE, steal),
    ("other load", NOT_AVAILABLE, other_load),
    ("open files", NOT_AVAILABLE, open_files),
    ("local ports", NOT_AVAILABLE, ports),
    ("TIME_WAIT", NOT_AVAILABLE, time_wait),
    ("accept queue", NOT_AVAILABLE, accept_queue),
    ("conntrack", (Level::Ok, "not loaded"), conntrack),
    ("io_uring", NOT_AVAILABLE, io_uring),
    ("clock", NOT_AVAILABLE, clock),
];

/// Returns the findings on a host. Warnings come first, then notes, unknown figures, and topics
/// without problems.
#[must_use]
pub fn findings(facts: &HostFacts) -> Vec<HostFinding> {
    let mut findings = CHECKS.map(|(topic, (level, missing), check)| HostFinding {
        topic: topic.to_owned(),
        ..check(facts).unwrap_or_else(|| HostFinding {
            level,
            ..fine(missing)
        })
    });
    findings.sort_by_key(|finding| finding.level);
    findings.into()
}

/// Returns the host facts and findings that `doctor --json` prints.
#[must_use]
pub fn checkup(facts: HostFacts) -> Checkup {
    Checkup {
        schema: floodmark_record::SCHEMA_VERSION,
        findings: findings(&facts),
        facts,
    }
}

/// Creates a finding that reports no problem.
fn fine(found: impl Into<String>) -> HostFinding {
    HostFinding {
        topic: String::new(),
        level: Level::Ok,
        found: found.into(),
        spoils: None,
        mend: Vec::new(),
    }
}

/// Creates a finding that reports a problem, the problem's effect and a fix. If `level` is
/// [`Level::Ok`], the finding contains neither effect nor fix.
fn problem(level: Level, found: String, effect: &str, fix: &[&str]) -> HostFinding {
    if level == Level::Ok {
        return fine(found);
    }
    HostFinding {
        level,
        spoils: Some(effect.to_owned()),
        mend: fix.iter().map(|line| (*line).to_owned()).collect(),
        ..fine(found)
    }
}

/// Returns the level for a figure. `note` and `warning` are the minimum figures for these two
/// levels.
fn level(figure: f64, note: f64, warning: f64) -> Level {
    match figure {
        figure if figure >= warning => Level::Warning,
        figure if figure >= note => Level::Note,
        _ => Level::Ok,
    }
}

fn cpus(facts: &HostFacts) -> Option<HostFinding> {
    let allowed = facts.cpus.allowed;
    let online = facts.cpus.online.unwrap_or(allowed);
    let use_all = format!("taskset -cp 0-{} $$", online.saturating_sub(1));
    let found = if allowed < online {
        format!("{allowed} of {online} usable ({})", facts.cpus.allowed_list)
    } else {
        format!("{allowed}, all usable")
    };
    Some(match allowed {
        0 | 1 => problem(
            Level::Warning,
            found,
            "client and server share one CPU: throughput depends on both, and latencies include waiting for the CPU",
            &[match online {
                0 | 1 => "# use a host with at least 2 CPUs, or run the client on another host",
                _ => &use_all,
            }],
        ),
        // With up to four CPUs, a client that uses half of the CPUs competes with a server that
        // runs one thread per CPU.
        2..=4 if allowed == online => {
            let server_cpus = match allowed {
                2 => "0".to_owned(),
                _ => format!("0-{}", allowed - 2),
            };
            problem(
                Level::Note,
                found,
                "a server with one thread per CPU competes with the client; use separate CPUs to measure the server alone",
                &[
                    &format!("taskset -c {server_cpus} SERVER"),
                    &format!("taskset -c {} floodmark load URL -t 1", allowed - 1),
                ],
            )
        }
        _ if allowed < online => problem(
            Level::Note,
            found,
            "client and server cannot use the other CPUs; ignore this if intended",
            &[&use_all],
        ),
        _ => fine(found),
    })
}

fn quota(facts: &HostFacts) -> Option<HostFinding> {
    let quota = facts.quota.as_ref()?;
    let exhausted = quota.throttled_periods.unwrap_or(0);
    let so_far = match exhausted {
        0 => String::new(),
        1 => ", exhausted once so far".to_owned(),
        n => format!(", exhausted {} times so far", show_count(n)),
    };
    let period_ms = quota.period_ms;
    let found = format!("{:.2} CPUs, period {period_ms:.0} ms{so_far}", quota.cpus);
    if quota.cpus >= f64::from(facts.cpus.allowed) && exhausted == 0 {
        return Some(fine(format!("{found}, enough for all CPUs")));
    }
    Some(problem(
        Level::Warning,
        found,
        &format!(
            "when the quota is exhausted, client and server pause until the next period: latencies rise by up to {period_ms:.0} ms, and throughput is limited"
        ),
        &[
            &format!("echo {} | sudo tee {}", quota.unlimited, quota.file),
            "# in a container: assign CPUs (--cpuset-cpus) instead of a quota (--cpus)",
        ],
    ))
}

fn governor(facts: &HostFacts) -> Option<HostFinding> {
    let frequency = facts.frequency.as_ref()?;
    let governors = frequency.governors.iter();
    let others = governors.filter(|(name, _)| *name != "performance");
    let others = others.map(|(name, cpus)| format!("{name} on {cpus} CPUs"));
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        return Some(fine("governor \"performance\" on all CPUs"));
    }
    let driver = frequency.driver.as_deref().unwrap_or("unknown");
    // With the governor "powersave", these drivers (in active mode) change the frequency
    // dynamically. Other drivers use the lowest frequency (kernel documentation, admin-guide/pm:
    // cpufreq, intel_pstate, amd-pstate).
    let dynamic = matches!(driver, "intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp");
    let mut level = Level::Note;
    let mut effect = "the CPU frequency follows the load: latencies are higher at low rates and in the first seconds";
    if frequency.governors.contains_key("powersave") && !dynamic {
        level = Level::Warning;
        effect = "the CPUs stay at their lowest frequency, so all figures describe a slower host";
    }
    Some(problem(
        level,
        format!("governor {} (driver {driver})", others.join(", ")),
        effect,
        &["echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"],
    ))
}

fn steal(facts: &HostFacts) -> Option<HostFinding> {
    // In half a second on 2 CPUs, one 10 ms tick is 1 % of the CPU time. A share below 2 % may
    // therefore be noise.
    const NOTE: f64 = 0.02;
    // A 5 % loss of CPU time is larger than most differences in comparisons.
    const WARNING: f64 = 0.05;
    let now = facts.load.stolen_cpus? / host_cpus(facts);
    let ever = facts.load.stolen_since_boot.unwrap_or(0.0);
    let (percent, percent_ever) = (now * 100.0, ever * 100.0);
    // Steal that occurred only before this measurement causes at most a note.
    let level = level(now, NOTE, WARNING).min(level(ever, NOTE, f64::INFINITY));
    if level == Level::Ok {
        return Some(fine(format!(
            "{percent:.1} % now, {percent_ever:.1} % since boot"
        )));
    }
    Some(problem(
        level,
        format!(
            "the hypervisor took {percent:.1} % of the CPU time during {:.1} s, and {percent_ever:.1} % since boot",
            facts.load.seconds
        ),
        "the hypervisor pauses client and server, which distorts high percentiles and short runs",
        &[
            "# use a dedicated host, or measure the variation with several attempts:",
            "floodmark load URL --attempts 5",
        ],
    ))
}

fn host_cpus(facts: &HostFacts) -> f64 {
    f64::from(facts.cpus.online.unwrap_or(facts.cpus.allowed).max(1))
}

fn other_load(facts: &HostFacts) -> Option<HostFinding> {
    // The services on an idle system use less than a tenth of one CPU.
    const NOTE: f64 = 0.1;
    // Warn at a quarter of a CPU, or at a tenth of all CPUs if that is more.
    const WARNING_CPUS: f64 = 0.25;
    const WARNING_SHARE: f64 = 0.1;
    let others = (facts.load.busy_cpus? - facts.load.own_cpus).max(0.0);
    let cpus = host_cpus(facts);
    let found = format!("{others:.2} of {cpus:.0} CPUs busy");
    let level = level(others, NOTE, WARNING_CPUS.max(WARNING_SHARE * cpus));
    if level == Level::Ok {
        return Some(fine(found));
    }
    let busiest = &facts.load.busiest;
    let named = busiest.iter().filter(|of| of.cpus >= 0.02).take(3);
    let named: Vec<BusyProcess> = named.cloned().collect();
    let mut consumers = Vec::from_iter((!named.is_empty()).then(|| show_processes(&named)));
    // Interrupts, short-lived processes and processes of other containers are not visible.
    let hidden = others - busiest.iter().map(|process| process.cpus).sum::<f64>();
    if hidden >= NOTE {
        consumers.push(format!("interrupts and unlisted processes {hidden:.2}"));
    }
    let fix = match named.first() {
        Some(process) => format!(
            "kill -STOP {pid}    # unless it is the server under test; afterwards: kill -CONT {pid}",
            pid = process.pid
        ),
        None => "# check the host of this virtual machine or container".to_owned(),
    };
    let colon = if consumers.is_empty() { "" } else { ": " };
    Some(problem(
        level,
        format!("{found}{colon}{}", consumers.join(", ")),
        "client and server compete with other processes for CPUs: throughput falls; latencies and variation rise",
        &[&fix],
    ))
}

/// Duration of TIME_WAIT in seconds (`TCP_TIMEWAIT_LEN`, a kernel constant).
const TIME_WAIT_S: f64 = 60.0;

const MORE_SOURCES: &str = "# or use several source addresses: --sources 127.0.0.2-127.0.0.20";

fn open_files(facts: &HostFacts) -> Option<HostFinding> {
    // Enough for 10,000 connections in the client or the server.
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

fn ports(facts: &HostFacts) -> Option<HostFinding> {
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
            "each source address allows at most {usable} connections at once, and fewer with --fresh, because closed connections can hold ports"
        ),
        &[
            "sudo sysctl -w net.ipv4.ip_local_port_range=\"16384 65535\"",
            MORE_SOURCES,
        ],
    ))
}

fn time_wait(facts: &HostFacts) -> Option<HostFinding> {
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

fn accept_queue(facts: &HostFacts) -> Option<HostFinding> {
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

fn conntrack(facts: &HostFacts) -> Option<HostFinding> {
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

/// The error codes `EPERM` and `ENOSYS`. The value of `ENOSYS` differs only on a few architectures,
/// such as MIPS and SPARC.
const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

fn io_uring(facts: &HostFacts) -> Option<HostFinding> {
    const SECCOMP: &str = "# in a container: allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile";
    let io_uring = &facts.io_uring;
    if io_uring.available {
        return Some(fine("available"));
    }
    let (found, fix) = match (io_uring.disabled, io_uring.errno) {
        (Some(disabled @ 1..), _) => (
            format!("forbidden: kernel.io_uring_disabled = {disabled}"),
            "sudo sysctl -w kernel.io_uring_disabled=0",
        ),
        (_, Some(EPERM)) => ("forbidden by a system call filter".to_owned(), SECCOMP),
        // Kernels with this setting (6.6 and later) support io_uring, so a filter hides it.
        (Some(_), Some(ENOSYS)) => ("hidden by a system call filter".to_owned(), SECCOMP),
        (None, Some(ENOSYS)) => (
            format!("not in this kernel ({})", facts.kernel),
            "# requires Linux 5.6 or later",
        ),
        (_, errno) => (
            format!("setup failed (error {})", errno.unwrap_or(0)),
            "ulimit -l unlimited    # older kernels count rings as locked memory",
        ),
    };
    let effect =
        "floodmark uses epoll instead; servers that need io_uring fail to start or use a fallback";
    Some(problem(Level::Note, found, effect, &[fix]))
}

fn clock(facts: &HostFacts) -> Option<HostFinding> {
    // Reading the clock takes 20–60 ns without a system call, at least 200 ns with a system call,
    // and 1–3 µs with hpet or acpi_pm.
    const SLOW_NS: f64 = 200.0;
    const VERY_SLOW_NS: f64 = 500.0;
    let clock = &facts.clock;
    let source = clock.source.as_deref().unwrap_or("unknown source");
    let found = format!("{source}, {} per reading", show_ns(clock.read_ns));
    let level = level(clock.read_ns, SLOW_NS, VERY_SLOW_NS);
    let per_s = show_count((1e9 / clock.read_ns / 5.0) as u64);
    let fix = if clock.available.iter().any(|name| name == "tsc") && source != "tsc" {
        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
    } else {
        "# if the CPU's time stamp counter is stable, boot with clocksource=tsc tsc=reliable"
    };
    Some(problem(
        level,
        found,
        &format!(
            "reading the clock is slow here: at 5 readings per request, a thread is limited to {per_s} requests/s"
        ),
        &[fix],
    ))
}

#[cfg(test)]
mod tests;
