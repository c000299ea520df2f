//! Observes a server on its machine, for a load that comes from another one: what is read is handed over about each second.

use std::time::{Duration, Instant};

use floodmark_record::elsewhere::{Clocks, Group, Second};

use crate::sampler::EVERY;
use crate::watch::{Shown, Watch};
use crate::watcher::thread_cpu;
use crate::watching::Watching;
use crate::{Root, wall_clock};

/// A server and its machine under observation, by the calling thread.
///
/// Memory and cost do not grow with time: what was handed over is forgotten.
pub struct Observer {
    root: Root,
    watching: Watching,
    cpu_before: Duration,
    /// When the last reading was taken.
    taken: Instant,
    drained_to_ms: u64,
}

impl Observer {
    /// Begins to observe a server.
    ///
    /// # Errors
    /// Its processes are not to be found here, or may not be read: one line.
    pub fn open(watch: &Watch) -> Result<Self, String> {
        let (root, cpu_before) = (Root::host(), thread_cpu());
        let watching = Watching::open_server(&root, EVERY, watch, &Shown::default())?;
        Ok(Self {
            root,
            watching,
            cpu_before,
            taken: Instant::now(),
            drained_to_ms: 0,
        })
    }

    /// Name and ids of the server's first processes.
    #[must_use]
    pub fn server(&self) -> (String, Vec<u32>) {
        self.watching.server_named()
    }

    /// Whether any of its processes lives.
    #[must_use]
    pub fn server_lives(&self) -> bool {
        self.watching.server_lives()
    }

    /// How the clocks stand now.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        wall_clock::read(&self.root, self.watching.samples.begin)
    }

    /// Waits until the next reading is due, and takes it.
    pub fn step(&mut self) {
        let due = self.watching.samples.next();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        self.taken = Instant::now();
        self.watching.samples.take(self.taken);
    }

    /// Hands over what was read since the last time, and what the values of groups that are new are of.
    pub fn drain(&mut self) -> (Vec<Group>, Second) {
        let (new, groups, mut missing) = self.watching.samples.drain();
        let (threads, other_threads) = self.watching.server_threads();
        let clocks = self.clocks();
        let from_ms = self.drained_to_ms;
        let begin = self.watching.samples.begin;
        let steps = self.taken.saturating_duration_since(begin).as_millis() / EVERY.as_millis();
        let to_ms = u64::try_from(steps * EVERY.as_millis()).unwrap_or(u64::MAX);
        self.drained_to_ms = to_ms.max(from_ms);
        if !self.server_lives() {
            // Each of its readings ended with it, which is one thing to say.
            missing = vec!["server: its process ended".to_owned()];
        }
        let second = Second {
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
