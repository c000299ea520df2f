//! How the machine's clocks stand to each other, and what the kernel thinks of its wall clock.

use std::time::{Duration, Instant};

use floodmark_record::elsewhere::Clocks;

use crate::Root;

/// How often the two clocks are read one after the other; the closest pair counts, since an interruption between them can only
/// put them farther apart.
const ROUNDS: u32 = 5;

/// Reads both clocks at one moment of a series that began at `begin`.
pub(crate) fn read(root: &Root, begin: Instant) -> Clocks {
    let round = || {
        let (before, at) = (clock(libc::CLOCK_MONOTONIC), Instant::now());
        let (unix, after) = (clock(libc::CLOCK_REALTIME), clock(libc::CLOCK_MONOTONIC));
        (after.saturating_sub(before), before, at, unix)
    };
    let rounds = (0..ROUNDS).map(|_| round());
    let closest = rounds.min_by_key(|(apart, ..)| *apart);
    let (_, monotonic, at, unix) = closest.unwrap_or_else(round);
    let (synchronised, max_error_us) = synchronised();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Clocks {
        at_ms: at.saturating_duration_since(begin).as_secs_f64() * 1e3,
        boot_id: root.line("/proc/sys/kernel/random/boot_id"),
        monotonic_ns: ns(monotonic),
        unix_ns: ns(unix),
        synchronised,
        max_error_us,
    }
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes into a timespec that outlives the call; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Whether the kernel takes its wall clock for synchronised, and its largest error (adjtimex(2); nothing is set).
fn synchronised() -> (bool, Option<u64>) {
    // SAFETY: timex is plain numbers, for which zero is a value; modes 0 only reads.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into a timex that outlives the call.
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
    fn of_this_machine() {
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
