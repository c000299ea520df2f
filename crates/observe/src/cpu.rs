//! CPU time, load and pressure: `/proc/stat`, `/proc/loadavg`, `/proc/pressure`.

use std::io;

use rustix::param::clock_ticks_per_second;

use crate::Root;
use crate::kernel_file::labelled;

/// Returns the clock ticks per second in `/proc`, usually 100.
pub(crate) fn ticks_per_s() -> f64 {
    clock_ticks_per_second() as f64
}

/// CPU time of the host since boot, in seconds, summed over all CPUs. In the kernel's figures, user
/// time includes guest time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// Time spent executing on this host: user, kernel and interrupts.
    pub busy_s: f64,
    /// Time in interrupts and softirqs. The kernel handles most TCP work in softirqs.
    pub interrupt_s: f64,
    /// Time in which a virtual CPU was ready while the hypervisor ran something else.
    pub steal_s: f64,
    /// Total, including idle and stolen time.
    pub total_s: f64,
}

impl CpuTime {
    /// Parses the first line of `/proc/stat`.
    pub(crate) fn parse(text: &str, ticks_per_s: f64) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let words = line.split_ascii_whitespace();
        let ticks: Vec<f64> = words
            .map_while(|word| Some(word.parse::<u64>().ok()? as f64 / ticks_per_s))
            .collect();
        // user nice system idle iowait irq softirq steal [guest guest_nice]
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            return None;
        };
        let busy_s = user + nice + system + irq + softirq;
        Some(Self {
            busy_s,
            interrupt_s: irq + softirq,
            steal_s: steal,
            total_s: busy_s + idle + iowait + steal,
        })
    }

    /// Reads `/proc/stat`.
    ///
    /// # Errors
    /// The file can't be read or parsed.
    pub(crate) fn read(root: &Root) -> io::Result<Self> {
        Self::parse(&root.read("/proc/stat")?, ticks_per_s())
            .ok_or_else(|| io::Error::other("/proc/stat: the line for all CPUs is missing"))
    }
}

/// Returns the one-minute load average.
#[must_use]
pub fn load_average(root: &Root) -> Option<f64> {
    let text = root.line("/proc/loadavg")?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Parses a pressure file. Returns the seconds since boot during which at least one thread waited
/// for the resource.
pub(crate) fn parse_pressure(text: &str) -> Option<f64> {
    let mut words = labelled(text, "some ")?.split_ascii_whitespace();
    let total = words.find_map(|word| word.strip_prefix("total="))?;
    Some(total.parse::<u64>().ok()? as f64 / 1e6)
}

/// Counts the CPUs in a list such as `0-3,8`.
pub(crate) fn count_list(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.trim().split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        count = count.checked_add(high.checked_sub(low)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Returns the CPUs that this process may use (`Cpus_allowed_list` of `/proc/self/status`).
pub(crate) fn allowed_list(root: &Root) -> Option<String> {
    let status = root.read("/proc/self/status").ok()?;
    labelled(&status, "Cpus_allowed_list:").map(str::to_owned)
}

/// Returns the number of CPUs that this process may use; at least 1.
#[must_use]
pub fn allowed(root: &Root) -> u32 {
    allowed_list(root)
        .and_then(|list| count_list(&list))
        .or_else(|| u32::try_from(std::thread::available_parallelism().ok()?.get()).ok())
        .unwrap_or(1)
        .max(1)
}

/// Returns the number of online CPUs.
pub(crate) fn online(root: &Root) -> Option<u32> {
    count_list(&root.line("/sys/devices/system/cpu/online")?)
}

/// Returns the CPU model from `/proc/cpuinfo`. Most ARM kernels report no model.
pub(crate) fn model(root: &Root) -> Option<String> {
    let text = root.read("/proc/cpuinfo").ok()?;
    let model = labelled(&text, "model name")?;
    Some(model.strip_prefix(':')?.trim().to_owned())
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
    fn parses_the_sum_over_all_cpus() {
        let time = CpuTime::parse(STAT, 100.0).unwrap();
        assert_eq!((time.interrupt_s, time.steal_s), (0.52, 0.43));
        let busy = 76.0 + 23.32 + 0.52;
        assert!((time.busy_s - busy).abs() < 1e-9);
        assert!((time.total_s - (busy + 1673.17 + 5.30 + 0.43)).abs() < 1e-9);
        assert_eq!(CpuTime::parse("intr 1 2\n", 100.0), None);
        assert_eq!(
            CpuTime::parse("cpu  1 2 3\n", 100.0),
            None,
            "kernels without steal time"
        );
    }

    #[test]
    fn counts_the_cpus_of_a_list() {
        for (list, count) in [("0-1", 2), ("0", 1), ("0-3,8,10-11\n", 7)] {
            assert_eq!(count_list(list), Some(count), "{list}");
        }
        for bad in ["", "a", "3-1", "0-4294967295", "1,,2"] {
            assert_eq!(count_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn parses_pressure_in_seconds() {
        let text = "some avg10=1.54 avg60=1.21 avg300=0.67 total=7514177\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse_pressure(text), Some(7.514_177));
        assert_eq!(parse_pressure("full total=3"), None);
    }

    #[test]
    fn measures_cpu_used_on_this_host() {
        let root = Root::host();
        let before = CpuTime::read(&root).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(200) {
            std::hint::black_box(begin);
        }
        let after = CpuTime::read(&root).unwrap();
        // On a busy host, part of the 200 ms is stolen or used by other processes. The assertion
        // therefore counts both.
        let used_s = after.busy_s + after.steal_s - before.busy_s - before.steal_s;
        assert!(used_s >= 0.15, "{before:?} {after:?}");
        let online = online(&root).unwrap();
        let cpus = f64::from(online);
        let total_s = after.total_s - before.total_s;
        assert!(total_s <= begin.elapsed().as_secs_f64() * cpus + 0.1 * cpus);
        assert!(allowed(&root) <= online);
        assert!(load_average(&root).is_some());
    }
}
