//! The table of steps, for a load whose rate changes.

use floodmark_record::run::{Run, StepFigures};
use floodmark_stats::saturation::KEPT_UP_SHARE;

use super::figures::{rate, seconds};
use super::times::percentiles;
use super::{ColumnCell, Detail, Emphasis, FigureTable, outcomes};

/// Maximum number of steps shown.
const MAX_SHOWN: usize = 20;

/// Returns the table, or `None` for a run without steps.
pub(crate) fn table(run: &Run) -> Option<FigureTable> {
    let name = |step: &StepFigures| match step.from_s {
        0.0 => format!("0 to {}", seconds(step.to_s)),
        from_s => format!("{} to {}", seconds(from_s), seconds(step.to_s)),
    };
    let rows = run.steps.iter().map(|step| (name(step), cells(run, step)));
    let note = "requests are counted when they end; percentiles are response times";
    let table = FigureTable::of(rows, note).captioned("step");
    (!run.steps.is_empty()).then(|| table.limited(MAX_SHOWN))
}

fn cells(run: &Run, step: &StepFigures) -> Vec<ColumnCell> {
    let (offered, achieved) = (step.offered_per_s, step.throughput_per_s);
    let emphasis = Emphasis::Warn.when(achieved < KEPT_UP_SHARE * offered);
    let achieved = emphasis.span(rate(achieved));
    let mut cells = vec![
        ("offered", Detail::Essential, rate(offered).into()),
        ("achieved", Detail::Essential, achieved.into()),
    ];
    cells.extend(percentiles(&step.response_time_us, &run.plan));
    let counts = &step.requests;
    let failed = counts.ended().saturating_sub(counts.ok);
    let unsent = counts.connect_failed.saturating_add(counts.unsent);
    cells.push(outcomes::failures(failed.saturating_add(unsent)));
    cells
}
