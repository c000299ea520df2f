//! A speed that varies: the server's time passes faster or slower than real time.

use serde::{Deserialize, Serialize};

use crate::choice::normal;

/// Length of an idle time that separates two trials of a client, in milliseconds. With Poisson
/// arrivals, such a gap has a probability of 4·10⁻⁷ per request at 300/s.
pub const IDLE_MS: u64 = 50;

/// Minimum length of a burst that changes the speed under hysteresis, in ms. Shorter bursts are not
/// trials.
const SHORTEST_BURST_MS: u64 = 500;

/// The speed of the server, as a factor: at half the speed, everything takes twice the time. A
/// *burst* is the load between two idle times of at least [`IDLE_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Speed {
    /// The speed falls exponentially from the first request on, as with a leak.
    Degrading {
        /// Decrease per second, as a difference of logarithms.
        per_s: f64,
    },
    /// Each burst has its own speed. The speeds are log-normal with a median of 1.
    Scatter {
        /// Standard deviation of the logarithm.
        deviation: f64,
    },
    /// After an overloaded burst, the speed is lower until the end of a burst without overload. The
    /// speed changes only between bursts of at least 0.5 s, so both capacities are exact.
    Hysteresis {
        /// Speed after an overload, from 0 to 1.
        factor: f64,
        /// Minimum share of rejected requests in an overloaded burst.
        rejected_share: f64,
    },
}

impl Speed {
    /// Validates the speed.
    ///
    /// # Errors
    /// A value is out of range. The error contains the value and its range.
    pub fn check(&self) -> Result<(), String> {
        let range = |name: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(format!(
                "speed: {name} is {value}; it must be from {least} to {most}"
            ))
        };
        match *self {
            Speed::Degrading { per_s } => range("per_s", per_s, 0.0, 1.0),
            Speed::Scatter { deviation } => range("deviation", deviation, 0.0, 1.0),
            Speed::Hysteresis {
                factor,
                rejected_share,
            } => range("factor", factor, 0.01, 1.0)
                .and_then(|()| range("rejected_share", rejected_share, 0.0, 1.0)),
        }
    }
}

/// The server's clock.
#[derive(Debug, Clone)]
pub struct SpeedClock {
    speed: Option<Speed>,
    seed: u64,
    /// Time of the last arrival, and the server's time then.
    last_ns: u64,
    virtual_ns: f64,
    factor: f64,
    burst: Burst,
    bursts: u64,
}

/// The current burst.
#[derive(Debug, Clone, Copy, Default)]
struct Burst {
    begin_ns: u64,
    requests: u64,
    rejected: u64,
}

impl SpeedClock {
    pub fn new(speed: Option<Speed>, seed: u64) -> SpeedClock {
        SpeedClock {
            speed,
            seed,
            last_ns: 0,
            virtual_ns: 0.0,
            factor: 1.0,
            burst: Burst::default(),
            bursts: 0,
        }
    }

    /// Returns the server's time when a request arrives, in ns. Requests arrive in order; the first
    /// one arrives at `first_ns`.
    pub fn arrive(&mut self, first_ns: u64, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns - self.last_ns;
        self.virtual_ns += elapsed_ns as f64 * self.factor;
        let begins_burst = elapsed_ns >= IDLE_MS * 1_000_000;
        match self.speed {
            Some(Speed::Degrading { per_s }) => {
                self.factor = (-per_s * (now_ns - first_ns) as f64 / 1e9).exp();
            }
            Some(Speed::Scatter { deviation }) if begins_burst => {
                self.factor = (deviation * normal(self.seed, self.bursts)).exp();
            }
            Some(Speed::Hysteresis {
                factor,
                rejected_share,
            }) if begins_burst => {
                let burst = self.burst;
                if self.last_ns - burst.begin_ns >= SHORTEST_BURST_MS * 1_000_000 {
                    let most = rejected_share * burst.requests as f64;
                    let is_overloaded = burst.rejected as f64 > most;
                    self.factor = if is_overloaded { factor } else { 1.0 };
                }
            }
            _ => {}
        }
        if begins_burst {
            self.bursts += 1;
            self.burst = Burst {
                begin_ns: now_ns,
                ..Burst::default()
            };
        }
        self.last_ns = now_ns;
        self.virtual_ns as u64
    }

