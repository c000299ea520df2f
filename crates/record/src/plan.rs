//! The plan of a run.
//!
//! The parent process writes the plan to a worker's stdin. The record contains the same plan.

use std::net::IpAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api_check::ApiCheck;
use crate::body::RequestBody;
use crate::mix::Mix;
pub use crate::model::{Arrivals, Length, Model, Rate, Schedule, Spacing};
use crate::profile::RateStep;
pub use crate::target::{Address, Target};
use crate::tls::TlsPlan;

/// The load that one run sends to one target. Rates and counts are totals over all threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Target of the requests.
    pub target: Target,
    /// TLS settings; null for plain HTTP.
    pub tls: Option<TlsPlan>,
    /// Request to send, or the default for the requests of a mix.
    pub request: RequestPlan,
    /// Requests to send in turn instead of `request`; null without a mix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// Load model: when requests are sent, and what ends the sending window.
    #[serde(flatten)]
    pub model: Model,
    /// Total number of connections; in the open model, the maximum number.
    pub connections: u32,
    /// Number of load threads.
    pub threads: u32,
    /// Number of requests that a connection serves.
    #[serde(flatten)]
    pub connection_use: ConnectionUse,
    /// Peer that closes a used connection first and therefore enters TIME_WAIT.
    pub close_first: CloseFirst,
    /// Length of the warm-up in seconds.
    #[serde(rename = "warmup_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub warmup: Duration,
    /// Part of the measurement that the figures cover.
    pub figures_of: FiguresOf,
    /// Maximum wait in seconds. The limit applies to the wait for a connection and to the wait for
    /// a response after sending.
    #[serde(rename = "timeout_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub timeout: Duration,
    /// Maximum response time in seconds for an ok response to count as goodput.
    #[serde(rename = "deadline_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub deadline: Duration,
    /// Whether the run waits for requests in flight before it ends.
    pub drain: bool,
    /// Conditions for an ok response. If there are none, any response with status 2xx or 3xx is ok.
    pub expect: Vec<Expect>,
    /// Check of all responses; null without a check.
    pub check: Option<Check>,
    /// Source addresses, used in turn for new connections; null lets the kernel choose the address.
    pub sources: Option<Sources>,
    /// Number of local ports per source and target address; null if unknown or not needed.
    pub ports_per_source: Option<u64>,
    /// I/O backend.
    pub backend: Backend,
    /// Seed for all random choices.
    pub seed: u64,
}

/// Default number of connections in the closed model.
pub const DEFAULT_CONNECTIONS: u32 = 50;

/// Default length of the sending window.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// Default timeout.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

impl Plan {
    /// Returns the default plan for a target.
    ///
    /// Defaults: closed model, GET, kept connections, one thread, figures of the steady part.
    #[must_use]
    pub fn of(target: Target) -> Self {
        Plan {
            target,
            tls: None,
            request: RequestPlan {
                method: "GET".to_owned(),
                headers: Vec::new(),
                body: RequestBody::default(),
            },
            mix: None,
            model: Model::Closed {
                length: Length::Duration(DEFAULT_DURATION),
            },
            connections: DEFAULT_CONNECTIONS,
            threads: 1,
            connection_use: ConnectionUse::Kept,
            close_first: CloseFirst::Server,
            warmup: Duration::ZERO,
            figures_of: FiguresOf::Steady,
            timeout: DEFAULT_TIMEOUT,
            deadline: DEFAULT_TIMEOUT,
            drain: true,
            expect: Vec::new(),
            check: None,
            sources: None,
            ports_per_source: None,
            backend: Backend::Epoll,
            seed: 1,
        }
    }

