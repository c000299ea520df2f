//! What one run was asked to do. The parent writes it to a worker's stdin; the record keeps it.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mix::Mix;
use crate::profile::{Profile, Replay, Step};
pub use crate::target::{Address, Target};
use crate::tls::{TlsPlan, TrustAnchor};

/// The load of one run on one target. Rates and counts are totals over all threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Where the requests go.
    pub target: Target,
    /// How connections are protected; null for plain HTTP.
    #[serde(default)]
    pub tls: Option<TlsPlan>,
    /// What is sent; of a mix, what its requests take from the command line.
    pub request: RequestPlan,
    /// Several requests in turn in place of `request` at the target's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// Closed: a request follows an answer. Open: requests follow a schedule.
    pub model: Model,
    /// Arrivals per second in all, where `profile` changes them their mean over the sending window; open model only.
    pub rate_per_s: Option<f64>,
    /// How the rate changes over the sending window; null where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// How arrivals are spaced; open model only.
    pub arrivals: Option<Arrivals>,
    /// Closed model: connections in all. Open model: the cap on them.
    pub connections: u32,
    /// Whether all connections are opened before the clock starts and kept open, requests spread over them in turn.
    #[serde(default)]
    pub hold: bool,
    /// Load threads.
    pub threads: u32,
    /// How often a connection is used.
    pub connection_use: ConnectionUse,
    /// Requests on each connection where `connection_use` is `per_connection`.
    pub requests_per_connection: Option<u64>,
    /// Who closes a connection that is done with, and so holds the TIME_WAIT.
    pub close_first: CloseFirst,
    /// Length of the sending window in seconds; exactly one of this and `requests` is given.
    pub duration_s: Option<f64>,
    /// Number of requests in all.
    pub requests: Option<u64>,
    /// Real load before the measurement, in seconds, kept apart.
    pub warmup_s: f64,
    /// Which part of the measurement figures are of.
    pub figures_of: FiguresOf,
    /// Longest wait for an answer, in seconds from the moment of sending; also for a connect.
    pub timeout_s: f64,
    /// An ok answer is good when it came within this many seconds of its intended time.
    pub deadline_s: f64,
    /// Whether what is out at the end is awaited.
    pub drain: bool,
    /// What an answer must be to count as ok; empty: status 2xx or 3xx.
    pub expect: Vec<Expect>,
    /// Which check the answers are kept for.
    pub check: Option<Check>,
    /// Source addresses to spread connections over.
    pub sources: Option<Sources>,
    /// Local ports that each source address has for each address of the target; null where they could not be
    /// read, and where none is needed (unix sockets).
    pub ports_per_source: Option<u64>,
    /// How I/O is done.
    pub backend: Backend,
    /// Seed of every random choice.
    pub seed: u64,
}

/// How many connections the closed model has where nothing else is asked for.
pub const DEFAULT_CONNECTIONS: u32 = 50;

/// How long the sending window is where nothing else is asked for, seconds.
pub const DEFAULT_DURATION_S: f64 = 10.0;

/// The timeout where nothing else is asked for, seconds.
pub const DEFAULT_TIMEOUT_S: f64 = 5.0;

impl Plan {
    /// What is done to `target` where nothing else is asked for: the closed model with GET on kept connections and one thread,
    /// figures of the steady part.
    #[must_use]
    pub fn of(target: Target) -> Self {
        Plan {
            target,
            tls: None,
            request: RequestPlan {
                method: "GET".to_owned(),
                headers: Vec::new(),
                body: Vec::new(),
            },
            mix: None,
            model: Model::Closed,
            rate_per_s: None,
            profile: None,
            arrivals: None,
            connections: DEFAULT_CONNECTIONS,
            hold: false,
            threads: 1,
            connection_use: ConnectionUse::Kept,
            requests_per_connection: None,
            close_first: CloseFirst::Server,
            duration_s: Some(DEFAULT_DURATION_S),
            requests: None,
            warmup_s: 0.0,
            figures_of: FiguresOf::Steady,
            timeout_s: DEFAULT_TIMEOUT_S,
            deadline_s: DEFAULT_TIMEOUT_S,
            drain: true,
            expect: Vec::new(),
            check: None,
            sources: None,
            ports_per_source: None,
            backend: Backend::Epoll,
            seed: 1,
        }
    }
}

