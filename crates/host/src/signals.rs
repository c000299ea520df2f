//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit code of a run that was interrupted.
pub const INTERRUPTED: i32 = 130;

/// Whether an orderly end was asked for. Clones share one answer.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A token that only [`Stop::set`] sets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that SIGINT and SIGTERM set. A second one of either ends the process at once with [`INTERRUPTED`], without
    /// running destructors; children started through [`crate::Child`] then die by their parent-death signal.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the one that ends the process looks at the flag before the other sets it.
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop.0))?;
            flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Whether to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for loops that look at it often and for crates that do not know this one.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{Child, Signal};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    const CHILD: &str = "FLOODMARK_TEST_SIGNALS_CHILD";

    #[test]
    fn clones_share_one_answer() {
        let stop = Stop::new();
        let other = stop.clone();
        assert!(!other.is_set());
        stop.set();
        assert!(other.is_set() && stop.flag().load(Ordering::Relaxed));
    }

    /// Not a test of its own: what the child of the tests below does.
    #[test]
    fn child_body() {
        let Ok(mode) = std::env::var(CHILD) else {
            return;
        };
        let stop = Stop::on_signals().unwrap();
        println!("\nready");
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if stop.is_set() && mode == "orderly" {
                std::process::exit(17);
            }
            if stop.is_set() {
                println!("\nset");
                while Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::process::exit(1);
    }

    fn start(mode: &str) -> (Child, impl FnMut(&str)) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "signals::tests::child_body", "--nocapture"])
            .env(CHILD, mode)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = Child::start(command).unwrap();
        let mut lines = BufReader::new(child.stdout().unwrap()).lines();
        let wait_for = move |word: &str| {
            let found = lines.any(|line| line.unwrap() == word);
            assert!(found, "the child ended before it said {word}");
        };
        (child, wait_for)
    }

    #[test]
    fn the_first_signal_asks() {
        for signal in [Signal::Interrupt, Signal::Terminate] {
            let (mut child, mut wait_for) = start("orderly");
            wait_for("ready");
            child.signal(signal).unwrap();
            let status = child.wait(Duration::from_secs(10)).unwrap().unwrap();
            assert_eq!(status.code(), Some(17), "{signal:?}");
        }
    }

    #[test]
    fn the_second_ends_at_once() {
        let (mut child, mut wait_for) = start("stubborn");
        wait_for("ready");
        child.signal(Signal::Interrupt).unwrap();
        wait_for("set");
        child.signal(Signal::Interrupt).unwrap();
        let status = child.wait(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!(status.code(), Some(INTERRUPTED));
    }
}
