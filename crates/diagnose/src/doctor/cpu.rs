//! Findings on the CPUs: how many, how much of them, how fast, and who else wants them.

use floodmark_record::host::{Facts, Finding, Level};
use floodmark_record::units::show_count;

use super::{fine, spoils, unread};

pub(super) fn cpus(facts: &Facts) -> Finding {
    const TOPIC: &str = "CPUs";
    let allowed = facts.cpus.allowed;
    let online = facts.cpus.online.unwrap_or(allowed);
    let found = if allowed < online {
        format!(
            "{allowed} of {online} may be used ({})",
            facts.cpus.allowed_list
        )
    } else {
        format!("{allowed}, all may be used")
    };
    match allowed {
        0 | 1 => {
            let mend = if online > 1 {
                format!("taskset -cp 0-{} $$", online - 1)
            } else {
                "# use a machine with 2 CPUs or more, or load from another one".to_owned()
            };
            spoils(
                TOPIC,
                Level::Warning,
                found,
                "client and server take turns on one CPU: throughput is that of both together, and every latency holds waits for the other",
                [mend.as_str()],
            )
        }
        // Up to four a client with half of them and a server with one thread per CPU already stand in each other's way.
        2..=4 if allowed == online => spoils(
            TOPIC,
            Level::Note,
            found,
            "a server with a thread for each of them competes with the client; keep them apart to measure the server alone",
            [
                &format!("taskset -c 0{} SERVER", last(allowed - 2)),
                &format!("taskset -c {} floodmark load URL -t 1", allowed - 1),
            ],
        ),
        _ if allowed < online => spoils(
            TOPIC,
            Level::Note,
            found,
            "nothing, where it is meant; else the rest of the machine lies idle",
            [&format!("taskset -cp 0-{} $$", online - 1)],
        ),
        _ => fine(TOPIC, found),
    }
}

/// The end of a list that begins with 0: nothing, or `-2`.
fn last(cpu: u32) -> String {
    if cpu == 0 {
        String::new()
    } else {
        format!("-{cpu}")
    }
}

pub(super) fn quota(facts: &Facts) -> Finding {
    const TOPIC: &str = "CPU quota";
    let Some(quota) = &facts.quota else {
        return fine(TOPIC, "none");
    };
    let found = format!(
        "{:.2} CPUs per {:.0} ms{}",
        quota.cpus,
        quota.period_ms,
        match quota.throttled_periods {
            Some(0) | None => String::new(),
            Some(1) => ", exhausted once so far".to_owned(),
            Some(n) => format!(", exhausted {} times so far", show_count(n)),
        }
    );
    if quota.cpus >= f64::from(facts.cpus.allowed) && quota.throttled_periods.unwrap_or(0) == 0 {
        return fine(TOPIC, format!("{found}, no less than there are"));
    }
    spoils(
        TOPIC,
        Level::Warning,
        found,
        format!(
            "once it is used up, client and server stand still until the next period: latencies jump by up to {:.0} ms and throughput is the quota's",
            quota.period_ms
        ),
        [
            &format!("echo {} | sudo tee {}", quota.unlimited, quota.file),
            "# in a container: give it CPUs (--cpuset-cpus) instead of a share (--cpus)",
        ],
    )
}

pub(super) fn governor(facts: &Facts) -> Finding {
    const TOPIC: &str = "frequency";
    const MEND: &str =
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    let Some(frequency) = &facts.frequency else {
        return fine(TOPIC, "not exposed to this machine (the host decides)");
    };
    let others: Vec<String> = frequency
        .governors
        .iter()
        .filter(|(name, _)| *name != "performance")
        .map(|(name, cpus)| format!("{name} on {cpus} CPUs"))
        .collect();
    if others.is_empty() {
        return fine(TOPIC, "governor performance on all CPUs");
    }
    let driver = frequency.driver.as_deref().unwrap_or("unknown");
    let found = format!("governor {} (driver {driver})", others.join(", "));
    // With these two drivers in active mode "powersave" is a dynamic governor; with all others it is the lowest frequency
    // (kernel documentation, admin-guide/pm: cpufreq, intel_pstate, amd-pstate).
    let dynamic = matches!(driver, "intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp");
    if frequency.governors.contains_key("powersave") && !dynamic {
        return spoils(
            TOPIC,
            Level::Warning,
            found,
            "CPUs stay at their lowest frequency: all figures are those of a slower machine",
            [MEND],
        );
    }
    spoils(
        TOPIC,
        Level::Note,
        found,
        "the frequency follows the load: latencies at low rates are longer than at high ones, and the first seconds slower",
        [MEND],
    )
}

