//! The resource usage of a thread and of the process, as reported by the kernel.

use std::fs;

use floodmark_record::ThreadUsage;

use crate::clock::Ns;
use crate::libc_calls::resource_usage;

/// A sample of a thread's resource usage.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadReading {
    /// User time and kernel time in seconds.
    cpu: (f64, f64),
    run_delay_s: Option<f64>,
}

impl ThreadReading {
    /// Samples the calling thread.
    #[must_use]
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
    #[must_use]
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
#[must_use]
pub fn process_cpu() -> (f64, f64) {
    cpu(libc::RUSAGE_SELF)
}

fn cpu(who: libc::c_int) -> (f64, f64) {
    let usage = resource_usage(who);
    (to_seconds(usage.ru_utime), to_seconds(usage.ru_stime))
}

/// Returns the process's peak resident memory in bytes.
/// Returns `None` if the kernel does not report this figure.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    let kib = u64::try_from(resource_usage(libc::RUSAGE_SELF).ru_maxrss).ok()?;
    (kib > 0).then(|| kib * 1024)
}

fn to_seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}
