//! The plan of a run.
//!
//! The parent process writes the plan to a worker's stdin. The record contains the same plan.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api_check::ApiCheck;
use crate::body::RequestBody;
use crate::credentials::Credentials;
use crate::feed::{Feed, RowChoice};
use crate::grpc::GrpcStatus;
use crate::pointer::JsonPointer;
use crate::tls::TlsPlan;
use crate::units::{Bytes, Rate};

/// The load that one run sends to one target. Rates and counts are totals across all threads.
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
    /// Version of HTTP. Records from older versions always use HTTP/1.1.
    #[serde(default, skip_serializing_if = "Http::is_default")]
    pub http: Http,
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
    /// Peer that closes a used connection first. This peer enters TIME_WAIT unless it resets the
    /// connection.
    pub close_first: CloseFirst,
    /// Requests to retry if the server closes the kept connection before it responds.
    #[serde(default)]
    pub retry: Retry,
    /// Length of the warm-up in seconds.
    #[serde(rename = "warmup_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub warmup: Duration,
    /// Part of the measurement that the figures cover.
    pub figures_of: FiguresOf,
    /// Maximum time to wait for a connection, and maximum time to wait for a response after
    /// sending, in seconds.
    #[serde(rename = "timeout_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub timeout: Duration,
    /// Maximum response time, in seconds, with which an ok response counts as goodput.
    #[serde(rename = "deadline_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub deadline: Duration,
    /// Whether the run waits for requests in flight before it ends.
    pub drain: bool,
    /// Conditions for an ok response. If there are none, any response with status 2xx or 3xx is ok,
    /// and any response to a gRPC call with gRPC status OK.
    pub expect: Vec<Expect>,
    /// Check of all responses; null without a check.
    pub check: Option<Check>,
    /// Source addresses, used in turn for new connections; null if the kernel chooses the address.
    pub sources: Option<Sources>,
    /// Number of local ports for each pair of a source address and a target address; null if
    /// unknown or not needed.
    pub ports_per_source: Option<u64>,
    /// I/O backend.
    pub backend: Backend,
    /// Seed for all random choices.
    pub seed: u64,
}

/// A version of HTTP, and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "version")]
pub enum Http {
    /// HTTP/1.1, with one request at a time on each connection.
    #[default]
    #[serde(rename = "1.1")]
    V1,
    /// HTTP/2.
    #[serde(rename = "2")]
    V2(Http2),
}

/// Settings of HTTP/2 connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http2 {
    /// Maximum number of requests in flight on a connection.
    pub streams: u32,
    /// Flow-control window of a stream for responses, in bytes. The window of a connection is 16
    /// times as large.
    pub window_bytes: u32,
    /// Maximum size, in bytes, of the table that the server may use to compress headers.
    pub table_bytes: u32,
    /// Whether connections measure the round-trip time with PING frames.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ping: bool,
}

impl Http2 {
    /// Flow-control window of a connection, as a multiple of the window of a stream.
    pub const CONNECTION_WINDOWS: u32 = 16;

    /// Maximum number of requests in flight on a connection, at least four times what common
    /// servers allow (nginx 128, Go 250). It bounds the memory of a connection.
    pub const MAX_STREAMS: u32 = 1000;

    /// Maximum flow-control window of a stream, in bytes. HTTP/2 limits the window of a connection
    /// to 2^31 - 1 (RFC 9113, section 6.9.1).
    pub const MAX_WINDOW_BYTES: u32 = 64 << 20;

    /// Returns the flow-control window of a connection for responses, in bytes.
    #[must_use]
    pub fn connection_window_bytes(&self) -> u32 {
        self.window_bytes.saturating_mul(Self::CONNECTION_WINDOWS)
    }

    /// Returns the same settings with a window that is 8 times as large, at most
    /// [`MAX_WINDOW_BYTES`](Self::MAX_WINDOW_BYTES).
    #[must_use]
    pub fn with_larger_window(self) -> Self {
        let larger = self.window_bytes.saturating_mul(8);
        let window_bytes = larger.min(Self::MAX_WINDOW_BYTES);
        Http2 {
            window_bytes,
            ..self
        }
    }
}

impl Default for Http2 {
    fn default() -> Self {
        Http2 {
            streams: 1,
            window_bytes: 1 << 20,
            table_bytes: 4096,
            ping: true,
        }
    }
}

impl Http {
    fn is_default(&self) -> bool {
        *self == Http::default()
    }

    /// Returns the name of the version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Http::V1 => "HTTP/1.1",
            Http::V2(_) => "HTTP/2",
        }
    }

    /// Returns the maximum number of requests in flight on a connection.
    #[must_use]
    pub fn streams(&self) -> u32 {
        match self {
            Http::V1 => 1,
            Http::V2(settings) => settings.streams,
        }
    }

    /// Returns the same version and settings with one request in flight on a connection.
    #[must_use]
    pub fn with_one_stream(self) -> Self {
        match self {
            Http::V1 => self,
            Http::V2(settings) => Http::V2(Http2 {
                streams: 1,
                ..settings
            }),
        }
    }
}

