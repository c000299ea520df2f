//! Prometheus's text format 0.0.4.

use std::fmt::Write;

use crate::distribution::TimeDistribution;
use crate::family::{ExportedValue, InstrumentKind, MetricFamily, MetricLabel};

/// Encodes metrics with classic histograms.
pub(crate) fn encode(families: &[MetricFamily<'_>]) -> String {
    let mut text = String::new();
    for family in families {
        let name = family.definition.prometheus;
        let kind = match family.definition.kind {
            InstrumentKind::Counter => "counter",
            InstrumentKind::Gauge => "gauge",
            InstrumentKind::Histogram => "histogram",
        };
        let help = family.definition.help;
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for series in &family.series {
            match series.value {
                ExportedValue::Number(value) => line(&mut text, name, &series.labels, None, value),
                ExportedValue::Times(times) => histogram(&mut text, name, &series.labels, times),
            }
        }
    }
    text
}

fn histogram(text: &mut String, name: &str, labels: &[MetricLabel<'_>], times: &TimeDistribution) {
    let bucket = format!("{name}_bucket");
    for (bound_s, count) in times.classic() {
        line(
            text,
            &bucket,
            labels,
            Some(&bound_s.to_string()),
            count as f64,
        );
    }
    let count = times.count() as f64;
    line(text, &bucket, labels, Some("+Inf"), count);
    line(text, &format!("{name}_sum"), labels, None, times.sum_s());
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
