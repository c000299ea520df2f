//! The table of steps, for a load whose rate changes.

use floodmark_record::Record;
use floodmark_record::run::{Run, StepFigures};
use floodmark_stats::saturation::KEPT_UP_SHARE;

use super::figures::{per_second, rate, seconds};
use super::table::{number, shown};
use super::times::response_times;
use super::{ColumnCell, Detail, Emphasis, Table, attempts, outcomes};

/// Maximum number of steps shown.
const MAX_SHOWN: usize = 20;

/// Returns the table, or `None` for a run without steps.
pub(crate) fn table(run: &Run) -> Option<Table> {
    let name = |step: &StepFigures| match step.from_s {
        0.0 => format!("0 to {}", seconds(step.to_s)),
        from_s => format!("{} to {}", seconds(from_s), seconds(step.to_s)),
    };
    let rows = run.steps.iter().map(|step| (name(step), cells(run, step)));
    let note = "requests are counted when they end; percentiles are response times";
    let table = Table::of(rows, note).captioned("step");
    table.limited(MAX_SHOWN).not_empty()
}

/// Returns the steps of all runs.
pub(crate) fn all(record: &Record) -> Table {
    Table::of_data(record.runs.iter().flat_map(|run| {
        let all = run.steps.iter();
        all.map(move |step| cells(run, step))
    }))
}

fn cells(run: &Run, step: &StepFigures) -> Vec<ColumnCell> {
    let (offered, achieved) = (step.offered_per_s, step.throughput_per_s);
    let emphasis = Emphasis::Warn.when(achieved < KEPT_UP_SHARE * offered);
    let counts = &step.requests;
    let failed = counts.ended().saturating_sub(counts.ok);
    let unsent = counts.connect_failed.saturating_add(counts.unsent);
    let failed = failed.saturating_add(unsent);
    let mut cells = attempts::name_cells(run);
    cells.extend([
        number("from_s", "from", Some(step.from_s), seconds),
        number("to_s", "to", Some(step.to_s), seconds),
        number("offered_per_s", "offered/s", Some(offered), per_second),
        shown("offered", Detail::Essential, rate(offered)),
        shown("achieved", Detail::Essential, emphasis.span(rate(achieved))),
    ]);
    cells.extend(outcomes::rates(Some(achieved), Some(step.goodput_per_s)));
    cells.extend(response_times(&step.response_time_us, &run.plan));
    cells.extend(outcomes::count_cells(counts));
    cells.push(outcomes::failures(failed));
    cells
}
