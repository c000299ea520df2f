//! CPU use of the client's load threads.

use floodmark_record::events::ThreadUsage;

use crate::text::{percent, plural};

/// Mean shares of time across all load threads.
pub(crate) struct ClientThreads {
    pub(crate) n: usize,
    /// Share of the time that threads were on a CPU, in user mode or kernel mode.
    pub(crate) on_cpu: f64,
    /// Share of the time that threads were runnable but had no CPU. `None` if the share is unknown
    /// for any thread.
    pub(crate) runnable: Option<f64>,
}

impl ClientThreads {
    /// Computes the mean shares. Returns `None` if there are no load threads.
    pub(crate) fn of(threads: &[ThreadUsage]) -> Option<Self> {
        let load = || threads.iter().filter(|t| t.drives_load && t.wall_s > 0.0);
        let n = load().count();
        let mean = |sum: f64| sum / n as f64;
        let share = |seconds: f64, thread: &ThreadUsage| (seconds / thread.wall_s).min(1.0);
        let on_cpu: f64 = load().map(|t| share(t.user_s + t.system_s, t)).sum();
        let runnable: Option<f64> = load().map(|t| Some(share(t.run_delay_s?, t))).sum();
        (n > 0).then(|| ClientThreads {
            n,
            on_cpu: mean(on_cpu),
            runnable: runnable.map(mean),
        })
    }

    /// Returns the share of the time that the threads were running or runnable. An unknown runnable
    /// share counts as 0.
    pub(crate) fn busy(&self) -> f64 {
        (self.on_cpu + self.runnable.unwrap_or(0.0)).min(1.0)
    }

    /// Returns a larger number of threads to try, or `None` if more threads would not help.
    pub(crate) fn more(&self, cpus: u32) -> Option<usize> {
        let cpus = cpus as usize;
        (self.n < cpus && !self.is_starved()).then(|| (self.n * 2).min(cpus))
    }

    /// Returns whether the threads spent more time waiting for a CPU than on a CPU.
    pub(super) fn is_starved(&self) -> bool {
        self.runnable.is_some_and(|runnable| runnable > self.on_cpu)
    }

    /// Describes CPU use: `2 threads, 98 % on a CPU, 1 % runnable`.
    pub(crate) fn show_cpu_use(&self) -> String {
        let runnable = match self.runnable {
            Some(runnable) => format!("{} runnable", percent(runnable)),
            None => "run delay unknown".to_owned(),
        };
        let threads = plural(self.n as u64, "thread");
        format!("{threads}, {} on a CPU, {runnable}", percent(self.on_cpu))
    }

    /// Returns the fix for saturated threads.
    pub(crate) fn fix(&self, cpus: u32) -> String {
        if let Some(more) = self.more(cpus) {
            format!("use more client threads: -t {more}")
        } else if self.is_starved() {
            "client and server compete for the same CPUs: give each its own CPUs (taskset -c), or run the \
             client on another host"
                .to_owned()
        } else {
            "each CPU of the client already has a thread: run the client on another host, or on \
             several (--agents)"
                .to_owned()
        }
    }
}
