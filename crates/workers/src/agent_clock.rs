//! A wall clock that does not jump while a load runs, and the comparison of an agent's clock with
//! the coordinator's.
//!
//! Each ping reads the agent's clock between two readings of the coordinator's clock. The agent's
//! reading is assumed to be halfway between them. The error of this assumption is at most half of
//! the round-trip time, so the ping with the shortest round trip is the most accurate (RFC 5905,
//! section 10).

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use floodmark_record::watch::MeasuredOffset;
use rustix::time::{ClockId, clock_gettime};

/// The readings of one agent's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AgentClock {
    /// The best reading before the load.
    pub(crate) first: Option<MeasuredOffset>,
    /// The best reading after the load.
    last: Option<MeasuredOffset>,
    /// Whether the load has ended.
    is_after: bool,
    /// Longest round trip in ns.
    pub(crate) longest_ns: u64,
    /// Number of readings; reset to 0 when the load ends.
    pub(crate) count: usize,
}

impl AgentClock {
    /// Adds the times of a ping. All times are in ns. `sent_ns` and `received_ns` are on the
    /// coordinator's clock.
    pub(crate) fn add(&mut self, sent_ns: i64, agent_ns: i64, received_ns: i64) {
        let round_trip_ns = received_ns.saturating_sub(sent_ns).max(0);
        let reading = MeasuredOffset {
            offset_ns: agent_ns.saturating_sub(sent_ns + round_trip_ns / 2),
            bound_ns: round_trip_ns.unsigned_abs().div_ceil(2),
        };
        let best = if self.is_after {
            &mut self.last
        } else {
            &mut self.first
        };
        if best.is_none_or(|best| reading.bound_ns < best.bound_ns) {
            *best = Some(reading);
        }
        self.longest_ns = self.longest_ns.max(round_trip_ns.unsigned_abs());
        self.count += 1;
    }

    /// Starts the readings after the load.
    pub(crate) fn load_ended(&mut self) {
        self.is_after = true;
        self.count = 0;
    }

    /// Returns the agent's clock minus the coordinator's in ns, as measured before the load.
    pub(crate) fn offset_ns(&self) -> i64 {
        self.first.map_or(0, |first| first.offset_ns)
    }

    /// Returns the maximum error of the offset in ns during the whole load.
    ///
    /// The clock may drift during the load. The error at the end is therefore at most the change in
    /// the offset plus the error bound of the reading after the load.
    pub(crate) fn bound_ns(&self) -> u64 {
        let Some(first) = self.first else {
            return 0;
        };
        let at_end = self.last.map_or(0, |last| {
            first.offset_ns.abs_diff(last.offset_ns) + last.bound_ns
        });
        first.bound_ns.max(at_end)
    }
}

/// Variable that shifts the clock in tests, in seconds, such as `-3`.
const TEST_SHIFT: &str = "FLOODMARK_TEST_CLOCK_SHIFT";

/// A wall clock that is read at the start and then follows the monotonic clock, so that later
/// adjustments to the wall clock do not affect a load.
#[derive(Debug, Clone, Copy)]
pub struct SteadyClock {
    /// Time at the origin in ns since 1970.
    origin_ns: i64,
    origin: Instant,
}

impl SteadyClock {
    /// Reads the host's clock. In debug builds, the variable `FLOODMARK_TEST_CLOCK_SHIFT` shifts
    /// it.
    #[must_use]
    pub fn start() -> Self {
        // The thread may be preempted between the readings of the two clocks, so the closest of
        // several pairs of readings is used.
        let read = || {
            let (origin, now) = (Instant::now(), SystemTime::now());
            (origin.elapsed(), origin, now)
        };
        let pairs = [read(), read(), read(), read()];
        let (_, origin, now) = pairs
            .into_iter()
            .min_by_key(|pair| pair.0)
            .unwrap_or_else(read);
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        SteadyClock {
            origin_ns: since_1970.as_nanos() as i64 + test_shift_ns(),
            origin,
        }
    }

    /// Returns the current time in ns since 1970.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        self.at(Instant::now())
    }

    /// Converts an instant to a time in ns since 1970. An instant before the first reading counts
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;

    /// Exchanges pings with a clock that is `skew` ns ahead and gains `drift` ns over the course of
    /// the load. Each item of `delays` contains the delays of a ping in ns: to the agent, and back.
    fn exchange(skew: i64, drift: i64, delays: &[(i64, i64)]) -> AgentClock {
        let mut clock = AgentClock::default();
        for phase in [0, 1] {
            for (number, (there, back)) in delays.iter().enumerate() {
                let sent = phase * 60 * SECOND + number as i64 * SECOND;
                clock.add(
                    sent,
                    sent + there + skew + phase * drift,
                    sent + there + back,
                );
            }
            clock.load_ended();
        }
        clock
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let clock = exchange(5 * SECOND, 0, &[(900, 100), (40, 60), (10, 500)]);
        assert_eq!(clock.offset_ns(), 5 * SECOND - 10);
        assert_eq!(clock.bound_ns(), 50);
        assert_eq!(clock.longest_ns, 1000);
    }

    proptest! {
        #[test]
        fn the_bound_covers_the_error_and_the_drift(
            skew in -10 * SECOND..10 * SECOND, drift in -1_000_000i64..1_000_000,
            delays in proptest::collection::vec((0i64..5_000_000, 0i64..5_000_000), 1..20),
        ) {
            let clock = exchange(skew, drift, &delays);
            let error = |truth: i64| clock.offset_ns().abs_diff(truth);
            prop_assert!(error(skew) <= clock.bound_ns());
            prop_assert!(error(skew + drift) <= clock.bound_ns());
            let most = delays.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert!(clock.bound_ns() <= drift.unsigned_abs() + 2 * most.unsigned_abs() + 2);
        }
    }
}
