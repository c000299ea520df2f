//! Whether io_uring can be used, and why not.

use std::io;

use floodmark_record::plan::Plan;

use super::queue::AT_ONCE;
use super::{Uring, bound};
use crate::budget::Sockets;
use crate::clock::Clock;

impl Uring {
    /// Finds out whether this kernel lets us, by making all that a thread needs, and what it can do.
    ///
    /// # Errors
    /// Why it does not: see [`Uring::new`].
    pub fn probe(most: usize) -> io::Result<Abilities> {
        let uring = Self::new(Clock::start(), &[], most, 0)?;
        Ok(Abilities {
            bind: bound::can_bind(&uring.ring),
        })
    }
}

/// What the io_uring of a kernel can do that not every one can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Bind sockets in a ring's table to source addresses (Linux 6.11).
    pub bind: bool,
}

impl Abilities {
    /// Where the sockets of a plan live whose requests have at most `longest` bytes.
    #[must_use]
    pub fn sockets(self, plan: &Plan, longest: usize) -> Sockets {
        let unix = plan.target.addresses().any(|to| to.unix().is_some());
        let bindable = self.bind || plan.sources.is_none();
        if longest <= AT_ONCE && plan.tls.is_none() && bindable && !unix {
            Sockets::Tables
        } else {
            Sockets::Files
        }
    }
}

/// Why io_uring cannot be used, with the mend.
#[must_use]
pub fn unavailable(error: &io::Error) -> String {
    let (why, mend) = match error.raw_os_error() {
        Some(libc::ENOSYS) => (
            "this kernel or its seccomp profile has no io_uring",
            "use Linux 6.1 or later, or another profile",
        ),
        Some(libc::EPERM | libc::EACCES) => (
            "io_uring is forbidden here",
            "see kernel.io_uring_disabled and the container's seccomp profile",
        ),
        Some(libc::ENOMEM) => (
            "io_uring gets no locked memory",
            "raise the limit (ulimit -l)",
        ),
        Some(libc::EINVAL) => (
            "this kernel's io_uring is too old",
            "use Linux 6.1 or later",
        ),
        Some(libc::EMFILE) => (
            "there are more connections than open files allowed",
            "raise the limit (ulimit -n)",
        ),
        _ => ("io_uring cannot be used", "see floodmark doctor"),
    };
    format!("{why} ({error}); {mend}")
}
