//! Service and response time side by side, and the times that explain them where they matter.

use floodmark_record::plan::{ConnectionUse, Model};
use floodmark_record::run::Run;
use floodmark_record::times::Times;

use crate::figures::{count_of, time};
use crate::page::{LABEL, Page, faint, plain};
use crate::style::Paint;

/// A wait for a connection is shown from here on, microseconds at p99.
const BLOCKED_MATTERS_US: f64 = 1_000.0;
/// Our own lateness is shown from here on, microseconds at p99; a tenth of what can make a run invalid.
const LATENESS_MATTERS_US: f64 = 100.0;

type Column = (&'static str, fn(&Times) -> Option<f64>);

/// Every column, where there is room.
const COLUMNS: [Column; 5] = [
    ("p50", |t| t.p50),
    ("p90", |t| t.p90),
    ("p99", |t| t.p99),
    ("p99.9", |t| t.p99_9),
    ("max", |t| t.max),
];

/// Columns left out where there is no room, first to go first.
const SPARED: [&str; 2] = ["p90", "p99.9"];

/// Draws the table; a run without any time gets one line that says so.
pub(crate) fn draw(page: &mut Page, run: &Run) {
    if run.response_time_us.count == 0 && run.service_time_us.count == 0 {
        page.entry(
            "times",
            &[plain("none: no request was answered ok or timed out")],
        );
        return;
    }
    let width = cell_width(page.columns());
    let columns = columns(page.columns(), width);
    let heads: Vec<_> = columns
        .iter()
        .map(|(name, _)| (width, Paint::Faint, (*name).to_owned()))
        .collect();
    page.row("", &heads);
    for (label, times) in rows(run) {
        let cells: Vec<_> = columns
            .iter()
            .map(|(_, of)| {
                let text = time(of(times), times, run.plan.timeout_s);
                let paint = match of(times) {
                    None if times.censored > 0 => Paint::Bad,
                    _ => Paint::Plain,
                };
                (width, paint, text)
            })
            .collect();
        page.row(label, &cells);
    }
    // Side by side they are of different requests, and the service time is of the lucky ones.
    if run.response_time_us.censored > 0 {
        let timed_out = count_of(run.response_time_us.censored, "request");
        let text = format!("(service time leaves out {timed_out} that timed out)");
        page.entry("", &[faint(text)]);
    }
}

/// Service and response time always; what else explains them where it is large.
fn rows(run: &Run) -> Vec<(&'static str, &Times)> {
    let above = |times: &Times, limit: f64| times.p99.is_some_and(|p99| p99 > limit);
    let open = run.plan.model == Model::Open;
    let mut rows = vec![
        ("service", &run.service_time_us),
        ("response", &run.response_time_us),
    ];
    if open && above(&run.blocked_us, BLOCKED_MATTERS_US) {
        rows.push(("blocked", &run.blocked_us));
    }
    if open && above(&run.lateness_us, LATENESS_MATTERS_US) {
        rows.push(("lateness", &run.lateness_us));
    }
    if run.plan.connection_use != ConnectionUse::Kept && run.connect_time_us.count > 0 {
        rows.push(("connect", &run.connect_time_us));
    }
    if run.plan.connection_use != ConnectionUse::Kept && run.handshake_time_us.count > 0 {
        rows.push(("handshake", &run.handshake_time_us));
    }
    rows
}

/// Wide enough for `> 250 ms`; one column more of air where there is room.
pub(crate) fn cell_width(columns: usize) -> usize {
    if columns < 70 { 9 } else { 10 }
}

fn columns(room: usize, width: usize) -> Vec<Column> {
    let mut columns = COLUMNS.to_vec();
    for spared in SPARED {
        if LABEL + columns.len() * width > room {
            columns.retain(|(name, _)| *name != spared);
        }
    }
    columns
}
