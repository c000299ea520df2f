//! What the page says of where and of what its figures were taken.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Instant;

use super::child;
use crate::command;
use crate::error::Error;
use crate::workspace::Workspace;

/// Facts of one run of this chore.
#[derive(Debug)]
pub struct Machine {
    /// Day, UTC.
    pub date: String,
    /// The commit, and whether what is built of it was changed since.
    pub commit: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs that we may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Whether a hypervisor shows.
    pub is_virtual: bool,
    /// Load average over one minute before the first run.
    pub load_average: String,
}

/// What all CPUs have done since boot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// All jiffies (proc_stat(5)).
    total: u64,
    /// Those that processes used in user mode and in the kernel; interrupts are not among them.
    used: u64,
    /// Those the hypervisor took.
    stolen: u64,
    /// CPU of this chore and what it ran, seconds.
    ours_s: f64,
    /// When.
    at: Instant,
}

/// Where the time of all CPUs went between two readings, in CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elsewhere {
    /// Processes that are not of this chore.
    pub others: f64,
    /// The hypervisor.
    pub stolen: f64,
}

/// The CPUs that we may use, by number (sched_getaffinity(2)); at least one.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a cpu_set_t is plain bits, for which zero is valid, and outlives the calls; CPU_ISSET checks its bounds.
    let allowed: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        let all = 0..libc::CPU_SETSIZE.cast_unsigned() as usize;
        all.filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    };
    if allowed.is_empty() { vec![0] } else { allowed }
}

impl Machine {
    /// As it is now.
    pub fn read(workspace: &Workspace) -> Result<Self, Error> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let git = |arguments: &[&str]| {
            command::capture(
                Command::new("git")
                    .args(arguments)
                    .current_dir(&workspace.root),
            )
        };
        let changed = git(&[
            "status",
            "--porcelain",
            "--",
            "crates",
            "xtask",
            "Cargo.toml",
        ])?;
        let commit = git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned();
        let cpuinfo = text("/proc/cpuinfo");
        let load = text("/proc/loadavg");
        Ok(Machine {
            date: command::capture(Command::new("date").args(["--utc", "+%Y-%m-%d"]))?
                .trim()
                .to_owned(),
            commit: match changed.is_empty() {
                true => commit,
                false => format!("{commit} with changes that are not committed"),
            },
            cpu: cpu_line(&cpuinfo, "model name")
                .unwrap_or("not named")
                .to_owned(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            is_virtual: cpu_line(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load_average: load.split(' ').next().unwrap_or("unknown").to_owned(),
        })
    }
}

impl Machine {
    /// Rows of a table of conditions: what, and which. `elsewhere` is what happened during the runs.
    pub fn rows(&self, elsewhere: Elsewhere) -> Vec<Vec<String>> {
        let kind = if self.is_virtual {
            "virtual machine"
        } else {
            "no hypervisor shows"
        };
        let quiet = format!(
            "load average {} before the first run; during the runs others used {:.2} CPUs in the mean, {:.2} were stolen",
            self.load_average, elsewhere.others, elsewhere.stolen
        );
        let rows = [
            ("date", self.date.clone()),
            ("commit", self.commit.clone()),
            ("CPU", format!("{}, {} CPUs, {kind}", self.cpu, self.cpus)),
            ("kernel", format!("Linux {}", self.kernel)),
            ("quiet", quiet),
        ];
        rows.into_iter()
            .map(|(what, which)| vec![what.to_owned(), which])
            .collect()
    }
}

/// The value of a line of /proc/cpuinfo.
fn cpu_line<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(n, _)| n.trim() == name).map(|(_, v)| v.trim())
}

impl Reading {
    /// Of now.
    pub fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Reading::parse(&stat, child::ours_s(), Instant::now())
    }

    fn parse(stat: &str, ours_s: f64, at: Instant) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; what follows is contained in user and nice.
        let figures = line.split_whitespace().skip(1).take(8);
        let figures: Vec<u64> = figures.filter_map(|f| f.parse().ok()).collect();
        Reading {
            total: figures.iter().sum(),
            used: figures.iter().take(3).sum(),
            stolen: figures.get(7).copied().unwrap_or(0),
            ours_s,
            at,
        }
    }

    /// Between an earlier reading and this one, on so many CPUs.
    pub fn since(self, earlier: Reading, cpus: usize) -> Elsewhere {
        let total = self.total.saturating_sub(earlier.total).max(1) as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / total * cpus as f64;
        let wall_s = self.at.duration_since(earlier.at).as_secs_f64();
        let ours = (self.ours_s - earlier.ours_s) / wall_s.max(1e-9);
        Elsewhere {
            others: (share(self.used, earlier.used) - ours).max(0.0),
            stolen: share(self.stolen, earlier.stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_cpu_is_named() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(cpu_line(cpuinfo, "model name"), Some("A CPU @ 2 GHz"));
        assert_eq!(cpu_line(cpuinfo, "flags"), Some("fpu hypervisor"));
        assert_eq!(cpu_line(cpuinfo, "bogomips"), None);
    }

    #[test]
    fn what_is_not_ours_is_others() {
        let at = Instant::now();
        let earlier = Reading::parse("cpu  10 0 10 80 0 0 0 0 5 5\ncpu0 1\n", 1.0, at);
        assert_eq!((earlier.total, earlier.used, earlier.stolen), (100, 20, 0));
        // 2 CPUs for 1 s: 120 jiffies of 200 used, 20 stolen; ours were 0.7 s.
        let later = at + Duration::from_secs(1);
        let later = Reading::parse("cpu  70 0 70 140 0 0 0 20 9 9\n", 1.7, later);
        let elsewhere = later.since(earlier, 2);
        assert!((elsewhere.others - 0.5).abs() < 1e-9, "{elsewhere:?}");
        assert!((elsewhere.stolen - 0.2).abs() < 1e-9, "{elsewhere:?}");
    }
}
