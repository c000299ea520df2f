//! The facts behind `floodmark doctor`, as they are, without a judgement.

use std::time::{Duration, Instant};

use floodmark_record::host::{
    AcceptQueueFacts, BusyProcess, ConntrackFacts, CpuFacts, Facts, FrequencyFacts, LoadFacts,
    TimeWaitFacts,
};

use crate::{Root, cgroup, clock, cpu, io_uring, limits, process, sockstat, sysctl, time_wait};

/// Reads the machine; takes `sample` long, in which the load of the machine is watched. With less than half a second the
/// kernel's ticks of 10 ms make the shares coarse.
#[must_use]
pub fn facts(root: &Root, sample: Duration) -> Facts {
    let mut missing = Vec::new();
    let load = load(root, sample, &mut missing);
    let open_files = limits::open_files(root);
    let ports = sysctl::ports(root);
    for (name, present) in [
        ("/proc/self/limits", open_files.is_some()),
        ("net.ipv4.ip_local_port_range", ports.is_some()),
        (
            "/sys/devices/system/cpu/online",
            cpu::online(root).is_some(),
        ),
    ] {
        if !present {
            missing.push(format!("{name}: cannot be read"));
        }
    }
    Facts {
        kernel: root.line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpus: CpuFacts {
            online: cpu::online(root),
            allowed: cpu::allowed(root),
            allowed_list: cpu::allowed_list(root).unwrap_or_default(),
            model: cpu::model(root),
        },
        quota: cgroup::group(root, "cpu").and_then(|group| group.quota(root)),
        frequency: frequency(root),
        load,
        open_files,
        ports,
        time_wait: TimeWaitFacts {
            reuse: sysctl::number(root, "net.ipv4.tcp_tw_reuse"),
            reuse_delay_ms: sysctl::number(root, "net.ipv4.tcp_tw_reuse_delay"),
            timestamps: sysctl::number(root, "net.ipv4.tcp_timestamps"),
            max: sysctl::number(root, "net.ipv4.tcp_max_tw_buckets"),
            now: sockstat::read(root).ok().map(|tcp| tcp.time_wait),
            ports_held: ports.and_then(|range| time_wait::read(root, range)),
        },
        accept_queue: AcceptQueueFacts {
            somaxconn: sysctl::number(root, "net.core.somaxconn"),
            syn_backlog: sysctl::number(root, "net.ipv4.tcp_max_syn_backlog"),
            syncookies: sysctl::number(root, "net.ipv4.tcp_syncookies"),
        },
        conntrack: conntrack(root),
        io_uring: io_uring::read(root),
        clock: clock::read(root),
        missing,
    }
}

fn conntrack(root: &Root) -> Option<ConntrackFacts> {
    Some(ConntrackFacts {
        count: sysctl::number(root, "net.netfilter.nf_conntrack_count")?,
        max: sysctl::number(root, "net.netfilter.nf_conntrack_max")?,
    })
}

fn frequency(root: &Root) -> Option<FrequencyFacts> {
    let mut facts = FrequencyFacts::default();
    let entries = std::fs::read_dir(root.path("/sys/devices/system/cpu")).ok()?;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        if number
            .and_then(|number| number.parse::<u32>().ok())
            .is_none()
        {
            continue;
        }
        let line = |file: &str| {
            let text = std::fs::read_to_string(entry.path().join("cpufreq").join(file)).ok()?;
            Some(text.trim().to_owned())
        };
        if let Some(governor) = line("scaling_governor") {
            *facts.governors.entry(governor).or_default() += 1;
            facts.driver = facts.driver.or_else(|| line("scaling_driver"));
        }
    }
    (!facts.governors.is_empty()).then_some(facts)
}

