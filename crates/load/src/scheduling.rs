//! CPU scheduling of load threads.

use std::io;

use crate::libc_calls::{scheduling, set_scheduling};

/// Time slice that a load thread requests, ns: the shortest that the kernel grants
/// (`sched_setattr(2)`).
const SLICE_NS: u64 = 100_000;

/// Requests short time slices for the calling thread, which then runs sooner. Among runnable
/// threads, Linux picks the one whose slice would end first (EEVDF; Stoica & Abdel-Wahab, "Earliest
/// Eligible Virtual Deadline First", 1995), so a woken thread with a shorter slice preempts others.
/// The thread's share of the CPU stays the same.
///
/// Kernels before 6.12 accept the request and ignore it.
///
/// # Errors
/// The kernel refuses, for example in a container.
pub(crate) fn request_short_slices() -> io::Result<()> {
    let mut attributes = scheduling()?;
    if !matches!(
        attributes.sched_policy.cast_signed(),
        libc::SCHED_OTHER | libc::SCHED_BATCH
    ) {
        // Keep a policy that somebody else chose.
        return Ok(());
    }
    attributes.sched_runtime = SLICE_NS;
    set_scheduling(&attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_only_the_time_slice_of_its_own_thread() {
        let before = scheduling().unwrap();
        std::thread::spawn(move || {
            request_short_slices().unwrap();
            let asked = scheduling().unwrap();
            assert_eq!(asked.sched_nice, before.sched_nice);
            assert_eq!(asked.sched_policy, before.sched_policy);
            // A kernel before 6.12 reports no time slice.
            assert!([0, SLICE_NS].contains(&asked.sched_runtime));
        })
        .join()
        .unwrap();
        assert_eq!(scheduling().unwrap().sched_runtime, before.sched_runtime);
    }
}
