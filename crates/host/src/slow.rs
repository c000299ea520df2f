//! Slowing processes down without their help: they are stopped for a part of the time (SIGSTOP, SIGCONT).
//!
//! It is done by a process of its own that reads a pipe from whoever asked for it: when that is closed, for whatever reason, what was
//! stopped goes on, so that a floodmark that is killed leaves nothing stopped.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::signals::Stop;

/// For how long processes are stopped at a time.
pub const STOPPED: Duration = Duration::from_millis(1);

/// How long they run between two stops.
pub const RUNNING: Duration = Duration::from_millis(4);

/// What runs [`serve`], as an argument of floodmark.
pub const COMMAND: &str = "slow";

/// A process that is held by what names no other one once it has ended (pidfd_open(2)).
#[derive(Debug)]
struct Held(OwnedFd);

impl Held {
    /// None where it has ended.
    fn of(pid: u32) -> io::Result<Option<Self>> {
        // SAFETY: pidfd_open takes plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(None),
                _ => Err(error),
            };
        }
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the call succeeded, so that this is an open descriptor which nobody else has.
        Ok(Some(Held(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Sends it a signal; nothing where it has ended.
    fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        // SAFETY: pidfd_send_signal takes a descriptor that is open, and no siginfo.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if sent == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(()),
            _ => Err(error),
        }
    }
}

/// Lets processes go on, however this ends.
struct Going(Vec<Held>);

impl Drop for Going {
    fn drop(&mut self) {
        for process in &self.0 {
            // Whoever may be stopped may be continued.
            let _ = process.signal(libc::SIGCONT);
        }
    }
}

/// Stops processes for [`STOPPED`] after each [`RUNNING`], until `until` ends or fails to be read, or `stop` is set.
///
/// # Errors
/// A process that may not be signalled, or a kernel without pidfd_open (before Linux 5.3).
pub fn serve(pids: &[u32], mut until: impl Read + Send + 'static, stop: &Stop) -> io::Result<()> {
    let held = pids.iter().map(|pid| Held::of(*pid));
    let held: Vec<Option<Held>> = held.collect::<io::Result<_>>()?;
    let going = Going(held.into_iter().flatten().collect());
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    thread::spawn(move || {
        // What is read means nothing: only the end does.
        while until.read(&mut [0; 16]).is_ok_and(|n| n > 0) {}
        told.store(true, Ordering::Relaxed);
    });
    while !over.load(Ordering::Relaxed) && !stop.is_set() {
        for process in &going.0 {
            process.signal(libc::SIGSTOP)?;
        }
        thread::sleep(STOPPED);
        for process in &going.0 {
            process.signal(libc::SIGCONT)?;
        }
        thread::sleep(RUNNING);
    }
    Ok(())
}

/// Processes that are slowed down as long as this lives.
#[derive(Debug)]
pub struct Slowed {
    child: Child,
}

impl Slowed {
    /// Slows processes down.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(floodmark: &Path, pids: &[u32]) -> io::Result<Self> {
        let mut command = Command::new(floodmark);
        command.arg(COMMAND);
        command.args(pids.iter().map(u32::to_string));
        // Not a child that is killed with us: it has to let go of what it stopped first. Nor does a Ctrl-C on the terminal reach it.
        let child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        Ok(Slowed { child })
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// They were not slowed, or not until now: it has failed, and said why on stderr.
    pub fn end(mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "what stops them ended early ({status})"
            ))),
        }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        // Its pipe ends, and it within one turn; one that was waited for before is not waited for again.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::PipeWriter;
    use std::time::Instant;

    /// The state of a process, as in proc(5).
    fn state(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.chars().next().unwrap()
    }

    fn cpu_s(pid: u32) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        let ns: f64 = text.split(' ').next().unwrap().parse().unwrap();
        ns / 1e9
    }

    fn busy() -> crate::Child {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        crate::Child::start(command).unwrap()
    }

    fn slow(pids: Vec<u32>) -> (PipeWriter, thread::JoinHandle<io::Result<()>>) {
        let (reader, writer) = io::pipe().unwrap();
        (
            writer,
            thread::spawn(move || serve(&pids, reader, &Stop::new())),
        )
    }

    #[test]
    fn it_is_stopped_now_and_then_and_goes_on_in_the_end() {
        let child = busy();
        let (pipe, slowed) = slow(vec![child.pid()]);
        let begin = Instant::now();
        let mut stopped = 0;
        while stopped == 0 {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "it is never stopped"
            );
            stopped += usize::from(state(child.pid()) == 'T');
        }
        drop(pipe);
        slowed.join().unwrap().unwrap();
        assert_ne!(state(child.pid()), 'T');
        let before = cpu_s(child.pid());
        let begin = Instant::now();
        while cpu_s(child.pid()) == before {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "it does not go on"
            );
        }
    }

    #[test]
    fn one_that_has_ended_is_no_trouble() {
        let mut child = busy();
        let pid = child.pid();
        child.stop(Duration::ZERO).unwrap();
        let (pipe, slowed) = slow(vec![pid]);
        drop(pipe);
        slowed.join().unwrap().unwrap();
    }
}
