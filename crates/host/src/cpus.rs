//! Sets of CPUs in the kernel's notation, such as `0,2-3`.

use std::fmt;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

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
    /// The kernel supports more CPUs than [`CpuSet`] holds.
    pub fn allowed() -> io::Result<Self> {
        Ok(Cpus(sched_getaffinity(None)?))
    }

    /// Splits the set into two halves. Returns `None` for a single CPU.
    /// If the number of CPUs is odd, the first half gets the extra CPU.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
