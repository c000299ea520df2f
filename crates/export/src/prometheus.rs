//! Prometheus's exposition formats, and the HTTP endpoint that serves them.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use floodmark_record::Event;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::catalog::{
    ExportedSeries, ExportedValue, InstrumentKind, MetricFamily, MetricLabel, families,
};
use crate::distribution::TimeDistribution;
use crate::metrics::LoadMetrics;

/// Path of the metrics.
pub(crate) const METRICS_PATH: &str = "/metrics";
/// Maximum number of open connections. Further connections wait in the kernel's accept queue.
const MAX_CONNECTIONS: usize = 64;
/// Maximum time to send a request head.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// Maximum duration of a connection. Each connection serves one request.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Maximum size of a request head in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Pause after `accept` fails, for example because no file descriptor is available.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Serves the metrics until the task is dropped. The listener must be non-blocking.
pub(crate) async fn serve(listener: StdListener, shared: Arc<SharedMetrics>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // The semaphore is never closed.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(EXHAUSTED_PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // If a client is too slow or sends an invalid request, only its connection is closed.
            let _ = timeout(CONNECTION_TIME, connection(stream, shared)).await;
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, shared: Arc<SharedMetrics>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(&request, &shared);
        async { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .keep_alive(false)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn respond(request: &Request<Incoming>, shared: &SharedMetrics) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    if request.uri().path() != METRICS_PATH {
        return plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    let accept: Vec<&str> = request
        .headers()
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let format = ExpositionFormat::negotiate(Some(&accept.join(",")));
    let mut response = Response::new(Full::new(shared.exposition(format)));
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Metrics shared by the load's thread and the exporter's thread. No lock is held during I/O.
#[derive(Debug, Default)]
pub(crate) struct SharedMetrics {
    state: Mutex<MetricsState>,
}

#[derive(Debug, Default)]
struct MetricsState {
    metrics: LoadMetrics,
    /// Encoded metrics by format; cleared when the metrics change.
    encoded: Vec<(ExpositionFormat, Bytes)>,
    /// Error of the first failed push; `None` after it has been reported.
    warning: Option<String>,
}

impl SharedMetrics {
    fn lock(&self) -> MutexGuard<'_, MetricsState> {
        // The metrics remain usable even if another thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the metrics with an event. Returns the warning if there is a new one.
    pub(crate) fn on(&self, event: &Event) -> Option<String> {
        let mut state = self.lock();
        if state.metrics.on(event) {
            state.encoded.clear();
        }
        state.warning.take()
    }

    /// Sets the warning.
    pub(crate) fn warn(&self, warning: String) {
        self.lock().warning = Some(warning);
    }

    /// Returns the encoded metrics.
    fn exposition(&self, format: ExpositionFormat) -> Bytes {
        let state = &mut *self.lock();
        if let Some((_, bytes)) = state.encoded.iter().find(|(known, _)| *known == format) {
            return bytes.clone();
        }
        let bytes = Bytes::from(format.encode(&state.metrics));
        state.encoded.push((format, bytes.clone()));
        bytes
    }

    /// Calls a function with the metrics.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&LoadMetrics) -> T) -> T {
        read(&self.lock().metrics)
    }
}

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpositionFormat {
    /// Text 0.0.4, with classic histograms.
    Text,
    /// Length-delimited protocol buffers, with native and classic histograms.
    Protobuf,
}

impl ExpositionFormat {
    /// Returns the format that an `Accept` header prefers, or text if the header is missing or
    /// accepts neither format.
    fn negotiate(accept: Option<&str>) -> Self {
        let (mut text, mut protobuf) = (0.0, 0.0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
            let parameter = |name: &str| {
                let found = parameters
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim_matches('"'))
            };
            let weight: f64 = parameter("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match &*media {
                "application/vnd.google.protobuf"
                    if parameter("proto") == Some("io.prometheus.client.MetricFamily")
                        && parameter("encoding") == Some("delimited") =>
                {
                    protobuf = weight.max(protobuf);
                }
                "text/plain" | "text/*" | "*/*" => text = weight.max(text),
                _ => {}
            }
        }
        if protobuf > 0.0 && protobuf >= text {
            ExpositionFormat::Protobuf
        } else {
            ExpositionFormat::Text
        }
    }

    /// Returns the content type.
    fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// Encodes the metrics.
    fn encode(self, metrics: &LoadMetrics) -> Vec<u8> {
        let families = families(metrics);
        match self {
            ExpositionFormat::Text => text(&families).into_bytes(),
            ExpositionFormat::Protobuf => protobuf(&families),
        }
    }
}

/// Encodes metrics in text format 0.0.4, with classic histograms.
fn text(families: &[MetricFamily<'_>]) -> String {
    let mut text = String::new();
    for family in families {
        let name = family.definition.prometheus;
        let kind = match family.definition.kind {
            InstrumentKind::Counter => "counter",
            InstrumentKind::Gauge | InstrumentKind::UpDownCounter => "gauge",
            InstrumentKind::Histogram => "histogram",
        };
        let help = family.definition.help;
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for series in &family.series {
            match series.value {
                ExportedValue::Number(value) => line(&mut text, name, &series.labels, None, value),
                ExportedValue::Times(times) => {
                    text_histogram(&mut text, name, &series.labels, times)
                }
            }
        }
    }
    text
}

fn text_histogram(
    text: &mut String,
    name: &str,
    labels: &[MetricLabel<'_>],
    times: &TimeDistribution,
) {
    let bucket = format!("{name}_bucket");
    for (bound_s, count) in times.classic() {
        let bound = bound_s.to_string();
        line(text, &bucket, labels, Some(&bound), count as f64);
    }
    let count = times.count as f64;
    line(text, &bucket, labels, Some("+Inf"), count);
    line(text, &format!("{name}_sum"), labels, None, times.sum_s);
    line(text, &format!("{name}_count"), labels, None, count);
}

fn line(
    text: &mut String,
    name: &str,
    labels: &[MetricLabel<'_>],
    bound: Option<&str>,
    value: f64,
) {
    let own = labels
        .iter()
        .filter_map(|(key, value)| Some((key.prometheus()?, &**value)));
    let labels = own.chain(bound.map(|bound| ("le", bound)));
    text.push_str(name);
    let mut separator = '{';
    for (key, value) in labels {
        text.push(separator);
        text.push_str(key);
        text.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

/// Encodes metrics as length-delimited metric families, with native and classic histograms.
///
/// Prometheus can be configured to request this format without storing native histograms. It then
/// reads the classic histograms.
fn protobuf(families: &[MetricFamily<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families {
        bytes.extend(family_message(family).encode_length_delimited_to_vec());
    }
    bytes
}

fn family_message(family: &MetricFamily<'_>) -> FamilyMessage {
    let definition = family.definition;
    let kind = definition.kind;
    let code = match kind {
        InstrumentKind::Counter => MetricTypeCode::Counter,
        InstrumentKind::Gauge | InstrumentKind::UpDownCounter => MetricTypeCode::Gauge,
        InstrumentKind::Histogram => MetricTypeCode::Histogram,
    };
    FamilyMessage {
        name: Some(definition.prometheus.to_owned()),
        help: Some(definition.help.to_owned()),
        r#type: Some(code.into()),
        metric: family
            .series
            .iter()
            .map(|series| metric_message(kind, series))
            .collect(),
    }
}

fn metric_message(kind: InstrumentKind, series: &ExportedSeries<'_>) -> MetricMessage {
    let label = series.labels.iter().filter_map(|(key, value)| {
        Some(LabelMessage {
            name: Some(key.prometheus()?.to_owned()),
            value: Some(value.clone().into_owned()),
        })
    });
    let mut message = MetricMessage {
        label: label.collect(),
        ..MetricMessage::default()
    };
    match series.value {
        ExportedValue::Times(times) => message.histogram = Some(histogram_message(times)),
        ExportedValue::Number(value) => {
            let number = Some(NumberMessage { value: Some(value) });
            match kind {
                InstrumentKind::Counter => message.counter = number,
                _ => message.gauge = number,
            }
        }
    }
    message
}

fn histogram_message(times: &TimeDistribution) -> HistogramMessage {
    let classic = times.classic().map(|(bound_s, count)| BucketMessage {
        cumulative_count: Some(count),
        upper_bound: Some(bound_s),
    });
    let exponential = &times.exponential;
    let mut positive_span: Vec<SpanMessage> = Vec::new();
    let mut positive_delta = Vec::new();
    let mut previous: Option<(i32, u64)> = None;
    for (&index, &count) in &exponential.counts {
        let (next, before) = previous.map_or((0, 0), |(index, count)| (index + 1, count));
        match positive_span.last_mut() {
            Some(span) if index == next => span.length = span.length.map(|length| length + 1),
            _ => positive_span.push(SpanMessage {
                offset: Some(index - next),
                length: Some(1),
            }),
        }
        positive_delta.push(count as i64 - before as i64);
        previous = Some((index, count));
    }
    if positive_span.is_empty() {
        // If there are no values, an empty span marks the histogram as native.
        positive_span.push(SpanMessage {
            offset: Some(0),
            length: Some(0),
        });
    }
    HistogramMessage {
        sample_count: Some(times.count),
        sample_sum: Some(times.sum_s),
        bucket: classic.collect(),
        schema: Some(exponential.schema),
        zero_threshold: Some(0.0),
        zero_count: Some(exponential.zeros),
        positive_span,
        positive_delta,
    }
}

// The messages of Prometheus's data model (`io.prometheus.client`, metrics.proto). Fields that
// floodmark never sets are omitted.

#[derive(Clone, PartialEq, prost::Message)]
struct FamilyMessage {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricTypeCode", optional, tag = "3")]
    r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<MetricMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum MetricTypeCode {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MetricMessage {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelMessage>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<NumberMessage>,
    #[prost(message, optional, tag = "3")]
    counter: Option<NumberMessage>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelMessage {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

/// `Gauge` or `Counter`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct NumberMessage {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    /// Classic buckets.
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<BucketMessage>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<SpanMessage>,
    /// Count of each non-empty bucket minus the count of the previous non-empty bucket.
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct BucketMessage {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
}

/// Consecutive exponential buckets.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct SpanMessage {
    /// First span: index of its first bucket. Later spans: number of empty buckets between the
    /// previous span and this one.
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

#[cfg(test)]
mod tests;
