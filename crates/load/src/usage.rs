//! System calls that read the resource usage of a thread or of the process, and set a thread's time
//! slice.

use std::fs;
use std::io;
use std::mem::MaybeUninit;

use floodmark_record::ThreadUsage;

use crate::clock::Ns;

/// A sample of a thread's resource usage.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadReading {
    /// User time and kernel time in seconds.
    cpu: (f64, f64),
    run_delay_s: Option<f64>,
}

impl ThreadReading {
    /// Samples the calling thread.
    pub fn now() -> Self {
        let cpu = cpu(libc::RUSAGE_THREAD);
        // The second field is the time in ns during which the thread was ready to run but waited
        // for a CPU.
        let run_delay_s = fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse::<f64>().ok())
            .map(|ns| ns / 1e9);
        ThreadReading { cpu, run_delay_s }
    }

    /// Returns the usage of load thread `thread` since the sample `earlier`, which was taken `wall`
    /// ns before this sample.
    pub fn since(&self, earlier: &ThreadReading, thread: u32, wall: Ns) -> ThreadUsage {
        ThreadUsage {
            name: format!("load-{thread}"),
            drives_load: true,
            user_s: self.cpu.0 - earlier.cpu.0,
            system_s: self.cpu.1 - earlier.cpu.1,
            run_delay_s: self
                .run_delay_s
                .zip(earlier.run_delay_s)
                .map(|(now, then)| now - then),
            wall_s: wall as f64 / 1e9,
            coalesced_s: None,
            kernel_stamped: None,
        }
    }
}

/// Returns the process's CPU time so far: user time and kernel time, in seconds.
pub fn process_cpu() -> (f64, f64) {
    cpu(libc::RUSAGE_SELF)
}

fn cpu(who: libc::c_int) -> (f64, f64) {
    let usage = resource_usage(who);
    (to_seconds(usage.ru_utime), to_seconds(usage.ru_stime))
}

/// Returns the process's peak resident memory in bytes.
/// Returns `None` if the kernel does not report this figure.
pub fn peak_rss_bytes() -> Option<u64> {
    let kib = u64::try_from(resource_usage(libc::RUSAGE_SELF).ru_maxrss).ok()?;
    (kib > 0).then(|| kib * 1024)
}

fn to_seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Returns the resources used by the process or the calling thread (`getrusage(2)`).
fn resource_usage(who: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes to a zeroed rusage of the right size. If the call fails, all fields
    // stay zero, which is a valid value.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    }
}

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
    // SAFETY: the kernel reads a sched_attr that outlives the call and contains its own size.
    // Thread id 0 is the calling thread.
    result(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

/// Returns the scheduling attributes of the calling thread (`sched_getattr(2)`).
fn scheduling() -> io::Result<libc::sched_attr> {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of_val(&attributes) as u32;
    // SAFETY: the kernel writes at most `size` bytes to a sched_attr that outlives the call. Thread
    // id 0 is the calling thread.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            &raw mut attributes,
            attributes.size,
            0,
        )
    };
    result(done).map(|()| attributes)
}

/// Returns the error of a system call if its result is negative.
pub(crate) fn result(done: libc::c_long) -> io::Result<()> {
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
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
            // Kernels before 6.12 report no time slice.
            assert!([0, SLICE_NS].contains(&asked.sched_runtime));
        })
        .join()
        .unwrap();
        assert_eq!(scheduling().unwrap().sched_runtime, before.sched_runtime);
    }
}