/// Default number of connections in the closed model, and minimum default number of requests in
/// flight in the open model.
pub const DEFAULT_CONNECTIONS: u32 = 50;

/// Default maximum number of requests in flight in the open model, as a multiple of the mean number
/// in flight by Little's law. Short stalls of the server then make few requests wait for a
/// connection.
const HEADROOM: f64 = 2.0;

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
            http: Http::default(),
            request: RequestPlan {
                method: "GET".to_owned(),
                headers: Vec::new(),
                body: RequestBody::default(),
                is_grpc: false,
            },
            mix: None,
            model: Model::Closed {
                length: Length::Duration(DEFAULT_DURATION),
            },
            connections: DEFAULT_CONNECTIONS,
            threads: 1,
            connection_use: ConnectionUse::Kept,
            close_first: CloseFirst::Server,
            retry: Retry::default(),
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

    /// Returns the total number of arrivals per second, or its mean if the rate changes. Returns
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

    /// Returns the rate that can be changed while the load runs. Returns `None` if there is no
    /// such rate, or if a higher rate could use up the ephemeral ports or the rows of a feed.
    #[must_use]
    pub fn adjustable_rate(&self) -> Option<Rate> {
        match self.schedule()? {
            Schedule::Constant {
                rate,
                length: Length::Duration(_),
                ..
            } if self.connection_use == ConnectionUse::Kept && self.unique_rows().is_none() => {
                Some(*rate)
            }
            _ => None,
        }
    }

    /// Changes the rate of the open model. See [`Schedule::change_rate`].
    pub fn change_rate(&mut self, change: RateChange) {
        if let Model::Open { schedule, .. } = &mut self.model {
            schedule.change_rate(change);
        }
    }

    /// Returns the maximum number of requests in flight.
    #[must_use]
    pub fn max_in_flight(&self) -> u64 {
        u64::from(self.connections) * u64::from(self.http.streams())
    }

    /// Returns the default maximum number of requests in flight in the open model: twice what
    /// Little's law requires at the highest rate for a mean service time in seconds, and at least
    /// [`DEFAULT_CONNECTIONS`].
    #[must_use]
    pub fn default_in_flight(&self, service_s: f64) -> u32 {
        let peak_per_s = self.schedule().map_or(0.0, Schedule::peak_per_s);
        let needed = (HEADROOM * peak_per_s * service_s).ceil() as u32;
        needed.max(DEFAULT_CONNECTIONS)
    }

    /// Returns the number of connections that carry this number of requests in flight, at most
    /// `connections`.
    #[must_use]
    pub fn connections_for(&self, in_flight: u32) -> u32 {
        in_flight
            .div_ceil(self.http.streams())
            .min(self.connections)
    }

    /// Returns the condition that ends the sending window.
    #[must_use]
    pub fn length(&self) -> Length {
        match &self.model {
            Model::Closed { length } => *length,
            Model::Open { schedule, .. } => schedule.length(),
        }
    }

    /// Returns the maximum length of the sending window in seconds.
    /// `None` if only a number of requests ends the window.
    #[must_use]
    pub fn duration_s(&self) -> Option<f64> {
        self.length().duration_s()
    }

    /// Returns the number of requests after which the sending window ends.
    #[must_use]
    pub fn request_limit(&self) -> Option<u64> {
        self.length().requests()
    }

    /// Returns the number of requests for which feeds have unique rows, in all attempts together;
    /// `None` without such feeds.
    #[must_use]
    pub fn unique_rows(&self) -> Option<u64> {
        let feeds = self.mix.iter().flat_map(|mix| &mix.feeds);
        let unique = feeds.filter(|feed| feed.take == RowChoice::Unique);
        unique.map(|feed| feed.rows).min()
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
    /// Whether the request is a unary gRPC call. Its path is `/SERVICE/METHOD`, its body is a
    /// message with its prefix, and its headers include those that gRPC requires.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_grpc: bool,
}

fn is_false(is: &bool) -> bool {
    !is
}

impl RequestPlan {
    /// Returns whether the method is idempotent: sending the request twice has the same effect as
    /// sending it once (RFC 9110, section 9.2.2).
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"].contains(&self.method.as_str())
    }
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

