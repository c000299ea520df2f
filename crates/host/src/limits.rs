//! Limits of this process that floodmark may raise itself.

use std::io;

/// Limits on open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// What holds now.
    pub soft: u64,
    /// How far a process without privileges may raise it.
    pub hard: u64,
}

/// Reads the limits on open files.
///
/// # Errors
/// The kernel refuses, which it does for no valid call.
pub fn open_files() -> io::Result<OpenFiles> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(OpenFiles {
        soft: limit.rlim_cur,
        hard: limit.rlim_max,
    })
}

/// Raises the soft limit on open files to the hard one, for this process and the children it starts from then on.
///
/// # Errors
/// Those of [`open_files`] and of setting the limit; the limits are then as they were.
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let limits = open_files()?;
    if limits.soft < limits.hard {
        let wanted = libc::rlimit {
            rlim_cur: limits.hard,
            rlim_max: limits.hard,
        };
        // SAFETY: `wanted` is a valid rlimit that the call only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    open_files()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_to_the_hard_limit() {
        let before = open_files().unwrap();
        let after = raise_open_files().unwrap();
        assert_eq!((after.soft, after.hard), (before.hard, before.hard));
        assert_eq!(open_files().unwrap(), after);
    }
}
