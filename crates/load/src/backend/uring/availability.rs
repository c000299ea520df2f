//! Whether io_uring can be used, and why not.

use std::io;

use super::Uring;
use crate::clock::Clock;

impl Uring {
    /// Finds out whether this kernel lets us, by making all that a thread needs.
    ///
    /// # Errors
    /// Why it does not: see [`Uring::new`].
    pub fn probe(most: usize) -> io::Result<()> {
        Self::new(Clock::start(), &[], most, 0).map(drop)
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
