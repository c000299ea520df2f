//! Tables of tunings and sweeps.

use floodmark_record::Record;
use floodmark_record::tuning::KnobValues;

use super::{DataCell, DataTable, DataValue};
use crate::model::figures::{interval, microseconds, per_second};
use crate::model::tuning::setting;

/// Returns a row per measured setting of a tuning. The figure is a throughput or a capacity.
pub(crate) fn settings(record: &Record) -> Option<DataTable> {
    let tuning = record.tuning.as_ref()?;
    let rows = tuning.settings.iter().map(|of| {
        let is_chosen = tuning.chosen.as_ref() == Some(&of.trial);
        let is_best = tuning.best.as_ref() == Some(&of.trial);
        let role = match (is_chosen, is_best) {
            (true, true) => "chosen, best",
            (true, false) => "chosen",
            (false, true) => "best",
            (false, false) => "",
        };
        let range = of.interval.as_ref();
        let shown = of.figure_per_s.zip(range);
        let shown = shown.map_or_else(String::new, |(per_s, range)| interval(per_s, range));
        let mut row = Vec::from(knobs(&of.values, &of.trial));
        row.extend([
            DataCell::number("figure_per_s", "figure/s", of.figure_per_s, per_second),
            DataCell::hidden_number("figure_low_per_s", range.map(|range| range.low))
                .shown("interval", shown),
            DataCell::hidden_number("figure_high_per_s", range.map(|range| range.high)),
            DataCell::hidden("is_lower_bound", DataValue::Flag(of.is_lower_bound)),
            DataCell::number("response_p99_us", "p99", of.p99_us, microseconds),
            DataCell::count("processes", "processes", of.processes),
            DataCell::hidden("is_chosen", DataValue::Flag(is_chosen)).shown("role", role),
            DataCell::hidden("is_best", DataValue::Flag(is_best)),
            DataCell::hidden("is_on_frontier", DataValue::Flag(of.on_frontier)),
        ]);
        row
    });
    DataTable::of("tuning_settings", rows)
}

/// Returns a row per server process that a tuning measured.
pub(crate) fn steps(record: &Record) -> Option<DataTable> {
    let tuning = record.tuning.as_ref()?;
    let rows = (1_u64..).zip(&tuning.steps).map(|(number, step)| {
        let range = step.interval.as_ref();
        let cause = step.cause.map(|cause| cause.name());
        let note = step.note.as_deref().unwrap_or_default();
        let mut row = vec![
            DataCell::count("number", "number", number),
            DataCell::text("action", "step", step.action.name()),
            DataCell::hidden_text("knob", step.knob.as_deref().unwrap_or_default()),
            DataCell::hidden_text("reason", &step.reason),
        ];
        row.extend(knobs(&step.values, &step.trial));
        row.extend([
            DataCell::count("process", "process", step.process),
            DataCell::number("figure_per_s", "figure/s", step.figure_per_s, per_second),
            DataCell::hidden_number("figure_low_per_s", range.map(|range| range.low)),
            DataCell::hidden_number("figure_high_per_s", range.map(|range| range.high)),
            DataCell::hidden("is_lower_bound", DataValue::Flag(step.is_lower_bound)),
            DataCell::text("cause", "limit", cause.unwrap_or_default()),
            DataCell::text("note", "note", note),
        ]);
        row
    });
    DataTable::of("tuning_steps", rows)
}

fn knobs(values: &KnobValues, trial: &str) -> [DataCell; 2] {
    let text = values.iter().map(|(name, value)| format!("{name}={value}"));
    let text = text.collect::<Vec<_>>().join(";");
    [
        DataCell::hidden_text("setting", text).shown("setting", setting(values)),
        DataCell::hidden_text("trial", trial),
    ]
}

/// Returns a row per point of each sweep.
pub(crate) fn sweeps(record: &Record) -> Option<DataTable> {
    let rows = record.sweeps.iter().flat_map(|swept| {
        let points = swept.sweep.points.iter().zip(&swept.measured);
        points.map(|(point, measured)| {
            let values = point.values.iter();
            let values = values.map(|(name, value)| format!("{name}={value}"));
            let is_best = swept.best.as_ref() == Some(&point.trial);
            let per_s = measured.throughput_per_s;
            vec![
                DataCell::text("trial", "trial", &point.trial),
                DataCell::hidden_text("sweep", &swept.sweep.name),
                DataCell::hidden_text("setting", values.collect::<Vec<_>>().join(";")),
                DataCell::number("throughput_per_s", "ok/s", per_s, per_second),
                DataCell::number("throughput_low_per_s", "low", measured.low, per_second),
                DataCell::number("throughput_high_per_s", "high", measured.high, per_second),
                DataCell::count("processes", "processes", measured.processes),
                DataCell::hidden("is_best", DataValue::Flag(is_best))
                    .shown("role", if is_best { "best" } else { "" }),
            ]
        })
    });
    DataTable::of("sweeps", rows)
}
