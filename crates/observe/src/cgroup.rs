//! CPU quota, throttling and memory limit of a process's control group (cgroup version 1 or 2).
//!
//! The limits of all groups up to the mount point apply. The tightest limit is reported.

use std::path::{Component, Path, PathBuf};
use std::{fmt, io};

use floodmark_record::host::{CgroupLimits, QuotaFacts};
use procfs_core::process::MountInfos;
use procfs_core::{FromRead, ProcessCGroup, ProcessCGroups};

use crate::Root;
use crate::root::labelled;

/// In version 1, this value and all larger values mean "no memory limit". Without a limit, the
/// kernel reports `PAGE_COUNTER_MAX`, which is just below 2^63 bytes.
const V1_MEMORY_UNLIMITED: u64 = 1 << 62;

/// A controller's directories, from a process's group up to the mount point, as absolute paths on
/// the host. In version 1, each controller has its own hierarchy; in version 2, all controllers
/// share one hierarchy. The files of the two versions have different names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupLevels(Vec<PathBuf>);

/// Throttling counters of a group since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Throttling {
    /// Number of periods in which the group exhausted its quota (`nr_throttled`).
    pub throttled: u64,
    /// Throttled time in seconds, summed over CPUs (`throttled_time` in ns or `throttled_usec`).
    pub throttled_s: f64,
}

/// Finds a process's control group for a controller (`cpu` or `memory`). The process is a PID or
/// `self`. Returns `None` if the controller is not mounted or the process does not exist.
pub(crate) fn group(
    root: &Root,
    process: impl fmt::Display,
    controller: &str,
) -> Option<CgroupLevels> {
    locate(
        &root.read(format!("/proc/{process}/cgroup")).ok()?,
        &root.read("/proc/self/mountinfo").ok()?,
        controller,
    )
}

/// Finds a group in the contents of `/proc/PID/cgroup` and `/proc/self/mountinfo`; see proc(5).
fn locate(cgroup: &str, mountinfo: &str, controller: &str) -> Option<CgroupLevels> {
    let groups = ProcessCGroups::from_read(cgroup.as_bytes()).ok()?.0;
    let has = |group: &&ProcessCGroup| group.controllers.iter().any(|name| name == controller);
    let is_v2 = |group: &&ProcessCGroup| group.hierarchy == 0 && group.controllers.is_empty();
    let mounts = MountInfos::from_read(mountinfo.as_bytes()).ok()?;
    let mut mounts = mounts.iter();
    // Look in version 1 first: a controller attached to it is not available in version 2.
    let (group, mount) = match groups.iter().find(has) {
        Some(group) => (
            group,
            mounts.find(|mount| {
                mount.fs_type == "cgroup" && mount.super_options.contains_key(controller)
            })?,
        ),
        None => (
            groups.iter().find(is_v2)?,
            mounts.find(|mount| mount.fs_type == "cgroup2")?,
        ),
    };
    // In a container, the mount may show only part of the hierarchy, or the path may lie outside it
    // (`/../..`). In these cases, use the mount point.
    let is_normal = |part| matches!(part, Component::Normal(_));
    let below = Path::new(&group.pathname).strip_prefix(&mount.root).ok();
    let below = below.filter(|below| below.components().all(is_normal));
    let levels = below.unwrap_or(Path::new("")).ancestors();
    let levels = levels.map(|level| mount.mount_point.join(level));
    Some(CgroupLevels(levels.collect()))
}

impl CgroupLevels {
    /// Returns the tightest CPU quota among this group and its ancestors, or `None` if there is no
    /// quota.
    pub(crate) fn quota(&self, root: &Root) -> Option<QuotaFacts> {
        let quotas = self.0.iter().filter_map(|level| quota_at(root, level));
        quotas.min_by(|a, b| a.cpus.total_cmp(&b.cpus))
    }

    /// Returns the tightest memory limit among this group and its ancestors, in bytes.
    pub(crate) fn memory_limit(&self, root: &Root) -> Option<u64> {
        let files = ["memory.max", "memory.limit_in_bytes"];
        let limit = |level: &PathBuf| {
            // "max" (no limit) does not parse.
            let limit = files
                .iter()
                .find_map(|file| root.number(level.join(file)))?;
            (limit < V1_MEMORY_UNLIMITED).then_some(limit)
        };
        self.0.iter().filter_map(limit).min()
    }
}

