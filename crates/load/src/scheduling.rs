//! CPU scheduling of load threads.

use std::io;

use crate::libc_calls::{scheduling, set_scheduling};

/// The time slice in ns that a load thread requests.
/// This is the shortest slice that the kernel grants (`sched_setattr(2)`).
const SLICE_NS: u64 = 100_000;

/// Requests short time slices for the calling thread, so that it runs sooner after waking.
///
/// Among runnable threads, Linux picks the one whose slice would end first (EEVDF; Stoica &
/// Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995). A thread with a shorter slice
/// therefore preempts others when it wakes. Its share of the CPU stays the same.
///
/// Kernels before 6.12 accept the request, but ignore it.
///
/// # Errors
/// Fails if the kernel refuses the request, for example in a container.
pub(crate) fn request_short_slices() -> io::Result<()> {
    let mut attributes = scheduling()?;
    if !matches!(
        attributes.sched_policy.cast_signed(),
        libc::SCHED_OTHER | libc::SCHED_BATCH
    ) {
        // Keep a policy that was set elsewhere.
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
