//! Whether the processes of a trial are still there, and if not, since when.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Distance of two looks: how exact the moment of an end is.
const GLANCE: Duration = Duration::from_millis(20);

/// A process that ended.
#[derive(Debug, Clone)]
struct Gone {
    what: String,
    at: Instant,
}

/// Looks after processes until it is dropped.
#[derive(Debug)]
pub struct Alive {
    gone: Arc<Mutex<Vec<Gone>>>,
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Alive {
    /// Looks after processes, each with what it is, such as "the server".
    #[must_use]
    pub fn watch(mut processes: Vec<(String, u32)>) -> Self {
        let gone: Arc<Mutex<Vec<Gone>>> = Arc::default();
        let (over, told) = channel();
        let found = Arc::clone(&gone);
        let look = move || {
            while told.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                processes.retain(|(what, pid)| {
                    let runs = runs(*pid);
                    if !runs {
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.push(Gone {
                            what: what.clone(),
                            at: Instant::now(),
                        });
                    }
                    runs
                });
            }
        };
        Alive {
            gone,
            over: Some(over),
            // Without a thread nobody says when it ended; that it did is found out afterwards.
            thread: std::thread::Builder::new()
                .name("alive".to_owned())
                .spawn(look)
                .ok(),
        }
    }

    /// What has ended, and how long after `begin`, in words; none where all are there.
    #[must_use]
    pub fn ended(&self, begin: Instant) -> Option<String> {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<String> = gone
            .iter()
            .map(|gone| match gone.at.checked_duration_since(begin) {
                Some(after) => format!(
                    "{} ended {:.1} s after it began",
                    gone.what,
                    after.as_secs_f64()
                ),
                None => format!("{} had ended before it began", gone.what),
            })
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // It holds nothing that a panic could spoil.
            let _ = thread.join();
        }
    }
}

/// Whether a process is there and not only waits to be reaped (proc_pid_stat(5)).
fn runs(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name may hold anything, brackets too.
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_end_is_said_with_its_moment() {
        let begin = Instant::now();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let us = ("the test".to_owned(), std::process::id());
        let alive = Alive::watch(vec![us, ("the store x".to_owned(), child.id())]);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(alive.ended(begin), None);
        child.kill().unwrap();
        // It is not reaped yet: a zombie is none that runs.
        let patience = Instant::now() + Duration::from_secs(30);
        while alive.ended(begin).is_none() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = alive.ended(begin).unwrap();
        let after = said.strip_prefix("the store x ended ").unwrap();
        let after: f64 = after.split(' ').next().unwrap().parse().unwrap();
        assert!(
            after >= 0.3 && after <= begin.elapsed().as_secs_f64() + 0.1,
            "{said}"
        );
        let later = alive.ended(Instant::now()).unwrap();
        assert_eq!(later, "the store x had ended before it began");
        child.wait().unwrap();
    }
}
