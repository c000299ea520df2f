//! Where a child runs: on which CPUs, and in which network.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::child::{Child, ChildError};
use crate::cpus::Cpus;
use crate::namespace::{self, Namespace};

/// One side of a measurement, client or server: the place where its processes run. The default is where floodmark itself does.
#[derive(Debug, Clone, Default)]
pub struct Side {
    cpus: Option<Cpus>,
    network: Option<Arc<Namespace>>,
}

impl Side {
    /// One that is kept to some CPUs and to a network of its own; where one of them is not given, it shares floodmark's.
    #[must_use]
    pub fn on(cpus: Option<Cpus>, network: Option<Arc<Namespace>>) -> Self {
        Side { cpus, network }
    }

    /// The same network, but all CPUs.
    #[must_use]
    pub fn on_any_cpu(&self) -> Self {
        Side {
            cpus: None,
            network: self.network.clone(),
        }
    }

    /// Does something on a thread within this side's network, though on any CPU: for looking at the network, and reaching what
    /// listens in it. Children are started with [`Side::start`].
    ///
    /// # Errors
    /// Those of [`Namespace::within`].
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.network {
            Some(network) => network.within(work),
            None => Ok(work()),
        }
    }

    /// Starts a command on this side.
    ///
    /// # Errors
    /// Those of [`Child::start`].
    pub fn start(&self, mut command: Command) -> Result<Child, ChildError> {
        self.place(&mut command);
        Child::start(command)
    }

    /// Starts a command on this side without stdin, its stdout and stderr in a new file.
    ///
    /// # Errors
    /// Those of [`Child::start_logged`].
    pub fn start_logged(&self, mut command: Command, log: &Path) -> Result<Child, ChildError> {
        self.place(&mut command);
        Child::start_logged(command, log)
    }

    /// Sees that a command's process goes where this side is before its program begins; what it starts stays there.
    fn place(&self, command: &mut Command) {
        let mask = self.cpus.as_ref().map(Cpus::mask);
        let network = self.network.clone();
        // SAFETY: the closure runs in the child between fork and exec and only makes system calls that are async-signal-safe, with
        // memory of its own; it neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(move || {
                if let Some(mask) = &mask
                    && libc::sched_setaffinity(0, size_of_val(mask), mask) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                network
                    .as_ref()
                    .map_or(Ok(()), |network| namespace::enter(network.raw()))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;

    #[test]
    fn children_and_theirs_stay_on_their_cpus() {
        let allowed = Cpus::allowed().unwrap();
        let first = allowed.halves().map_or(allowed, |(first, _)| first);
        let mut command = Command::new("sh");
        command
            .args(["-c", "sh -c 'grep Cpus_allowed_list /proc/self/status'"])
            .stdout(Stdio::piped());
        let mut child = Side::on(Some(first.clone()), None).start(command).unwrap();
        let mut said = String::new();
        child.stdout().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(
            said.split_whitespace().last(),
            Some(first.to_string().as_str())
        );
    }
}
