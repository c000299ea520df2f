//! The table of a mix's requests.

use floodmark_record::groups::GroupFigures;
use floodmark_record::run::Run;

use super::figures::share;
use super::run::is_whole;
use super::times::percentiles;
use super::{ColumnCell, Detail, FigureTable, outcomes};

/// Returns the table, or `None` for a run without a mix.
pub(crate) fn table(run: &Run) -> Option<FigureTable> {
    let note = match is_whole(run) {
        true => "percentiles of response time",
        false => "rates within the window; response-time percentiles over the whole run",
    };
    let rows = run.groups.iter();
    let rows = rows.map(|group| (group.name.clone(), cells(run, group)));
    (!run.groups.is_empty()).then(|| FigureTable::of(rows, note).captioned("request"))
}

fn cells(run: &Run, group: &GroupFigures) -> Vec<ColumnCell> {
    let share = share(group.requests.intended, run.requests.intended);
    let mut cells = vec![
        ("share", Detail::Roomy, share.into()),
        outcomes::ok_per_s(group.throughput_per_s),
    ];
    cells.extend(percentiles(&group.response_time_us, &run.plan));
    cells.push(outcomes::failures(outcomes::not_ok(&group.requests)));
    cells
}