pub(super) fn steal(facts: &Facts) -> Finding {
    const TOPIC: &str = "steal";
    // One tick of 10 ms in a sample of half a second on 2 CPUs is 1 %: below 2 % nothing can be said from the sample alone.
    const NOTE: f64 = 0.02;
    // A twentieth of the machine gone moves a throughput by more than most comparisons are about.
    const WARNING: f64 = 0.05;
    let Some(stolen_cpus) = facts.load.stolen_cpus else {
        return unread(TOPIC);
    };
    let cpus = f64::from(facts.cpus.online.unwrap_or(facts.cpus.allowed).max(1));
    let now = stolen_cpus / cpus;
    let ever = facts.load.stolen_since_boot.unwrap_or(0.0);
    let found = format!(
        "the hypervisor took {:.1} % of the CPU time in {:.1} s, {:.1} % since boot",
        now * 100.0,
        facts.load.seconds,
        ever * 100.0
    );
    let level = if now >= WARNING {
        Level::Warning
    } else if now >= NOTE || ever >= NOTE {
        Level::Note
    } else {
        return fine(
            TOPIC,
            format!("{:.1} % now, {:.1} % since boot", now * 100.0, ever * 100.0),
        );
    };
    spoils(
        TOPIC,
        level,
        found,
        "pauses that neither client nor server can see: high percentiles and short runs are the neighbours', not the server's",
        [
            "# only a machine of its own mends it; several attempts show how much of a figure it is:",
            "floodmark load URL --attempts 5",
        ],
    )
}

pub(super) fn other_load(facts: &Facts) -> Finding {
    const TOPIC: &str = "other load";
    // A tenth of one CPU is more than an idle system with its services uses.
    const NOTE: f64 = 0.1;
    // A quarter of a CPU, or a tenth of a larger machine.
    const WARNING_CPUS: f64 = 0.25;
    const WARNING_SHARE: f64 = 0.1;
    let Some(busy) = facts.load.busy_cpus else {
        return unread(TOPIC);
    };
    let others = (busy - facts.load.own_cpus).max(0.0);
    let cpus = f64::from(facts.cpus.online.unwrap_or(facts.cpus.allowed).max(1));
    let level = if others >= WARNING_CPUS.max(WARNING_SHARE * cpus) {
        Level::Warning
    } else if others >= NOTE {
        Level::Note
    } else {
        return fine(TOPIC, format!("{others:.2} of {cpus:.0} CPUs busy"));
    };
    let named: Vec<_> = facts
        .load
        .busiest
        .iter()
        .filter(|process| process.cpus >= 0.02)
        .take(3)
        .collect();
    let seen: f64 = facts.load.busiest.iter().map(|process| process.cpus).sum();
    let mut who: Vec<String> = named
        .iter()
        .map(|process| format!("{} (pid {}) {:.2}", process.name, process.pid, process.cpus))
        .collect();
    // Interrupts, processes that came and went, and those of other containers belong to nobody who can be seen.
    if others - seen >= NOTE {
        who.push(format!(
            "interrupts and unseen processes {:.2}",
            others - seen
        ));
    }
    let found = format!(
        "{others:.2} of {cpus:.0} CPUs busy{}{}",
        if who.is_empty() { "" } else { ": " },
        who.join(", ")
    );
    let mend = match named.first() {
        Some(process) => format!(
            "kill -STOP {pid}    # unless it is the server under test; afterwards: kill -CONT {pid}",
            pid = process.pid
        ),
        None => "# find it on the host that this machine or container runs on".to_owned(),
    };
    spoils(
        TOPIC,
        level,
        found,
        "client and server wait for CPUs that others use: less throughput, longer latencies, and no two runs alike",
        [mend.as_str()],
    )
}
