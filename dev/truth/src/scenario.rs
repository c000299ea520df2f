//! Scenarios for the server, as JSON on the command line:
//! `{"service":{"fixed":{"delay_us":1000}}}`.

use serde::{Deserialize, Serialize};

pub use crate::service::{Service, Speed};

/// A scenario. The default injects nothing: the server responds with status 200 immediately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Seed for all random choices.
    pub seed: u64,
    /// The service time of the server.
    pub service: Service,
    /// Change of the service time during the run.
    pub change: Option<ServiceChange>,
    /// Variation of the server's speed; constant by default.
    pub speed: Option<Speed>,
    /// Periods in which the server stalls.
    pub stall: Option<Stall>,
    /// Faults, each with a share of the requests. All other requests get the normal response.
    pub faults: Vec<FaultShare>,
    /// Number of requests after which the server closes a connection.
    pub close_after: Option<CloseAfter>,
    /// Settings of the server, which speaks only HTTP/2 with prior knowledge; `None` for HTTP/1.1.
    pub http2: Option<Vec<SettingsChange>>,
    /// Body of the normal response.
    pub body: String,
    /// Whether to poll without sleeping, which detects arrivals immediately but keeps one CPU busy.
    pub busy_poll: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            seed: 1,
            service: Service::Fixed { delay_us: 0 },
            change: None,
            speed: None,
            stall: None,
            faults: Vec::new(),
            close_after: None,
            http2: None,
            body: "Hello, World!".to_owned(),
            busy_poll: false,
        }
    }
}

impl From<Service> for Scenario {
    fn from(service: Service) -> Self {
        Scenario {
            service,
            ..Scenario::default()
        }
    }
}

/// A change of the service time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceChange {
    /// Time since the first request, in milliseconds.
    pub at_ms: u64,
    /// Service time of requests that arrive after the change.
    pub service: Service,
}

/// Periodic stalls. During a stall, the server reads, sends and accepts nothing. Times are relative
/// to the first request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Start of the first stall, in milliseconds.
    pub first_ms: u64,
    /// Period, in milliseconds.
    pub every_ms: u64,
    /// Length, in milliseconds; less than `every_ms`.
    pub length_ms: u64,
}

/// A fault and its share of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultShare {
    /// Share of requests with the fault. The seed and the index of a request determine whether the
    /// request has the fault.
    pub share: f64,
    /// The fault.
    pub fault: ResponseFault,
}

/// A fault that replaces the normal response. Unless stated otherwise, it takes effect after the
/// service time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFault {
    /// A response with this status, sent without waiting for the service time.
    Status {
        /// Status code, such as 503.
        code: u16,
    },
    /// A 200 with a different body of the same length.
    WrongBody,
    /// A response with half of its body, then FIN.
    TruncatedBody,
    /// No response; the connection stays open.
    NoResponse,
    /// A response whose body is sent in pieces. The first piece is sent together with the head.
    Drip {
        /// Number of pieces.
        pieces: u32,
        /// Time between pieces, in microseconds.
        gap_us: u64,
    },
    /// RST before the first byte.
    ResetBefore,
    /// RST after the head and half of the body.
    ResetWithin,
    /// FIN before the first byte.
    CloseBefore,
    /// An interim response (`100 Continue`), then the normal response.
    Continue {
        /// Time between the two responses, in microseconds.
        gap_us: u64,
    },
    /// Bytes that are not HTTP, then FIN.
    Garbage,
}

/// Closes connections after a number of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseAfter {
    /// Requests per connection, at least 1.
    pub requests: u64,
    /// Whether the last response has `Connection: close`.
    ///
    /// HTTP/2: whether the server serves all streams that the client opens before it receives the
    /// GOAWAY frame. If not, the server serves exactly the given number of streams, and its GOAWAY
    /// frame names the last of them (RFC 9113, section 6.8).
    pub announced: bool,
}

/// A setting that the server sends on each HTTP/2 connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsChange {
    /// Time since the connection was accepted, in milliseconds; 0 for the first SETTINGS frame.
    pub after_ms: u64,
    /// The setting.
    pub setting: Setting,
}

