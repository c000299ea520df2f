//! Times of requests and their summaries.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::names::named! {
    /// Kind of time.
    TimeKind {
        /// done − intended, for ok responses.
        Response = "response",
        /// timed out − intended: a lower bound for the response time of a request that timed out.
        Censored = "censored",
        /// done − sent, for ok responses.
        Service = "service",
        /// free − intended: the wait for a connection or a stream. For a request that was sent
        /// again, this includes the time from its first send until its last.
        /// A long wait means that the server is too slow or a limit is too low.
        Blocked = "blocked",
        /// sent − max(intended, free): the delay caused by floodmark.
        Lateness = "lateness",
        /// Time from the start of the connection attempt until the TCP connection is established.
        Connect = "connect",
        /// first byte − sent, for ok responses.
        FirstByte = "first_byte",
        /// ended − intended, for requests with an outcome other than ok or timed out.
        Error = "error",
        /// Time from the established TCP connection until the TLS handshake is complete.
        Handshake = "handshake",
        /// end − intended, for requests in flight at the end of the run: a lower bound for the
        /// response time.
        InFlight = "in_flight",
        /// Blocked time of the requests that waited for a connection to be established.
        BlockedConnecting = "blocked_connecting",
        /// Blocked time of the requests that waited because all connections and streams that the
        /// plan allows were in use.
        BlockedOwnLimit = "blocked_own_limit",
        /// Blocked time of the requests that waited because the server limits the streams of a
        /// connection (HTTP/2).
        BlockedServerLimit = "blocked_server_limit",
        /// Blocked time of the requests that were sent again.
        BlockedRetried = "blocked_retried",
        /// Time that the rest of a request body waited for flow-control credit (HTTP/2).
        Window = "window",
        /// Round-trip time of a PING (HTTP/2).
        Ping = "ping",
    }
}

/// Summary of one kind of time over a set of requests, in microseconds.
///
/// A percentile that falls among requests without a response is null, because only its lower bound
/// is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// Number of requests. For response times, this includes the censored requests.
    pub count: u64,
    /// Number of requests in `count` without a response: they timed out, or they were in flight at
    /// the end of the run for longer than any response took. Only lower bounds of their times are
    /// known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub censored: u64,
    /// Lower bound of the times of the censored requests that were in flight; missing if all
    /// censored requests timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub censored_from: Option<f64>,
    /// Arithmetic mean; null if there are no requests or any of them is censored.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// 99.99th percentile.
    pub p99_99: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// Histogram (HdrHistogram V2, deflated, base64); null if there are no requests.
    /// Censored requests are included with the lower bounds of their times.
    pub histogram: Option<String>,
    /// Unit of the histogram's values, always `ns`.
    pub histogram_unit: HistogramUnit,
}

impl Times {
    /// Returns whether there are no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the lower bound, in microseconds, of the times of all censored requests. Returns
    /// `None` if no request is censored. `timeout` is the timeout of the run.
    #[must_use]
    pub fn censored_above(&self, timeout: Duration) -> Option<f64> {
        let timeout_us = timeout.as_secs_f64() * 1e6;
        let from_us = self
            .censored_from
            .map_or(timeout_us, |us| us.min(timeout_us));
        (self.censored > 0).then_some(from_us)
    }
}

/// Blocked times by reason. Each blocked request has exactly one reason, so the sum over all reasons
/// is the blocked time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedTimes {
    /// Requests that waited for a connection to be established, in microseconds.
    pub connecting_us: Times,
    /// Requests that waited because all connections (`-c`) and streams (`--streams`) were in use,
    /// in microseconds.
    pub own_limit_us: Times,
    /// Requests that waited because the server allows fewer streams on a connection than the plan,
    /// in microseconds.
    pub server_limit_us: Times,
    /// Requests that were sent again, in microseconds. Includes the time from their first send until
    /// their last, and the time that they were blocked before.
    pub retried_us: Times,
}

impl BlockedTimes {
    /// Returns whether no request was blocked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let all = [
            &self.connecting_us,
            &self.own_limit_us,
            &self.server_limit_us,
            &self.retried_us,
        ];
        all.into_iter().all(Times::is_empty)
    }
}

/// Unit of the values in a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HistogramUnit {
    /// Nanoseconds.
    #[default]
    #[serde(rename = "ns")]
    Nanoseconds,
}

pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}
