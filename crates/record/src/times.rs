//! The times taken of each request, and their summary.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which time of a request a histogram holds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TimeKind {
    /// done − intended, of answers that were ok.
    Response,
    /// timed out − intended: the lower bound of the response time of a request that timed out.
    Censored,
    /// done − sent, of answers that were ok.
    Service,
    /// free − intended: the wait for a connection (server too slow, or the cap on connections too low).
    Blocked,
    /// sent − max(intended, free): floodmark's own fault.
    Lateness,
    /// From the start of a connect until the TCP connection stood.
    Connect,
    /// first byte − sent, of answers that were ok.
    FirstByte,
    /// ended − intended, of every request that ended otherwise than ok or timed out.
    Error,
    /// From the TCP connection until its TLS handshake was over.
    Handshake,
}

impl TimeKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [TimeKind; 9] = [
        TimeKind::Response,
        TimeKind::Censored,
        TimeKind::Service,
        TimeKind::Blocked,
        TimeKind::Lateness,
        TimeKind::Connect,
        TimeKind::FirstByte,
        TimeKind::Error,
        TimeKind::Handshake,
    ];
}

/// Summary of one time over a set of requests; every figure in microseconds.
///
/// A percentile that falls among requests that timed out is only known to be above the timeout: it is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// How many requests it is of, timed-out ones included where the time is the response time.
    pub count: u64,
    /// How many of `count` timed out, so that only a lower bound of their time is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub censored: u64,
    /// Arithmetic mean; null when there is nothing to average or some are censored.
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
    /// Largest.
    pub max: Option<f64>,
    /// HdrHistogram V2, deflated, base64; null when empty. Timed-out requests are in it at their lower bound.
    pub histogram: Option<String>,
    /// Unit of the histogram's values, always `ns`.
    pub histogram_unit: HistogramUnit,
}

/// Unit of the values in an exported histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HistogramUnit {
    /// Nanoseconds.
    #[default]
    #[serde(rename = "ns")]
    Nanoseconds,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}
