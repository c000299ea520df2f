//! Percentiles of each kind of time that was measured.

use floodmark_record::plan::{ConnectionUse, Plan};
use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::units::show_count;

use super::figures::{count_of, time};
use super::table::{and_shown, data, shown, time_of};
use super::{ColumnCell, Detail, Table};

/// Minimum p99 of blocked time that a terminal shows, in microseconds.
const BLOCKED_MATTERS_US: f64 = 1_000.0;
/// Minimum p99 of lateness that a terminal shows, in microseconds. This is a tenth of the lateness
/// that can invalidate a run.
const LATENESS_MATTERS_US: f64 = 100.0;

/// Returns the table, or `None` if nothing was timed.
pub(crate) fn table(run: &Run) -> Option<Table> {
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
    let mut table = Table::of(rows, &note);
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
    let cell = |head, detail, us| and_shown(detail, time_of("", head, us, (times, plan)));
    vec![
        shown("mean", Detail::Page, mean),
        cell("p50", Detail::Essential, times.p50),
        cell("p90", Detail::Roomy, times.p90),
        cell("p99", Detail::Essential, times.p99),
        cell("p99.9", Detail::Roomy, times.p99_9),
        cell("p99.99", Detail::Page, times.p99_99),
        cell("max", Detail::Essential, times.max),
        shown("requests", Detail::Page, show_count(times.count)),
    ]
}

/// Returns the response times that tables of runs, steps and requests contain.
pub(crate) fn response_times(times: &Times, plan: &Plan) -> [ColumnCell; 7] {
    let cell = |name, head, detail, us| and_shown(detail, time_of(name, head, us, (times, plan)));
    [
        cell("response_p50_us", "p50", Detail::Essential, times.p50),
        data("response_p90_us", times.p90),
        data("response_p95_us", times.p95),
        cell("response_p99_us", "p99", Detail::Essential, times.p99),
        cell("response_p99_9_us", "p99.9", Detail::Roomy, times.p99_9),
        cell("response_max_us", "max", Detail::Roomy, times.max),
        data("response_mean_us", times.mean),
    ]
}

/// Returns the service times that tables of runs and requests contain.
pub(crate) fn service_times(times: &Times) -> [ColumnCell; 2] {
    [
        data("service_p50_us", times.p50),
        data("service_p99_us", times.p99),
    ]
}