/// Requests to retry once if the server closes the kept connection before it responds. The server
/// may already have executed such a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// No requests.
    Never,
    /// Requests with an idempotent method, and requests that were not sent before the connection
    /// ended.
    #[default]
    Idempotent,
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
    /// The gRPC status equals this one.
    GrpcStatus(GrpcStatus),
    /// The body equals this text.
    Body(String),
    /// The body is JSON that equals this value.
    Json(serde_json::Value),
    /// The body is JSON with this value at a location.
    JsonAt {
        /// Location.
        at: JsonPointer,
        /// Value at the location.
        value: serde_json::Value,
    },
    /// The body is JSON without a value at this location.
    JsonAbsent(JsonPointer),
    /// The body contains this text.
    Contains(String),
    /// The body matches this regular expression.
    Regex(BodyPattern),
}

impl Expect {
    /// Returns the gRPC statuses of ok responses to a call with these conditions.
    #[must_use]
    pub fn grpc_statuses(conditions: &[Expect]) -> Vec<GrpcStatus> {
        let given = conditions.iter().filter_map(|expect| match expect {
            Expect::GrpcStatus(status) => Some(*status),
            _ => None,
        });
        let given: Vec<GrpcStatus> = given.collect();
        match &given[..] {
            [] => vec![GrpcStatus::Ok],
            _ => given,
        }
    }
}

/// A regular expression for bodies, which need not be valid UTF-8.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct BodyPattern(Regex);

impl BodyPattern {
    /// Returns the compiled expression.
    #[must_use]
    pub fn regex(&self) -> &Regex {
        &self.0
    }
}

impl PartialEq for BodyPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl From<BodyPattern> for String {
    fn from(pattern: BodyPattern) -> String {
        pattern.0.as_str().to_owned()
    }
}

impl TryFrom<String> for BodyPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Regex::new(&text).map(BodyPattern).map_err(|error| {
            // The message contains the expression and marks the error in further lines.
            let message = error.to_string();
            let what = message.lines().last().unwrap_or_default();
            let what = what.strip_prefix("error: ").unwrap_or(what);
            format!(
                "\"{text}\" is not a valid regular expression: {what}; correct it, or write contains:TEXT for text without special characters"
            )
        })
    }
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

/// Serializes durations as seconds.
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

/// Load model: when requests are sent, and what ends the sending window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ModelForm", into = "ModelForm")]
pub enum Model {
    /// Each connection sends its next request after it has received a response.
    Closed {
        /// Condition that ends the sending window.
        length: Length,
    },
    /// Requests are sent on a schedule that does not depend on the server's responses.
    Open {
        /// Times at which requests are sent.
        schedule: Schedule,
        /// Whether all connections are opened before the sending window, kept open and used in
        /// turn.
        hold: bool,
    },
}

impl Model {
    /// Returns a closed model that runs for the given number of seconds.
    ///
    /// # Panics
    /// Panics if `seconds` is negative, not finite or too large.
    #[must_use]
    pub fn closed(seconds: f64) -> Self {
        let length = Length::seconds(seconds);
        Model::Closed { length }
    }
}

/// Schedule of the open model.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// A constant rate.
    Constant {
        /// Total requests per second.
        rate: Rate,
        /// Spacing of the requests.
        spacing: Spacing,
        /// Condition that ends the sending window.
        length: Length,
    },
    /// A rate that changes linearly.
    Ramp {
        /// The rates and the length of the sending window.
        ramp: Ramp,
        /// Spacing of the requests.
        spacing: Spacing,
    },
    /// A sequence of constant rates.
    Steps {
        /// The rates, each with its duration.
        steps: Vec<RateStep>,
        /// Spacing of the requests.
        spacing: Spacing,
    },
    /// A given number of requests at equal intervals.
    Burst {
        /// Number of requests.
        requests: u64,
        /// Total requests per second.
        rate: Rate,
    },
    /// Arrivals at the times in a file.
    Replay {
        /// The file and its arrivals.
        replay: Replay,
        /// Number of requests.
        requests: u64,
    },
}

