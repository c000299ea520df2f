//! The host's clocks: their source, the cost of reading them, and their current times.

use std::time::{Duration, Instant};

use floodmark_record::host::ClockFacts;
use floodmark_record::watch::ClockReading;

use crate::Root;

const DIRECTORY: &str = "/sys/devices/system/clocksource/clocksource0";

/// Number of clock readings per round. At 25 ns per reading, a round takes about 50 µs, so most
/// rounds are not interrupted.
const READINGS: u32 = 2_000;

/// Number of rounds. The fastest round counts, because interruptions only make rounds slower.
const ROUNDS: u32 = 15;

/// Number of times that both clocks are read. The closest pair of readings counts, because an
/// interruption can only increase the time between the two readings.
const PAIRS: u32 = 5;

/// Reads the clock source and measures the cost of one reading of the monotonic clock. The
/// measurement takes about 1 ms, or up to 100 ms if a reading takes 3 µs.
#[must_use]
pub fn facts(root: &Root) -> ClockFacts {
    let available = root.line(format!("{DIRECTORY}/available_clocksource"));
    ClockFacts {
        source: root.line(format!("{DIRECTORY}/current_clocksource")),
        available: available
            .map(|line| line.split_ascii_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        read_ns: cost_ns(),
    }
}

fn cost_ns() -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(Instant::now());
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
    });
    rounds.fold(f64::INFINITY, f64::min)
}

/// Returns the CPU time of the calling thread, to measure the cost of monitoring.
pub(crate) fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the time of a clock. Does not use `rustix`, because `rustix` reads clocks from the vDSO
/// and crashes when valgrind hides the vDSO.
fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to a timespec that outlives the call. After an error, the timespec
    // stays zero.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Reads the monotonic clock and the wall clock. `begin` is the start of the series.
pub(crate) fn read(root: &Root, begin: Instant) -> ClockReading {
    let pair = || {
        let (before, at) = (clock(libc::CLOCK_MONOTONIC), Instant::now());
        let (unix, after) = (clock(libc::CLOCK_REALTIME), clock(libc::CLOCK_MONOTONIC));
        (after.saturating_sub(before), before, at, unix)
    };
    let pairs = (0..PAIRS).map(|_| pair());
    let closest = pairs.min_by_key(|(apart, ..)| *apart);
    let (_, monotonic, at, unix) = closest.unwrap_or_else(pair);
    let (synchronised, max_error_us) = synchronised();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    ClockReading {
        at_ms: at.saturating_duration_since(begin).as_secs_f64() * 1e3,
        boot_id: root.line("/proc/sys/kernel/random/boot_id"),
        monotonic_ns: ns(monotonic),
        unix_ns: ns(unix),
        synchronised,
        max_error_us,
    }
}

/// Returns whether the kernel considers its wall clock synchronized, and the clock's maximum error
/// in µs. Uses adjtimex(2) without changing anything.
fn synchronised() -> (bool, Option<u64>) {
    // SAFETY: `timex` consists of plain numbers, for which zero is valid. If `modes` is 0, the call
    // only reads.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a `timex` that outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return (false, None);
    }
    let synchronised = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    (synchronised, u64::try_from(timex.maxerror).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn measures_the_clock_of_this_host() {
        let clock = facts(&Root::host());
        assert!(clock.read_ns > 1.0 && clock.read_ns < 20_000.0, "{clock:?}");
        if let Some(source) = &clock.source {
            assert!(clock.available.contains(source), "{clock:?}");
        }
    }

    #[test]
    fn reads_both_clocks_of_this_host() {
        let begin = Instant::now();
        let first = read(&Root::host(), begin);
        std::thread::sleep(Duration::from_millis(30));
        let second = read(&Root::host(), begin);
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let wall_ns = wall.unwrap().as_nanos() as f64;
        assert!((wall_ns - second.unix_ns as f64).abs() < 1e9);
        assert_eq!(first.boot_id, second.boot_id);
        let passed_ms = (second.monotonic_ns - first.monotonic_ns) as f64 / 1e6;
        assert!(passed_ms >= 30.0);
        assert!((second.at_ms - first.at_ms - passed_ms).abs() < 5.0);
        println!("{second:?}");
    }
}
