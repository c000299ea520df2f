//! The environment of a run: kernel, CPUs, memory, limits (`/proc/self/limits`) and settings
//! (`/proc/sys`) of this host.

use std::collections::BTreeMap;

use floodmark_record::host::{Environment, LimitFacts, PortFacts};

use crate::root::labelled;
use crate::{Root, cgroup, cpu};

/// Reads the environment. Values that can't be read are null or omitted.
#[must_use]
pub fn environment(root: &Root) -> Environment {
    Environment {
        kernel: root.line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpus: cpu::allowed(root),
        allowed_cpus: cpu::of_this_thread(),
        cpu_model: cpu::model(root),
        memory_bytes: memory_bytes(&root.read("/proc/meminfo").unwrap_or_default()),
        cgroup: cgroup::limits(root),
        limits: limits(root),
        sysctls: sysctls(root),
    }
}

/// Parses the total memory in bytes from the contents of `/proc/meminfo`.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let total = labelled(meminfo, "MemTotal:")?;
    let kib: u64 = total.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Limits that matter under load, with floodmark's name and the kernel's name for each.
const LIMITS: [(&str, &str); 3] = [
    ("nofile", "Max open files"),
    ("nproc", "Max processes"),
    ("memlock", "Max locked memory"),
];

/// Parses the contents of `/proc/self/limits` into `nofile`, `nofile_hard` and so on. `u64::MAX`
/// means unlimited.
pub(crate) fn parse_limits(text: &str) -> BTreeMap<String, u64> {
    let limit = |word: &str| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    let mut limits = BTreeMap::new();
    for (name, kernel_name) in LIMITS {
        let words = labelled(text, kernel_name).unwrap_or_default();
        let mut words = words.split_ascii_whitespace().map(limit);
        if let (Some(Some(soft)), Some(Some(hard))) = (words.next(), words.next()) {
            limits.insert(name.to_owned(), soft);
            limits.insert(format!("{name}_hard"), hard);
        }
    }
    limits
}

/// Reads the limits of this process. Returns an empty map if the file can't be read.
fn limits(root: &Root) -> BTreeMap<String, u64> {
    parse_limits(&root.read("/proc/self/limits").unwrap_or_default())
}

/// Returns this process's limits on open files, or `None` if the file can't be read.
pub(crate) fn open_files(root: &Root) -> Option<LimitFacts> {
    let limits = limits(root);
    Some(LimitFacts {
        soft: *limits.get("nofile")?,
        hard: *limits.get("nofile_hard")?,
    })
}

/// Settings that matter under load. Settings that the kernel lacks are omitted from the record.
const SETTINGS: [&str; 13] = [
    "kernel.io_uring_disabled",
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_orphans",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_tw_reuse_delay",
    "net.netfilter.nf_conntrack_max",
];

/// Reads a setting. Multiple values are separated by single spaces.
fn text(root: &Root, name: &str) -> Option<String> {
    let line = root.line(format!("/proc/sys/{}", name.replace('.', "/")))?;
    Some(line.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// Reads a setting whose value is a single number.
#[must_use]
pub fn sysctl(root: &Root, name: &str) -> Option<u64> {
    text(root, name)?.parse().ok()
}

/// Reads all settings of [`SETTINGS`] that the kernel has.
fn sysctls(root: &Root) -> BTreeMap<String, String> {
    let setting = |name: &str| Some((name.to_owned(), text(root, name)?));
    SETTINGS.into_iter().filter_map(setting).collect()
}

/// Reads the range of ephemeral ports, and counts the reserved ports in this range.
#[must_use]
pub fn ports(root: &Root) -> Option<PortFacts> {
    let range = text(root, "net.ipv4.ip_local_port_range")?;
    let (low, high) = range.split_once(' ')?;
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    let reserved = text(root, "net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    Some(PortFacts {
        low,
        high,
        reserved: reserved_within(&reserved, low, high),
    })
}

/// Returns how many ports in a list such as `8080,9148-9150` lie within a range. The kernel prints
/// a sorted list with merged ranges.
fn reserved_within(list: &str, low: u16, high: u16) -> u32 {
    let within = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = first.trim().parse::<u16>().ok()?.max(low);
        let last = last.trim().parse::<u16>().ok()?.min(high);
        Some(u32::from(last.checked_sub(first)?) + 1)
    };
    list.split(',').filter_map(within).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_host() {
        let environment = environment(&Root::host());
        assert!(environment.kernel.contains('.'), "{environment:?}");
        assert!(environment.cpus >= 1);
        assert!(environment.memory_bytes > Some(1 << 26), "{environment:?}");
        assert!(environment.limits["nofile"] <= environment.limits["nofile_hard"]);
        assert!(
            environment
                .sysctls
                .contains_key("net.ipv4.ip_local_port_range")
        );
    }

    #[test]
    fn tolerates_missing_files() {
        let directory = tempfile::tempdir().unwrap();
        let environment = environment(&Root::at(directory.path()));
        assert_eq!(environment.kernel, "");
        assert!(environment.cpus >= 1);
        assert_eq!(environment.memory_bytes, None);
        assert!(environment.sysctls.is_empty() && environment.limits.is_empty());
    }

    #[test]
    fn parses_the_total_memory() {
        assert_eq!(
            memory_bytes("MemTotal:       24684092 kB\nMemFree: 1 kB\n"),
            Some(24_684_092 * 1024)
        );
        assert_eq!(memory_bytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn parses_soft_and_hard_limits() {
        let text = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max processes             96365                96365                processes 
Max open files            1024                 1048576              files     
Max locked memory         8388608              unlimited            bytes     
";
        let limits = parse_limits(text);
        assert_eq!(limits["nofile"], 1024);
        assert_eq!(limits["nofile_hard"], 1_048_576);
        assert_eq!(limits["nproc"], 96_365);
        assert_eq!(limits["memlock"], 8_388_608);
        assert_eq!(limits["memlock_hard"], u64::MAX);
        assert_eq!(limits.len(), 6);
        assert!(parse_limits("Max open files  x  y\n").is_empty());
    }

    #[test]
    fn reads_the_limits_of_this_process() {
        let files = open_files(&Root::host()).unwrap();
        assert!(files.soft >= 3 && files.soft <= files.hard, "{files:?}");
    }

    fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join("proc/sys").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    #[test]
    fn counts_reserved_ports() {
        let (_directory, root) = fixture(&[
            ("net/ipv4/ip_local_port_range", "32768\t60999\n"),
            (
                "net/ipv4/ip_local_reserved_ports",
                "8080,32760-32769,60999,61000-65535\n",
            ),
        ]);
        let ports = ports(&root).unwrap();
        assert_eq!((ports.low, ports.high, ports.reserved), (32_768, 60_999, 3));
        assert_eq!(ports.usable(), 28_232 - 3);
        assert_eq!(
            sysctls(&root)["net.ipv4.ip_local_port_range"],
            "32768 60999"
        );
        assert_eq!(sysctl(&root, "net.core.somaxconn"), None);
    }

    #[test]
    fn an_empty_list_reserves_nothing() {
        assert_eq!(reserved_within("", 1, 65_535), 0);
        assert_eq!(reserved_within("x-y,7-3", 1, 65_535), 0);
    }

    #[test]
    fn reads_the_settings_of_this_host() {
        let root = Root::host();
        let settings = sysctls(&root);
        assert!(settings.contains_key("net.core.somaxconn"), "{settings:?}");
        assert!(ports(&root).unwrap().usable() > 0);
        assert!(sysctl(&root, "net.ipv4.tcp_tw_reuse") <= Some(2));
    }
}
