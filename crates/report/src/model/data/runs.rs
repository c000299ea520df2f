//! Tables of runs, of the requests of a mix and of the steps of a load.

use floodmark_record::Record;
use floodmark_record::outcome::Counts;
use floodmark_record::plan::Plan;
use floodmark_record::run::Run;
use floodmark_record::times::Times;

use super::{DataCell, DataTable, recorded_name};
use crate::model::figures::{interval, microseconds, per_second, seconds};
use crate::model::{outcomes, process_use, run};

/// Returns a row per attempt.
pub(crate) fn table(record: &Record) -> Option<DataTable> {
    DataTable::of("runs", record.runs.iter().map(run_row))
}

/// Returns a row per attempt and request of its mix.
pub(crate) fn groups(record: &Record) -> Option<DataTable> {
    let rows = record.runs.iter().flat_map(|run| {
        run.groups.iter().map(|group| {
            let mut row = name(run);
            row.push(DataCell::text("request", "request", &group.name));
            row.extend(rates(group.throughput_per_s, group.goodput_per_s));
            row.extend(response_times(&group.response_time_us, &run.plan));
            row.extend(service_times(&group.service_time_us));
            row.extend(counts(&group.requests));
            row
        })
    });
    DataTable::of("requests", rows)
}

/// Returns a row per attempt and step of its load.
pub(crate) fn steps(record: &Record) -> Option<DataTable> {
    let rows = record.runs.iter().flat_map(|run| {
        run.steps.iter().map(|step| {
            let (offered, achieved) = (step.offered_per_s, step.throughput_per_s);
            let mut row = name(run);
            row.extend([
                DataCell::number("from_s", "from", Some(step.from_s), seconds),
                DataCell::number("to_s", "to", Some(step.to_s), seconds),
                DataCell::number("offered_per_s", "offered/s", Some(offered), per_second),
            ]);
            row.extend(rates(Some(achieved), Some(step.goodput_per_s)));
            row.extend(response_times(&step.response_time_us, &run.plan));
            row.extend(counts(&step.requests));
            row
        })
    });
    DataTable::of("steps", rows)
}

/// Returns the cells that name a run.
pub(crate) fn name(run: &Run) -> Vec<DataCell> {
    let setting = run.setting.iter();
    let setting = setting.map(|(name, value)| format!("{name}={value}"));
    let trial = run.trial.as_deref().unwrap_or_default();
    // A trial's name contains its system and its settings.
    let system = match run.trial {
        Some(_) => DataCell::hidden_text("system", &run.system),
        None => DataCell::text("system", "system", &run.system),
    };
    vec![
        DataCell::text("trial", "trial", trial),
        system,
        DataCell::hidden_text("workload", &run.workload),
        DataCell::hidden_text("setting", setting.collect::<Vec<_>>().join(";")),
        DataCell::count("process", "process", run.process),
        DataCell::count("attempt", "attempt", run.attempt),
    ]
}

fn run_row(run: &Run) -> Vec<DataCell> {
    let within = run.throughput_interval.as_ref();
    let shown = run.throughput_per_s.zip(within);
    let shown = shown.map_or_else(String::new, |(per_s, within)| interval(per_s, within));
    let validity = recorded_name(&run.validity.status);
    let cause = run.verdict.as_ref().map(|verdict| verdict.cause.name());
    let mut row = name(run);
    row.extend([
        DataCell::hidden_count("started_unix_ms", run.started_unix_ms),
        DataCell::hidden_text("ended", recorded_name(&run.ended.reason)),
        DataCell::hidden_text("validity", validity),
        DataCell::hidden_number("sending_s", Some(run.sending_s)),
        DataCell::hidden_number("window_from_s", Some(run.window.from_s)),
        DataCell::hidden_number("window_to_s", Some(run.window.to_s)),
        DataCell::number(
            "offered_per_s",
            "offered/s",
            run.plan.rate_per_s(),
            per_second,
        ),
    ]);
    row.extend(rates(run.throughput_per_s, run.goodput_per_s));
    row.extend([
        DataCell::hidden_number("throughput_low_per_s", within.map(|of| of.low))
            .shown("interval", shown),
        DataCell::hidden_number("throughput_high_per_s", within.map(|of| of.high)),
        DataCell::hidden_number("throughput_confidence", within.map(|of| of.confidence)),
    ]);
    row.extend(response_times(&run.response_time_us, &run.plan));
    row.extend(service_times(&run.service_time_us));
    row.extend(counts(&run.requests));
    let per_request = |used: &Option<floodmark_record::watch::Server>| {
        used.as_ref().and_then(|used| used.cpu_us_per_request)
    };
    let cpus = |cpus: f64| format!("{cpus:.2}");
    row.extend([
        DataCell::number(
            "client_cpu_us_per_request",
            "client CPU/request",
            run.client.cpu_us_per_request.filter(|us| *us > 0.0),
            microseconds,
        ),
        DataCell::hidden_number("server_cpu_us_per_request", per_request(&run.server)),
        DataCell::hidden_number("store_cpu_us_per_request", per_request(&run.store)),
        DataCell::number(
            "server_cpus",
            "server CPUs",
            process_use::cpus(run.server.as_ref()),
            cpus,
        ),
        DataCell::number(
            "store_cpus",
            "store CPUs",
            process_use::cpus(run.store.as_ref()),
            cpus,
        ),
        DataCell::text("cause", "cause", cause.unwrap_or_default()),
        DataCell::hidden_text("validity_reasons", run.validity.reasons.join("; "))
            .shown("validity", run::validity_of(run).text),
    ]);
    row
}

fn rates(throughput_per_s: Option<f64>, goodput_per_s: Option<f64>) -> [DataCell; 2] {
    [
        DataCell::number("throughput_per_s", "ok/s", throughput_per_s, per_second),
        DataCell::hidden_number("goodput_per_s", goodput_per_s),
    ]
}

fn response_times(times: &Times, plan: &Plan) -> [DataCell; 7] {
    let of = (times, plan);
    [
        DataCell::time("response_p50_us", "p50", times.p50, of),
        DataCell::hidden_number("response_p90_us", times.p90),
        DataCell::hidden_number("response_p95_us", times.p95),
        DataCell::time("response_p99_us", "p99", times.p99, of),
        DataCell::time("response_p99_9_us", "p99.9", times.p99_9, of),
        DataCell::time("response_max_us", "max", times.max, of),
        DataCell::hidden_number("response_mean_us", times.mean),
    ]
}

fn service_times(times: &Times) -> [DataCell; 2] {
    [
        DataCell::hidden_number("service_p50_us", times.p50),
        DataCell::hidden_number("service_p99_us", times.p99),
    ]
}

fn counts(of: &Counts) -> [DataCell; 12] {
    let not_ok = outcomes::not_ok(of);
    [
        DataCell::hidden_count("intended", of.intended),
        DataCell::hidden_count("sent", of.sent),
        DataCell::count("ok", "ok", of.ok),
        DataCell::count("not_ok", "not ok", not_ok),
        DataCell::hidden_count("rejected", of.rejected),
        DataCell::hidden_count("wrong", of.wrong),
        DataCell::hidden_count("malformed", of.malformed),
        DataCell::hidden_count("reset", of.reset),
        DataCell::hidden_count("timed_out", of.timed_out),
        DataCell::hidden_count("in_flight_at_end", of.in_flight_at_end),
        DataCell::hidden_count("unsent", of.unsent),
        DataCell::hidden_count("connect_failed", of.connect_failed),
    ]
}
