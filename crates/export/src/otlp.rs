//! The OpenTelemetry protocol (OTLP) over HTTP, encoded as protocol buffers.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::catalog::{ExportedSeries, ExportedValue, InstrumentKind, MetricFamily, families};
use crate::distribution::TimeDistribution;
use crate::metrics::LoadMetrics;

/// Path to which metrics are sent if the URL has no path.
const DEFAULT_PATH: &str = "/v1/metrics";
/// Port of http:// URLs without a port.
const DEFAULT_PORT: u16 = 80;

/// A valid URL of an OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpUrl {
    host: String,
    port: u16,
    /// Value of the `Host` header.
    authority: String,
    /// Path and query.
    path: String,
}

/// Reason why metrics cannot be sent to a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OtlpUrlError {
    /// The text is not a URL with a host.
    #[error("not a URL with a host; use a URL such as http://127.0.0.1:4318")]
    Invalid,
    /// The URL has no scheme, or its scheme is neither http nor https.
    #[error("the URL must start with http://; use a URL such as http://127.0.0.1:4318")]
    Scheme,
    /// The URL requires TLS.
    #[error("https:// is not supported; use an http:// collector that forwards to this URL")]
    Https,
    /// The URL contains a user name.
    #[error("user names and passwords are not supported; remove the part before @")]
    Credentials,
}

impl FromStr for OtlpUrl {
    type Err = OtlpUrlError;

    fn from_str(text: &str) -> Result<Self, OtlpUrlError> {
        let (scheme, _) = text.split_once("://").ok_or(OtlpUrlError::Scheme)?;
        match &*scheme.to_ascii_lowercase() {
            "http" => {}
            "https" => return Err(OtlpUrlError::Https),
            _ => return Err(OtlpUrlError::Scheme),
        }
        let uri: Uri = text.parse().map_err(|_| OtlpUrlError::Invalid)?;
        let authority = uri.authority().ok_or(OtlpUrlError::Invalid)?;
        if authority.as_str().contains('@') {
            return Err(OtlpUrlError::Credentials);
        }
        let host = authority.host().trim_matches(['[', ']']);
        // `Uri` accepts an invalid port but does not return it.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = authority.port_u16().filter(|&port| port > 0);
        if host.is_empty() || (has_port && port.is_none()) {
            return Err(OtlpUrlError::Invalid);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(OtlpUrl {
            host: host.to_owned(),
            port: port.unwrap_or(DEFAULT_PORT),
            authority: authority.to_string(),
            path: match path {
                "/" => DEFAULT_PATH.to_owned(),
                path => path.to_owned(),
            },
        })
    }
}

impl fmt::Display for OtlpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// Maximum time to connect, send a request and receive the response.
const PUSH_TIME: Duration = Duration::from_secs(2);
/// Maximum size of a response body in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// Reason why a push failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the collector responded with status {0}")]
    Status(StatusCode),
    #[error("the collector's response is invalid")]
    Response,
    #[error("the collector rejected {0} data points: {1}")]
    Rejected(i64, String),
    #[error("no response within {} s", PUSH_TIME.as_secs())]
    TimedOut,
}

/// Sends an encoded request. Does not follow redirects. Does not retry, because totals are
/// cumulative and the next request contains them again.
pub(crate) async fn push(url: &OtlpUrl, body: Vec<u8>) -> Result<(), PushError> {
    let sent = timeout(PUSH_TIME, send(url, body)).await;
    sent.unwrap_or(Err(PushError::TimedOut))
}

async fn send(url: &OtlpUrl, body: Vec<u8>) -> Result<(), PushError> {
    let stream = TcpStream::connect((&*url.host, url.port)).await;
    let stream = stream.map_err(PushError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(&url.path)
        .header(HOST, &url.authority)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(USER_AGENT, concat!("floodmark/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::from(body)))?;
    let connection = tokio::spawn(connection);
    let received = async {
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            return Err(PushError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE);
        body.collect().await.map_err(|_| PushError::Response)
    };
    let received = received.await;
    connection.abort();
    let response = ExportResponse::decode(received?.to_bytes());
    let response = response.map_err(|_| PushError::Response)?;
    match response.partial_success {
        Some(partial) if partial.rejected_data_points > 0 => Err(PushError::Rejected(
            partial.rejected_data_points,
            partial.error_message,
        )),
        _ => Ok(()),
    }
}

const NAME: &str = "floodmark";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The process that sends the metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resource {
    /// Process id.
    pid: u32,
    /// Start of the period that the metrics cover, in ns since 1970.
    start_unix_ns: u64,
}

impl Resource {
    /// Describes this process, with metrics that cover the time from now on.
    pub(crate) fn starting_now() -> Self {
        Resource {
            pid: std::process::id(),
            start_unix_ns: unix_ns(),
        }
    }
}

/// Returns the wall-clock time in ns since 1970.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

/// Encodes metrics with exponential histograms and cumulative temporality. `now_ns` is the
/// wall-clock time in ns since 1970.
pub(crate) fn encode(metrics: &LoadMetrics, resource: &Resource, now_ns: u64) -> Vec<u8> {
    let times = PointTimes {
        start_ns: resource.start_unix_ns,
        now_ns,
    };
    let metrics = families(metrics);
    let metrics = metrics.iter().map(|family| times.metric(family)).collect();
    let instance = format!("{}-{}", resource.pid, resource.start_unix_ns);
    ExportRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(ResourceMessage {
                attributes: vec![
                    attribute("service.name", AnyValue::Text(NAME.to_owned())),
                    attribute("service.version", AnyValue::Text(VERSION.to_owned())),
                    attribute("service.instance.id", AnyValue::Text(instance)),
                    attribute("process.pid", AnyValue::Integer(resource.pid.into())),
                ],
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: NAME.to_owned(),
                    version: VERSION.to_owned(),
                }),
                metrics,
            }],
        }],
    }
    .encode_to_vec()
}

