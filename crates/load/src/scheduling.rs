//! How soon the kernel lets a load thread run when its time has come.

use std::io;

/// Length of the turns on a CPU that a load thread asks for: the shortest that the kernel grants (`sched_setattr(2)`).
const TURN_NS: u64 = 100_000;

/// Asks for short turns on a CPU for the calling thread, and so for an earlier one: of two threads that may run, Linux takes the one
/// whose turn would be over first (EEVDF; Stoica & Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995), and a woken thread
/// with a shorter turn need not await the end of another's. The thread's share of the CPU stays what it is.
///
/// Kernels before 6.12 take the wish and do not heed it.
///
/// # Errors
/// The kernel refuses, as a container may have it do.
pub(crate) fn ask_for_short_turns() -> io::Result<()> {
    let mut wish = own()?;
    if !matches!(
        wish.sched_policy.cast_signed(),
        libc::SCHED_OTHER | libc::SCHED_BATCH
    ) {
        // Whoever gave the thread another policy knows better.
        return Ok(());
    }
    wish.sched_runtime = TURN_NS;
    // SAFETY: the kernel reads a sched_attr that outlives the call, of the size that stands in it; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// How the calling thread is scheduled.
fn own() -> io::Result<libc::sched_attr> {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes into a sched_attr that outlives the call; 0 is the calling thread.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            &raw mut attributes,
            attributes.size,
            0,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_asks_for_itself_alone_and_stays_as_nice_as_it_was() {
        let before = own().unwrap();
        std::thread::spawn(move || {
            ask_for_short_turns().unwrap();
            let asked = own().unwrap();
            assert_eq!(asked.sched_nice, before.sched_nice);
            assert_eq!(asked.sched_policy, before.sched_policy);
            // A kernel before 6.12 tells of no turns.
            assert!([0, TURN_NS].contains(&asked.sched_runtime));
        })
        .join()
        .unwrap();
        assert_eq!(own().unwrap().sched_runtime, before.sched_runtime);
    }
}
