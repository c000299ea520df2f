//! What a thread and the process have used, as the kernel accounts it.

use std::fs;
use std::mem::MaybeUninit;

use floodmark_record::ThreadUse;

use crate::clock::Ns;

/// A reading of a thread's account.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadReading {
    user_s: f64,
    system_s: f64,
    run_delay_s: Option<f64>,
}

impl ThreadReading {
    /// Reads the calling thread's account.
    #[must_use]
    pub fn now() -> Self {
        let usage = usage(libc::RUSAGE_THREAD);
        // The second figure is the time spent ready to run but waiting for a CPU, in ns.
        let run_delay_s = fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse::<f64>().ok())
            .map(|ns| ns / 1e9);
        ThreadReading {
            user_s: to_seconds(usage.ru_utime),
            system_s: to_seconds(usage.ru_stime),
            run_delay_s,
        }
    }

    /// What was used since `earlier`, `wall` ns ago.
    #[must_use]
    pub fn since(
        &self,
        earlier: &ThreadReading,
        name: String,
        drives_load: bool,
        wall: Ns,
    ) -> ThreadUse {
        ThreadUse {
            name,
            drives_load,
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
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

/// CPU of the whole process so far: user and kernel seconds.
#[must_use]
pub fn process_cpu() -> (f64, f64) {
    let usage = usage(libc::RUSAGE_SELF);
    (to_seconds(usage.ru_utime), to_seconds(usage.ru_stime))
}

/// CPU of the calling thread so far (`CLOCK_THREAD_CPUTIME_ID`), ns.
#[must_use]
pub fn thread_cpu() -> Ns {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes into a timespec that outlives the call; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as Ns * 1_000_000_000 + time.tv_nsec as Ns
}

/// Peak resident memory of the process, bytes; none where the kernel does not tell.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    let kib = u64::try_from(usage(libc::RUSAGE_SELF).ru_maxrss).ok()?;
    (kib > 0).then(|| kib * 1024)
}

fn usage(who: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes into a zeroed rusage of the right size; all-zero is a valid value should it refuse.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn to_seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}
