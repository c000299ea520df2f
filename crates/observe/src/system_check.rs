//! Collects the facts for `floodmark doctor`, without judging them.

use std::time::{Duration, Instant};

use floodmark_record::host::{
    AcceptQueueFacts, BusyProcess, ConntrackFacts, CpuFacts, FrequencyFacts, HostFacts, LoadFacts,
    TimeWaitFacts,
};

use crate::cpu::CpuTime;
use crate::{Root, cgroup, clock, cpu, io_uring, limits, process, sockstat, sysctl, time_wait};

/// Reads facts about the host, and samples the host's load for the duration `sample`. Below 0.5 s,
/// the kernel's 10 ms ticks make the CPU shares coarse.
#[must_use]
pub fn facts(root: &Root, sample: Duration) -> HostFacts {
    let mut missing = Vec::new();
    let load = load(root, sample, &mut missing);
    let open_files = limits::open_files(root);
    let ports = sysctl::ports(root);
    let online = cpu::online(root);
    for (name, present) in [
        ("/proc/self/limits", open_files.is_some()),
        ("net.ipv4.ip_local_port_range", ports.is_some()),
        ("/sys/devices/system/cpu/online", online.is_some()),
    ] {
        if !present {
            missing.push(format!("{name}: cannot be read"));
        }
    }
    HostFacts {
        kernel: root.line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpus: CpuFacts {
            online,
            allowed: cpu::allowed(root),
            allowed_list: cpu::allowed_list(root).unwrap_or_default(),
            model: cpu::model(root),
        },
        quota: cgroup::group(root, "self", "cpu").and_then(|group| group.quota(root)),
        frequency: frequency(root),
        load,
        open_files,
        ports,
        time_wait: TimeWaitFacts {
            reuse: sysctl::number(root, "net.ipv4.tcp_tw_reuse"),
            reuse_delay_ms: sysctl::number(root, "net.ipv4.tcp_tw_reuse_delay"),
            timestamps: sysctl::number(root, "net.ipv4.tcp_timestamps"),
            max: sysctl::number(root, "net.ipv4.tcp_max_tw_buckets"),
            now: sockstat::time_wait(&root.read("/proc/net/sockstat").unwrap_or_default()),
            ports_held: ports.and_then(|range| time_wait::read(root, range)),
        },
        accept_queue: AcceptQueueFacts {
            somaxconn: sysctl::number(root, "net.core.somaxconn"),
            syn_backlog: sysctl::number(root, "net.ipv4.tcp_max_syn_backlog"),
            syncookies: sysctl::number(root, "net.ipv4.tcp_syncookies"),
        },
        conntrack: conntrack(root),
        io_uring: io_uring::read(root),
        clock: clock::facts(root),
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
    let cpus_before = CpuTime::read(root);
    std::thread::sleep(sample);
    let cpus_after = CpuTime::read(root);
    let processes_after = process::all_cpu(root);
    let seconds = begin.elapsed().as_secs_f64().max(1e-3);

    let mut facts = LoadFacts {
        seconds,
        load_average: cpu::load_average(root),
        ..LoadFacts::default()
    };
    match (cpus_before, cpus_after) {
        (Ok(before), Ok(after)) => {
            facts.busy_cpus = Some((after.busy_s - before.busy_s).max(0.0) / seconds);
            facts.stolen_cpus = Some((after.steal_s - before.steal_s).max(0.0) / seconds);
            facts.stolen_since_boot = Some(after.steal_s / after.total_s.max(f64::MIN_POSITIVE));
        }
        (Err(error), _) | (_, Err(error)) => missing.push(error.to_string()),
    }
    let own = std::process::id();
    (facts.own_cpus, facts.busiest) = busiest(&processes_before, processes_after, seconds, own);
    facts
}

/// Returns the CPU usage of process `own` and of the busiest other processes, busiest first.
/// `before` is sorted by PID, and `after` was read `seconds` later.
fn busiest(
    before: &[(u32, String, f64)],
    after: Vec<(u32, String, f64)>,
    seconds: f64,
    own: u32,
) -> (f64, Vec<BusyProcess>) {
    let (mut own_cpus, mut others) = (0.0, Vec::new());
    for (pid, name, after_s) in after {
        // A process that started during the sample used all of its CPU time within the sample.
        let before_s = before
            .binary_search_by_key(&pid, |(pid, ..)| *pid)
            .map_or(0.0, |index| before[index].2);
        let cpus = (after_s - before_s).max(0.0) / seconds;
        if pid == own {
            own_cpus = cpus;
        } else if cpus > 0.0 {
            others.push(BusyProcess { pid, name, cpus });
        }
    }
    others.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
    others.truncate(LoadFacts::BUSIEST);
    (own_cpus, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_host() {
        let facts = facts(&Root::host(), Duration::from_millis(100));
        assert!(
            facts.cpus.allowed <= facts.cpus.online.unwrap(),
            "{facts:?}"
        );
        assert!(facts.load.seconds >= 0.1);
        let busy = facts.load.busy_cpus.unwrap() + facts.load.stolen_cpus.unwrap();
        // Each CPU's time may be off by one tick at the start and at the end.
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
    fn ranks_the_busiest_other_processes() {
        let used = |all: &[(u32, f64)]| -> Vec<(u32, String, f64)> {
            let named = all.iter().map(|(pid, s)| (*pid, format!("p{pid}"), *s));
            named.collect()
        };
        let found = |before: &[(u32, f64)], after: &[(u32, f64)]| {
            let (own, others) = busiest(&used(before), used(after), 2.0, 4);
            let named = |p: &BusyProcess| p.name == format!("p{}", p.pid);
            assert!(others.iter().all(named), "{others:?}");
            let others = others.iter().map(|p| (p.pid, p.cpus));
            (own, others.collect::<Vec<_>>())
        };
        for (what, before, after, own, others) in [
            ("nothing", &[][..], &[][..], 0.0, vec![]),
            (
                "busiest first, without idle processes",
                &[(1, 5.0), (2, 5.0), (3, 5.0)],
                &[(1, 6.0), (2, 5.0), (3, 8.0)],
                0.0,
                vec![(3, 1.5), (1, 0.5)],
            ),
            (
                "a new process is measured from its start; an ended process is ignored",
                &[(1, 5.0), (2, 9.0)],
                &[(1, 6.0), (7, 1.5)],
                0.0,
                vec![(7, 0.75), (1, 0.5)],
            ),
            (
                "floodmark's own process is reported separately",
                &[(4, 1.0), (9, 1.0)],
                &[(4, 3.0), (9, 2.0)],
                1.0,
                vec![(9, 0.5)],
            ),
            (
                "a PID that was reused by another process",
                &[(1, 5.0)],
                &[(1, 0.5)],
                0.0,
                vec![],
            ),
            (
                "at most the maximum number of processes",
                &[],
                &[(1, 1.0), (2, 2.0), (3, 3.0), (5, 4.0), (6, 5.0), (7, 6.0)],
                0.0,
                vec![(7, 3.0), (6, 2.5), (5, 2.0), (3, 1.5), (2, 1.0)],
            ),
        ] {
            assert_eq!(found(before, after), (own, others), "{what}");
        }
    }

    #[test]
    fn measures_the_cpu_of_a_busy_process() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "ulimit -t 30; while :; do :; done"])
            .spawn()
            .unwrap();
        let pid = child.id();
        let used = || {
            let all = process::all_cpu(&Root::host());
            assert!(all.is_sorted_by_key(|(pid, ..)| *pid), "sorted by PID");
            all.into_iter().find(|(each, ..)| *each == pid)
        };
        // On a busy host, the child may have to wait for a CPU, so allow up to 30 s.
        let until = Instant::now() + Duration::from_secs(30);
        let begin_s = used().unwrap().2;
        let mut now = used().unwrap();
        while now.2 < begin_s + 0.1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            now = used().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(now.1, "sh");
        assert!(now.2 >= begin_s + 0.1, "{begin_s} s, then {now:?}");
    }

    #[test]
    fn counts_frequency_governors() {
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
    fn tolerates_missing_files() {
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