    /// Returns the real time of a time on the server's clock, and notes whether the request was
    /// rejected. Both times are in ns, and the request is the one that arrived last.
    pub fn reply(&mut self, due_ns: Option<u64>) -> Option<u64> {
        self.burst.requests += 1;
        self.burst.rejected += u64::from(due_ns.is_none());
        let after_ns = (due_ns? as f64 - self.virtual_ns).max(0.0) / self.factor;
        Some(self.last_ns + after_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FIRST_NS: u64 = 1_000 * MS;

    /// Sends a request every millisecond from `begin_ms` to `end_ms` after the first request.
    /// Returns the time until the response to a request that takes 1 ms of the server's time, in
    /// ms, at the end.
    fn load(clock: &mut SpeedClock, begin_ms: u64, end_ms: u64, rejects_from_ms: u64) -> f64 {
        let mut last_ms = 0.0;
        for ms in begin_ms..end_ms {
            let now_ns = FIRST_NS + ms * MS;
            let due_ns = clock.arrive(FIRST_NS, now_ns) + MS;
            let reply = clock.reply((ms < rejects_from_ms).then_some(due_ns));
            if let Some(due_ns) = reply {
                last_ms = (due_ns - now_ns) as f64 / 1e6;
            }
        }
        last_ms
    }

    #[test]
    fn a_constant_speed_is_exact() {
        let mut clock = SpeedClock::new(None, 1);
        let now_ns = 86_400_000_000_001;
        assert_eq!(clock.arrive(now_ns, now_ns), now_ns);
        assert_eq!(clock.reply(Some(now_ns + 7)), Some(now_ns + 7));
    }

    #[test]
    fn a_degrading_server_slows_from_its_first_request() {
        let mut clock = SpeedClock::new(Some(Speed::Degrading { per_s: 0.1 }), 1);
        assert!((load(&mut clock, 0, 1, u64::MAX) - 1.0).abs() < 1e-6);
        let slow = load(&mut clock, 4_999, 5_001, u64::MAX);
        assert!((slow - 0.5f64.exp()).abs() < 1e-5, "{slow}");
    }

    #[test]
    fn each_burst_has_its_own_speed() {
        let mut clock = SpeedClock::new(Some(Speed::Scatter { deviation: 0.03 }), 1);
        let mut logs = Vec::new();
        for burst in 0..1_000 {
            let begin_ms = burst * 100;
            let early = load(&mut clock, begin_ms, begin_ms + 1, u64::MAX);
            let late = load(&mut clock, begin_ms + 1, begin_ms + 51, u64::MAX);
            assert!((early - late).abs() < 1e-5, "{early} {late}");
            logs.push(early.ln());
        }
        let mean = logs.iter().sum::<f64>() / 1e3;
        let deviation = (logs.iter().map(|log| log * log).sum::<f64>() / 1e3).sqrt();
        assert!(mean.abs() < 0.003, "{mean}");
        assert!((deviation - 0.03).abs() < 0.002, "{deviation}");
    }

    #[test]
    fn an_overload_slows_the_bursts_after_it() {
        let speed = Speed::Hysteresis {
            factor: 0.8,
            rejected_share: 0.1,
        };
        let mut clock = SpeedClock::new(Some(speed), 1);
        let mut burst = |begin_ms: u64, length_ms: u64, rejects_from_ms: u64| {
            let ms = load(
                &mut clock,
                begin_ms,
                begin_ms + length_ms,
                begin_ms + rejects_from_ms,
            );
            (ms * 100.0).round() as u32
        };
        assert_eq!(burst(0, 1_000, 950), 100);
        // A tenth of the requests is no overload; more is one.
        assert_eq!(burst(2_000, 1_000, 890), 100);
        // Short bursts and long pauses change nothing.
        assert_eq!(burst(4_000, 400, 400), 125);
        assert_eq!(burst(60_000, 1_000, 1_000), 125);
        assert_eq!(burst(62_000, 1_000, 1_000), 100);
    }
}
