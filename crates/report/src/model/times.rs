//! Percentiles of each kind of time that was measured.

use floodmark_record::plan::{ConnectionUse, Plan};
use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::units::show_count;

use super::figures::{count_of, time};
use super::{ColumnCell, Detail, Emphasis, FigureTable, TableCell};

/// Minimum p99 of blocked time that a terminal shows, in microseconds.
const BLOCKED_MATTERS_US: f64 = 1_000.0;
/// Minimum p99 of lateness that a terminal shows, in microseconds. This is a tenth of the lateness
/// that can invalidate a run.
const LATENESS_MATTERS_US: f64 = 100.0;

/// Returns the table, or `None` if nothing was timed.
pub(crate) fn table(run: &Run) -> Option<FigureTable> {
    let open = run.plan.is_open();
    let exceeds = |times: &Times, us: f64| times.p99.is_some_and(|p99| open && p99 > us);
    let (blocked, lateness) = (&run.blocked_us, &run.lateness_us);
    let is_blocked = exceeds(blocked, BLOCKED_MATTERS_US);
    let is_late = exceeds(lateness, LATENESS_MATTERS_US);
    let reconnects = run.plan.connection_use != ConnectionUse::Kept;
    // Name, meaning, times, and whether a terminal shows the row.
    let kinds = [
        ("service", "sent to done", &run.service_time_us, true),
        ("response", "intended to done", &run.response_time_us, true),
        (
            "first byte",
            "sent to first byte",
            &run.first_byte_us,
            false,
        ),
        ("blocked", "waiting for a connection", blocked, is_blocked),
        ("lateness", "delay caused by floodmark", lateness, is_late),
        ("connect", "TCP", &run.connect_time_us, reconnects),
        ("handshake", "TLS", &run.handshake_time_us, reconnects),
        ("not ok", "intended to failed", &run.error_time_us, false),
    ];
    let measured = kinds.iter().filter(|(_, _, times, _)| times.count > 0);
    let cells = |times| cells(times, &run.plan);
    let rows = measured
        .clone()
        .map(|(name, _, times, _)| ((*name).to_owned(), cells(times)));
    let timed_out = run.response_time_us.censored;
    let excluded = count_of(timed_out, "request");
    let note = match timed_out {
        0 => String::new(),
        _ => format!("service time excludes {excluded} that timed out"),
    };
    let mut table = FigureTable::of(rows, &note);
    for (row, (_, about, _, on_terminal)) in table.rows.iter_mut().zip(measured) {
        row.about.push((*about).to_owned());
        if !on_terminal {
            row.detail = Detail::Page;
        }
    }
    (run.response_time_us.count > 0 || run.service_time_us.count > 0).then_some(table)
}

fn cells(times: &Times, plan: &Plan) -> Vec<ColumnCell> {
    // If requests timed out, the mean is unknown. Don't show `> 5 s`, because the mean may be
    // lower.
    let mean = time(times.mean, &Times::default(), plan);
    let [p50, p99, p99_9, max] = percentiles(times, plan);
    let p90 = percentile(times.p90, times, plan);
    let p99_99 = percentile(times.p99_99, times, plan);
    vec![
        ("mean", Detail::Page, mean.into()),
        p50,
        ("p90", Detail::Roomy, p90),
        p99,
        p99_9,
        ("p99.99", Detail::Page, p99_99),
        ("max", Detail::Essential, max.2),
        ("requests", Detail::Page, show_count(times.count).into()),
    ]
}

/// Returns the cells for the percentiles that every table of times contains.
pub(crate) fn percentiles(times: &Times, plan: &Plan) -> [ColumnCell; 4] {
    let cell = |us| percentile(us, times, plan);
    [
        ("p50", Detail::Essential, cell(times.p50)),
        ("p99", Detail::Essential, cell(times.p99)),
        ("p99.9", Detail::Roomy, cell(times.p99_9)),
        ("max", Detail::Roomy, cell(times.max)),
    ]
}

fn percentile(us: Option<f64>, times: &Times, plan: &Plan) -> TableCell {
    let is_censored = us.is_none() && times.censored > 0;
    let emphasis = Emphasis::Bad.when(is_censored);
    emphasis.span(time(us, times, plan)).into()
}
