//! What a server is told to do. As JSON on the command line: `{"service":{"fixed":{"delay_us":1000}}}`.

use serde::{Deserialize, Serialize};

/// Everything that is injected. Parts that are left out inject nothing: the default is the fastest 200 there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Seed of every random choice.
    pub seed: u64,
    /// How long an answer takes.
    pub service: Service,
    /// A new service from some time on.
    pub change: Option<Change>,
    /// When nothing is read, answered or accepted.
    pub stall: Option<Stall>,
    /// Which requests are served otherwise; the rest gets the answer.
    pub faults: Vec<Share>,
    /// After how many requests a connection is closed.
    pub close_after: Option<CloseAfter>,
    /// Body of the answer.
    pub body: String,
    /// Never sleeps, so that arrivals are seen at once; takes one whole CPU.
    pub busy_poll: bool,
    /// Requests and connections kept one by one in the log, each; beyond it only the totals go on. An entry
    /// takes 64 bytes.
    pub log_cap: usize,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            seed: 1,
            service: Service::Fixed { delay_us: 0 },
            change: None,
            stall: None,
            faults: Vec::new(),
            close_after: None,
            body: "Hello, World!".to_owned(),
            busy_poll: false,
            log_cap: 5_000_000,
        }
    }
}

/// How long an answer takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Every answer leaves this long after its request was whole, any number at once.
    Fixed {
        /// Microseconds.
        delay_us: u64,
    },
    /// One server with a queue in order of arrival and exponentially distributed service times. The queue is
    /// kept by due times rather than by blocking the thread, so it is exact and costs no CPU.
    Exponential {
        /// Mean service time, microseconds.
        mean_us: f64,
    },
}

/// A new service from some time on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Milliseconds from the first request.
    pub at_ms: u64,
    /// What applies to requests that arrive from then on.
    pub service: Service,
}

/// When nothing is read, answered or accepted. Times count from the first request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Begin of the first one, milliseconds.
    pub first_ms: u64,
    /// From begin to begin, milliseconds.
    pub every_ms: u64,
    /// Length, milliseconds; shorter than `every_ms`.
    pub length_ms: u64,
}

/// A fault and how many requests it hits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Probability that a request is hit; which ones is decided by their number and the seed.
    pub share: f64,
    /// What happens to it.
    pub fault: Fault,
}

/// What happens to a request instead of its answer. Those that answer do so after the service's delay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// This status at once, without the service's delay.
    Status {
        /// Status code, such as 503.
        code: u16,
    },
    /// A 200 with another body of the same length.
    WrongBody,
    /// Half of the body, then FIN.
    TruncatedBody,
    /// Nothing, for ever; the connection stays open.
    NoAnswer,
    /// The body in pieces, the first one with the head.
    Drip {
        /// How many pieces.
        pieces: u32,
        /// Between them, microseconds.
        gap_us: u64,
    },
    /// RST before the first byte.
    ResetBefore,
    /// RST after the head and half of the body.
    ResetWithin,
    /// FIN before the first byte.
    CloseBefore,
    /// `100 Continue`, and the answer this much later.
    Continue {
        /// Between both, microseconds.
        gap_us: u64,
    },
    /// Bytes that are no HTTP, then FIN.
    Garbage,
}

/// After how many requests a connection is closed, with the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseAfter {
    /// Requests on each connection, at least 1.
    pub requests: u64,
    /// Whether the last answer says `Connection: close`.
    pub announced: bool,
}

/// Why a scenario cannot be served.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// Shares that are no probabilities.
    #[error("faults: shares must be within 0 and 1 and add up to at most 1, not {0}")]
    Shares(f64),
    /// A stall that never ends.
    #[error("stall: length_ms {length_ms} must be above 0 and below every_ms {every_ms}")]
    Stall {
        /// Its length.
        length_ms: u64,
        /// From begin to begin.
        every_ms: u64,
    },
    /// No mean to draw from.
    #[error("service: mean_us {0} must be a positive number")]
    Mean(f64),
    /// A body in no pieces, or a connection without requests.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// A status without a place in HTTP.
    #[error("status code {0} is not within 200 and 599")]
    Status(u16),
}

