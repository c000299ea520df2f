//! Reads the files of a process or thread (`stat`, `schedstat` and `status`), and lists the CPU use
//! of all processes.

use std::fs::File;
use std::io;
use std::time::Instant;

use floodmark_record::host::BusyProcess;
use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::Root;
use crate::cpu::ticks_per_s;
use crate::root::labelled;

/// Reads `/proc/PID/stat`.
pub(crate) fn stat(root: &Root, pid: u32) -> io::Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    let stat = Stat::from_read(File::open(root.path(&path))?);
    stat.map_err(|error| io::Error::other(format!("{path}: {error}")))
}

/// Parses a `schedstat` file. Returns the time on a CPU and the run delay, in ns.
pub(crate) fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Parses the numbers of voluntary and involuntary context switches in a `status` file.
pub(crate) fn parse_switches(text: &str) -> Option<(u64, u64)> {
    let number = |label: &str| labelled(text, label)?.parse().ok();
    number("voluntary_ctxt_switches:").zip(number("nonvoluntary_ctxt_switches:"))
}

/// Returns whether a process exists and is not a zombie.
#[must_use]
pub fn is_running(root: &Root, pid: u32) -> bool {
    stat(root, pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Returns the process group of a process.
#[must_use]
pub fn group(root: &Root, pid: u32) -> Option<u32> {
    Some(stat(root, pid).ok()?.pgrp.cast_unsigned())
}

/// Returns the CPU seconds that a process has used since it started, including ended threads.
///
/// # Errors
/// The process doesn't exist or can't be read.
pub fn cpu_s(root: &Root, pid: u32) -> io::Result<f64> {
    stat(root, pid).map(|stat| own_cpu_s(&stat))
}

fn own_cpu_s(stat: &Stat) -> f64 {
    (stat.utime + stat.stime) as f64 / ticks_per_s()
}

/// CPU time of every visible process at one moment.
#[derive(Debug)]
pub(crate) struct ProcessListing {
    at: Instant,
    /// PID, name and CPU seconds of each process, sorted by PID.
    pub(crate) processes: Vec<(u32, String, f64)>,
}

impl ProcessListing {
    /// Lists every visible process except kernel threads, which have no user-space memory.
    pub(crate) fn read(root: &Root) -> Self {
        let at = Instant::now();
        let of = |pid| {
            let stat = stat(root, pid).ok().filter(|stat| stat.vsize > 0)?;
            let cpu_s = own_cpu_s(&stat);
            Some((pid, stat.comm, cpu_s))
        };
        let processes = root.numbered("/proc").into_iter().filter_map(of).collect();
        Self { at, processes }
    }

    /// Returns the CPU use of each process since an earlier listing, busiest first. Idle processes
    /// and processes that have ended are omitted.
    pub(crate) fn since(&self, earlier: &Self) -> Vec<BusyProcess> {
        let seconds = self.at.saturating_duration_since(earlier.at).as_secs_f64();
        let used = |(pid, name, cpu_s): &(u32, String, f64)| {
            let before = &earlier.processes;
            // A process that started after the earlier listing used all of its CPU time since then.
            let before_s = before
                .binary_search_by_key(pid, |(pid, ..)| *pid)
                .map_or(0.0, |index| before[index].2);
            BusyProcess {
                pid: *pid,
                name: name.clone(),
                cpus: (cpu_s - before_s).max(0.0) / seconds.max(1e-3),
            }
        };
        let busy = self.processes.iter().map(used);
        let mut busy: Vec<BusyProcess> = busy.filter(|process| process.cpus > 0.0).collect();
        busy.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
        busy
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_stat_with_any_name() {
        const REST: &str = "S 7493 7493 4358 0 -1 4194304 104 0 0 0 250 125 30 40 20 0 17 0 89214 3133440 388 184 \
            1 2 3 4 5 0 0 0 0 0 0 0 17 1 0 0 0 0 0";
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("proc/7508")).unwrap();
        for given in [&b"cat"[..], b"a) R 1 (b", b"(sd-pam)", b"", b"\xff\xfe)"] {
            let text = [&b"7508 ("[..], given, b") ", REST.as_bytes(), b"\n"].concat();
            std::fs::write(directory.path().join("proc/7508/stat"), text).unwrap();
            let stat = stat(&Root::at(directory.path()), 7508).unwrap();
            assert_eq!(stat.comm, String::from_utf8_lossy(given));
            assert_eq!((stat.state, stat.ppid, stat.utime), ('S', 7493, 250));
        }
    }

    #[test]
    fn parses_schedstat_and_status() {
        assert_eq!(parse_schedstat("14 99 3\n"), Some((14, 99)));
        assert_eq!(parse_schedstat("1"), None);
        assert_eq!(parse_schedstat("x y z"), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(parse_switches(status), Some((150, 545)));
        assert_eq!(parse_switches("Name:\tx\n"), None);
    }

    #[test]
    fn counts_the_cpu_of_this_process() {
        let begin = crate::clock::thread_cpu();
        while (crate::clock::thread_cpu() - begin).as_millis() < 100 {}
        let (root, own) = (Root::host(), std::process::id());
        let used = cpu_s(&root, own).unwrap();
        assert!(used >= 0.08, "{used}");
        let listed = |(pid, _, cpu): &(u32, String, f64)| *pid == own && *cpu >= used;
        assert!(ProcessListing::read(&root).processes.iter().any(listed));
    }

    #[test]
    fn reports_a_process_that_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(cpu_s(&Root::host(), child.id()).is_err());
    }

    #[test]
    fn ranks_processes_by_cpu_use() {
        let at = Instant::now();
        let listing = |seconds, all: &[(u32, f64)]| ProcessListing {
            at: at + Duration::from_secs(seconds),
            processes: all
                .iter()
                .map(|(pid, s)| (*pid, format!("p{pid}"), *s))
                .collect(),
        };
        let found = |before: &[(u32, f64)], after: &[(u32, f64)]| {
            let busy = listing(2, after).since(&listing(0, before));
            let is_named = |p: &BusyProcess| p.name == format!("p{}", p.pid);
            assert!(busy.iter().all(is_named), "{busy:?}");
            busy.iter().map(|p| (p.pid, p.cpus)).collect::<Vec<_>>()
        };
        for (what, before, after, busy) in [
            ("nothing", &[][..], &[][..], vec![]),
            (
                "busiest first, without idle processes",
                &[(1, 5.0), (2, 5.0), (3, 5.0)],
                &[(1, 6.0), (2, 5.0), (3, 8.0)],
                vec![(3, 1.5), (1, 0.5)],
            ),
            (
                "a new process is measured from its start; an ended process is ignored",
                &[(1, 5.0), (2, 9.0)],
                &[(1, 6.0), (7, 1.5)],
                vec![(7, 0.75), (1, 0.5)],
            ),
            (
                "a PID that was reused by another process",
                &[(1, 5.0)],
                &[(1, 0.5)],
                vec![],
            ),
        ] {
            assert_eq!(found(before, after), busy, "{what}");
        }
    }
}