impl Schedule {
    /// Returns the spacing of arrivals.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        match self {
            Schedule::Constant { spacing, .. }
            | Schedule::Ramp { spacing, .. }
            | Schedule::Steps { spacing, .. } => match spacing {
                Spacing::Constant => Arrivals::Constant,
                Spacing::Poisson => Arrivals::Poisson,
            },
            Schedule::Burst { .. } => Arrivals::Burst,
            Schedule::Replay { .. } => Arrivals::Replay,
        }
    }

    /// Returns whether the rate changes during the run.
    #[must_use]
    pub fn rate_changes(&self) -> bool {
        !matches!(self, Schedule::Constant { .. } | Schedule::Burst { .. })
    }

    /// Sets the rate from a given time to the end of the sending window. A constant rate becomes
    /// steps; steps with equal rates are joined. Does nothing if the schedule is neither steps nor
    /// a constant rate with a duration, or if it ends before this time.
    pub fn change_rate(&mut self, RateChange { from_s, rate_per_s }: RateChange) {
        let end_s = self.window_s();
        let (mut steps, spacing) = match self {
            Schedule::Constant {
                rate,
                spacing,
                length: Length::Duration(_),
            } => {
                let step = RateStep {
                    rate_per_s: rate.per_s(),
                    duration_s: end_s,
                };
                (vec![step], *spacing)
            }
            Schedule::Steps { steps, spacing } => (steps.clone(), *spacing),
            _ => return,
        };
        if from_s >= end_s {
            return;
        }
        let mut at_s = 0.0;
        steps.retain_mut(|step| {
            let left_s = from_s - at_s;
            at_s += step.duration_s;
            step.duration_s = step.duration_s.min(left_s);
            left_s > 0.0
        });
        let duration_s = end_s - from_s;
        match steps.last_mut() {
            Some(last) if last.rate_per_s == rate_per_s => last.duration_s += duration_s,
            _ => steps.push(RateStep {
                rate_per_s,
                duration_s,
            }),
        }
        *self = match Rate::new(rate_per_s) {
            Some(rate) if steps.len() == 1 => Schedule::Constant {
                rate,
                spacing,
                length: Length::seconds(end_s),
            },
            _ => Schedule::Steps { steps, spacing },
        };
    }

    /// Returns the condition that ends the sending window.
    #[must_use]
    pub fn length(&self) -> Length {
        match self {
            Schedule::Constant { length, .. } => *length,
            Schedule::Burst { requests, .. } | Schedule::Replay { requests, .. } => {
                Length::Requests(*requests)
            }
            Schedule::Ramp { .. } | Schedule::Steps { .. } => Length::seconds(self.window_s()),
        }
    }

    /// Returns the length of the sending window in seconds.
    /// For a fixed number of Poisson arrivals, this is the expected length.
    #[must_use]
    pub fn window_s(&self) -> f64 {
        match self {
            Schedule::Constant { length, rate, .. } => {
                let sent_s = length.requests().map(|n| n as f64 / rate.per_s());
                let ends_s = [length.duration_s(), sent_s].into_iter().flatten();
                ends_s.fold(f64::INFINITY, f64::min)
            }
            Schedule::Ramp { ramp, .. } => ramp.duration_s,
            Schedule::Steps { steps, .. } => steps.iter().map(|step| step.duration_s).sum(),
            Schedule::Burst { requests, rate } => *requests as f64 / rate.per_s(),
            Schedule::Replay { replay, .. } => replay.window_s,
        }
    }

    /// Returns the mean number of arrivals per second.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        match self {
            Schedule::Constant { rate, .. } | Schedule::Burst { rate, .. } => rate.per_s(),
            Schedule::Replay { replay, requests } => *requests as f64 / replay.window_s,
            Schedule::Ramp { .. } | Schedule::Steps { .. } => {
                let window_s = self.window_s();
                self.expected_by(window_s).unwrap_or(0.0) / window_s
            }
        }
    }

    /// Returns the maximum number of arrivals per second.
    #[must_use]
    pub fn peak_per_s(&self) -> f64 {
        match self {
            Schedule::Constant { rate, .. } | Schedule::Burst { rate, .. } => rate.per_s(),
            Schedule::Ramp { ramp, .. } => ramp.from_per_s.max(ramp.to_per_s),
            Schedule::Steps { steps, .. } => {
                steps.iter().map(|step| step.rate_per_s).fold(0.0, f64::max)
            }
            Schedule::Replay { replay, .. } => replay.peak_per_s as f64,
        }
    }

    /// Returns the rate segments in chronological order, without gaps; empty for a replay.
    #[must_use]
    pub fn segments(&self) -> Vec<RateSegment> {
        let parts: Vec<(f64, f64, f64)> = match self {
            Schedule::Constant { rate, .. } | Schedule::Burst { rate, .. } => {
                vec![(rate.per_s(), 0.0, self.window_s())]
            }
            Schedule::Ramp { ramp, .. } => vec![(
                ramp.from_per_s,
                (ramp.to_per_s - ramp.from_per_s) / ramp.duration_s,
                ramp.duration_s,
            )],
            Schedule::Steps { steps, .. } => steps
                .iter()
                .map(|s| (s.rate_per_s, 0.0, s.duration_s))
                .collect(),
            Schedule::Replay { .. } => Vec::new(),
        };
        let (mut from_s, mut before) = (0.0, 0.0);
        parts
            .into_iter()
            .map(|(rate_per_s, slope, length_s)| {
                let segment = RateSegment {
                    from_s,
                    length_s,
                    rate_per_s,
                    slope,
                    before,
                };
                from_s += length_s;
                before += segment.within(length_s);
                segment
            })
            .collect()
    }

    /// Returns the initial rate in arrivals per second; `None` for a replay.
    #[must_use]
    pub fn first_per_s(&self) -> Option<f64> {
        self.segments().first().map(|segment| segment.rate_per_s)
    }

    /// Returns the expected number of arrivals in the first `at_s` seconds: the integral of the
    /// rate.
    /// `None` for a replay.
    #[must_use]
    pub fn expected_by(&self, at_s: f64) -> Option<f64> {
        expected_by(&self.segments(), at_s)
    }
}

