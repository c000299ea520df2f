//! What the page says of where and of what its figures were taken.

use std::fs;
use std::process::Command;
use std::thread;

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

/// Jiffies of all CPUs (proc_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jiffies {
    /// All.
    total: u64,
    /// Those the hypervisor took.
    stolen: u64,
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

/// The value of a line of /proc/cpuinfo.
fn cpu_line<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(n, _)| n.trim() == name).map(|(_, v)| v.trim())
}

impl Jiffies {
    /// Since boot.
    pub fn now() -> Self {
        Jiffies::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; what follows is contained in user and nice.
        let figures = line.split_whitespace().skip(1).take(8);
        let figures: Vec<u64> = figures.filter_map(|f| f.parse().ok()).collect();
        Jiffies {
            total: figures.iter().sum(),
            stolen: figures.get(7).copied().unwrap_or(0),
        }
    }

    /// Share of CPU time that was stolen since an earlier reading, 0 to 1.
    pub fn stolen_since(self, earlier: Jiffies) -> f64 {
        let total = self.total.saturating_sub(earlier.total).max(1);
        self.stolen.saturating_sub(earlier.stolen) as f64 / total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_named() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(cpu_line(cpuinfo, "model name"), Some("A CPU @ 2 GHz"));
        assert_eq!(cpu_line(cpuinfo, "flags"), Some("fpu hypervisor"));
        assert_eq!(cpu_line(cpuinfo, "bogomips"), None);
    }

    #[test]
    fn stolen_time_is_the_eighth_figure() {
        let earlier = Jiffies::parse("cpu  10 0 10 80 0 0 0 0 5 5\ncpu0 1\n");
        let later = Jiffies::parse("cpu  20 0 20 150 0 0 0 10 9 9\n");
        assert_eq!(earlier.total, 100);
        assert!((later.stolen_since(earlier) - 0.1).abs() < 1e-12);
    }
}
