//! Prometheus's protobuf format: length-delimited metric families. The messages are those of
//! Prometheus's data model (`io.prometheus.client`, metrics.proto), without the fields that
//! floodmark never sets.

use prost::Message;

use crate::distribution::TimeDistribution;
use crate::family::{ExportedSeries, ExportedValue, InstrumentKind, MetricFamily};

/// Encodes metrics with native and classic histograms.
///
/// Prometheus can be configured to request this format without storing native histograms. It then
/// reads the classic ones.
pub(crate) fn encode(families: &[MetricFamily<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families {
        bytes.extend(message(family).encode_length_delimited_to_vec());
    }
    bytes
}

fn message(family: &MetricFamily<'_>) -> FamilyMessage {
    let definition = family.definition;
    let kind = definition.kind;
    let code = match kind {
        InstrumentKind::Counter => MetricTypeCode::Counter,
        InstrumentKind::Gauge => MetricTypeCode::Gauge,
        InstrumentKind::Histogram => MetricTypeCode::Histogram,
    };
    FamilyMessage {
        name: Some(definition.prometheus.to_owned()),
        help: Some(definition.help.to_owned()),
        r#type: Some(code.into()),
        metric: family
            .series
            .iter()
            .map(|series| metric(kind, series))
            .collect(),
    }
}

fn metric(kind: InstrumentKind, series: &ExportedSeries<'_>) -> MetricMessage {
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
        ExportedValue::Times(times) => message.histogram = Some(histogram(times)),
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

fn histogram(times: &TimeDistribution) -> HistogramMessage {
    let classic = times.classic().map(|(bound_s, count)| BucketMessage {
        cumulative_count: Some(count),
        upper_bound: Some(bound_s),
    });
    let exponential = times.exponential();
    let mut positive_span: Vec<SpanMessage> = Vec::new();
    let mut positive_delta = Vec::new();
    let mut previous: Option<(i32, u64)> = None;
    for (index, count) in exponential.counts() {
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
        // An empty span marks a native histogram without values.
        positive_span.push(SpanMessage {
            offset: Some(0),
            length: Some(0),
        });
    }
    HistogramMessage {
        sample_count: Some(times.count()),
        sample_sum: Some(times.sum_s()),
        bucket: classic.collect(),
        schema: Some(exponential.schema()),
        zero_threshold: Some(0.0),
        zero_count: Some(exponential.zeros()),
        positive_span,
        positive_delta,
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FamilyMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    #[prost(enumeration = "MetricTypeCode", optional, tag = "3")]
    pub r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<MetricMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum MetricTypeCode {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricMessage {
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelMessage>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<NumberMessage>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<NumberMessage>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LabelMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// `Gauge` or `Counter`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NumberMessage {
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    pub sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sample_sum: Option<f64>,
    /// Classic buckets.
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<BucketMessage>,
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<SpanMessage>,
    /// Count of each bucket minus the count of the bucket before it.
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct BucketMessage {
    #[prost(uint64, optional, tag = "1")]
    pub cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub upper_bound: Option<f64>,
}

/// Consecutive exponential buckets.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SpanMessage {
    /// First span: index of its first bucket. Later spans: number of empty buckets after the previous
    /// span.
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}