/// Spacing of requests at a given mean rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Equal intervals.
    #[default]
    Constant,
    /// Exponentially distributed intervals with the same mean.
    Poisson,
}

/// Condition that ends the sending window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// A duration.
    Duration(Duration),
    /// A number of requests.
    Requests(u64),
    /// A duration or a number of requests, whichever is reached first.
    Earlier {
        /// Maximum duration.
        duration: Duration,
        /// Maximum number of requests.
        requests: u64,
    },
}

impl Length {
    /// Returns a length in seconds.
    ///
    /// # Panics
    /// Panics if `seconds` is negative, not finite or too large.
    #[must_use]
    pub fn seconds(seconds: f64) -> Self {
        Length::Duration(Duration::from_secs_f64(seconds))
    }

    /// Returns the maximum duration in seconds, if there is one.
    #[must_use]
    pub fn duration_s(self) -> Option<f64> {
        match self {
            Length::Duration(duration) | Length::Earlier { duration, .. } => {
                Some(duration.as_secs_f64())
            }
            Length::Requests(_) => None,
        }
    }

    /// Returns the maximum number of requests, if there is one.
    #[must_use]
    pub fn requests(self) -> Option<u64> {
        match self {
            Length::Duration(_) => None,
            Length::Requests(requests) | Length::Earlier { requests, .. } => Some(requests),
        }
    }
}

/// JSON form of a [`Model`] within a plan. Unlike in a [`Model`], fields can contradict each other.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ModelForm {
    /// The load model: closed or open.
    model: ModelKind,
    /// Total arrivals per second; with a `profile`, the mean rate. Null in the closed model.
    rate_per_s: Option<f64>,
    /// How the rate changes over the sending window; null for a constant rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
    /// Spacing of arrivals; null in the closed model.
    arrivals: Option<Arrivals>,
    /// Whether all connections are opened before the sending window, kept open and used in turn.
    #[serde(default)]
    hold: bool,
    /// Length of the sending window in seconds; null if only `requests` ends the window. With
    /// `requests`, whichever is reached first ends the window.
    duration_s: Option<f64>,
    /// Total number of requests; null if only `duration_s` ends the window.
    requests: Option<u64>,
}

/// Whether a connection waits for a response before it sends the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Model")]
enum ModelKind {
    /// Each connection sends its next request after it has received a response.
    Closed,
    /// Requests are sent on a schedule that does not depend on the server's responses.
    Open,
}

/// How the rate changes over the sending window.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Profile {
    /// Linear change from one rate to another.
    Ramp(Ramp),
    /// A sequence of constant rates.
    Steps(Vec<RateStep>),
    /// Arrivals from a file of timestamps.
    Replay(Replay),
}

/// Spacing of arrivals in the open model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Equal intervals.
    Constant,
    /// Exponentially distributed intervals with a given mean.
    Poisson,
    /// A given number of requests at equal intervals within a given time.
    Burst,
    /// Arrivals at the times in a file.
    Replay,
}

