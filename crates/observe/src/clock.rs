//! The clock that times are taken with.

use std::time::Instant;

use floodmark_record::host::ClockFacts;

use crate::Root;

const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";

/// Readings in one round; at 25 ns each a round takes about 50 µs, too short to be interrupted every time.
const READINGS: u32 = 2_000;

/// Rounds, of which the best counts: an interruption can only make one slower.
const ROUNDS: u32 = 15;

/// Reads the clock source and measures what one reading of the monotonic clock costs (about 1 ms in all, at most
/// 100 ms with a clock that takes 3 µs).
#[must_use]
pub fn read(root: &Root) -> ClockFacts {
    ClockFacts {
        source: root.line(format!("{FOLDER}/current_clocksource")),
        available: root
            .line(format!("{FOLDER}/available_clocksource"))
            .map(|line| line.split_ascii_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        read_ns: cost_ns(),
    }
}

fn cost_ns() -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..READINGS {
                std::hint::black_box(Instant::now());
            }
            begin.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
        })
        .fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_machine() {
        let clock = read(&Root::host());
        assert!(clock.read_ns > 1.0 && clock.read_ns < 20_000.0, "{clock:?}");
        if let Some(source) = &clock.source {
            assert!(clock.available.contains(source), "{clock:?}");
        }
    }
}
