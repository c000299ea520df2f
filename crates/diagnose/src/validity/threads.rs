//! CPU use of the client's load threads.

use floodmark_record::events::ThreadUsage;
use floodmark_record::reason::{ThreadFix, ThreadUse};

/// The load threads.
pub(crate) struct ClientThreads {
    pub(crate) used: ThreadUse,
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
            used: ThreadUse {
                threads: n,
                on_cpu: mean(on_cpu),
                runnable: runnable.map(mean),
            },
        })
    }

    /// Returns the share of the time that the threads were running or runnable. An unknown runnable
    /// share counts as 0.
    pub(crate) fn busy(&self) -> f64 {
        (self.used.on_cpu + self.used.runnable.unwrap_or(0.0)).min(1.0)
    }

    /// Returns a larger number of threads to try, or `None` if more threads would not help.
    pub(crate) fn more(&self, cpus: u32) -> Option<usize> {
        let cpus = cpus as usize;
        let n = self.used.threads;
        (n < cpus && !self.used.is_starved()).then(|| (n * 2).min(cpus))
    }

    /// Returns the fix for saturated threads.
    pub(crate) fn fix(&self, cpus: u32) -> ThreadFix {
        if let Some(more) = self.more(cpus) {
            ThreadFix::MoreThreads(more)
        } else if self.used.is_starved() {
            ThreadFix::OwnCpus
        } else {
            ThreadFix::OtherHost
        }
    }
}