/// Error for a recorded plan whose fields contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("invalid plan: {0}")]
struct ContradictoryPlan(&'static str);

impl TryFrom<ModelForm> for Model {
    type Error = ContradictoryPlan;

    fn try_from(form: ModelForm) -> Result<Self, ContradictoryPlan> {
        let duration = |s| {
            Duration::try_from_secs_f64(s)
                .map_err(|_| ContradictoryPlan("a duration is negative or too long"))
        };
        let length = match (form.duration_s, form.requests) {
            (Some(s), None) => Length::Duration(duration(s)?),
            (None, Some(n)) => Length::Requests(n),
            (Some(s), Some(requests)) => Length::Earlier {
                duration: duration(s)?,
                requests,
            },
            (None, None) => return Err(ContradictoryPlan("set duration_s or requests")),
        };
        if form.model == ModelKind::Closed {
            return Ok(Model::Closed { length });
        }
        let rate = form.rate_per_s.and_then(Rate::new);
        let spacing = match form.arrivals {
            Some(Arrivals::Poisson) => Spacing::Poisson,
            _ => Spacing::Constant,
        };
        let schedule = match (form.profile, form.arrivals, length, rate) {
            (Some(Profile::Ramp(ramp)), ..) => Schedule::Ramp { ramp, spacing },
            (Some(Profile::Steps(steps)), ..) => Schedule::Steps { steps, spacing },
            (Some(Profile::Replay(replay)), _, Length::Requests(requests), _) => {
                Schedule::Replay { replay, requests }
            }
            (None, Some(Arrivals::Burst), Length::Requests(requests), Some(rate)) => {
                Schedule::Burst { requests, rate }
            }
            (None, Some(Arrivals::Constant | Arrivals::Poisson), length, Some(rate)) => {
                Schedule::Constant {
                    rate,
                    spacing,
                    length,
                }
            }
            _ => return Err(ContradictoryPlan("the open model has no valid schedule")),
        };
        duration(schedule.window_s())?;
        Ok(Model::Open {
            schedule,
            hold: form.hold,
        })
    }
}

impl From<Model> for ModelForm {
    fn from(model: Model) -> Self {
        let (model, schedule, length, hold) = match model {
            Model::Closed { length } => (ModelKind::Closed, None, length, false),
            Model::Open { schedule, hold } => {
                let length = schedule.length();
                (ModelKind::Open, Some(schedule), length, hold)
            }
        };
        ModelForm {
            model,
            rate_per_s: schedule.as_ref().map(Schedule::rate_per_s),
            arrivals: schedule.as_ref().map(Schedule::arrivals),
            profile: match schedule {
                Some(Schedule::Ramp { ramp, .. }) => Some(Profile::Ramp(ramp)),
                Some(Schedule::Steps { steps, .. }) => Some(Profile::Steps(steps)),
                Some(Schedule::Replay { replay, .. }) => Some(Profile::Replay(replay)),
                Some(Schedule::Constant { .. } | Schedule::Burst { .. }) | None => None,
            },
            hold,
            duration_s: length.duration_s(),
            requests: length.requests(),
        }
    }
}

/// Maximum number of requests in a mix.
/// The histograms of each request take about 2 MiB per load thread.
pub const MAX_REQUESTS: usize = 64;

/// Several requests to one server, sent in turn (`--mix`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mix {
    /// File name without its directory.
    pub file: String,
    /// Requests of the mix, at most [`MAX_REQUESTS`]. Each request is a group with its own figures.
    pub requests: Vec<MixRequest>,
    /// Data files with values for the requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feeds: Vec<Feed>,
}

/// A request of a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixRequest {
    /// Name of the request and of its group.
    pub name: String,
    /// Number of times the request is sent per cycle.
    /// The weights of a mix have no common divisor greater than 1.
    pub weight: u32,
    /// Path and query.
    pub path: String,
    /// Method, headers and body.
    pub request: RequestPlan,
    /// Conditions for an ok response. If there are none, any response with status 2xx or 3xx is ok,
    /// and any response to a gRPC call with gRPC status OK.
    pub expect: Vec<Expect>,
    /// Whether `{seq}`, `{rand:a-b}`, `{uuid}` and column names in braces are replaced in the path,
    /// header values and body.
    pub templates: bool,
}

impl FromStr for Expect {
    type Err = String;

    /// Reads `status=200`, `grpc-status=NOT_FOUND`, `body=TEXT`, `json=VALUE`, `json:$.a.b=VALUE`,
    /// `contains:TEXT` or `regex:PATTERN`.
    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = "write status=200, grpc-status=0, body=TEXT, json=VALUE, json:$.a.b=VALUE, contains:TEXT or regex:PATTERN";
        match text.split_once(':') {
            Some(("json", rest)) => return expect_json_at(rest),
            Some(("contains" | "regex", "")) => {
                return Err(format!("\"{text}\" matches every body; {kinds}"));
            }
            Some(("contains", rest)) => return Ok(Expect::Contains(rest.to_owned())),
            Some(("regex", rest)) => return rest.to_owned().try_into().map(Expect::Regex),
            _ => {}
        }
        let (kind, value) = text
            .split_once('=')
            .ok_or_else(|| format!("\"{text}\" has no \"=\"; {kinds}"))?;
        match kind {
            "status" => match value.parse() {
                Ok(status @ 100..=999) => Ok(Expect::Status(status)),
                _ => Err(format!("\"{value}\" is not a three-digit status code")),
            },
            "grpc-status" => grpc_status(value).map(Expect::GrpcStatus),
            "body" => Ok(Expect::Body(value.to_owned())),
            "json" => serde_json::from_str(value)
                .map(Expect::Json)
                .map_err(|e| format!("\"{value}\" is not valid JSON: {e}")),
            other => Err(format!("unknown expectation \"{other}\"; {kinds}")),
        }
    }
}

/// Reads the number or the name of a gRPC status.
fn grpc_status(text: &str) -> Result<GrpcStatus, String> {
    let number = text.parse::<usize>().ok();
    let status = number.and_then(|number| GrpcStatus::ALL.get(number).copied());
    status.or_else(|| GrpcStatus::from_name(text)).ok_or_else(|| {
        format!("\"{text}\" is not a gRPC status; write a number from 0 to 16, or a name such as NOT_FOUND")
    })
}

