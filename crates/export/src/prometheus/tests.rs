use std::collections::BTreeMap;

use floodmark_record::events::Phase;
use proptest::prelude::*;

use super::*;
use crate::testing::{began, example, second};

/// Labels of a series, in alphabetical order.
type Labels = BTreeMap<String, String>;

/// Parses text 0.0.4. Panics if the text is invalid.
fn parse_text(text: &str) -> Vec<(String, Labels, f64)> {
    assert!(text.ends_with('\n'));
    let series = text.lines().filter(|line| !line.starts_with('#'));
    series.map(parse_line).collect()
}

fn parse_line(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        "{line}"
    );
    let mut labels = Labels::new();
    if let Some(mut inner) = rest.strip_prefix('{') {
        while !inner.starts_with('}') {
            let (key, after) = inner.split_once("=\"").unwrap();
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("invalid escape \\{c}: {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
            inner = &after[end + 1..];
            inner = inner.strip_prefix(',').unwrap_or(inner);
        }
        rest = &inner[1..];
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
    (name.to_owned(), labels, value)
}

/// Reads length-delimited metric families.
fn parse_protobuf(bytes: &[u8]) -> Vec<FamilyMessage> {
    let mut bytes = bytes;
    let mut families = Vec::new();
    while !bytes.is_empty() {
        families.push(FamilyMessage::decode_length_delimited(&mut bytes).unwrap());
    }
    families
}

/// Returns the boundaries and count of each exponential bucket.
fn native_buckets(histogram: &HistogramMessage) -> Vec<(f64, f64, u64)> {
    let base = f64::from(-histogram.schema.unwrap()).exp2().exp2();
    let mut deltas = histogram.positive_delta.iter();
    let (mut index, mut count, mut buckets) = (0, 0, Vec::new());
    for span in &histogram.positive_span {
        index += span.offset.unwrap();
        for _ in 0..span.length.unwrap() {
            count += deltas.next().unwrap();
            buckets.push((base.powi(index - 1), base.powi(index), count as u64));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    buckets
}

#[test]
fn text_and_protobuf_contain_the_same_series() {
    let metrics = example();
    let text = ExpositionFormat::Text.encode(&metrics);
    let text = String::from_utf8(text).unwrap();
    let mut from_text: BTreeMap<(String, Labels), f64> = BTreeMap::new();
    for (name, labels, value) in parse_text(&text) {
        assert!(from_text.insert((name, labels), value).is_none());
    }
    let mut expected = BTreeMap::new();
    for family in parse_protobuf(&ExpositionFormat::Protobuf.encode(&metrics)) {
        let name = family.name.unwrap();
        for metric in family.metric {
            let labels = metric
                .label
                .into_iter()
                .map(|l| (l.name.unwrap(), l.value.unwrap()));
            let labels: Labels = labels.collect();
            let mut add = |suffix: &str, bound: Option<String>, value: f64| {
                let mut labels = labels.clone();
                labels.extend(bound.map(|bound| ("le".to_owned(), bound)));
                expected.insert((format!("{name}{suffix}"), labels), value);
            };
            let Some(histogram) = metric.histogram else {
                let is_counter = family.r#type == Some(MetricTypeCode::Counter.into());
                let number = if is_counter {
                    metric.counter
                } else {
                    metric.gauge
                };
                add("", None, number.unwrap().value.unwrap());
                continue;
            };
            let count = histogram.sample_count.unwrap();
            for bucket in &histogram.bucket {
                let bound = bucket.upper_bound.unwrap().to_string();
                add(
                    "_bucket",
                    Some(bound),
                    bucket.cumulative_count.unwrap() as f64,
                );
            }
            add("_bucket", Some("+Inf".to_owned()), count as f64);
            add("_count", None, count as f64);
            add("_sum", None, histogram.sample_sum.unwrap());
            let native = native_buckets(&histogram)
                .iter()
                .map(|(_, _, n)| n)
                .sum::<u64>();
            assert_eq!(native + histogram.zero_count.unwrap(), count);
        }
    }
    assert_eq!(from_text, expected);
    assert!(text.contains(r#"system="nginx \"fast\"\\\n""#), "{text}");
}

#[test]
fn an_empty_native_histogram_differs_from_a_classic_one() {
    let mut metrics = LoadMetrics::default();
    metrics.on(&began("a", None, 1));
    let Event::Second(mut row) = second(Phase::Measure, [1; 8]) else {
        unreachable!()
    };
    row.histograms.clear();
    metrics.on(&Event::Second(row));
    let families = parse_protobuf(&ExpositionFormat::Protobuf.encode(&metrics));
    let histograms: Vec<HistogramMessage> = families
        .into_iter()
        .flat_map(|family| family.metric)
        .filter_map(|metric| metric.histogram)
        .collect();
    assert_eq!(histograms.len(), 2);
    for histogram in histograms {
        assert_eq!(
            (histogram.sample_count, histogram.positive_span.len()),
            (Some(0), 1)
        );
    }
}

proptest! {
    #[test]
    fn quantiles_of_native_histograms_are_close(
        times in prop::collection::vec(1_000u64..20_000_000_000, 8..40),
        q in 0.0f64..1.0,
    ) {
        let mut metrics = LoadMetrics::default();
        metrics.on(&began("a", None, 1));
        let (mut all, mut chunks) = (Vec::new(), times.chunks_exact(8));
        for chunk in &mut chunks {
            let chunk: [u64; 8] = chunk.try_into().unwrap();
            metrics.on(&second(Phase::Measure, chunk));
            all.extend(chunk);
        }
        all.sort_unstable();
        let families = parse_protobuf(&ExpositionFormat::Protobuf.encode(&metrics));
        let service = families.iter().find(|f| f.name.as_deref() == Some("floodmark_service_time_seconds"));
        let histogram = service.unwrap().metric[0].histogram.as_ref().unwrap();
        let rank = ((q * all.len() as f64).ceil() as usize).clamp(1, all.len());
        let exact = all[rank - 1] as f64 / 1e9;
        let mut seen = 0;
        let found = native_buckets(histogram).into_iter().find(|(_, _, count)| {
            seen += *count as usize;
            seen >= rank
        });
        // HdrHistogram adds an error of 0.1 %.
        let (low, high, _) = found.unwrap();
        prop_assert!(low * 0.999 <= exact && exact <= high * 1.001, "{exact} not in ({low}, {high}]");
        prop_assert!(high / low < 1.023);
    }

    #[test]
    fn any_label_value_survives_the_text_format(system in "\\PC*|[\"\\\\\n]{0,9}") {
        let mut metrics = LoadMetrics::default();
        metrics.on(&began(&system, None, 1));
        let text = String::from_utf8(ExpositionFormat::Text.encode(&metrics)).unwrap();
        let series = parse_text(&text);
        let (_, labels, _) = series.iter().find(|(name, ..)| name == "floodmark_run_info").unwrap();
        prop_assert_eq!(&labels["system"], &system);
    }
}

#[test]
fn selects_the_preferred_format() {
    use ExpositionFormat::{Protobuf, Text};
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    for (accept, expected) in [
        (String::new(), Text),
        ("*/*".to_owned(), Text),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                .to_owned(),
            Text,
        ),
        (
            format!(
                "{protobuf},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
            ),
            Protobuf,
        ),
        (format!("text/plain; q=0.3, {protobuf} ; q=0.7"), Protobuf),
        (format!("text/plain; q=0.7, {protobuf}; q=0.3"), Text),
        (format!("{protobuf};q=0"), Text),
        (format!("{protobuf};q=high"), Text),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text"
                .to_owned(),
            Text,
        ),
        ("application/vnd.google.protobuf".to_owned(), Text),
        (";,;=,q=".to_owned(), Text),
    ] {
        assert_eq!(
            ExpositionFormat::negotiate(Some(&accept)),
            expected,
            "{accept}"
        );
    }
    assert_eq!(ExpositionFormat::negotiate(None), Text);
}
