//! Measures how fast the CPUs of a server run.
//!
//! A virtual CPU usually shares a core with the CPU of another machine, whose load slows it down by
//! up to a factor of two. `/proc/stat` does not show this. Therefore, a thread on each CPU repeats
//! the same short work and measures the CPU time that it takes.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use floodmark_record::metric::Role;
use floodmark_record::target::Address;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::clock::thread_cpu;
use crate::{MonitorTargets, Root, affinity, server};

/// Interval between two samples of a CPU.
const EVERY: Duration = Duration::from_millis(5);

/// Steps of the work, which take a few microseconds. With two passes and a warm-up per sample,
/// monitoring uses about 0.2 % of each CPU.
const STEPS: u32 = 800;

/// Maximum number of CPUs to measure.
const MOST_CPUS: usize = 16;

/// Time that the work took on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSpeedSample {
    /// Number of the CPU.
    pub cpu: u32,
    /// CPU time of the work in nanoseconds. The work is always the same.
    pub work_ns: u64,
}

/// Measures the speed of CPUs until it is dropped.
#[derive(Debug)]
pub struct CpuSpeedMonitor {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<CpuSpeedSample>>>,
    threads: Vec<JoinHandle<()>>,
}

impl CpuSpeedMonitor {
    /// Starts measuring up to 16 of the CPUs that a server on this host may use. Returns `None` if
    /// the server's processes are unknown.
    #[must_use]
    pub fn of_server(targets: &MonitorTargets, addresses: &[Address]) -> Option<Self> {
        let pids = match targets.server_pid {
            Some(pid) => vec![pid],
            None => server::processes(&Root::host(), (Role::Server, "server"), addresses).ok()?,
        };
        let cpus = affinity::of_processes(&Root::host(), &pids)?;
        let apart = cpus.len().div_ceil(MOST_CPUS).max(1);
        Self::start(cpus.into_iter().step_by(apart))
    }

    /// Starts to measure CPUs. Returns `None` if no CPU can be measured.
    fn start(cpus: impl Iterator<Item = u32>) -> Option<Self> {
        let mut monitor = CpuSpeedMonitor {
            stop: Arc::default(),
            samples: Arc::default(),
            threads: Vec::new(),
        };
        for cpu in cpus {
            let (stop, samples) = (Arc::clone(&monitor.stop), Arc::clone(&monitor.samples));
            let thread = std::thread::Builder::new().name("cpu-speed".to_owned());
            let thread = thread.spawn(move || measure(cpu, &stop, &samples));
            monitor.threads.extend(thread.ok());
        }
        (!monitor.threads.is_empty()).then_some(monitor)
    }

    /// Returns the samples since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<CpuSpeedSample> {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut samples)
    }
}

impl Drop for CpuSpeedMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread does not panic, and its samples are no longer needed.
            let _ = thread.join();
        }
    }
}

/// Measures the speed of a CPU until `stop` is set or the CPU is not available.
fn measure(cpu: u32, stop: &AtomicBool, samples: &Mutex<Vec<CpuSpeedSample>>) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    if sched_setaffinity(None, &set).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
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
        let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(sample);
    }
}

/// Returns the CPU time of the work.
fn timed(work: impl Fn(u32)) -> Duration {
    let before = thread_cpu();
    work(STEPS);
    thread_cpu() - before
}

/// Mixes numbers in independent chains, so that the work needs several execution units at once.
/// Work that only waits for its own results would not notice another thread on the same core.
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

    /// Measures the speed of the CPUs that this thread may use for one second.
    fn measured() -> Vec<CpuSpeedSample> {
        let cpus = affinity::of_this_thread().unwrap();
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
        assert!(at(0.1) > 500, "{} ns are too short to measure", at(0.1));
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
