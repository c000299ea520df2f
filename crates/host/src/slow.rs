//! Slows down processes by stopping them periodically (SIGSTOP, SIGCONT).
//!
//! A helper process sends the signals and reads a pipe from its parent. When the pipe closes, the
//! helper resumes the stopped processes. Therefore, no process stays stopped if floodmark is
//! killed.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::process_set::ProcessSet;
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
/// This process may not send signals to one of the processes, or the kernel has no pidfd_open
/// (before Linux 5.3).
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::PipeWriter;
    use std::time::Instant;

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
}