/// An HTTP/2 setting (RFC 9113, section 6.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Maximum number of open streams (`SETTINGS_MAX_CONCURRENT_STREAMS`). The first value is the
    /// largest one; without a first value, there is no limit.
    MaxStreams(u32),
    /// Initial flow-control window of a stream for request bodies, in bytes
    /// (`SETTINGS_INITIAL_WINDOW_SIZE`).
    InitialWindow(u32),
}

impl Scenario {
    /// Validates the scenario.
    ///
    /// # Errors
    /// A part of the scenario is invalid. The error contains the part and its valid range.
    pub fn check(&self) -> Result<(), String> {
        let sum: f64 = self.faults.iter().map(|f| f.share).sum();
        let each = self.faults.iter().all(|f| (0.0..=1.0).contains(&f.share));
        if !each || sum > 1.0 + 1e-9 {
            return Err(format!(
                "faults: the shares add up to {sum}; each share must be from 0 to 1, and the sum at most 1"
            ));
        }
        for FaultShare { fault, .. } in &self.faults {
            match fault {
                ResponseFault::Status { code } if !(200..600).contains(code) => {
                    return Err(format!(
                        "status: code is {code}; it must be from 200 to 599"
                    ));
                }
                ResponseFault::Drip { pieces: 0, .. } => {
                    return Err("drip: pieces is 0; it must be at least 1".to_owned());
                }
                _ => {}
            }
        }
        if let Some(stall) = self.stall
            && !(1..stall.every_ms).contains(&stall.length_ms)
        {
            return Err(format!(
                "stall: length_ms is {}; it must be above 0 and below every_ms ({})",
                stall.length_ms, stall.every_ms
            ));
        }
        if self.close_after.is_some_and(|c| c.requests == 0) {
            return Err("close_after: requests is 0; it must be at least 1".to_owned());
        }
        if self.http2.is_some() && !self.faults.is_empty() {
            return Err("http2: faults are only possible over HTTP/1.1".to_owned());
        }
        for service in [self.service]
            .into_iter()
            .chain(self.change.map(|c| c.service))
        {
            service.check()?;
        }
        if let Some(speed) = self.speed {
            speed.check()?;
            let rejects = matches!(self.service, Service::Limiter(_));
            if matches!(speed, Speed::Hysteresis { .. }) && !rejects {
                return Err("speed: hysteresis needs a limiter, which rejects requests".to_owned());
            }
        }
        Ok(())
    }

    /// Returns the fault for the request with this index, if any. Indexes start at 0, in order of
    /// arrival.
    #[must_use]
    pub fn fault_of(&self, index: u64) -> Option<ResponseFault> {
        let mut left = uniform(self.seed, index);
        let chosen = self.faults.iter().find(|share| {
            left -= share.share;
            left < 0.0
        });
        chosen.map(|share| share.fault)
    }
}

impl Stall {
    /// Returns the end of the stall in progress at `since_first_ns`, if any. Times are in ns since
    /// the first request.
    #[must_use]
    pub fn end_of(&self, since_first_ns: u64) -> Option<u64> {
        let (every, length) = (self.every_ms * 1_000_000, self.length_ms * 1_000_000);
        let since = since_first_ns.checked_sub(self.first_ms * 1_000_000)?;
        let into = since % every;
        (into < length).then(|| since_first_ns - into + length)
    }
}

// Random choices depend only on a seed and an index, so that scenarios are reproducible.

/// Returns a random number in [0, 1), at position `index` of the sequence that the seed defines.
///
/// The generator is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// OOPSLA 2014).
pub(crate) fn uniform(seed: u64, index: u64) -> f64 {
    let mut z = seed
        .wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xd134_2543_de82_ef95);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns an exponentially distributed time with the given mean, in ns.
pub(crate) fn exponential_ns(seed: u64, index: u64, mean_ns: f64) -> u64 {
    (-mean_ns * (1.0 - uniform(seed, index)).ln()).round() as u64
}