fn attribute(key: &str, value: AnyValue) -> Attribute {
    Attribute {
        key: key.to_owned(),
        value: Some(AttributeValue { value: Some(value) }),
    }
}

/// Timestamps that all data points of a request share, in ns since 1970.
struct PointTimes {
    start_ns: u64,
    now_ns: u64,
}

impl PointTimes {
    fn metric(&self, family: &MetricFamily<'_>) -> OtlpMetric {
        let definition = family.definition;
        let numbers = || {
            family
                .series
                .iter()
                .filter_map(|series| self.number(series))
                .collect()
        };
        let aggregation_temporality = Temporality::Cumulative.into();
        let data = match definition.kind {
            InstrumentKind::Gauge => OtlpData::Gauge(OtlpGauge {
                data_points: numbers(),
            }),
            InstrumentKind::Counter | InstrumentKind::UpDownCounter => OtlpData::Sum(OtlpSum {
                data_points: numbers(),
                aggregation_temporality,
                is_monotonic: definition.kind == InstrumentKind::Counter,
            }),
            InstrumentKind::Histogram => OtlpData::ExponentialHistogram(OtlpHistogram {
                data_points: family
                    .series
                    .iter()
                    .filter_map(|s| self.histogram(s))
                    .collect(),
                aggregation_temporality,
            }),
        };
        OtlpMetric {
            name: definition.otlp.to_owned(),
            description: definition.help.to_owned(),
            unit: definition.unit.to_owned(),
            data: Some(data),
        }
    }

    fn number(&self, series: &ExportedSeries<'_>) -> Option<NumberPoint> {
        let ExportedValue::Number(value) = series.value else {
            return None;
        };
        Some(NumberPoint {
            attributes: attributes(series),
            start_time_unix_nano: self.start_ns,
            time_unix_nano: self.now_ns,
            as_double: Some(value),
        })
    }

    fn histogram(&self, series: &ExportedSeries<'_>) -> Option<HistogramPoint> {
        let ExportedValue::Times(times) = series.value else {
            return None;
        };
        Some(HistogramPoint {
            attributes: attributes(series),
            start_time_unix_nano: self.start_ns,
            time_unix_nano: self.now_ns,
            count: times.count,
            sum: Some(times.sum_s),
            scale: times.exponential.schema,
            zero_count: times.exponential.zeros,
            positive: Some(buckets(times)),
        })
    }
}

fn attributes(series: &ExportedSeries<'_>) -> Vec<Attribute> {
    let labels = series.labels.iter();
    labels
        .map(|(key, value)| {
            let integer = key.is_integer().then(|| value.parse().ok()).flatten();
            let value = integer.map_or_else(
                || AnyValue::Text(value.clone().into_owned()),
                AnyValue::Integer,
            );
            attribute(key.otlp(), value)
        })
        .collect()
}

fn buckets(times: &TimeDistribution) -> OtlpBuckets {
    let mut buckets = OtlpBuckets::default();
    for (&index, &count) in &times.exponential.counts {
        // OpenTelemetry's indexes are smaller by 1 than Prometheus's.
        let index = index - 1;
        if buckets.bucket_counts.is_empty() {
            buckets.offset = index;
        }
        buckets
            .bucket_counts
            .resize((index - buckets.offset) as usize, 0);
        buckets.bucket_counts.push(count);
    }
    buckets
}

// The messages of OTLP (`opentelemetry.proto`, version 1) that floodmark sends and receives. Fields
// that floodmark never sets are omitted. Tests decode these messages with the types from the crate
// `opentelemetry-proto`. The command itself does not use this crate, which depends on the
// OpenTelemetry SDK.

#[derive(Clone, PartialEq, prost::Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<OtlpMetric>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OtlpMetric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "OtlpData", tags = "5, 7, 10")]
    data: Option<OtlpData>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OtlpData {
    #[prost(message, tag = "5")]
    Gauge(OtlpGauge),
    #[prost(message, tag = "7")]
    Sum(OtlpSum),
    #[prost(message, tag = "10")]
    ExponentialHistogram(OtlpHistogram),
}

#[derive(Clone, PartialEq, prost::Message)]
struct OtlpGauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OtlpSum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OtlpHistogram {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<HistogramPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    aggregation_temporality: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Temporality {
    Unspecified = 0,
    Cumulative = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NumberPoint {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<Attribute>,
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HistogramPoint {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    scale: i32,
    #[prost(fixed64, tag = "7")]
    zero_count: u64,
    #[prost(message, optional, tag = "8")]
    positive: Option<OtlpBuckets>,
}

/// Counts of consecutive buckets. Bucket `i` contains the values above `base^i` and up to
/// `base^(i + 1)`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct OtlpBuckets {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AttributeValue {
    #[prost(oneof = "AnyValue", tags = "1, 3")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Integer(i64),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_data_points: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

#[cfg(test)]
mod tests;
