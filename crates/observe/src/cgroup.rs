//! CPU quota, throttling and memory limit of the control group that this process is in, of either version.
//!
//! A limit on any group above counts as well, so all levels up to the mount are looked at and the tightest one is told.

use std::io;
use std::path::{Path, PathBuf};

use floodmark_record::host::QuotaFacts;
use floodmark_record::run::CgroupLimits;

use crate::Root;

/// Version 1 writes a number of this size or larger where there is no memory limit (`PAGE_COUNTER_MAX` in bytes, rounded down
/// to pages, is just below 2^63).
const V1_MEMORY_UNLIMITED: u64 = 1 << 62;

/// Which interface a controller is mounted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller (`cpu.cfs_quota_us`).
    V1,
    /// One hierarchy for all (`cpu.max`).
    V2,
}

/// A controller's folders, from this process's own group up to the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its interface.
    pub version: Version,
    /// Absolute paths on the machine, own group first.
    pub levels: Vec<PathBuf>,
}

/// How often and how long a group was kept from running by its quota, since it exists.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Throttling {
    /// Periods in which the group had something to run (`nr_periods`).
    pub periods: u64,
    /// Periods in which it ran into its quota (`nr_throttled`).
    pub throttled: u64,
    /// Time it was kept from running, seconds, summed over CPUs (`throttled_time` in ns, `throttled_usec`).
    pub throttled_s: f64,
}

/// Finds the group of this process for a controller (`cpu`, `memory`); none where it is not mounted.
#[must_use]
pub fn group(root: &Root, controller: &str) -> Option<Group> {
    group_at(root, "/proc/self/cgroup", controller)
}

/// Finds the group of another process; none where the controller is not mounted, or the process is gone.
#[must_use]
pub fn group_of(root: &Root, pid: u32, controller: &str) -> Option<Group> {
    group_at(root, &format!("/proc/{pid}/cgroup"), controller)
}

fn group_at(root: &Root, file: &str, controller: &str) -> Option<Group> {
    locate(
        &root.read(file).ok()?,
        &root.read("/proc/self/mountinfo").ok()?,
        controller,
    )
}

/// The same from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
#[must_use]
pub fn locate(cgroup: &str, mountinfo: &str, controller: &str) -> Option<Group> {
    let mut unified = None;
    for line in cgroup.lines() {
        // hierarchy:controllers:path; version 2 is hierarchy 0 without controllers.
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if controllers.split(',').any(|name| name == controller) {
            let mount = find_mount(mountinfo, |kind, options| {
                kind == "cgroup" && options.split(',').any(|name| name == controller)
            });
            // A controller that version 1 has bound is not in version 2, whatever is mounted.
            return mount.map(|mount| mount.group(Version::V1, path));
        }
        if number == "0" && controllers.is_empty() {
            unified = Some(path);
        }
    }
    let mount = find_mount(mountinfo, |kind, _| kind == "cgroup2")?;
    Some(mount.group(Version::V2, unified?))
}

struct Mount {
    /// Path within the hierarchy that is visible at the mount point.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    fn group(&self, version: Version, path: &str) -> Group {
        // In a container the mount may show only our own part of the hierarchy, or the path may lie outside of it
        // (`/../..`); the mount point is then the nearest that can be read.
        let path = Path::new(path);
        let below = path
            .strip_prefix(&self.root)
            .ok()
            .filter(|below| {
                below
                    .components()
                    .all(|c| matches!(c, std::path::Component::Normal(_)))
            })
            .unwrap_or(Path::new(""));
        let levels = below
            .ancestors()
            .map(|level| self.point.join(level))
            .collect();
        Group { version, levels }
    }
}

/// Finds the first mount of `/proc/self/mountinfo` whose file system type and super options fit; see proc(5).
fn find_mount(mountinfo: &str, fits: impl Fn(&str, &str) -> bool) -> Option<Mount> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        fits(kind, options).then(|| Mount {
            root: root.into(),
            point: point.into(),
        })
    })
}

impl Group {
    /// The tightest CPU quota of this group and those above; none where no level has one.
    #[must_use]
    pub fn quota(&self, root: &Root) -> Option<QuotaFacts> {
        self.levels
            .iter()
            .filter_map(|level| self.quota_at(root, level))
            .min_by(|a, b| a.cpus.total_cmp(&b.cpus))
    }

    fn quota_at(&self, root: &Root, level: &Path) -> Option<QuotaFacts> {
        let (file, unlimited, quota_us, period_us) = match self.version {
            Version::V1 => {
                let file = level.join("cpu.cfs_quota_us");
                let quota = root.number(&file)?; // "-1", no limit, is no number here
                let period = root.number(level.join("cpu.cfs_period_us"))?;
                (file, "-1", quota, period)
            }
            Version::V2 => {
                let file = level.join("cpu.max");
                let text = root.line(&file)?;
                let (quota, period) = text.split_once(' ')?; // "max 100000" is no limit
                (file, "max", quota.parse().ok()?, period.parse().ok()?)
            }
        };
        if period_us == 0 {
            return None;
        }
        Some(QuotaFacts {
            cpus: quota_us as f64 / period_us as f64,
            period_ms: period_us as f64 / 1e3,
            file: file.display().to_string(),
            unlimited: unlimited.to_owned(),
            throttled_periods: read_throttling(root, level).ok().map(|t| t.throttled),
        })
    }

