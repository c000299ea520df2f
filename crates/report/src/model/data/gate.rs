//! The table of a gate's pairs.

use floodmark_record::Record;
use floodmark_record::units::show_ratio;

use super::{DataCell, DataTable};
use crate::model::ratios::figure;

/// Returns a row per pair.
pub(crate) fn pairs(record: &Record) -> Option<DataTable> {
    let gate = record.gate.as_ref()?;
    let rules = &gate.rules;
    let rows = gate.pairs.iter().map(|pair| {
        let range = pair.interval.as_ref();
        let shown = range.map_or_else(String::new, |of| {
            format!("{} – {}", show_ratio(of.low), show_ratio(of.high))
        });
        let of = |value| figure(rules.metric, Some(value));
        vec![
            DataCell::count("process", "pair", pair.process),
            DataCell::hidden_text("metric", rules.metric.name()),
            DataCell::hidden_text("a", &rules.candidate),
            DataCell::hidden_text("b", &rules.baseline),
            DataCell::hidden_text("unit", rules.metric.figure().unit().name()),
            DataCell::hidden_number("figure_a", Some(pair.candidate))
                .shown("candidate", of(pair.candidate)),
            DataCell::hidden_number("figure_b", Some(pair.baseline))
                .shown("baseline", of(pair.baseline)),
            DataCell::number("ratio", "ratio", Some(pair.ratio()), show_ratio),
            DataCell::hidden_number("ratio_low", range.map(|of| of.low))
                .shown("95 % interval after the pair", shown),
            DataCell::hidden_number("ratio_high", range.map(|of| of.high)),
        ]
    });
    DataTable::of("gate_pairs", rows)
}
