//! Limits on open files.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A process's soft and hard limits on open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// Current limit.
    pub soft: u64,
    /// Maximum soft limit that an unprivileged process may set.
    pub hard: u64,
}

/// Returns this process's limits on open files.
#[must_use]
pub fn open_files() -> OpenFiles {
    let limit = getrlimit(Resource::Nofile);
    OpenFiles {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// Outcome of [`raise_open_files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// Soft limit before the call.
    pub before: u64,
    /// Soft limit after the call.
    pub now: u64,
}

/// Raises the soft limit on open files to `needed`, but at most to the hard limit.
/// The new limit applies to this process and its future children. This function never lowers the
/// limit.
///
/// # Errors
/// The limit cannot be set. It then remains unchanged.
pub fn raise_open_files(needed: u64) -> io::Result<Raised> {
    let OpenFiles { soft, hard } = open_files();
    let now = needed.min(hard).max(soft);
    if now > soft {
        let limit = Rlimit {
            current: Some(now),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(Raised { before: soft, now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_the_soft_limit_up_to_the_hard_limit() {
        let before = open_files();
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
        assert_eq!(open_files(), OpenFiles { soft: hard, hard });
    }
}
