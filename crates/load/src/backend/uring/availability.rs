//! Checks whether io_uring is available, and explains why it is not.

use std::io;

use floodmark_record::plan::Plan;

use super::queue::AT_ONCE;
use super::{Uring, bound};
use crate::budget::SocketLocation;
use crate::clock::Clock;

impl Uring {
    /// Checks whether io_uring works on this host, and returns the optional features of its kernel.
    /// The check creates everything that a load thread needs.
    ///
    /// # Errors
    /// Returns the reason why io_uring does not work; see [`Uring::new`].
    pub fn probe(most: usize) -> io::Result<Abilities> {
        let uring = Self::new(Clock::start(), &[], most, 0)?;
        Ok(Abilities {
            bind: bound::can_bind(&uring.ring),
        })
    }
}

/// Features of io_uring that only some supported kernels have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Whether sockets in a ring's table can be bound to source addresses (since Linux 6.11).
    pub bind: bool,
}

impl Abilities {
    /// Returns the location of a plan's sockets. The plan's requests have at most `longest` bytes.
    #[must_use]
    pub fn sockets(self, plan: &Plan, longest: usize) -> SocketLocation {
        let unix = plan.target.addresses().any(|to| to.ip().is_none());
        let bindable = self.bind || plan.sources.is_none();
        if longest <= AT_ONCE && plan.tls.is_none() && bindable && !unix {
            SocketLocation::Tables
        } else {
            SocketLocation::Files
        }
    }
}

/// Explains why io_uring cannot be used, and suggests a fix.
#[must_use]
pub fn unavailable(error: &io::Error) -> String {
    let (why, fix) = match error.raw_os_error() {
        Some(libc::ENOSYS) => (
            "the kernel lacks io_uring, or a seccomp profile blocks it",
            "use Linux 6.1 or later and a profile that allows io_uring",
        ),
        Some(libc::EPERM | libc::EACCES) => (
            "io_uring is not permitted on this host",
            "check kernel.io_uring_disabled and the container's seccomp profile",
        ),
        Some(libc::ENOMEM) => (
            "io_uring cannot lock enough memory",
            "raise the limit (ulimit -l)",
        ),
        Some(libc::EINVAL) => ("the kernel's io_uring is too old", "use Linux 6.1 or later"),
        Some(libc::EMFILE) => (
            "the number of connections exceeds the limit on open files",
            "raise the limit (ulimit -n)",
        ),
        _ => ("io_uring is unavailable", "run floodmark doctor"),
    };
    format!("{why} ({error}); {fix}")
}
