//! Prometheus's protobuf format: length-delimited metric families.

use prost::Message;

use super::messages::{
    BucketMessage, FamilyMessage, HistogramMessage, LabelMessage, MetricMessage, MetricTypeCode,
    NumberMessage, SpanMessage,
};
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
