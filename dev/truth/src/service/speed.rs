//! A speed that varies: the server's time passes faster or slower than real time.

use serde::{Deserialize, Serialize};

use crate::choice::normal;

/// Length of an idle time that separates two trials of a client, in milliseconds. With Poisson
/// arrivals, such a gap has a probability of 4·10⁻⁷ per request at 300/s.
pub const IDLE_MS: u64 = 50;

/// Number of consecutive requests in which an overload is detected.
const OVERLOAD_REQUESTS: u64 = 500;

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
    /// After an overload, the speed is lower until the end of the burst, however low the rate is
    /// then. An overload is a large share of rejected requests among 500 consecutive requests.
    Hysteresis {
        /// Speed after an overload, from 0 to 1.
        factor: f64,
        /// Minimum share of rejected requests in an overload. It must be so far above the share
        /// that an objective allows that no burst below the capacity reaches it by chance.
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
    bursts: u64,
    /// Requests since the start of the burst or since overload was last judged, and how many of
    /// them were rejected.
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
            bursts: 0,
            requests: 0,
            rejected: 0,
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
            Some(Speed::Hysteresis { .. }) if begins_burst => self.factor = 1.0,
            _ => {}
        }
        if begins_burst {
            self.bursts += 1;
            (self.requests, self.rejected) = (0, 0);
        }
        self.last_ns = now_ns;
        self.virtual_ns as u64
    }

    /// Returns the real time of a time on the server's clock, and notes whether the request was
    /// rejected. Both times are in ns, and the request is the one that arrived last.
    pub fn reply(&mut self, due_ns: Option<u64>) -> Option<u64> {
        let after_ns = |due_ns: u64| (due_ns as f64 - self.virtual_ns).max(0.0) / self.factor;
        let reply_ns = due_ns.map(|due_ns| self.last_ns + after_ns(due_ns) as u64);
        self.requests += 1;
        self.rejected += u64::from(due_ns.is_none());
        if self.requests == OVERLOAD_REQUESTS {
            if let Some(Speed::Hysteresis {
                factor,
                rejected_share,
            }) = self.speed
                && self.rejected as f64 >= rejected_share * self.requests as f64
            {
                self.factor = factor;
            }
            (self.requests, self.rejected) = (0, 0);
        }
        reply_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FIRST_NS: u64 = 1_000 * MS;

    /// Sends a request every millisecond from `begin_ms` to `end_ms` after the first request, and
    /// rejects all requests before `rejects_to_ms`. Returns the time until the last response, in ms.
    /// A response takes 1 ms of the server's time.
    fn load(clock: &mut SpeedClock, begin_ms: u64, end_ms: u64, rejects_to_ms: u64) -> f64 {
        let mut last_ms = 0.0;
        for ms in begin_ms..end_ms {
            let now_ns = FIRST_NS + ms * MS;
            let due_ns = clock.arrive(FIRST_NS, now_ns) + MS;
            let reply = clock.reply((ms >= rejects_to_ms).then_some(due_ns));
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
        assert!((load(&mut clock, 0, 1, 0) - 1.0).abs() < 1e-6);
        let slow = load(&mut clock, 4_999, 5_001, 0);
        assert!((slow - 0.5f64.exp()).abs() < 1e-5, "{slow}");
    }

    #[test]
    fn each_burst_has_its_own_speed() {
        let mut clock = SpeedClock::new(Some(Speed::Scatter { deviation: 0.03 }), 1);
        let mut logs = Vec::new();
        for burst in 0..1_000 {
            let begin_ms = burst * 100;
            let early = load(&mut clock, begin_ms, begin_ms + 1, 0);
            let late = load(&mut clock, begin_ms + 1, begin_ms + 51, 0);
            assert!((early - late).abs() < 1e-5, "{early} {late}");
            logs.push(early.ln());
        }
        let mean = logs.iter().sum::<f64>() / 1e3;
        let deviation = (logs.iter().map(|log| log * log).sum::<f64>() / 1e3).sqrt();
        assert!(mean.abs() < 0.003, "{mean}");
        assert!((deviation - 0.03).abs() < 0.002, "{deviation}");
    }

    #[test]
    fn an_overload_slows_the_server_until_it_is_idle() {
        let speed = Speed::Hysteresis {
            factor: 0.8,
            rejected_share: 0.1,
        };
        let mut clock = SpeedClock::new(Some(speed), 1);
        let mut last_ms = |begin_ms: u64, end_ms: u64, rejected: u64| {
            let ms = load(&mut clock, begin_ms, end_ms, begin_ms + rejected);
            (ms * 100.0).round() as u32
        };
        assert_eq!(last_ms(0, 500, 49), 100);
        assert_eq!(last_ms(500, 1_000, 50), 100);
        assert_eq!(last_ms(1_000, 5_000, 0), 125);
        // Slower arrivals are no idle time.
        assert_eq!(last_ms(5_040, 5_041, 0), 125);
        assert_eq!(last_ms(5_091, 5_092, 0), 100);
    }
}