impl Scenario {
    /// Whether it can be served.
    ///
    /// # Errors
    /// The first part that cannot.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let sum: f64 = self.faults.iter().map(|f| f.share).sum();
        let each = self.faults.iter().all(|f| (0.0..=1.0).contains(&f.share));
        if !each || sum > 1.0 + 1e-9 {
            return Err(ScenarioError::Shares(sum));
        }
        for share in &self.faults {
            match share.fault {
                Fault::Status { code } if !(200..600).contains(&code) => {
                    return Err(ScenarioError::Status(code));
                }
                Fault::Drip { pieces: 0, .. } => return Err(ScenarioError::Zero("drip: pieces")),
                _ => {}
            }
        }
        if let Some(stall) = self.stall
            && (stall.length_ms == 0 || stall.length_ms >= stall.every_ms)
        {
            return Err(ScenarioError::Stall {
                length_ms: stall.length_ms,
                every_ms: stall.every_ms,
            });
        }
        if self.close_after.is_some_and(|c| c.requests == 0) {
            return Err(ScenarioError::Zero("close_after: requests"));
        }
        let services = [Some(self.service), self.change.map(|c| c.service)];
        for service in services.into_iter().flatten() {
            if let Service::Exponential { mean_us } = service
                && !(mean_us > 0.0 && mean_us.is_finite())
            {
                return Err(ScenarioError::Mean(mean_us));
            }
        }
        Ok(())
    }

    /// What happens to the request with this number, counted from 0 in order of arrival.
    #[must_use]
    pub fn fault_of(&self, index: u64) -> Option<Fault> {
        if self.faults.is_empty() {
            return None;
        }
        let mut left = crate::choice::uniform(self.seed, index);
        for share in &self.faults {
            if left < share.share {
                return Some(share.fault);
            }
            left -= share.share;
        }
        None
    }
}

impl Stall {
    /// The end of the stall that `since_first_ns`, a time from the first request, lies in.
    #[must_use]
    pub fn end_of(&self, since_first_ns: u64) -> Option<u64> {
        let (every, length) = (self.every_ms * 1_000_000, self.length_ms * 1_000_000);
        let since = since_first_ns.checked_sub(self.first_ms * 1_000_000)?;
        let into = since % every;
        (into < length).then(|| since_first_ns - into + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_names_only_what_is_injected() {
        let text = r#"{"service":{"fixed":{"delay_us":1000}},"faults":[{"share":0.3,"fault":{"status":{"code":503}}},{"share":0.1,"fault":"no_answer"}]}"#;
        let read: Scenario = serde_json::from_str(text).unwrap();
        assert_eq!(read.service, Service::Fixed { delay_us: 1000 });
        assert_eq!(read.faults[1].fault, Fault::NoAnswer);
        assert_eq!(read.body, "Hello, World!");
        assert!(serde_json::from_str::<Scenario>(r#"{"stal":{}}"#).is_err());
    }

    #[test]
    fn impossible_scenarios_are_refused() {
        let share = |share, fault| Scenario {
            faults: vec![Share { share, fault }],
            ..Scenario::default()
        };
        let stall = |length_ms| Scenario {
            stall: Some(Stall {
                first_ms: 0,
                every_ms: 100,
                length_ms,
            }),
            ..Scenario::default()
        };
        let exponential = |mean_us| Scenario {
            service: Service::Exponential { mean_us },
            ..Scenario::default()
        };
        for bad in [
            share(1.1, Fault::WrongBody),
            share(-0.1, Fault::WrongBody),
            share(f64::NAN, Fault::WrongBody),
            share(0.1, Fault::Status { code: 99 }),
            share(
                0.1,
                Fault::Drip {
                    pieces: 0,
                    gap_us: 1,
                },
            ),
            stall(0),
            stall(100),
            exponential(0.0),
            exponential(f64::INFINITY),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert_eq!(stall(99).check(), Ok(()));
        assert_eq!(Scenario::default().check(), Ok(()));
    }

    #[test]
    fn shares_are_met_and_exclusive() {
        let scenario = Scenario {
            faults: vec![
                Share {
                    share: 0.3,
                    fault: Fault::Status { code: 503 },
                },
                Share {
                    share: 0.01,
                    fault: Fault::NoAnswer,
                },
            ],
            ..Scenario::default()
        };
        let count = |fault| {
            (0..100_000)
                .filter(|i| scenario.fault_of(*i) == fault)
                .count()
        };
        assert!(count(Some(Fault::Status { code: 503 })).abs_diff(30_000) < 600);
        assert!(count(Some(Fault::NoAnswer)).abs_diff(1_000) < 130);
        assert!(count(None).abs_diff(69_000) < 600);
    }

    #[test]
    fn stalls_begin_and_end_on_time() {
        let stall = Stall {
            first_ms: 500,
            every_ms: 1000,
            length_ms: 100,
        };
        let ms = 1_000_000;
        assert_eq!(stall.end_of(0), None);
        assert_eq!(stall.end_of(499 * ms), None);
        assert_eq!(stall.end_of(500 * ms), Some(600 * ms));
        assert_eq!(stall.end_of(599 * ms), Some(600 * ms));
        assert_eq!(stall.end_of(600 * ms), None);
        assert_eq!(stall.end_of(3_550 * ms), Some(3_600 * ms));
    }
}
