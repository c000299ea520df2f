//! Collects the facts for `floodmark doctor`, without judging them.

use std::time::{Duration, Instant};

use floodmark_record::host::{
    AcceptQueueFacts, BusyProcess, ConntrackFacts, CpuFacts, FrequencyFacts, HostFacts,
    IoUringFacts, LoadFacts, TimeWaitFacts,
};
use rustix::io_uring::{io_uring_params, io_uring_setup};

use crate::cpu::{self, CpuTime};
use crate::process::ProcessListing;
use crate::{Root, cgroup, clock, environment, host, listener};

/// Reads facts about the host, and samples the host's load for the duration `sample`. If `sample`
/// is below 0.5 s, the CPU shares are inaccurate, because the kernel's ticks are 10 ms long.
#[must_use]
pub fn facts(root: &Root, sample: Duration) -> HostFacts {
    let mut missing = Vec::new();
    let load = load(root, sample, &mut missing);
    let open_files = environment::open_files(root);
    let ports = environment::ports(root);
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
            reuse: environment::sysctl(root, "net.ipv4.tcp_tw_reuse"),
            reuse_delay_ms: environment::sysctl(root, "net.ipv4.tcp_tw_reuse_delay"),
            timestamps: environment::sysctl(root, "net.ipv4.tcp_timestamps"),
            max: environment::sysctl(root, "net.ipv4.tcp_max_tw_buckets"),
            now: host::time_wait(&root.read("/proc/net/sockstat").unwrap_or_default()),
            ports_held: ports.and_then(|range| listener::ports_in_time_wait(root, range)),
        },
        accept_queue: AcceptQueueFacts {
            somaxconn: environment::sysctl(root, "net.core.somaxconn"),
            syn_backlog: environment::sysctl(root, "net.ipv4.tcp_max_syn_backlog"),
            syncookies: environment::sysctl(root, "net.ipv4.tcp_syncookies"),
        },
        conntrack: conntrack(root),
        io_uring: read(root),
        clock: clock::facts(root),
        missing,
    }
}

fn conntrack(root: &Root) -> Option<ConntrackFacts> {
    Some(ConntrackFacts {
        count: environment::sysctl(root, "net.netfilter.nf_conntrack_count")?,
        max: environment::sysctl(root, "net.netfilter.nf_conntrack_max")?,
    })
}

fn frequency(root: &Root) -> Option<FrequencyFacts> {
    const DIRECTORY: &str = "/sys/devices/system/cpu";
    let mut facts = FrequencyFacts::default();
    for cpu in root.names(DIRECTORY) {
        let line = |file: &str| root.line(format!("{DIRECTORY}/{cpu}/cpufreq/{file}"));
        if let Some(governor) = line("scaling_governor") {
            *facts.governors.entry(governor).or_default() += 1;
            facts.driver = facts.driver.or_else(|| line("scaling_driver"));
        }
    }
    (!facts.governors.is_empty()).then_some(facts)
}

fn load(root: &Root, sample: Duration, missing: &mut Vec<String>) -> LoadFacts {
    let begin = Instant::now();
    let processes_before = ProcessListing::read(root);
    let cpus_before = CpuTime::read(root);
    std::thread::sleep(sample);
    let cpus_after = CpuTime::read(root);
    let processes_after = ProcessListing::read(root);
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
    facts.busiest = processes_after.since(&processes_before);
    let is_own = |process: &mut BusyProcess| process.pid == std::process::id();
    let own = facts.busiest.extract_if(.., is_own);
    facts.own_cpus = own.map(|process| process.cpus).sum();
    facts.busiest.truncate(LoadFacts::BUSIEST);
    facts
}

/// Checks whether io_uring is available: sets up a ring with one entry and closes it.
#[must_use]
pub fn read(root: &Root) -> IoUringFacts {
    let mut parameters = io_uring_params::default();
    // SAFETY: the parameters request a plain ring, which refers to no memory of this process.
    let ring = unsafe { io_uring_setup(1, &mut parameters) };
    let errno = ring.err().map(|error| error.raw_os_error());
    IoUringFacts {
        available: errno.is_none(),
        errno,
        disabled: environment::sysctl(root, "kernel.io_uring_disabled"),
    }
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
    fn measures_the_cpu_of_a_busy_process() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "ulimit -t 30; while :; do :; done"])
            .spawn()
            .unwrap();
        let pid = child.id();
        let used = || {
            let all = ProcessListing::read(&Root::host()).processes;
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
        let directory = tempfile::tempdir().unwrap();
        for (cpu, governor) in [
            ("cpu0", "powersave"),
            ("cpu1", "powersave"),
            ("cpu10", "performance"),
        ] {
            let path = directory
                .path()
                .join("sys/devices/system/cpu")
                .join(cpu)
                .join("cpufreq");
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("scaling_governor"), format!("{governor}\n")).unwrap();
            std::fs::write(path.join("scaling_driver"), "acpi-cpufreq\n").unwrap();
        }
        std::fs::create_dir_all(directory.path().join("sys/devices/system/cpu/cpufreq")).unwrap();
        let facts = frequency(&Root::at(directory.path())).unwrap();
        assert_eq!(facts.governors["powersave"], 2);
        assert_eq!(facts.governors["performance"], 1);
        assert_eq!(facts.driver.as_deref(), Some("acpi-cpufreq"));
        std::fs::remove_dir_all(directory.path().join("sys")).unwrap();
        assert_eq!(frequency(&Root::at(directory.path())), None);
    }

    #[test]
    fn tolerates_missing_files() {
        let directory = tempfile::tempdir().unwrap();
        let facts = facts(&Root::at(directory.path()), Duration::ZERO);
        assert_eq!(facts.ports, None);
        assert_eq!(facts.load.busy_cpus, None);
        assert!(
            facts
                .missing
                .iter()
                .any(|line| line.contains("ip_local_port_range"))
        );
    }

    #[test]
    fn reports_a_known_error_and_leaves_no_ring_open() {
        let facts = read(&Root::host());
        if facts.disabled == Some(2) {
            assert!(!facts.available, "{facts:?}");
        }
        let known = [
            None,
            Some(libc::ENOSYS),
            Some(libc::EPERM),
            Some(libc::ENOMEM),
        ];
        assert!(known.contains(&facts.errno), "{facts:?}");
        let rings = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|link| link.to_string_lossy().contains("io_uring"))
            .count();
        assert_eq!(rings, 0);
    }
}
