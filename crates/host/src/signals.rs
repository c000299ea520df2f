//! Ctrl-C, SIGTERM and SIGHUP. The first signal requests an orderly stop. A signal more than 250 ms
//! later exits immediately.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level;

/// Exit code after a signal that exits immediately.
pub const INTERRUPTED: i32 = 130;

/// Time after the first signal in which further signals belong to the same stop request, in ms. For
/// example, timeout(1) signals its child and then the child's process group.
const REPEAT_MS: u64 = 250;

/// Message before an immediate exit.
const MESSAGE: &str = "floodmark: interrupted again; the result is incomplete\n";

/// Called before an immediate exit.
static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();

/// Sets a function that a second signal calls before it exits immediately. Only the first call has
/// an effect.
///
/// # Safety
/// The function must be safe in signal handlers (signal-safety(7)): it must neither allocate memory
/// nor take a lock.
pub unsafe fn before_immediate_exit(action: fn()) {
    let _ = BEFORE_EXIT.set(action);
}

/// A request to stop, shared by all clones.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    /// Flag of the parent token, if this token was created by [`Stop::child`].
    parent: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// Creates a token that only [`Stop::set`] sets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token that SIGINT, SIGTERM and SIGHUP (a closed terminal) set. Under `nohup`,
    /// SIGHUP stays ignored.
    ///
    /// A signal more than 250 ms after the first one exits immediately with [`INTERRUPTED`].
    /// Destructors do not run in this case, but the kernel sends each [`crate::Child`] its
    /// parent-death signal.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        // The first call looks up the vDSO, which is not safe in a signal handler.
        clock_ms();
        // Time of the first signal. A stop that the program itself requested does not count.
        let first_ms = Arc::new(AtomicU64::new(u64::MAX));
        let hangup = (!is_hangup_ignored()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            let (stop, first_ms) = (stop.clone(), Arc::clone(&first_ms));
            let action = move || {
                stop.set();
                let now_ms = clock_ms();
                if now_ms
                    > first_ms
                        .fetch_min(now_ms, Ordering::Relaxed)
                        .saturating_add(REPEAT_MS)
                {
                    if let Some(action) = BEFORE_EXIT.get() {
                        action();
                    }
                    // SAFETY: The pointer and length describe a static string.
                    unsafe {
                        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len())
                    };
                    low_level::exit(INTERRUPTED);
                }
            };
            // SAFETY: The action uses only atomics, clock_gettime(2), write(2) and _exit(2), which
            // are safe in signal handlers (signal-safety(7)). So is the function in `BEFORE_EXIT`.
            unsafe { low_level::register(signal, action) }?;
        }
        Ok(stop)
    }

    /// Returns a token that is also set when this one is set. Setting the new token does not set
    /// this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Stop {
            flag: Arc::default(),
            parent: Some(self.flag()),
        }
    }

    /// Returns whether a stop was requested.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let parent = self.parent.iter();
        let mut flags = parent.chain([&self.flag]);
        flags.any(|flag| flag.load(Ordering::Relaxed))
    }

    /// Requests a stop.
    pub fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Returns the token's own flag, for tight loops and for crates that do not depend on this
    /// crate.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

/// Returns the monotonic clock, in ms.
fn clock_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Returns whether this process ignores SIGHUP because its parent did (`SigIgn` in
/// proc_pid_status(5)). Returns false if the status cannot be read.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut sets = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let set = sets.find_map(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << (SIGHUP - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Child;
    use rustix::process::Signal;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    const CHILD: &str = "FLOODMARK_TEST_SIGNALS_CHILD";

    #[test]
    fn clones_share_the_request() {
        let stop = Stop::new();
        let other = stop.clone();
        assert!(!other.is_set());
        stop.set();
        assert!(other.is_set() && stop.flag().load(Ordering::Relaxed));
    }

    /// Code that the tests below run in a child process.
    #[test]
    fn child_body() {
        let Ok(mode) = std::env::var(CHILD) else {
            return;
        };
        let stop = Stop::on_signals().unwrap();
        println!("\nready");
        let end = Instant::now() + Duration::from_secs(20);
        while !stop.is_set() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        if mode == "orderly" {
            std::process::exit(if stop.is_set() { 17 } else { 1 });
        }
        println!("\nset");
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::process::exit(1);
    }

    fn start_child(mode: &str) -> (Child, impl FnMut(&str)) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "signals::tests::child_body", "--nocapture"])
            .env(CHILD, mode)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        // SAFETY: signal(2) is safe between fork and exec (signal-safety(7)).
        unsafe {
            // The tests may run under nohup.
            command.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_DFL) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let mut child = Child::start(command).unwrap();
        let mut lines = BufReader::new(child.stdout().unwrap()).lines();
        let wait_for = move |word: &str| {
            let found = lines.any(|line| line.unwrap() == word);
            assert!(found, "the child exited before it printed {word}");
        };
        (child, wait_for)
    }

    #[test]
    fn the_first_signal_requests_a_stop() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let (mut child, mut wait_for) = start_child("orderly");
            wait_for("ready");
            child.signal(signal).unwrap();
            let status = child.wait(Duration::from_secs(10)).unwrap().unwrap();
            assert_eq!(status.code(), Some(17), "{signal:?}");
        }
    }

    #[test]
    fn a_repeated_signal_does_not_end_the_orderly_stop() {
        let (mut child, mut wait_for) = start_child("orderly");
        wait_for("ready");
        child.signal(Signal::STOP).unwrap();
        child.signal(Signal::INT).unwrap();
        child.signal(Signal::TERM).unwrap();
        child.signal(Signal::CONT).unwrap();
        let status = child.wait(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!(status.code(), Some(17));
    }

    #[test]
    fn a_later_signal_exits_immediately() {
        let (mut child, mut wait_for) = start_child("stubborn");
        wait_for("ready");
        child.signal(Signal::INT).unwrap();
        wait_for("set");
        std::thread::sleep(Duration::from_millis(2 * REPEAT_MS));
        child.signal(Signal::INT).unwrap();
        let status = child.wait(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!(status.code(), Some(INTERRUPTED));
    }
}
