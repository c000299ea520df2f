//! Encodes metrics as an OTLP request.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

use super::messages::{
    AnyValue, Attribute, AttributeValue, ExportRequest, HistogramPoint, InstrumentationScope,
    NumberPoint, OtlpBuckets, OtlpData, OtlpGauge, OtlpHistogram, OtlpMetric, OtlpSum,
    ResourceMessage, ResourceMetrics, ScopeMetrics, Temporality,
};
use crate::distribution::TimeDistribution;
use crate::families::families;
use crate::family;
use crate::family::{ExportedSeries, ExportedValue, InstrumentKind, MetricFamily};
use crate::metrics::LoadMetrics;

const NAME: &str = "floodmark";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The process that sends the metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resource {
    /// Process id.
    pub(crate) pid: u32,
    /// Start of the metrics in ns since 1970.
    pub(crate) start_unix_ns: u64,
}

impl Resource {
    /// Describes this process, whose metrics start now.
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

/// Times of all points of a request, in ns since 1970.
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
        // The number of requests in flight is a sum that can fall (an UpDownCounter).
        let is_up_down = std::ptr::eq(definition, &raw const family::IN_FLIGHT);
        let data = match definition.kind {
            InstrumentKind::Gauge if !is_up_down => OtlpData::Gauge(OtlpGauge {
                data_points: numbers(),
            }),
            InstrumentKind::Counter | InstrumentKind::Gauge => OtlpData::Sum(OtlpSum {
                data_points: numbers(),
                aggregation_temporality,
                is_monotonic: !is_up_down,
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
            count: times.count(),
            sum: Some(times.sum_s()),
            scale: times.exponential().schema(),
            zero_count: times.exponential().zeros(),
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
    for (index, count) in times.exponential().counts() {
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

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
