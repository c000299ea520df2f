//! Which CPUs threads may run on.

use std::collections::BTreeSet;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::Root;

/// Maximum number of threads to read, because each takes a system call.
const MOST_THREADS: usize = 4096;

/// Returns the CPUs that the calling thread may run on, or `None` if unknown.
#[must_use]
pub(crate) fn of_this_thread() -> Option<BTreeSet<u32>> {
    sched_getaffinity(None)
        .ok()
        .map(|set| numbers(&set).collect())
}

/// Returns the CPUs on which at least one thread of the processes may run, or `None` if unknown.
/// Many servers restrict each of their threads to another CPU, so the main thread is not enough.
#[must_use]
pub(crate) fn of_processes(root: &Root, pids: &[u32]) -> Option<BTreeSet<u32>> {
    let tasks = |pid: &u32| root.numbered(format!("/proc/{pid}/task"));
    let threads = pids.iter().flat_map(tasks).take(MOST_THREADS);
    let sets = threads.filter_map(|tid| {
        let tid = Pid::from_raw(i32::try_from(tid).ok()?)?;
        sched_getaffinity(Some(tid)).ok()
    });
    let cpus: BTreeSet<u32> = sets
        .flat_map(|set| numbers(&set).collect::<Vec<_>>())
        .collect();
    (!cpus.is_empty()).then_some(cpus)
}

fn numbers(set: &CpuSet) -> impl Iterator<Item = u32> {
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| cpu as u32)
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_setaffinity;

    use super::*;

    #[test]
    fn the_cpus_of_all_threads_count() {
        let root = Root::host();
        let own = of_this_thread().unwrap();
        let pids = [std::process::id()];
        assert_eq!(of_processes(&root, &pids), Some(own.clone()));
        let last = own.last().copied().unwrap();
        let restricted = std::thread::spawn(move || {
            let mut set = CpuSet::new();
            set.set(last as usize);
            sched_setaffinity(None, &set).unwrap();
            // The other threads of this process may still run anywhere.
            (of_this_thread(), of_processes(&Root::host(), &pids))
        });
        let (of_thread, of_process) = restricted.join().unwrap();
        assert_eq!(of_thread, Some([last].into()));
        assert_eq!(of_process, Some(own));
        assert_eq!(of_processes(&root, &[]), None);
    }
}
