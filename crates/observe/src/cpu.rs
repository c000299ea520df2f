//! CPUs: their time, load and pressure (`/proc/stat`, `/proc/loadavg`, `/proc/pressure`), the CPUs
//! on which threads may run, and the speed of a server's CPUs.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use floodmark_record::metric::Role;
use floodmark_record::plan::Address;
use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::clock::thread_cpu;
use crate::root::labelled;
use crate::{MonitorTargets, Root, listener};

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
    /// Time during which a virtual CPU was ready while the hypervisor ran something else.
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

/// Counts the CPUs in a list such as `0-3,8`. Unlike [`floodmark_host::Cpus`], accepts any CPU
/// number.
fn count_list(list: &str) -> Option<u32> {
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

/// Maximum number of threads whose allowed CPUs are read. Each thread requires a system call.
const MOST_THREADS: usize = 4096;

/// Returns the CPUs that the calling thread may run on, or `None` if unknown.
pub(crate) fn of_this_thread() -> Option<BTreeSet<u32>> {
    known(of_thread(None))
}

/// Returns the CPUs on which at least one thread of the processes may run, or `None` if unknown.
/// Many servers pin each thread to a different CPU, so reading only the main thread is not enough.
pub(crate) fn of_processes(root: &Root, pids: &[u32]) -> Option<BTreeSet<u32>> {
    let tasks = |pid: &u32| root.numbered(format!("/proc/{pid}/task"));
    let threads = pids.iter().flat_map(tasks).take(MOST_THREADS);
    let threads = threads.filter_map(|tid| Pid::from_raw(i32::try_from(tid).ok()?));
    known(threads.flat_map(|tid| of_thread(Some(tid))))
}

fn known(cpus: impl Iterator<Item = u32>) -> Option<BTreeSet<u32>> {
    let cpus: BTreeSet<u32> = cpus.collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// Returns the CPUs that a thread may run on; none if unknown.
fn of_thread(tid: Option<Pid>) -> impl Iterator<Item = u32> {
    let set = sched_getaffinity(tid).ok();
    let is_set = move |cpu: &u32| set.as_ref().is_some_and(|set| set.is_set(*cpu as usize));
    (0..CpuSet::MAX_CPU as u32).filter(is_set)
}

/// Interval between two samples of a CPU.
const EVERY: Duration = Duration::from_millis(5);

/// Number of steps in the timed work, which takes a few microseconds. With two passes and a
/// warm-up per sample, monitoring uses about 0.2 % of each CPU.
const STEPS: u32 = 800;

/// Maximum number of CPUs to measure.
const MOST_CPUS: usize = 16;

/// Time that the timed work took on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSpeedSample {
    /// Index of the CPU.
    pub cpu: u32,
    /// CPU time of the work in nanoseconds. The work is always the same.
    pub work_ns: u64,
}

/// Measures the speed of CPUs until dropped.
#[derive(Debug)]
pub struct CpuSpeedMonitor {
    samples: Receiver<CpuSpeedSample>,
}

impl CpuSpeedMonitor {
    /// Starts measuring up to 16 of the CPUs that a server on this host may use. Returns `None` if
    /// the server's processes are unknown.
    #[must_use]
    pub fn of_server(targets: &MonitorTargets, addresses: &[Address]) -> Option<Self> {
        let pids = match targets.server_pid {
            Some(pid) => vec![pid],
            None => listener::processes(&Root::host(), (Role::Server, "server"), addresses).ok()?,
        };
        let cpus = of_processes(&Root::host(), &pids)?;
        let apart = cpus.len().div_ceil(MOST_CPUS).max(1);
        Self::start(cpus.into_iter().step_by(apart))
    }

    /// Starts measuring CPUs. Returns `None` if no thread can be started.
    fn start(cpus: impl Iterator<Item = u32>) -> Option<Self> {
        let (sender, samples) = mpsc::channel();
        let mut is_started = false;
        for cpu in cpus {
            let sender = sender.clone();
            let thread = std::thread::Builder::new().name("cpu-speed".to_owned());
            is_started |= thread.spawn(move || measure(cpu, &sender)).is_ok();
        }
        is_started.then_some(Self { samples })
    }

    /// Returns the samples since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<CpuSpeedSample> {
        self.samples.try_iter().collect()
    }
}

