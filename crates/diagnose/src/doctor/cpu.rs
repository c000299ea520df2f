//! Findings on the CPUs: number, quota, frequency, steal and other load.

use floodmark_record::host::{BusyProcess, HostFacts, HostFinding, Level};
use floodmark_record::units::show_count;

use super::{fine, level, problem};
use crate::text::show_processes;

pub(super) fn cpus(facts: &HostFacts) -> Option<HostFinding> {
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

pub(super) fn quota(facts: &HostFacts) -> Option<HostFinding> {
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

pub(super) fn governor(facts: &HostFacts) -> Option<HostFinding> {
    let frequency = facts.frequency.as_ref()?;
    let governors = frequency.governors.iter();
    let others = governors.filter(|(name, _)| *name != "performance");
    let others = others.map(|(name, cpus)| format!("{name} on {cpus} CPUs"));
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        return Some(fine("governor \"performance\" on all CPUs"));
    }
    let driver = frequency.driver.as_deref().unwrap_or("unknown");
    // In active mode, these drivers change the frequency dynamically under "powersave". Other
    // drivers use the lowest frequency (kernel documentation, admin-guide/pm: cpufreq,
    // intel_pstate, amd-pstate).
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

pub(super) fn steal(facts: &HostFacts) -> Option<HostFinding> {
    // In half a second on 2 CPUs, one 10 ms tick is 1 % of the CPU time. A share below 2 % may
    // therefore be noise.
    const NOTE: f64 = 0.02;
    // A 5 % loss of CPU time is larger than most differences in comparisons.
    const WARNING: f64 = 0.05;
    let now = facts.load.stolen_cpus? / host_cpus(facts);
    let ever = facts.load.stolen_since_boot.unwrap_or(0.0);
    let (percent, percent_ever) = (now * 100.0, ever * 100.0);
    // Steal before the sample causes at most a note.
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

pub(super) fn other_load(facts: &HostFacts) -> Option<HostFinding> {
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
