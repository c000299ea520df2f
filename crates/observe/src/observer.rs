//! Observes a server on its own host during a load from another host.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use floodmark_record::watch::{ClockReading, ObservedSecond, SeriesGroup};

use crate::clock::thread_cpu;
use crate::monitor::Monitor;
use crate::process_sampler::ProcessSampler;
use crate::sampler::EVERY;
use crate::targets::MonitorTargets;
use crate::{Root, clock};

/// Samples a server and its host on the calling thread.
///
/// Memory use and sampling cost don't grow with time, because drained samples are dropped.
pub struct Observer {
    root: Root,
    monitor: Monitor,
    cpu_before: Duration,
    /// Time of the last sample.
    taken: Instant,
    drained_to_ms: u64,
}

impl Observer {
    /// Starts observing a server.
    ///
    /// # Errors
    /// The server's processes don't exist or can't be read. The error is a one-line message.
    pub fn open(targets: &MonitorTargets) -> Result<Self, String> {
        let (root, cpu_before) = (Root::host(), thread_cpu());
        let monitor = Monitor::open_server(&root, targets)?;
        Ok(Self {
            root,
            monitor,
            cpu_before,
            taken: Instant::now(),
            drained_to_ms: 0,
        })
    }

    /// Returns the name and the PIDs of the server's initial processes.
    #[must_use]
    pub fn server(&self) -> (String, Vec<u32>) {
        let server = self.monitor.server.as_ref();
        let server = server.map(|server| (server.name.clone(), server.pids.clone()));
        server.unwrap_or_default()
    }

    /// Returns the CPUs on which at least one of the server's threads may run; `None` if unknown.
    #[must_use]
    pub fn allowed_cpus(&self) -> Option<BTreeSet<u32>> {
        self.monitor.server.as_ref()?.allowed_cpus()
    }

    /// Returns whether any server process is running.
    #[must_use]
    pub fn server_is_alive(&self) -> bool {
        let server = self.monitor.server.as_ref();
        server.is_some_and(ProcessSampler::is_alive)
    }

    /// Reads the monotonic clock and the wall clock.
    #[must_use]
    pub fn clocks(&self) -> ClockReading {
        clock::read(&self.root, self.monitor.samples.begin)
    }

    /// Waits until the next sample is due, then takes it.
    pub fn step(&mut self) {
        let due = self.monitor.samples.next();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        self.taken = Instant::now();
        self.monitor.samples.take(self.taken);
    }

    /// Returns new groups and all samples since the previous call.
    pub fn drain(&mut self) -> (Vec<SeriesGroup>, ObservedSecond) {
        let (new, groups, mut missing) = self.monitor.samples.drain();
        let server = self.monitor.server.as_mut();
        let threads = server.map(ProcessSampler::drain_threads);
        let (threads, other_threads) = threads.unwrap_or_default();
        let clocks = self.clocks();
        let from_ms = self.drained_to_ms;
        let begin = self.monitor.samples.begin;
        let steps = self.taken.saturating_duration_since(begin).as_millis() / EVERY.as_millis();
        let to_ms = u64::try_from(steps * EVERY.as_millis()).unwrap_or(u64::MAX);
        self.drained_to_ms = to_ms.max(from_ms);
        if !self.server_is_alive() {
            // Report the server's end once, not once per sampler.
            missing = vec!["server: the process ended".to_owned()];
        }
        let second = ObservedSecond {
            from_ms,
            to_ms: self.drained_to_ms,
            clocks,
            groups,
            threads,
            other_threads,
            watcher_cpu_s: thread_cpu().saturating_sub(self.cpu_before).as_secs_f64(),
            missing,
        };
        (new, second)
    }
}
