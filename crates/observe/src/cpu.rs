//! What the CPUs did: `/proc/stat`, `/proc/loadavg`, `/proc/pressure/cpu`.

use std::io;

use crate::Root;

/// Clock ticks per second in the files of `/proc`: `sysconf(_SC_CLK_TCK)`, 100 on Linux but for rare builds.
#[must_use]
pub fn ticks_per_s() -> f64 {
    // SAFETY: sysconf takes a plain number and touches no memory of ours.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// CPU time by use, seconds since boot. Time of guests is part of `user` already, as the kernel counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTime {
    /// User mode, niced included.
    pub user_s: f64,
    /// Kernel, without interrupts.
    pub system_s: f64,
    /// Nothing to do.
    pub idle_s: f64,
    /// Nothing to do but wait for a disk.
    pub iowait_s: f64,
    /// Interrupts and deferred interrupt work, which is where the kernel handles most of TCP.
    pub interrupt_s: f64,
    /// Ready to run, but the hypervisor ran something else.
    pub steal_s: f64,
}

impl CpuTime {
    /// Time that was worked here.
    #[must_use]
    pub fn busy_s(&self) -> f64 {
        self.user_s + self.system_s + self.interrupt_s
    }

    /// All time, stolen included.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.busy_s() + self.idle_s + self.iowait_s + self.steal_s
    }

    /// What was added since an earlier reading. Idle time may go back a little in the kernel's accounting; nothing does here.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = |now: f64, before: f64| (now - before).max(0.0);
        Self {
            user_s: grown(self.user_s, earlier.user_s),
            system_s: grown(self.system_s, earlier.system_s),
            idle_s: grown(self.idle_s, earlier.idle_s),
            iowait_s: grown(self.iowait_s, earlier.iowait_s),
            interrupt_s: grown(self.interrupt_s, earlier.interrupt_s),
            steal_s: grown(self.steal_s, earlier.steal_s),
        }
    }
}

/// The machine's CPUs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stat {
    /// All together.
    pub total: CpuTime,
    /// Each that is online, with its number.
    pub cpus: Vec<(u32, CpuTime)>,
}

/// Reads the text of `/proc/stat`.
#[must_use]
pub fn parse_stat(text: &str, ticks_per_s: f64) -> Option<Stat> {
    let mut stat = Stat::default();
    let mut seen = false;
    for line in text.lines() {
        let Some((name, rest)) = line.strip_prefix("cpu").and_then(|l| l.split_once(' ')) else {
            continue;
        };
        let ticks: Vec<f64> = rest
            .split_ascii_whitespace()
            .map_while(|word| word.parse::<u64>().ok())
            .map(|ticks| ticks as f64 / ticks_per_s)
            .collect();
        // user nice system idle iowait irq softirq steal [guest guest_nice]
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            continue;
        };
        let time = CpuTime {
            user_s: user + nice,
            system_s: system,
            idle_s: idle,
            iowait_s: iowait,
            interrupt_s: irq + softirq,
            steal_s: steal,
        };
        match name.parse() {
            Ok(number) => stat.cpus.push((number, time)),
            Err(_) => {
                stat.total = time;
                seen = true;
            }
        }
    }
    seen.then_some(stat)
}

/// Reads `/proc/stat`.
///
/// # Errors
/// The file cannot be read or is none.
pub fn read_stat(root: &Root) -> io::Result<Stat> {
    parse_stat(&root.read("/proc/stat")?, ticks_per_s()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "/proc/stat: no line for the CPUs",
        )
    })
}

/// Load average over one minute: threads that run, are ready to, or wait for a disk.
#[must_use]
pub fn load_average(root: &Root) -> Option<f64> {
    let text = root.line("/proc/loadavg")?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Pressure on the CPUs, the disks or the memory since boot: seconds in which at least one thread could not go on for want of it.
#[must_use]
pub fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix("total="))?;
    Some(total.parse::<u64>().ok()? as f64 / 1e6)
}