    /// The tightest memory limit of this group and those above, bytes.
    #[must_use]
    pub fn memory_limit(&self, root: &Root) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        self.levels
            .iter()
            .filter_map(|level| root.number(level.join(file))) // "max" is no number
            .filter(|limit| *limit < V1_MEMORY_UNLIMITED)
            .min()
    }

    /// The folder whose throttling tells: the one with the tightest quota, else the nearest that has the counters.
    #[must_use]
    pub fn throttled_level(&self, root: &Root) -> Option<PathBuf> {
        if let Some(quota) = self.quota(root) {
            return Path::new(&quota.file).parent().map(Path::to_owned);
        }
        self.levels
            .iter()
            .find(|level| read_throttling(root, level).is_ok())
            .cloned()
    }
}

/// Reads the text of a `cpu.stat` of either version.
#[must_use]
pub fn parse_throttling(text: &str) -> Option<Throttling> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            (key == name).then(|| value.trim().parse::<u64>().ok())?
        })
    };
    Some(Throttling {
        periods: value("nr_periods")?,
        throttled: value("nr_throttled")?,
        throttled_s: value("throttled_time")
            .map(|ns| ns as f64 / 1e9)
            .or_else(|| value("throttled_usec").map(|us| us as f64 / 1e6))?,
    })
}

/// Reads the throttling of one level of a [`Group`].
///
/// # Errors
/// There is no `cpu.stat`, or it holds no counters (the root of version 2 has none).
pub fn read_throttling(root: &Root, level: &Path) -> io::Result<Throttling> {
    let file = level.join("cpu.stat");
    parse_throttling(&root.read(&file)?).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{}: no throttling counters", file.display()),
        )
    })
}

/// CPU quota and memory limit of this process's group; none where neither is limited.
#[must_use]
pub fn limits(root: &Root) -> Option<CgroupLimits> {
    let quota = group(root, "cpu").and_then(|group| group.quota(root));
    let limits = CgroupLimits {
        cpu_quota: quota.map(|quota| quota.cpus),
        memory_bytes: group(root, "memory").and_then(|group| group.memory_limit(root)),
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
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    fn levels(cgroup: &str, mounts: &str, controller: &str) -> (Version, Vec<String>) {
        let group = locate(cgroup, mounts, controller).unwrap();
        let levels = group.levels.iter().map(|l| l.display().to_string());
        (group.version, levels.collect())
    }

    #[test]
    fn version_1_with_joined_controllers() {
        let (version, levels) = levels(V1_GROUPS, V1_MOUNTS, "cpu");
        assert_eq!(version, Version::V1);
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
    fn version_2_in_a_container_that_sees_only_its_part() {
        let mounts = V2_MOUNTS.replace("0:27 / ", "0:27 /docker/c0ffee ");
        for own in ["0::/docker/c0ffee\n", "0::/../elsewhere\n", "0::/\n"] {
            let (version, levels) = levels(own, &mounts, "cpu");
            assert_eq!(version, Version::V2);
            assert_eq!(levels.len(), 1, "{levels:?}");
            assert_eq!(levels[0].trim_end_matches('/'), "/sys/fs/cgroup");
        }
    }

    #[test]
    fn no_mount_is_no_group() {
        assert_eq!(locate("0::/\n", "", "cpu"), None);
        assert_eq!(locate("", V2_MOUNTS, "cpu"), None);
        assert_eq!(locate("1:cpu:/\n0::/\n", V2_MOUNTS, "cpu"), None);
    }

    #[test]
    fn the_tightest_quota_of_version_1() {
        let base = "sys/fs/cgroup/cpu,cpuacct";
        let (_folder, root) = fixture(&[
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
        let group = group(&root, "cpu").unwrap();
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
        let level = group.throttled_level(&root).unwrap();
        assert_eq!(read_throttling(&root, &level).unwrap().throttled_s, 2.5);
        let limits = limits(&root).unwrap();
        assert_eq!(
            (limits.cpu_quota, limits.memory_bytes),
            (Some(1.5), Some(1 << 30))
        );
    }

    #[test]
    fn the_quota_of_version_2() {
        let (_folder, root) = fixture(&[
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
        let group = group(&root, "cpu").unwrap();
        let quota = group.quota(&root).unwrap();
        assert_eq!(quota.cpus, 0.5);
        assert_eq!(
            (quota.unlimited.as_str(), quota.throttled_periods),
            ("max", Some(3))
        );
        assert_eq!(quota.file, "/sys/fs/cgroup/user.slice/job.scope/cpu.max");
        let expected = Throttling {
            periods: 12,
            throttled: 3,
            throttled_s: 1.5,
        };
        let level = group.throttled_level(&root).unwrap();
        assert_eq!(read_throttling(&root, &level).unwrap(), expected);
        assert_eq!(limits(&root).unwrap().memory_bytes, None);
        assert!(read_throttling(&root, Path::new("/sys/fs/cgroup")).is_err());
    }

    #[test]
    fn this_machine_has_consistent_ones() {
        let root = Root::host();
        let Some(group) = group(&root, "cpu") else {
            return; // no cgroup file system here, as in some containers
        };
        if let Some(level) = group.throttled_level(&root) {
            let throttling = read_throttling(&root, &level).unwrap();
            assert!(throttling.throttled <= throttling.periods, "{throttling:?}");
        }
        if let Some(quota) = group.quota(&root) {
            assert!(quota.cpus > 0.0, "{quota:?}");
        }
    }
}