fn quota_at(root: &Root, level: &Path) -> Option<QuotaFacts> {
    let (v1, v2) = (level.join("cpu.cfs_quota_us"), level.join("cpu.max"));
    let (file, unlimited, quota_us, period_us) = match root.line(&v2) {
        Some(text) => {
            let (quota, period) = text.split_once(' ')?; // "max 100000" means no limit
            (v2, "max", quota.parse().ok()?, period.parse().ok()?)
        }
        None => {
            let quota = root.number(&v1)?; // "-1" (no limit) does not parse
            (
                v1,
                "-1",
                quota,
                root.number(level.join("cpu.cfs_period_us"))?,
            )
        }
    };
    (period_us > 0).then(|| QuotaFacts {
        cpus: quota_us as f64 / period_us as f64,
        period_ms: period_us as f64 / 1e3,
        file: file.display().to_string(),
        unlimited: unlimited.to_owned(),
        throttled_periods: read_throttling(root, level).ok().map(|t| t.throttled),
    })
}

/// Returns the directory of the control group that sets a process's tightest CPU quota. If there is
/// no quota, returns the nearest directory with throttling counters.
pub(crate) fn throttled_level(root: &Root, process: impl fmt::Display) -> Option<PathBuf> {
    let group = group(root, process, "cpu")?;
    if let Some(quota) = group.quota(root) {
        return Path::new(&quota.file).parent().map(Path::to_owned);
    }
    let mut levels = group.0.into_iter();
    levels.find(|level| read_throttling(root, level).is_ok())
}

/// Parses the `cpu.stat` file of either version.
pub(crate) fn parse_throttling(text: &str) -> Option<Throttling> {
    let value = |label: &str| labelled(text, label)?.parse::<u64>().ok();
    let ns = value("throttled_time ").map(|ns| ns as f64 / 1e9);
    Some(Throttling {
        throttled: value("nr_throttled ")?,
        throttled_s: ns.or_else(|| Some(value("throttled_usec ")? as f64 / 1e6))?,
    })
}

/// Reads the throttling counters of one level.
///
/// # Errors
/// `cpu.stat` is missing or has no counters (as in the root group of version 2).
pub(crate) fn read_throttling(root: &Root, level: &Path) -> io::Result<Throttling> {
    let file = level.join("cpu.stat");
    parse_throttling(&root.read(&file)?)
        .ok_or_else(|| io::Error::other(format!("{}: no throttling counters", file.display())))
}

