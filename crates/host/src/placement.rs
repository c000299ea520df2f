//! Placement of child processes: CPUs and network namespace.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::thread::sched_setaffinity;

use crate::cpus::Cpus;
use crate::namespace::{self, Namespace};

/// Placement of the client or server processes. The default is floodmark's own placement.
#[derive(Debug, Clone, Default)]
pub struct ProcessPlacement {
    /// CPUs that the processes may use. `None` means the same CPUs as floodmark.
    pub cpus: Option<Cpus>,
    /// Network namespace of the processes. `None` means the same namespace as floodmark.
    pub network: Option<Arc<Namespace>>,
}

impl ProcessPlacement {
    /// Runs `work` in this network namespace. Does not restrict its CPUs. To start children, use
    /// [`ProcessPlacement::place`] instead.
    ///
    /// # Errors
    /// Returns the same errors as [`Namespace::within`].
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.network {
            Some(network) => network.within(work),
            None => Ok(work()),
        }
    }

    /// Makes a command start its process with this placement. The process's children inherit the
    /// placement.
    pub fn place(&self, command: &mut Command) {
        let mask = self.cpus.as_ref().map(|cpus| cpus.0);
        let network = self.network.clone();
        // SAFETY: between fork and exec, the closure makes only async-signal-safe system calls. The
        // closure does not allocate or lock.
        unsafe {
            command.pre_exec(move || {
                if let Some(mask) = &mask {
                    sched_setaffinity(None, mask)?;
                }
                network
                    .as_ref()
                    .map_or(Ok(()), |network| namespace::enter(network.fd()))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Child;
    use std::io::Read;
    use std::process::Stdio;

    #[test]
    fn children_inherit_their_cpus() {
        let allowed = Cpus::allowed().unwrap();
        let first = allowed.halves().map_or(allowed, |(first, _)| first);
        let mut command = Command::new("sh");
        command
            .args(["-c", "sh -c 'grep Cpus_allowed_list /proc/self/status'"])
            .stdout(Stdio::piped());
        let placement = ProcessPlacement {
            cpus: Some(first.clone()),
            network: None,
        };
        placement.place(&mut command);
        let mut child = Child::start(command).unwrap();
        let mut output = String::new();
        child.stdout().unwrap().read_to_string(&mut output).unwrap();
        assert_eq!(
            output.split_whitespace().last(),
            Some(first.to_string().as_str())
        );
    }
}
