//! Sets of CPUs, written as the kernel writes them: `0,2-3`.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// Most CPUs that a set can name: the size of `cpu_set_t`.
const MOST: u32 = libc::CPU_SETSIZE as u32;

/// Some CPUs, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(BTreeSet<u32>);

impl Cpus {
    /// Reads a list such as `0,2-3`.
    ///
    /// # Errors
    /// It is none; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let none = || format!("expected CPUs, like \"0\" or \"0,2-3\", not \"{text}\"");
        let mut set = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |word: &str| word.trim().parse::<u32>().map_err(|_| none());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= MOST {
                return Err(none());
            }
            set.extend(first..=last);
        }
        Ok(Cpus(set))
    }

    /// Those that this thread may run on.
    ///
    /// # Errors
    /// The kernel refuses, as one with more CPUs than [`Cpus`] can name does.
    pub fn allowed() -> io::Result<Self> {
        // SAFETY: all zero is a valid cpu_set_t, a plain array of bits.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a valid cpu_set_t of the size given, which the call fills.
        let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the macro reads one bit below CPU_SETSIZE.
        let is = |cpu: &u32| unsafe { libc::CPU_ISSET(*cpu as usize, &set) };
        Ok(Cpus((0..MOST).filter(is).collect()))
    }

    /// Two sets without a common CPU, the first not smaller; none of a single CPU.
    #[must_use]
    pub fn halves(&self) -> Option<(Self, Self)> {
        let take = self.0.len().div_ceil(2);
        let first = self.0.iter().copied().take(take).collect();
        let second: BTreeSet<u32> = self.0.iter().copied().skip(take).collect();
        (!second.is_empty()).then_some((Cpus(first), Cpus(second)))
    }

    /// Those that are not in another set.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Option<Self> {
        let rest: BTreeSet<u32> = self.0.difference(&other.0).copied().collect();
        (!rest.is_empty()).then_some(Cpus(rest))
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The set as the kernel takes it.
    pub(crate) fn mask(&self) -> libc::cpu_set_t {
        // SAFETY: all zero is a valid cpu_set_t, a plain array of bits.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in &self.0 {
            // SAFETY: every member is below CPU_SETSIZE.
            unsafe { libc::CPU_SET(*cpu as usize, &mut set) };
        }
        set
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut next = self.0.iter().copied().peekable();
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
    fn written_as_the_kernel_does() {
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
    fn halves_share_nothing() {
        let (first, second) = Cpus::parse("1,3-6").unwrap().halves().unwrap();
        assert_eq!(
            (first.to_string(), second.to_string()),
            ("1,3-4".into(), "5-6".into())
        );
        assert_eq!(Cpus::parse("7").unwrap().halves(), None);
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let allowed = Cpus::allowed().unwrap();
        assert_eq!(allowed.beyond(&allowed), None);
        let more = Cpus::parse("0-1023").unwrap();
        assert_eq!(
            more.beyond(&allowed).unwrap().count(),
            1024 - allowed.count()
        );
    }
}
