//! The table of a mix's requests.

use floodmark_record::Record;
use floodmark_record::run::{GroupFigures, Run};

use super::figures::share;
use super::run::is_whole;
use super::table::{essential, shown, text};
use super::times::{response_times, service_times};
use super::{ColumnCell, Detail, Table, attempts, outcomes};

/// Returns the table, or `None` for a run without a mix.
pub(crate) fn table(run: &Run) -> Option<Table> {
    let note = if is_whole(run) {
        "percentiles of response time"
    } else {
        "rates within the window; response-time percentiles over the whole run"
    };
    let rows = run.groups.iter();
    let rows = rows.map(|group| (group.name.clone(), cells(run, group)));
    Table::of(rows, note).captioned("request").not_empty()
}

/// Returns a table with a row for each request of each run's mix.
pub(crate) fn all(record: &Record) -> Table {
    Table::of_data(record.runs.iter().flat_map(|run| {
        let all = run.groups.iter();
        all.map(move |group| cells(run, group))
    }))
}

fn cells(run: &Run, group: &GroupFigures) -> Vec<ColumnCell> {
    let share = share(group.requests.intended, run.requests.intended);
    let [throughput, goodput] = outcomes::rates(group.throughput_per_s, group.goodput_per_s);
    let mut cells = attempts::name_cells(run);
    cells.extend([
        text("request", "request", &group.name),
        shown("share", Detail::Roomy, share),
        essential(throughput),
        goodput,
    ]);
    cells.extend(response_times(&group.response_time_us, &run.plan));
    cells.extend(service_times(&group.service_time_us));
    cells.extend(outcomes::count_cells(&group.requests));
    cells.push(outcomes::failures(outcomes::not_ok(&group.requests)));
    cells
}