/// Reads `$.a.b=VALUE`. A value that is not JSON is a string. `absent` expects no value.
fn expect_json_at(text: &str) -> Result<Expect, String> {
    let (at, rest) = JsonPointer::of_json_path(text).map_err(|error| error.to_string())?;
    let Some(value) = rest.strip_prefix('=') else {
        return Err(format!(
            "\"{text}\" has no \"=\" after the path; write json:$.a.b=VALUE or json:$.a.b=absent"
        ));
    };
    Ok(match value {
        "absent" => Expect::JsonAbsent(at),
        _ => Expect::JsonAt {
            at,
            value: serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        },
    })
}

/// Reads `Name: value`.
///
/// # Errors
/// Returns an error if the text has no colon.
pub fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("\"{text}\" has no colon; write 'Name: value'"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Maximum number of addresses to print. A host name may have dozens of addresses.
const MAX_SHOWN_ADDRESSES: usize = 4;

/// An address to connect to, such as `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/app.sock`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// Path of a unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Returns the IP address and port; `None` for a unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Address::Unix(path.into())),
            _ => text.parse().map(Address::Ip).map_err(|_| {
                format!(
                    "\"{text}\" is not an address; write 127.0.0.1:8080, [::1]:8080 or unix:/path"
                )
            }),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Ip(address)
    }
}

/// Target of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// URL, without credentials and fragment. Characters that are not valid in a URL are
    /// percent-encoded.
    pub url: String,
    /// Credentials in the URL; null if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// First address, as `IP:PORT` or `unix:PATH`.
    /// The host name is resolved once, before the run.
    #[schemars(with = "String")]
    pub address: Address,
    /// Further addresses of the host name.
    /// Connections use all addresses that accept connections, in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub further_addresses: Vec<SocketAddr>,
    /// Time taken to resolve the host name, in microseconds; null if no name was resolved.
    pub resolve_us: Option<u64>,
    /// Host and port, as in the `Host` header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl Target {
    /// Returns `headers`, followed by an `Authorization` header if the URL has credentials and
    /// `headers` do not set this header. Returns `None` if the credentials are missing, because the
    /// target comes from a record.
    #[must_use]
    pub fn authorize<'a>(
        &self,
        headers: &'a [(String, String)],
    ) -> Option<Cow<'a, [(String, String)]>> {
        const NAME: &str = "Authorization";
        let is_given = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(NAME));
        let mut headers = Cow::Borrowed(headers);
        if let Some(credentials) = self.credentials.as_ref().filter(|_| !is_given) {
            let value = credentials.authorization()?;
            headers.to_mut().push((NAME.to_owned(), value.to_owned()));
        }
        Some(headers)
    }

    /// Returns all addresses. There is at least one.
    pub fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        let further = self.further_addresses.iter().copied().map(Address::Ip);
        std::iter::once(self.address.clone()).chain(further)
    }

    /// Returns all TCP addresses.
    pub fn ip_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.addresses().filter_map(|address| address.ip())
    }

    /// Formats the addresses: `[::1]:80, 127.0.0.1:80`.
    #[must_use]
    pub fn show_addresses(&self) -> String {
        let shown: Vec<String> = self
            .addresses()
            .take(MAX_SHOWN_ADDRESSES)
            .map(String::from)
            .collect();
        let more = (1 + self.further_addresses.len()).saturating_sub(MAX_SHOWN_ADDRESSES);
        match more {
            0 => shown.join(", "),
            n => format!("{} and {n} more", shown.join(", ")),
        }
    }
}

impl From<SocketAddr> for Target {
    /// Returns a target at this address, with the path `/`.
    fn from(address: SocketAddr) -> Self {
        Target {
            url: format!("http://{address}/"),
            credentials: None,
            address: address.into(),
            further_addresses: Vec::new(),
            resolve_us: None,
            authority: address.to_string(),
            path: "/".to_owned(),
        }
    }
}

/// A rate that changes linearly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ramp {
    /// Arrivals per second at the start; may be 0.
    pub from_per_s: f64,
    /// Arrivals per second at the end; may be 0.
    pub to_per_s: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// A constant rate for a given duration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateStep {
    /// Arrivals per second; 0 for a pause.
    pub rate_per_s: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// A rate change while the load runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateChange {
    /// Time from which the new rate applies, in seconds from the start of the measurement.
    pub from_s: f64,
    /// New number of arrivals per second.
    pub rate_per_s: f64,
}

/// Arrivals that follow the timestamps in a file. The first arrival is at the start of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
    /// File name as given.
    pub file: String,
    /// Speed relative to the file; 2 means twice as fast.
    pub speed: f64,
    /// Maximum number of arrivals within any one second.
    pub peak_per_s: u64,
    /// Length of the sending window in seconds: the last arrival time plus one mean interval.
    /// The length is one second if all arrivals are at the same time.
    pub window_s: f64,
    /// Size of the encoded timetable in bytes.
    #[schemars(with = "u64")]
    pub timetable_bytes: Bytes,
    /// FNV-1a checksum (64 bits, hexadecimal) of the encoded timetable.
    pub timetable_checksum: String,
    /// Arrival times, sent to a worker as bytes after the plan.
    /// The JSON omits these times, so a plan read from a record has none.
    #[serde(skip)]
    #[schemars(skip)]
    pub timetable: Timetable,
}

