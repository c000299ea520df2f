//! CPU use of processes between two listings.

use std::time::Instant;

use floodmark_record::host::BusyProcess;

use crate::{Root, process};

/// CPU time of every visible process at one moment.
#[derive(Debug)]
pub(crate) struct ProcessListing {
    at: Instant,
    /// PID, name and CPU seconds of each process, sorted by PID.
    processes: Vec<(u32, String, f64)>,
}

impl ProcessListing {
    pub(crate) fn read(root: &Root) -> Self {
        Self {
            at: Instant::now(),
            processes: process::all_cpu(root),
        }
    }

    /// Returns the CPU use of each process since an earlier listing, busiest first. Idle processes
    /// and processes that ended are omitted.
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
