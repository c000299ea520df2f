//! Tables of a run: its times, its steps and the requests of its mix.

use floodmark_record::Record;
use floodmark_record::plan::{ConnectionUse, Plan};
use floodmark_record::run::{GroupFigures, Run, StepFigures};
use floodmark_record::times::Times;
use floodmark_record::units::show_count;
use floodmark_stats::saturation::KEPT_UP_SHARE;

use super::document::{
    ColumnCell, Detail, Emphasis, Table, count_cell, data, number_cell, shown, text_cell, time_cell,
};
use super::figures::{count_of, per_second, rate, seconds, setting_pairs, share, time};
use super::outcomes;
use super::run::is_whole;

/// Minimum p99 of blocked time that a terminal shows, in microseconds.
const BLOCKED_MATTERS_US: f64 = 1_000.0;

/// Minimum p99 of lateness that a terminal shows, in microseconds. This is a tenth of the lateness
/// that can invalidate a run.
const LATENESS_MATTERS_US: f64 = 100.0;

/// Returns the times, or `None` if nothing was timed.
pub(crate) fn times(run: &Run) -> Option<Table> {
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
    let cells = |times| time_cells(times, &run.plan);
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

fn time_cells(times: &Times, plan: &Plan) -> Vec<ColumnCell> {
    // If requests timed out, the mean is unknown. Don't show `> 5 s`, because the mean may be
    // lower.
    let mean = time(times.mean, &Times::default(), plan);
    let cell = |head, detail, us| time_cell("", head, us, (times, plan)).at(detail);
    vec![
        shown("mean", mean).at(Detail::Page),
        cell("p50", Detail::Essential, times.p50),
        cell("p90", Detail::Roomy, times.p90),
        cell("p99", Detail::Essential, times.p99),
        cell("p99.9", Detail::Roomy, times.p99_9),
        cell("p99.99", Detail::Page, times.p99_99),
        cell("max", Detail::Essential, times.max),
        shown("requests", show_count(times.count)).at(Detail::Page),
    ]
}

/// Returns the response times that tables of runs, steps and requests contain.
pub(crate) fn response_times(times: &Times, plan: &Plan) -> [ColumnCell; 7] {
    let cell = |name, head, detail, us| time_cell(name, head, us, (times, plan)).at(detail);
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

/// Returns the requests, or `None` for a run without a mix.
pub(crate) fn requests(run: &Run) -> Option<Table> {
    let note = if is_whole(run) {
        "percentiles of response time"
    } else {
        "rates within the window; response-time percentiles over the whole run"
    };
    let rows = run.groups.iter();
    let rows = rows.map(|group| (group.name.clone(), request_cells(run, group)));
    Table::of(rows, note).captioned("request").not_empty()
}

/// Returns a table with a row for each request of each run's mix.
pub(crate) fn all_requests(record: &Record) -> Table {
    Table::of_data(record.runs.iter().flat_map(|run| {
        let all = run.groups.iter();
        all.map(move |group| request_cells(run, group))
    }))
}

fn request_cells(run: &Run, group: &GroupFigures) -> Vec<ColumnCell> {
    let share = share(group.requests.intended, run.requests.intended);
    let [throughput, goodput] = outcomes::rates(group.throughput_per_s, group.goodput_per_s);
    let mut cells = name_cells(run);
    cells.extend([
        text_cell("request", "request", &group.name),
        shown("share", share).at(Detail::Roomy),
        throughput.essential(),
        goodput,
    ]);
    cells.extend(response_times(&group.response_time_us, &run.plan));
    cells.extend(service_times(&group.service_time_us));
    cells.extend(outcomes::count_cells(&group.requests));
    cells.push(outcomes::failures(outcomes::not_ok(&group.requests)));
    cells
}

/// Maximum number of steps shown.
const MAX_SHOWN: usize = 20;

/// Returns the steps, or `None` for a run without steps.
pub(crate) fn steps(run: &Run) -> Option<Table> {
    let name = |step: &StepFigures| match step.from_s {
        0.0 => format!("0 to {}", seconds(step.to_s)),
        from_s => format!("{} to {}", seconds(from_s), seconds(step.to_s)),
    };
    let rows = run
        .steps
        .iter()
        .map(|step| (name(step), step_cells(run, step)));
    let note = "requests are counted when they end; percentiles are response times";
    let table = Table::of(rows, note).captioned("step");
    table.limited(MAX_SHOWN).not_empty()
}

/// Returns the steps of all runs.
pub(crate) fn all_steps(record: &Record) -> Table {
    Table::of_data(record.runs.iter().flat_map(|run| {
        let all = run.steps.iter();
        all.map(move |step| step_cells(run, step))
    }))
}

fn step_cells(run: &Run, step: &StepFigures) -> Vec<ColumnCell> {
    let (offered, achieved) = (step.offered_per_s, step.throughput_per_s);
    let emphasis = Emphasis::Warn.when(achieved < KEPT_UP_SHARE * offered);
    let counts = &step.requests;
    let failed = counts.ended().saturating_sub(counts.ok);
    let unsent = counts.connect_failed.saturating_add(counts.unsent);
    let failed = failed.saturating_add(unsent);
    let mut cells = name_cells(run);
    cells.extend([
        number_cell("from_s", "from", Some(step.from_s), seconds),
        number_cell("to_s", "to", Some(step.to_s), seconds),
        number_cell("offered_per_s", "offered/s", Some(offered), per_second),
        shown("offered", rate(offered)),
        shown("achieved", emphasis.span(rate(achieved))),
    ]);
    cells.extend(outcomes::rates(Some(achieved), Some(step.goodput_per_s)));
    cells.extend(response_times(&step.response_time_us, &run.plan));
    cells.extend(outcomes::count_cells(counts));
    cells.push(outcomes::failures(failed));
    cells
}

/// Returns the cells that name a run in tables for programs.
pub(crate) fn name_cells(run: &Run) -> Vec<ColumnCell> {
    // A trial's name contains its system and its settings.
    let system = match run.trial {
        Some(_) => data("system", &run.system),
        None => text_cell("system", "system", &run.system),
    };
    vec![
        text_cell("trial", "trial", &run.trial),
        system,
        data("workload", &run.workload),
        data("setting", setting_pairs(&run.setting)),
        count_cell("process", "process", run.process),
        count_cell("attempt", "attempt", run.attempt),
    ]
}