/// How many CPUs a list such as `0-3,8` names.
#[must_use]
pub fn count_list(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.trim().split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        count = count.checked_add(high.checked_sub(low)?.checked_add(1)?)?;
    }
    Some(count)
}

/// CPUs that this process may run on, as the kernel lists them (`Cpus_allowed_list` of `/proc/self/status`).
#[must_use]
pub fn allowed_list(root: &Root) -> Option<String> {
    let status = root.read("/proc/self/status").ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// How many CPUs this process may run on; at least 1.
#[must_use]
pub fn allowed(root: &Root) -> u32 {
    allowed_list(root)
        .and_then(|list| count_list(&list))
        .or_else(|| u32::try_from(std::thread::available_parallelism().ok()?.get()).ok())
        .unwrap_or(1)
        .max(1)
}

/// How many CPUs are online.
#[must_use]
pub fn online(root: &Root) -> Option<u32> {
    count_list(&root.line("/sys/devices/system/cpu/online")?)
}

/// The CPU's model, where `/proc/cpuinfo` names it (x86 does, most ARM kernels do not).
#[must_use]
pub fn model(root: &Root) -> Option<String> {
    let text = root.read("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const STAT: &str = "\
cpu  7595 5 2332 167317 530 1 51 43 0 0
cpu0 3164 5 849 84904 29 0 12 18 0 0
cpu1 4430 0 1482 82413 500 1 38 25 0 0
intr 176022 0 0 178
ctxt 1
";

    #[test]
    fn totals_and_steal_per_cpu() {
        let stat = parse_stat(STAT, 100.0).unwrap();
        assert_eq!(stat.cpus.len(), 2);
        assert_eq!(stat.cpus[1].0, 1);
        assert_eq!(stat.cpus[1].1.steal_s, 0.25);
        assert_eq!(stat.total.user_s, 76.0);
        assert_eq!(stat.total.interrupt_s, 0.52);
        let busy = 76.0 + 23.32 + 0.52;
        assert!((stat.total.busy_s() - busy).abs() < 1e-9);
        assert!((stat.total.total_s() - (busy + 1673.17 + 5.30 + 0.43)).abs() < 1e-9);
        assert_eq!(parse_stat("intr 1 2\n", 100.0), None);
        assert_eq!(
            parse_stat("cpu  1 2 3\n", 100.0),
            None,
            "before steal existed"
        );
    }

    #[test]
    fn lists_of_cpus() {
        for (list, count) in [("0-1", 2), ("0", 1), ("0-3,8,10-11\n", 7)] {
            assert_eq!(count_list(list), Some(count), "{list}");
        }
        for bad in ["", "a", "3-1", "0-4294967295", "1,,2"] {
            assert_eq!(count_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn pressure_in_seconds() {
        let text = "some avg10=1.54 avg60=1.21 avg300=0.67 total=7514177\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse_pressure(text), Some(7.514_177));
        assert_eq!(parse_pressure("full total=3"), None);
    }

    #[test]
    fn burnt_cpu_is_seen_on_the_real_machine() {
        let root = Root::host();
        let before = read_stat(&root).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(200) {
            std::hint::black_box(begin);
        }
        let after = read_stat(&root).unwrap();
        let used = after.total.since(&before.total);
        // On a crowded machine part of the 200 ms is stolen, or another process's: all of it is busy or stolen for someone.
        assert!(used.busy_s() + used.steal_s >= 0.15, "{used:?}");
        let cpus = after.cpus.len() as f64;
        assert!(used.total_s() <= begin.elapsed().as_secs_f64() * cpus + 0.1 * cpus);
        assert_eq!(Some(after.cpus.len() as u32), online(&root));
        assert!(allowed(&root) <= after.cpus.len() as u32);
        assert!(load_average(&root).is_some());
    }
}
