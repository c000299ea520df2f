//! Signals to a set of processes.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A set of processes. The set uses pidfds, which never refer to a different process
/// (pidfd_open(2)).
#[derive(Debug)]
pub struct ProcessSet(Vec<OwnedFd>);

impl ProcessSet {
    /// Opens descriptors for the processes that have not ended.
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
    /// This process may not send signals to one of the processes.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let send = |process| match pidfd_send_signal(process, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        };
        self.0.iter().map(send).fold(Ok(()), Result::and)
    }

    /// Waits up to `timeout` until all processes have ended. Returns whether they have.
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
    use super::*;
    use std::process::Command;

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
        // A signal to an ended process has no effect.
        set.signal(Signal::KILL).unwrap();
        assert!(ProcessSet::open(&[0]).is_err());
    }
}