/// Measures the speed of a CPU until the receiver of the samples is dropped or the CPU is not
/// available.
fn measure(cpu: u32, samples: &Sender<CpuSpeedSample>) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    if sched_setaffinity(None, &set).is_err() {
        return;
    }
    loop {
        std::thread::sleep(EVERY);
        // Warm up: the first pass after a pause is slower, because its code was evicted from the
        // caches.
        work(STEPS / 4);
        // Keep the faster of two passes, because an interrupt may have slowed down the other.
        let took = timed(work).min(timed(work));
        let sample = CpuSpeedSample {
            cpu,
            work_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        };
        if samples.send(sample).is_err() {
            return;
        }
    }
}

/// Returns the CPU time that the work takes.
fn timed(work: impl Fn(u32)) -> Duration {
    let before = thread_cpu();
    work(STEPS);
    thread_cpu() - before
}

/// Mixes numbers in independent chains, so that the work needs several execution units at once. A
/// single chain mostly waits for its own results, so another thread on the same core would not slow
/// it down.
fn work(steps: u32) {
    let [mut a, mut b, mut c, mut d] = black_box([1_u64, 2, 3, 4]);
    for _ in 0..steps {
        a ^= a << 13;
        a ^= a >> 7;
        a ^= a << 17;
        b = b.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        c = c.wrapping_add(a ^ b);
        d = (d << 5) ^ (d >> 3) ^ c;
    }
    black_box([a, b, c, d]);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

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
        for (list, count) in [("0-1", 2), ("0", 1), ("0-3,8,10-11\n", 7), ("0-2047", 2048)] {
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

    #[test]
    fn the_cpus_of_all_threads_count() {
        let root = Root::host();
        let own = of_this_thread().unwrap();
        let pids = [std::process::id()];
        assert_eq!(of_processes(&root, &pids), Some(own.clone()));
        let last = own.last().copied().unwrap();
        let restricted = std::thread::spawn(move || {
            let mut set = CpuSet::new();
            set.set(last as usize);
            sched_setaffinity(None, &set).unwrap();
            // The other threads of this process may still run on any CPU.
            (of_this_thread(), of_processes(&Root::host(), &pids))
        });
        let (of_thread, of_process) = restricted.join().unwrap();
        assert_eq!(of_thread, Some([last].into()));
        assert_eq!(of_process, Some(own));
        assert_eq!(of_processes(&root, &[]), None);
    }

    /// Measures, for one second, the speed of the CPUs that this thread may use.
    fn measured() -> Vec<CpuSpeedSample> {
        let cpus = of_this_thread().unwrap();
        let count = cpus.len() as u128;
        let monitor = CpuSpeedMonitor::start(cpus.into_iter()).unwrap();
        let begin = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let samples = monitor.take();
        let most = begin.elapsed().as_millis() / EVERY.as_millis() * count;
        assert!(samples.len() as u128 <= most, "{}", samples.len());
        assert!(
            monitor.take().len() < samples.len(),
            "samples were returned twice"
        );
        samples
    }

    #[test]
    fn most_samples_of_a_cpu_agree() {
        let mut samples = measured();
        assert!(samples.len() >= 20, "{}", samples.len());
        let cpu = samples[0].cpu;
        samples.retain(|sample| sample.cpu == cpu);
        samples.sort_unstable_by_key(|sample| sample.work_ns);
        let at = |share: f64| samples[(samples.len() as f64 * share) as usize].work_ns;
        assert!(at(0.1) > 500, "{} ns is too short to measure", at(0.1));
        assert!(at(0.75) < 3 * at(0.1), "{} {} ns", at(0.1), at(0.75));
    }

    #[test]
    fn a_server_is_found_by_its_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let targets = MonitorTargets::default();
        assert!(CpuSpeedMonitor::of_server(&targets, std::slice::from_ref(&address)).is_some());
        drop(listener);
        assert!(CpuSpeedMonitor::of_server(&targets, &[address]).is_none());
    }
}