fn load(root: &Root, sample: Duration, missing: &mut Vec<String>) -> LoadFacts {
    let begin = Instant::now();
    let processes_before = process::all_cpu(root);
    let cpus_before = cpu::read_stat(root);
    std::thread::sleep(sample);
    let cpus_after = cpu::read_stat(root);
    let processes_after = process::all_cpu(root);
    let seconds = begin.elapsed().as_secs_f64().max(1e-3);

    let mut facts = LoadFacts {
        seconds,
        load_average: cpu::load_average(root),
        ..LoadFacts::default()
    };
    match (cpus_before, cpus_after) {
        (Ok(before), Ok(after)) => {
            let used = after.total.since(&before.total);
            facts.busy_cpus = Some(used.busy_s() / seconds);
            facts.stolen_cpus = Some(used.steal_s / seconds);
            facts.stolen_since_boot =
                Some(after.total.steal_s / after.total.total_s().max(f64::MIN_POSITIVE));
        }
        (Err(error), _) | (_, Err(error)) => missing.push(error.to_string()),
    }
    for (pid, name, after_s) in processes_after {
        // A process that came in between has used all it has within the sample.
        let before_s = processes_before
            .binary_search_by_key(&pid, |(pid, ..)| *pid)
            .map_or(0.0, |index| processes_before[index].2);
        let cpus = (after_s - before_s).max(0.0) / seconds;
        if pid == std::process::id() {
            facts.own_cpus = cpus;
        } else if cpus > 0.0 {
            facts.busiest.push(BusyProcess { pid, name, cpus });
        }
    }
    facts.busiest.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
    facts.busiest.truncate(LoadFacts::BUSIEST);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine() {
        let facts = facts(&Root::host(), Duration::from_millis(100));
        assert!(
            facts.cpus.allowed <= facts.cpus.online.unwrap(),
            "{facts:?}"
        );
        assert!(facts.load.seconds >= 0.1);
        let busy = facts.load.busy_cpus.unwrap() + facts.load.stolen_cpus.unwrap();
        // Each CPU may be off by a tick at either end.
        assert!(
            busy <= f64::from(facts.cpus.online.unwrap()) * 1.3,
            "{:?}",
            facts.load
        );
        assert!(facts.load.stolen_since_boot.unwrap() < 1.0);
        assert!(facts.load.busiest.len() <= LoadFacts::BUSIEST);
        assert!(facts.ports.unwrap().usable() > 0);
        assert!(facts.accept_queue.somaxconn.unwrap() > 0);
        assert!(facts.missing.is_empty(), "{:?}", facts.missing);
    }

    #[test]
    fn a_busy_neighbour_is_named() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "ulimit -t 30; while :; do :; done"])
            .spawn()
            .unwrap();
        let busy = |load: &LoadFacts| {
            let is_it = |process: &BusyProcess| {
                process.pid == child.id() && process.name == "sh" && process.cpus > 0.05
            };
            load.busiest.iter().any(is_it)
        };
        // Among many that burn a CPU it may take a while until it is among the busiest.
        let look = || facts(&Root::host(), Duration::from_millis(400)).load;
        let seen = (0..40).any(|_| busy(&look()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen);
    }

    #[test]
    fn governors_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        for (cpu, governor) in [
            ("cpu0", "powersave"),
            ("cpu1", "powersave"),
            ("cpu10", "performance"),
        ] {
            let path = folder
                .path()
                .join("sys/devices/system/cpu")
                .join(cpu)
                .join("cpufreq");
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("scaling_governor"), format!("{governor}\n")).unwrap();
            std::fs::write(path.join("scaling_driver"), "acpi-cpufreq\n").unwrap();
        }
        std::fs::create_dir_all(folder.path().join("sys/devices/system/cpu/cpufreq")).unwrap();
        let facts = frequency(&Root::at(folder.path())).unwrap();
        assert_eq!(facts.governors["powersave"], 2);
        assert_eq!(facts.governors["performance"], 1);
        assert_eq!(facts.driver.as_deref(), Some("acpi-cpufreq"));
        std::fs::remove_dir_all(folder.path().join("sys")).unwrap();
        assert_eq!(frequency(&Root::at(folder.path())), None);
    }

    #[test]
    fn a_machine_that_tells_nothing_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let facts = facts(&Root::at(folder.path()), Duration::ZERO);
        assert_eq!(facts.ports, None);
        assert_eq!(facts.load.busy_cpus, None);
        assert!(
            facts
                .missing
                .iter()
                .any(|line| line.contains("ip_local_port_range"))
        );
    }
}
