//! Detects when a trial's processes exit.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use floodmark_observe::Root;
use floodmark_observe::process::is_running;

/// Interval between two checks. An exit time is late by at most this interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Monitors processes and records when they exit. Dropping the monitor ends the checks.
#[derive(Debug)]
pub struct ExitMonitor {
    /// Name and exit time of each process that has exited.
    exits: Arc<Mutex<Vec<(String, Instant)>>>,
    /// Dropping this sender closes the channel, which ends the thread. Nothing is ever sent.
    _running: SyncSender<()>,
}

impl ExitMonitor {
    /// Starts monitoring processes. Each entry is a name for messages and a process id.
    #[must_use]
    pub fn start(mut processes: Vec<(String, u32)>) -> Self {
        let exits: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
        let (running, ended) = sync_channel(0);
        let found = Arc::clone(&exits);
        let check = move || {
            while ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let has_ended = |(_, pid): &mut (String, u32)| !is_running(&Root::host(), *pid);
                for (name, _) in processes.extract_if(.., has_ended) {
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push((name, Instant::now()));
                }
            }
        };
        // If the thread cannot be started, only the exit times are unknown. The runner also checks
        // the processes after the load.
        let named = std::thread::Builder::new().name("exits".to_owned());
        let _ = named.spawn(check);
        ExitMonitor {
            exits,
            _running: running,
        }
    }

    /// Describes the processes that have exited, with their exit times relative to `begin`. Returns
    /// `None` if all processes are running.
    #[must_use]
    pub fn describe(&self, begin: Instant) -> Option<String> {
        let exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        let describe = |(name, at): &(String, Instant)| match at.checked_duration_since(begin) {
            Some(after) => format!(
                "{name} exited {:.1} s into the attempt",
                after.as_secs_f64()
            ),
            None => format!("{name} had exited before the attempt"),
        };
        let all: Vec<String> = exits.iter().map(describe).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn reports_a_zombie_as_ended() {
        let begin = Instant::now();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let this = ("the test".to_owned(), std::process::id());
        let monitor = ExitMonitor::start(vec![this, ("the store x".to_owned(), child.id())]);
        assert_eq!(monitor.describe(begin), None);
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while monitor.describe(begin).is_none() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        let message = monitor.describe(begin).unwrap();
        let after = message.strip_prefix("the store x exited ").unwrap();
        let after: f64 = after.split(' ').next().unwrap().parse().unwrap();
        assert!(after <= begin.elapsed().as_secs_f64() + 0.1, "{message}");
        let later = monitor.describe(Instant::now()).unwrap();
        assert_eq!(later, "the store x had exited before the attempt");
        child.wait().unwrap();
    }
}