/// Returns the CPU quota and memory limit of this process's group, or `None` if neither is set.
pub(crate) fn limits(root: &Root) -> Option<CgroupLimits> {
    let quota = group(root, "self", "cpu").and_then(|group| group.quota(root));
    let limits = CgroupLimits {
        cpu_quota: quota.map(|quota| quota.cpus),
        memory_bytes: group(root, "self", "memory").and_then(|group| group.memory_limit(root)),
    };
    (limits.cpu_quota.is_some() || limits.memory_bytes.is_some()).then_some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const V1_GROUPS: &str = "\
9:name=systemd:/
4:memory:/process_api/2046
1:cpu,cpuacct:/jobs/a:b
0::/
";
    const V2_MOUNTS: &str = "\
24 30 0:22 / /sys rw,nosuid - sysfs sysfs rw
30 24 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";

    fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    fn levels(cgroup: &str, mounts: &str, controller: &str) -> Vec<String> {
        let group = locate(cgroup, mounts, controller).unwrap();
        let levels = group.0.iter().map(|l| l.display().to_string());
        levels.collect()
    }

    #[test]
    fn finds_a_version_1_group_with_joined_controllers() {
        let levels = levels(V1_GROUPS, V1_MOUNTS, "cpu");
        assert_eq!(
            levels
                .iter()
                .map(|l| l.trim_end_matches('/'))
                .collect::<Vec<_>>(),
            [
                "/sys/fs/cgroup/cpu,cpuacct/jobs/a:b",
                "/sys/fs/cgroup/cpu,cpuacct/jobs",
                "/sys/fs/cgroup/cpu,cpuacct"
            ]
        );
    }

    #[test]
    fn finds_a_version_2_group_in_a_container() {
        let mounts = V2_MOUNTS.replace("0:27 / ", "0:27 /docker/c0ffee ");
        for own in ["0::/docker/c0ffee\n", "0::/../elsewhere\n", "0::/\n"] {
            let levels = levels(own, &mounts, "cpu");
            assert_eq!(levels.len(), 1, "{levels:?}");
            assert_eq!(levels[0].trim_end_matches('/'), "/sys/fs/cgroup");
        }
    }

    #[test]
    fn finds_no_group_without_a_mount() {
        assert_eq!(locate("0::/\n", "", "cpu"), None);
        assert_eq!(locate("", V2_MOUNTS, "cpu"), None);
        assert_eq!(locate("1:cpu:/\n0::/\n", V2_MOUNTS, "cpu"), None);
    }

    #[test]
    fn reads_the_tightest_quota_of_version_1() {
        let base = "sys/fs/cgroup/cpu,cpuacct";
        let (_directory, root) = fixture(&[
            ("proc/self/cgroup", V1_GROUPS),
            ("proc/self/mountinfo", V1_MOUNTS),
            (&format!("{base}/cpu.cfs_quota_us"), "-1\n"),
            (&format!("{base}/cpu.cfs_period_us"), "100000\n"),
            (&format!("{base}/jobs/cpu.cfs_quota_us"), "150000\n"),
            (&format!("{base}/jobs/cpu.cfs_period_us"), "100000\n"),
            (
                &format!("{base}/jobs/cpu.stat"),
                "nr_periods 90\nnr_throttled 31\nthrottled_time 2500000000\n",
            ),
            (&format!("{base}/jobs/a:b/cpu.cfs_quota_us"), "-1\n"),
            (&format!("{base}/jobs/a:b/cpu.cfs_period_us"), "100000\n"),
            (
                "sys/fs/cgroup/memory/process_api/2046/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "sys/fs/cgroup/memory/process_api/memory.limit_in_bytes",
                "1073741824\n",
            ),
        ]);
        let group = group(&root, "self", "cpu").unwrap();
        let quota = group.quota(&root).unwrap();
        assert_eq!((quota.cpus, quota.period_ms), (1.5, 100.0));
        assert_eq!(
            quota.file,
            "/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us"
        );
        assert_eq!(
            (quota.unlimited.as_str(), quota.throttled_periods),
            ("-1", Some(31))
        );
        let level = throttled_level(&root, "self").unwrap();
        assert_eq!(read_throttling(&root, &level).unwrap().throttled_s, 2.5);
        let limits = limits(&root).unwrap();
        assert_eq!(
            (limits.cpu_quota, limits.memory_bytes),
            (Some(1.5), Some(1 << 30))
        );
    }

    #[test]
    fn reads_the_quota_of_version_2() {
        let (_directory, root) = fixture(&[
            ("proc/self/cgroup", "0::/user.slice/job.scope\n"),
            ("proc/self/mountinfo", V2_MOUNTS),
            (
                "sys/fs/cgroup/cpu.stat",
                "usage_usec 1\nuser_usec 1\nsystem_usec 0\n",
            ),
            ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            (
                "sys/fs/cgroup/user.slice/job.scope/cpu.max",
                "50000 100000\n",
            ),
            (
                "sys/fs/cgroup/user.slice/job.scope/cpu.stat",
                "usage_usec 7\nnr_periods 12\nnr_throttled 3\nthrottled_usec 1500000\nnr_bursts 0\n",
            ),
        ]);
        let group = group(&root, "self", "cpu").unwrap();
        let quota = group.quota(&root).unwrap();
        assert_eq!(quota.cpus, 0.5);
        assert_eq!(
            (quota.unlimited.as_str(), quota.throttled_periods),
            ("max", Some(3))
        );
        assert_eq!(quota.file, "/sys/fs/cgroup/user.slice/job.scope/cpu.max");
        let expected = Throttling {
            throttled: 3,
            throttled_s: 1.5,
        };
        let level = throttled_level(&root, "self").unwrap();
        assert_eq!(read_throttling(&root, &level).unwrap(), expected);
        assert_eq!(limits(&root).unwrap().memory_bytes, None);
        assert!(read_throttling(&root, Path::new("/sys/fs/cgroup")).is_err());
    }

    #[test]
    fn reads_consistent_values_on_this_host() {
        let root = Root::host();
        let Some(group) = group(&root, "self", "cpu") else {
            return; // some containers have no cgroup file system
        };
        if let Some(level) = throttled_level(&root, "self") {
            assert!(read_throttling(&root, &level).is_ok(), "{level:?}");
        }
        if let Some(quota) = group.quota(&root) {
            assert!(quota.cpus > 0.0, "{quota:?}");
        }
    }
}
