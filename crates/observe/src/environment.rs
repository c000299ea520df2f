//! The environment of a run: kernel, CPUs, memory, limits and settings of this host.

use floodmark_record::host::Environment;

use crate::kernel_file::labelled;
use crate::{Root, affinity, cgroup, cpu, limits, sysctl};

/// Reads the environment. Values that can't be read are null or omitted.
#[must_use]
pub fn environment(root: &Root) -> Environment {
    Environment {
        kernel: root.line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpus: cpu::allowed(root),
        allowed_cpus: affinity::of_this_thread(),
        cpu_model: cpu::model(root),
        memory_bytes: memory_bytes(&root.read("/proc/meminfo").unwrap_or_default()),
        cgroup: cgroup::limits(root),
        limits: limits::read(root),
        sysctls: sysctl::all(root),
    }
}

/// Parses the total memory in bytes from the contents of `/proc/meminfo`.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let total = labelled(meminfo, "MemTotal:")?;
    let kib: u64 = total.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
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
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(&Root::at(folder.path()));
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
}
