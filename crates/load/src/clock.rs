//! The clock for all times in a worker (monotonic nanoseconds since a common origin), and clocks
//! that are read with `clock_gettime`.

use std::time::{Duration, Instant};

/// Nanoseconds since the worker's origin, on the monotonic clock.
pub type Ns = u64;

/// Nanoseconds in a second.
pub const NS_PER_S: Ns = 1_000_000_000;

/// A monotonic clock (`CLOCK_MONOTONIC`, read without a system call).
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Creates a clock that starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Clock {
            origin: Instant::now(),
        }
    }

    /// Returns the current time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ns {
        self.at(Instant::now())
    }

    /// Converts an instant to the time of this clock. An instant before the origin yields 0.
    #[inline]
    #[must_use]
    pub fn at(&self, instant: Instant) -> Ns {
        instant.saturating_duration_since(self.origin).as_nanos() as u64
    }
}

/// Converts seconds to nanoseconds.
#[must_use]
pub fn seconds(s: f64) -> Ns {
    Duration::try_from_secs_f64(s.max(0.0)).map_or(u64::MAX / 4, |d| d.as_nanos() as u64)
}

/// Returns the calling thread's CPU time so far in ns (`CLOCK_THREAD_CPUTIME_ID`).
pub(crate) fn thread_cpu() -> Ns {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the time of the host's monotonic clock in ns (`CLOCK_MONOTONIC`). Other processes on the
/// host read the same clock.
pub(crate) fn monotonic_ns() -> Ns {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Reads a clock.
///
/// This function does not use `rustix`, which reads clocks from the vDSO and crashes if valgrind
/// hides the vDSO.
fn read_clock(clock: libc::clockid_t) -> Ns {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to a timespec that outlives the call. If the call fails, the
    // timespec stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as Ns * NS_PER_S + time.tv_nsec as Ns
}
