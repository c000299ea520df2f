use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Metric, metric, number_data_point,
};

use super::*;
use crate::catalog::CATALOG;
use crate::testing::example;

const RESOURCE: Resource = Resource {
    pid: 7,
    start_unix_ns: 1_000,
};

/// Encodes the example and reads it with the types of `opentelemetry-proto`.
fn decoded() -> (BTreeMap<String, String>, BTreeMap<String, Metric>) {
    let bytes = encode(&example(), &RESOURCE, 2_000);
    let request = ExportMetricsServiceRequest::decode(&*bytes).unwrap();
    let [resource_metrics] = &request.resource_metrics[..] else {
        panic!("{request:?}");
    };
    let resource = texts(&resource_metrics.resource.as_ref().unwrap().attributes);
    let [scope_metrics] = &resource_metrics.scope_metrics[..] else {
        panic!("{request:?}");
    };
    assert_eq!(scope_metrics.scope.as_ref().unwrap().name, "floodmark");
    let metrics = scope_metrics.metrics.iter().cloned();
    let metrics: BTreeMap<_, _> = metrics
        .map(|metric| (metric.name.clone(), metric))
        .collect();
    assert_eq!(metrics.len(), CATALOG.len());
    (resource, metrics)
}

/// Returns the attributes. Integers get the prefix `#`.
fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.clone().unwrap().value.unwrap();
        let value = match value {
            any_value::Value::StringValue(text) => text,
            any_value::Value::IntValue(n) => format!("#{n}"),
            other => panic!("{other:?}"),
        };
        (attribute.key.clone(), value)
    };
    attributes.iter().map(text).collect()
}

#[test]
fn names_the_process() {
    let (resource, _) = decoded();
    assert_eq!(resource["service.name"], "floodmark");
    assert_eq!(resource["service.instance.id"], "7-1000");
    assert_eq!(resource["process.pid"], "#7");
}

#[test]
fn counters_are_cumulative_sums() {
    let (_, metrics) = decoded();
    let Some(metric::Data::Sum(sum)) = &metrics["floodmark.responses"].data else {
        panic!("{metrics:?}");
    };
    assert!(sum.is_monotonic);
    assert_eq!(
        sum.aggregation_temporality(),
        AggregationTemporality::Cumulative
    );
    let mut found = BTreeMap::new();
    for point in &sum.data_points {
        assert_eq!(
            (point.start_time_unix_nano, point.time_unix_nano),
            (1_000, 2_000)
        );
        let attributes = texts(&point.attributes);
        let key = (
            attributes["floodmark.phase"].clone(),
            attributes["http.response.status_code"].clone(),
        );
        let Some(number_data_point::Value::AsDouble(value)) = point.value else {
            panic!("{point:?}");
        };
        found.insert(key, value);
    }
    assert_eq!(found.len(), 4);
    assert_eq!(found[&("measure".to_owned(), "#200".to_owned())], 16.0);
    let Some(metric::Data::Sum(in_flight)) = &metrics["http.client.active_requests"].data else {
        panic!("{metrics:?}");
    };
    assert!(!in_flight.is_monotonic);
}

#[test]
fn histograms_are_exponential() {
    let (_, metrics) = decoded();
    let duration = &metrics["http.client.request.duration"];
    assert_eq!(duration.unit, "s");
    let Some(metric::Data::ExponentialHistogram(histogram)) = &duration.data else {
        panic!("{duration:?}");
    };
    assert_eq!(
        histogram.aggregation_temporality(),
        AggregationTemporality::Cumulative
    );
    for point in &histogram.data_points {
        let attributes = texts(&point.attributes);
        assert_eq!(attributes["http.request.method"], "GET");
        assert_eq!(attributes["server.address"], "127.0.0.1");
        assert_eq!(attributes["server.port"], "#8080");
        let seconds = if attributes["floodmark.phase"] == "measure" {
            2
        } else {
            1
        };
        assert_eq!(point.count, 8 * seconds);
        let buckets = point.positive.as_ref().unwrap();
        assert_eq!(buckets.bucket_counts.iter().sum::<u64>(), point.count);
        let base = f64::from(-point.scale).exp2().exp2();
        let bounds = |i: usize| {
            (
                base.powi(buckets.offset + i as i32),
                base.powi(buckets.offset + i as i32 + 1),
            )
        };
        // The extremes of the example are 100 µs and 3 ms.
        let (low, high) = bounds(0);
        assert!(low < 100.1e-6 && 99.9e-6 <= high, "({low}, {high}]");
        assert_eq!(buckets.bucket_counts[0], 2 * seconds);
        let (low, high) = bounds(buckets.bucket_counts.len() - 1);
        assert!(low < 3.003e-3 && 2.997e-3 <= high, "({low}, {high}]");
        assert!((point.sum.unwrap() / seconds as f64 - 4.66e-3).abs() < 1e-5);
    }
}

#[test]
fn adds_the_default_path_and_port() {
    for (text, full, host, port) in [
        (
            "http://127.0.0.1:4318",
            "http://127.0.0.1:4318/v1/metrics",
            "127.0.0.1",
            4318,
        ),
        (
            "http://localhost/",
            "http://localhost/v1/metrics",
            "localhost",
            80,
        ),
        (
            "HTTP://[::1]:4318/otlp?x=1",
            "http://[::1]:4318/otlp?x=1",
            "::1",
            4318,
        ),
    ] {
        let url: OtlpUrl = text.parse().unwrap();
        assert_eq!(url.to_string(), full);
        assert_eq!((&*url.host, url.port), (host, port), "{text}");
    }
}

#[test]
fn rejects_urls_that_cannot_be_used() {
    for (text, expected) in [
        ("", OtlpUrlError::Scheme),
        ("127.0.0.1:4318", OtlpUrlError::Scheme),
        ("grpc://127.0.0.1:4317", OtlpUrlError::Scheme),
        ("https://collector:4318", OtlpUrlError::Https),
        ("http://", OtlpUrlError::Invalid),
        ("http://:4318", OtlpUrlError::Invalid),
        ("http://a:b", OtlpUrlError::Invalid),
        ("http://a:0", OtlpUrlError::Invalid),
        ("http://a:99999", OtlpUrlError::Invalid),
        ("http://a b", OtlpUrlError::Invalid),
        ("http://me:secret@127.0.0.1:4318", OtlpUrlError::Credentials),
    ] {
        assert_eq!(text.parse::<OtlpUrl>(), Err(expected), "{text}");
    }
}