impl Plan {
    /// The replay, where it is one.
    #[must_use]
    pub fn replay(&self) -> Option<&Replay> {
        match &self.profile {
            Some(Profile::Replay(replay)) => Some(replay),
            _ => None,
        }
    }

    /// The rates one after the other, where there are such.
    #[must_use]
    pub fn steps(&self) -> Option<&[Step]> {
        match &self.profile {
            Some(Profile::Steps(steps)) => Some(steps),
            _ => None,
        }
    }
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestPlan {
    /// HTTP method.
    pub method: String,
    /// Headers that the user gave, in order.
    pub headers: Vec<(String, String)>,
    /// Body as base64; empty for none.
    #[serde(with = "base64_bytes")]
    #[schemars(with = "String")]
    pub body: Vec<u8>,
}

/// Whether requests wait for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// A connection sends its next request when it has its answer.
    Closed,
    /// Requests are sent at scheduled times, whatever the server does.
    Open,
}

/// How arrivals of the open model are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Equal distances.
    Constant,
    /// Exponential distances with the same mean.
    Poisson,
    /// A given number at equal distances within a given time.
    Burst,
    /// As in a file of timestamps.
    Replay,
}

/// How often a connection is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionUse {
    /// As long as the server keeps it.
    Kept,
    /// Once.
    Fresh,
    /// A given number of times.
    PerConnection,
}

/// Who closes a connection first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CloseFirst {
    /// The server, asked by `Connection: close`; it holds the TIME_WAIT.
    Server,
    /// The client, after the answer; it holds the TIME_WAIT.
    Client,
    /// The client, with RST; nobody holds a TIME_WAIT.
    Reset,
}

/// Which part of a measurement figures are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FiguresOf {
    /// The steady part, where change points show one; else all of it.
    Steady,
    /// All of it.
    Whole,
}

/// What an answer must be to count as ok.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// This status code.
    Status(u16),
    /// Exactly this body.
    Body(String),
    /// This JSON value, compared as a value.
    Json(serde_json::Value),
}

/// A check of the answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Each answer is a number; each is handed out once and in order.
    Sequence,
    /// Each answer says how many scores there are by now, their sum and their mean.
    Scoring {
        /// What each request adds.
        score: f64,
    },
}

/// A range of source addresses, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sources {
    /// First address.
    #[schemars(with = "String")]
    pub first: IpAddr,
    /// Last address, of the same family.
    #[schemars(with = "String")]
    pub last: IpAddr,
}

impl Sources {
    /// How many addresses they are; 0 when the ends are of different families or in the wrong order.
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

/// How I/O is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// io_uring.
    Uring,
    /// epoll and plain calls.
    Epoll,
}

/// What a worker reads from its stdin, as one line of JSON. The bytes of a replay's timetable follow it, as many as the
/// plan announces.
///
/// Later lines: `stop` ends the run at once. The end of stdin does the same, so a worker never outlives its parent's interest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerInput {
    /// What to do.
    pub plan: Plan,
    /// When to start, ns since 1970; null for at once.
    pub start_unix_ns: Option<u64>,
    /// Number (`{seq}`) of its first request: one more than earlier attempts at the plan have used.
    pub first_number: u64,
    /// Where answers kept for a check are written.
    pub answers_file: Option<PathBuf>,
    /// The certificate authorities to trust, where the plan has TLS and verifies.
    #[serde(default)]
    pub anchors: Vec<TrustAnchor>,
}

pub(crate) mod base64_bytes {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}