    /// Returns whether requests are sent on a schedule.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.schedule().is_some()
    }

    /// Returns the schedule of the requests; `None` in the closed model.
    #[must_use]
    pub fn schedule(&self) -> Option<&Schedule> {
        match &self.model {
            Model::Closed { .. } => None,
            Model::Open { schedule, .. } => Some(schedule),
        }
    }

    /// Returns whether all connections are opened before the sending window, kept open and used in
    /// turn.
    #[must_use]
    pub fn hold(&self) -> bool {
        matches!(self.model, Model::Open { hold: true, .. })
    }

    /// Returns the total arrivals per second, or the mean rate if the rate changes.
    /// `None` in the closed model.
    #[must_use]
    pub fn rate_per_s(&self) -> Option<f64> {
        self.schedule().map(Schedule::rate_per_s)
    }

    /// Returns whether the rate changes during the run.
    #[must_use]
    pub fn rate_changes(&self) -> bool {
        self.schedule().is_some_and(Schedule::rate_changes)
    }

    /// Returns the condition that ends the sending window.
    #[must_use]
    pub fn length(&self) -> Length {
        match &self.model {
            Model::Closed { length } => *length,
            Model::Open { schedule, .. } => schedule.length(),
        }
    }

    /// Returns the length of the sending window in seconds.
    /// `None` if a number of requests ends the window.
    #[must_use]
    pub fn duration_s(&self) -> Option<f64> {
        self.length().duration_s()
    }

    /// Returns the number of requests after which the sending window ends.
    #[must_use]
    pub fn request_limit(&self) -> Option<u64> {
        self.length().requests()
    }

    /// Returns the rate steps, if the plan has any.
    #[must_use]
    pub fn steps(&self) -> Option<&[RateStep]> {
        match self.schedule() {
            Some(Schedule::Steps { steps, .. }) => Some(steps),
            _ => None,
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestPlan {
    /// HTTP method.
    pub method: String,
    /// Headers given by the user, in order.
    pub headers: Vec<(String, String)>,
    /// Body; empty if there is no body.
    pub body: RequestBody,
}

/// Number of requests that a connection serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "connection_use",
    content = "requests_per_connection",
    rename_all = "snake_case"
)]
pub enum ConnectionUse {
    /// No limit: the connection is kept until the server closes it.
    Kept,
    /// One request.
    Fresh,
    /// At most this number of requests.
    PerConnection(u64),
}

/// Peer that closes a used connection first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CloseFirst {
    /// The server, as requested with `Connection: close`. The server enters TIME_WAIT.
    Server,
    /// The client, after the response. The client enters TIME_WAIT.
    Client,
    /// The client, with an RST. Neither peer enters TIME_WAIT.
    Reset,
}

/// Part of a measurement that the figures cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FiguresOf {
    /// The steady part if there is one, otherwise the whole measurement.
    Steady,
    /// The whole measurement.
    Whole,
}

/// Condition that makes a response ok.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The status code equals this number.
    Status(u16),
    /// The body equals this text.
    Body(String),
    /// The body is JSON equal to this value.
    Json(serde_json::Value),
}

/// Check of all responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Each response is a number. The server must return each number once and in order.
    Sequence,
    /// Each response reports the count, sum and mean of all scores so far.
    Scoring {
        /// Score of each request.
        score: f64,
    },
    /// The requests write to and read from an API that a file describes.
    Api(Box<ApiCheck>),
}

impl Check {
    /// Returns the name of the check.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Check::Sequence => "sequence",
            Check::Scoring { .. } => "scoring",
            Check::Api(api) => api.kind.name(),
        }
    }

    /// Returns the description of the API; `None` for other checks.
    #[must_use]
    pub fn api(&self) -> Option<&ApiCheck> {
        match self {
            Check::Api(api) => Some(api),
            Check::Sequence | Check::Scoring { .. } => None,
        }
    }
}

/// An inclusive range of source addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sources {
    /// First address.
    #[schemars(with = "String")]
    pub first: IpAddr,
    /// Last address, of the same family as the first address.
    #[schemars(with = "String")]
    pub last: IpAddr,
}

impl Sources {
    /// Returns the number of addresses.
    /// Returns 0 if the addresses have different families or are in the wrong order.
    #[must_use]
    pub fn count(&self) -> u128 {
        match (self.first, self.last) {
            (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => u128::from(b.to_bits() - a.to_bits()) + 1,
            (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => {
                (b.to_bits() - a.to_bits()).saturating_add(1)
            }
            _ => 0,
        }
    }
}

/// I/O backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// io_uring.
    Uring,
    /// epoll and ordinary system calls.
    Epoll,
}

/// Durations as seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
    }
}