/// A time segment in which the rate is constant or changes linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSegment {
    /// Start of the segment, in seconds since the start of the window.
    pub from_s: f64,
    /// Length of the segment in seconds.
    pub length_s: f64,
    /// Arrivals per second at the start of the segment.
    pub rate_per_s: f64,
    /// Increase of the rate, in arrivals per second per second.
    pub slope: f64,
    /// Expected number of arrivals before the segment.
    pub before: f64,
}

impl RateSegment {
    /// Returns the expected number of arrivals within the first `s` seconds of the segment.
    #[must_use]
    pub fn within(&self, s: f64) -> f64 {
        self.rate_per_s * s + self.slope * s * s / 2.0
    }
}

/// Returns the expected number of arrivals in the first `at_s` seconds; `None` without segments.
#[must_use]
pub fn expected_by(segments: &[RateSegment], at_s: f64) -> Option<f64> {
    let segment = segments
        .iter()
        .rev()
        .find(|s| s.from_s <= at_s)
        .or(segments.first())?;
    Some(segment.before + segment.within((at_s - segment.from_s).clamp(0.0, segment.length_s)))
}

/// Returns the index of the step that is active `at_s` seconds after the start.
/// Returns the last index if all steps have ended.
#[must_use]
pub fn step_at(steps: &[RateStep], at_s: f64) -> usize {
    let mut end_s = 0.0;
    steps
        .iter()
        .position(|step| {
            end_s += step.duration_s;
            at_s < end_s
        })
        .unwrap_or(steps.len().saturating_sub(1))
}

/// Maximum number of arrivals in a replay.
/// The threads of a worker share the arrival times, which take up to 80 MB.
pub const MAX_ARRIVALS: usize = 10_000_000;

/// Maximum length of an encoded interval in bytes.
const MAX_INTERVAL_BYTES: usize = 10;

/// Sorted arrival times, in ns since the start. Clones share the same memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timetable(Arc<[u64]>);

/// Error for bytes that are not a timetable or do not match the expected checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the timetable is invalid or does not match its checksum")]
pub struct TimetableError;

impl Timetable {
    /// Creates a timetable from sorted times.
    #[must_use]
    pub fn new(times: Vec<u64>) -> Self {
        debug_assert!(times.is_sorted());
        Timetable(times.into())
    }

    /// Returns the times, in ns since the start.
    #[must_use]
    pub fn times(&self) -> &[u64] {
        &self.0
    }

    /// Encodes the timetable for [`Timetable::decode`]. Each interval between arrivals is a LEB128
    /// integer, which usually has two or three bytes. JSON would need ten to twenty bytes per
    /// arrival.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * 3);
        let mut before = 0;
        for time in self.0.iter() {
            let mut distance = time - before;
            before = *time;
            while distance >= 0x80 {
                bytes.push(distance as u8 | 0x80);
                distance >>= 7;
            }
            bytes.push(distance as u8);
        }
        bytes
    }

    /// Decodes the output of [`Timetable::encode`].
    ///
    /// # Errors
    ///
    /// The checksum differs from `expected_checksum`, the bytes end within a number, a number or an
    /// arrival time has more than 64 bits, or there are more than [`MAX_ARRIVALS`] numbers.
    pub fn decode(bytes: &[u8], expected_checksum: &str) -> Result<Self, TimetableError> {
        if checksum(bytes) != expected_checksum {
            return Err(TimetableError);
        }
        let mut times = Vec::with_capacity(bytes.iter().filter(|byte| **byte < 0x80).count());
        let (mut time, mut distance, mut length) = (0u64, 0u64, 0);
        for byte in bytes {
            let part = u64::from(byte & 0x7f);
            let shift = 7 * length as u32;
            if length == MAX_INTERVAL_BYTES || (part << shift) >> shift != part {
                return Err(TimetableError);
            }
            distance |= part << shift;
            length += 1;
            if *byte < 0x80 {
                time = time.checked_add(distance).ok_or(TimetableError)?;
                times.push(time);
                (distance, length) = (0, 0);
            }
        }
        if length > 0 || times.len() > MAX_ARRIVALS {
            return Err(TimetableError);
        }
        Ok(Timetable::new(times))
    }
}

/// Returns the FNV-1a checksum (64 bits, hexadecimal; draft-eastlake-fnv).
/// The checksum detects corrupted transfers and shows whether two replays had the same arrivals.
#[must_use]
pub fn checksum(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
