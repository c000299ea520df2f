//! A wall clock that does not jump while a load runs.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Variable that shifts the clock in tests, in seconds, such as `-3`.
const TEST_SHIFT: &str = "FLOODMARK_TEST_CLOCK_SHIFT";

/// A wall clock that is read once and then follows the monotonic clock, so that later adjustments to
/// the wall clock do not affect a load.
#[derive(Debug, Clone, Copy)]
pub struct SteadyClock {
    /// Time at the origin in ns since 1970.
    origin_ns: i64,
    origin: Instant,
}

impl SteadyClock {
    /// Reads the host's clock. In debug builds, the variable `FLOODMARK_TEST_CLOCK_SHIFT` shifts it.
    #[must_use]
    pub fn start() -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        SteadyClock {
            origin_ns: since_1970.as_nanos() as i64 + test_shift_ns(),
            origin: Instant::now(),
        }
    }

    /// Returns the current time in ns since 1970.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        self.at(Instant::now())
    }

    /// Returns the time at an instant in ns since 1970. An instant before the first reading counts
    /// as the first reading.
    #[must_use]
    pub fn at(&self, instant: Instant) -> i64 {
        self.origin_ns + instant.saturating_duration_since(self.origin).as_nanos() as i64
    }
}

fn test_shift_ns() -> i64 {
    if !cfg!(debug_assertions) {
        return 0;
    }
    let shift_s = std::env::var(TEST_SHIFT).ok();
    let shift_s: Option<f64> = shift_s.and_then(|shift_s| shift_s.parse().ok());
    shift_s.map_or(0, |shift_s| (shift_s * 1e9) as i64)
}

/// Returns the time of the host's monotonic clock in ns. Other processes on the host read the same
/// clock.
#[must_use]
pub fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