/// Returns a value from the standard normal distribution (Box and Muller, "A Note on the Generation
/// of Random Normal Deviates", Annals of Mathematical Statistics 29, 1958).
pub(crate) fn normal(seed: u64, index: u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(seed, 2 * index)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(seed, 2 * index + 1)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Limiter;

    #[test]
    fn reads_json_with_defaults() {
        let text = r#"{"service":{"fixed":{"delay_us":1000}},"faults":[{"share":0.3,"fault":{"status":{"code":503}}},{"share":0.1,"fault":"no_response"}]}"#;
        let read: Scenario = serde_json::from_str(text).unwrap();
        assert_eq!(read.service, Service::Fixed { delay_us: 1000 });
        assert_eq!(read.faults[1].fault, ResponseFault::NoResponse);
        assert_eq!(read.body, "Hello, World!");
        let text =
            r#"{"service":{"exponential":{"mean_us":250}},"speed":{"scatter":{"deviation":0.03}}}"#;
        let read: Scenario = serde_json::from_str(text).unwrap();
        let (mean_us, servers) = (250.0, 1);
        assert_eq!(read.service, Service::Exponential { mean_us, servers });
        assert!(serde_json::from_str::<Scenario>(r#"{"stal":{}}"#).is_err());
    }

    #[test]
    fn refuses_invalid_scenarios() {
        let share = |share, fault| Scenario {
            faults: vec![FaultShare { share, fault }],
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
            service: Service::Exponential {
                mean_us,
                servers: 1,
            },
            ..Scenario::default()
        };
        let speed = |speed| Scenario {
            speed: Some(speed),
            ..Scenario::default()
        };
        for invalid in [
            share(1.1, ResponseFault::WrongBody),
            Scenario {
                http2: Some(Vec::new()),
                ..share(0.1, ResponseFault::WrongBody)
            },
            share(-0.1, ResponseFault::WrongBody),
            share(f64::NAN, ResponseFault::WrongBody),
            share(0.1, ResponseFault::Status { code: 99 }),
            share(
                0.1,
                ResponseFault::Drip {
                    pieces: 0,
                    gap_us: 1,
                },
            ),
            stall(0),
            stall(100),
            exponential(0.0),
            exponential(f64::INFINITY),
            Service::Limiter(Limiter {
                rate_per_s: 1.0,
                burst: 0,
                delay_us: 0,
            })
            .into(),
            speed(Speed::Scatter { deviation: -0.1 }),
            speed(Speed::Degrading { per_s: f64::NAN }),
            speed(Speed::Hysteresis {
                factor: 0.8,
                rejected_share: 0.1,
            }),
        ] {
            assert!(invalid.check().is_err(), "{invalid:?}");
        }
        assert_eq!(stall(99).check(), Ok(()));
        assert_eq!(Scenario::default().check(), Ok(()));
    }

    #[test]
    fn shares_are_exact_and_exclusive() {
        let scenario = Scenario {
            faults: vec![
                FaultShare {
                    share: 0.3,
                    fault: ResponseFault::Status { code: 503 },
                },
                FaultShare {
                    share: 0.01,
                    fault: ResponseFault::NoResponse,
                },
            ],
            ..Scenario::default()
        };
        let count = |fault| {
            (0..100_000)
                .filter(|i| scenario.fault_of(*i) == fault)
                .count()
        };
        assert!(count(Some(ResponseFault::Status { code: 503 })).abs_diff(30_000) < 600);
        assert!(count(Some(ResponseFault::NoResponse)).abs_diff(1_000) < 130);
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

    #[test]
    fn uniform_fills_every_tenth_evenly() {
        let mut tenths = [0u32; 10];
        for i in 0..100_000 {
            tenths[(uniform(7, i) * 10.0) as usize] += 1;
        }
        // Each count has a standard deviation of 95.
        assert!(
            tenths.iter().all(|n| n.abs_diff(10_000) < 400),
            "{tenths:?}"
        );
        assert_eq!(uniform(7, 42).to_bits(), uniform(7, 42).to_bits());
        assert_ne!(uniform(7, 42).to_bits(), uniform(8, 42).to_bits());
    }

    #[test]
    fn exponential_has_its_mean_and_tail() {
        let n = 100_000;
        let times: Vec<u64> = (0..n).map(|i| exponential_ns(3, i, 1e6)).collect();
        let mean = times.iter().sum::<u64>() as f64 / n as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.015, "{mean}");
        let beyond = times.iter().filter(|t| **t > 1_000_000).count() as f64 / n as f64;
        assert!((beyond - (-1.0f64).exp()).abs() < 0.006, "{beyond}");
    }
}
