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

/// What raising the limit on open files came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// The soft limit before.
    pub before: u64,
    /// The soft limit now.
    pub now: u64,
}

/// Raises the soft limit on open files to `needed`, or to the hard limit where that is lower, for this process and the children it
/// starts from then on. It is never lowered.
///
/// # Errors
/// Those of [`open_files`] and of setting the limit, which is then as it was.
pub fn raise_open_files(needed: u64) -> io::Result<Raised> {
    let OpenFiles { soft, hard } = open_files()?;
    let now = needed.min(hard).max(soft);
    if now > soft {
        let wanted = libc::rlimit {
            rlim_cur: now,
            rlim_max: hard,
        };
        // SAFETY: `wanted` is a valid rlimit that the call only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Raised { before: soft, now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_to_what_is_needed_and_at_most_to_the_hard_limit() {
        let before = open_files().unwrap();
        let unchanged = raise_open_files(1).unwrap();
        assert_eq!(
            (unchanged.before, unchanged.now),
            (before.soft, before.soft)
        );
        let needed = before.soft.saturating_add(1).min(before.hard);
        let raised = raise_open_files(needed).unwrap();
        assert_eq!((raised.before, raised.now), (before.soft, needed));
        assert_eq!(raise_open_files(u64::MAX).unwrap().now, before.hard);
        let hard = before.hard;
        assert_eq!(open_files().unwrap(), OpenFiles { soft: hard, hard });
    }
}
