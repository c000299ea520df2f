//! The resources of processes: their CPUs, their network namespace, and their limits on open files.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::{fmt, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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
    /// Runs `work` in this network namespace. Does not restrict the CPUs on which `work` runs. To
    /// start children, use [`ProcessPlacement::place`] instead.
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

/// A nonempty set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(pub(crate) CpuSet);

impl Cpus {
    /// Parses a list such as `0,2-3`.
    ///
    /// # Errors
    /// Returns a message if the list is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid =
            || format!("expected a list of CPUs such as \"0\" or \"0,2-3\", not \"{text}\"");
        let mut set = CpuSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |word: &str| word.trim().parse::<usize>().map_err(|_| invalid());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= CpuSet::MAX_CPU {
                return Err(invalid());
            }
            (first..=last).for_each(|cpu| set.set(cpu));
        }
        Ok(Cpus(set))
    }

    /// Returns the CPUs that this thread may run on.
    ///
    /// # Errors
    /// The kernel supports more CPUs than [`CpuSet`] can represent.
    pub fn allowed() -> io::Result<Self> {
        Ok(Cpus(sched_getaffinity(None)?))
    }

    /// Splits the set into two halves. Returns `None` for a single CPU. If the number of CPUs is
    /// odd, the first half gets the extra CPU.
    #[must_use]
    pub fn halves(&self) -> Option<(Self, Self)> {
        let half = self.count().div_ceil(2) as usize;
        let first = Cpus::of(self.iter().take(half))?;
        Some((first, Cpus::of(self.iter().skip(half))?))
    }

    /// Returns the CPUs that are not in `other`, if any.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Option<Self> {
        Cpus::of(self.iter().filter(|cpu| !other.0.is_set(*cpu)))
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        (0..CpuSet::MAX_CPU).filter(|cpu| self.0.is_set(*cpu))
    }

    /// Returns the set of the given CPUs, or `None` if no CPU is given.
    fn of(cpus: impl Iterator<Item = usize>) -> Option<Self> {
        let mut set = CpuSet::new();
        cpus.for_each(|cpu| set.set(cpu));
        (set.count() > 0).then_some(Cpus(set))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut next = self.iter().peekable();
        while let Some(first) = next.next() {
            let mut last = first;
            while let Some(cpu) = next.next_if_eq(&(last + 1)) {
                last = cpu;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

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

/// Raises the soft limit on open files to `needed` or to the hard limit, whichever is lower. The
/// new limit applies to this process and its future children. This function never lowers the limit.
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
    use std::io::Read;
    use std::process::Stdio;

    use super::*;
    use crate::child::Child;

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

    #[test]
    fn parses_and_prints_lists() {
        for (text, same, count) in [
            ("0", "0", 1),
            ("3, 0-1,2", "0-3", 4),
            ("0,2-3,9", "0,2-3,9", 4),
        ] {
            let cpus = Cpus::parse(text).unwrap();
            assert_eq!((cpus.to_string().as_str(), cpus.count()), (same, count));
        }
        for bad in ["", "a", "1-", "2-1", "-1", "0,,1", "1024", "0-99999999"] {
            assert!(Cpus::parse(bad).unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn halves_are_disjoint() {
        let (first, second) = Cpus::parse("1,3-6").unwrap().halves().unwrap();
        assert_eq!(
            (first.to_string(), second.to_string()),
            ("1,3-4".into(), "5-6".into())
        );
        assert_eq!(Cpus::parse("7").unwrap().halves(), None);
    }

    #[test]
    fn finds_cpus_that_are_not_allowed() {
        let allowed = Cpus::allowed().unwrap();
        assert_eq!(allowed.beyond(&allowed), None);
        let more = Cpus::parse("0-1023").unwrap();
        assert_eq!(
            more.beyond(&allowed).unwrap().count(),
            1024 - allowed.count()
        );
    }

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
