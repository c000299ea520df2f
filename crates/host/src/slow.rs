//! Sends signals to sets of processes, and slows processes down by stopping them periodically
//! (SIGSTOP, SIGCONT).
//!
//! A helper process sends the signals and reads a pipe from its parent. When the pipe closes, the
//! helper resumes the stopped processes. Therefore, no process stays stopped if floodmark is
//! killed.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::signals::Stop;

/// Duration of each stop.
pub const STOPPED: Duration = Duration::from_millis(1);

/// Time between two stops.
pub const RUNNING: Duration = Duration::from_millis(4);

/// Name of the floodmark subcommand that runs [`serve`].
pub const COMMAND: &str = "slow";

/// Processes to stop and resume. Dropping this value resumes them.
struct ContinueOnDrop(ProcessSet);

impl Drop for ContinueOnDrop {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::CONT);
    }
}

/// Repeatedly stops processes for [`STOPPED`] and lets them run for [`RUNNING`].
/// Returns when the write end of the pipe `until` is closed, or when `stop` is set.
///
/// # Errors
/// This process is not allowed to send signals to one of the processes, or the kernel has no
/// pidfd_open (before Linux 5.3).
pub fn serve(pids: &[u32], until: impl AsFd, stop: &Stop) -> io::Result<()> {
    let processes = ContinueOnDrop(ProcessSet::open(pids)?);
    let mut pipe = [PollFd::new(&until, PollFlags::empty())];
    while !stop.is_set() && !pipe[0].revents().contains(PollFlags::HUP) {
        processes.0.signal(Signal::STOP)?;
        thread::sleep(STOPPED);
        processes.0.signal(Signal::CONT)?;
        match poll(
            &mut pipe,
            Some(&RUNNING.try_into().map_err(io::Error::other)?),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Processes that are slowed down until this value is dropped.
#[derive(Debug)]
pub struct Slowed {
    child: Child,
}

impl Slowed {
    /// Starts slowing down processes.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(floodmark: &Path, pids: &[u32]) -> io::Result<Self> {
        let mut command = Command::new(floodmark);
        command.arg(COMMAND);
        command.args(pids.iter().map(u32::to_string));
        // A `crate::Child` would die with this process, but the helper must first resume the
        // stopped processes. The helper has its own process group, so Ctrl-C does not reach the
        // helper.
        let child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        Ok(Slowed { child })
    }

    /// Lets the processes run normally again.
    ///
    /// # Errors
    /// The helper ended early. Its stderr contains the reason.
    pub fn end(mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "the helper that slows down processes ended early ({status})"
            )))
        }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        // The helper exits within one period after its pipe closes.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A set of processes. The set uses pidfds, which never refer to a different process
/// (pidfd_open(2)).
#[derive(Debug)]
pub struct ProcessSet(Vec<OwnedFd>);

impl ProcessSet {
    /// Opens a pidfd for each process that has not ended.
    ///
    /// # Errors
    /// A PID is 0, the kernel has no pidfd_open (before Linux 5.3), or too many files are open.
    pub fn open(pids: &[u32]) -> io::Result<Self> {
        let mut open = Vec::new();
        for pid in pids {
            let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::INVAL)?;
            match pidfd_open(pid, PidfdFlags::empty()) {
                Err(Errno::SRCH) => {}
                fd => open.push(fd?),
            }
        }
        Ok(ProcessSet(open))
    }

    /// Sends a signal to the processes that have not ended.
    ///
    /// # Errors
    /// This process is not allowed to send signals to one of the processes.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let send = |process| match pidfd_send_signal(process, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        };
        self.0.iter().map(send).fold(Ok(()), Result::and)
    }

    /// Waits up to `timeout` for all processes to end. Returns whether all have ended.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let begin = Instant::now();
        for process in &self.0 {
            loop {
                let left = timeout.saturating_sub(begin.elapsed());
                let left = left.try_into().map_err(io::Error::other)?;
                // A pidfd is readable once its process has ended.
                match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
                    Ok(0) => return Ok(false),
                    Ok(_) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::PipeWriter;

    use super::*;

    /// Returns the state of a process (proc(5)).
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
    fn stops_periodically_and_continues_at_the_end() {
        let child = busy();
        let (pipe, slowed) = slow(vec![child.pid()]);
        let begin = Instant::now();
        let mut stopped = 0;
        while stopped == 0 {
            assert!(begin.elapsed() < Duration::from_secs(10), "never stopped");
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
                "does not continue"
            );
        }
    }

    #[test]
    fn ignores_an_ended_process() {
        let mut child = busy();
        let pid = child.pid();
        child.stop(Duration::ZERO).unwrap();
        let (pipe, slowed) = slow(vec![pid]);
        drop(pipe);
        slowed.join().unwrap().unwrap();
    }

    #[test]
    fn signals_and_awaits_processes() {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
        let set = ProcessSet::open(&[ended.id(), sleeping.id()]).unwrap();
        assert!(!set.wait(Duration::from_millis(10)).unwrap());
        set.signal(Signal::KILL).unwrap();
        assert!(set.wait(Duration::from_secs(30)).unwrap());
        sleeping.wait().unwrap();
        // A signal to a process that has ended has no effect.
        set.signal(Signal::KILL).unwrap();
        assert!(ProcessSet::open(&[0]).is_err());
    }
}
