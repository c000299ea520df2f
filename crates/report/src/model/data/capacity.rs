//! Tables of searches for a capacity.

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityResult, CapacityTrial};

use super::{DataCell, DataTable, DataValue, recorded_name};
use crate::model::figures::{interval, microseconds, per_second, seconds};

/// Returns a row per search, that is, per server process.
pub(crate) fn capacities(record: &Record) -> Option<DataTable> {
    DataTable::of("capacities", searches(record).map(search_row))
}

/// Returns a row per trial of an experiment, over its server processes.
pub(crate) fn of_trials(record: &Record) -> Option<DataTable> {
    let rows = record.trial_capacities.iter().map(|of| {
        let range = of.interval.as_ref();
        let shown = of.rate_per_s.zip(range);
        let shown = shown.map_or_else(String::new, |(per_s, range)| interval(per_s, range));
        vec![
            DataCell::text("trial", "trial", &of.trial),
            DataCell::number("capacity_per_s", "capacity/s", of.rate_per_s, per_second),
            DataCell::hidden_number("capacity_low_per_s", range.map(|range| range.low))
                .shown("interval", shown),
            DataCell::hidden_number("capacity_high_per_s", range.map(|range| range.high)),
            DataCell::hidden_number("confidence", range.map(|range| range.confidence)),
            DataCell::count("processes", "processes", of.processes),
            DataCell::hidden_count("bounded_processes", of.bounded),
        ]
    });
    DataTable::of("trial_capacities", rows)
}

/// Returns a row per trial of each search.
pub(crate) fn trials(record: &Record) -> Option<DataTable> {
    let rows = searches(record).flat_map(|search| {
        let trials = (1_u64..).zip(&search.trials);
        trials.map(|(number, trial)| trial_row(search, number, trial))
    });
    DataTable::of("capacity_trials", rows)
}

fn searches(record: &Record) -> impl Iterator<Item = &CapacityResult> {
    record.capacity.iter().chain(&record.capacities)
}

/// Returns the cells that name a search.
fn name(search: &CapacityResult) -> [DataCell; 2] {
    let trial = search.trial.as_deref().unwrap_or_default();
    [
        DataCell::text("trial", "trial", trial),
        DataCell::count("process", "process", search.process),
    ]
}

fn search_row(search: &CapacityResult) -> Vec<DataCell> {
    let range = search.interval();
    let shown = search.rate_per_s.zip(range.as_ref());
    let shown = shown.map_or_else(String::new, |(per_s, range)| interval(per_s, range));
    let falling = search.falling.as_ref();
    let end = search.end.as_ref();
    let bound = search.bound.as_ref().map(recorded_name);
    let mut row = Vec::from(name(search));
    row.extend([
        DataCell::text(
            "objectives",
            "objectives",
            search.settings.objectives.join("; "),
        ),
        DataCell::number(
            "capacity_per_s",
            "capacity/s",
            search.rate_per_s,
            per_second,
        ),
        DataCell::hidden_number("capacity_low_per_s", search.low).shown("interval", shown),
        DataCell::hidden_number("capacity_high_per_s", search.high),
        DataCell::hidden_number("confidence", Some(search.level)),
        DataCell::text("bound", "bound", bound.unwrap_or_default()),
        DataCell::text("finding", "finding", recorded_name(&search.finding)),
        DataCell::hidden_number("falling_capacity_per_s", falling.map(|of| of.rate_per_s)),
        DataCell::hidden_number("falling_low_per_s", falling.and_then(|of| of.low)),
        DataCell::hidden_number("falling_high_per_s", falling.and_then(|of| of.high)),
        DataCell::hidden_number("last_capacity_per_s", search.last_per_s),
        DataCell::hidden_number("scatter_share", search.scatter),
        DataCell::hidden("is_confirmed", DataValue::Flag(search.is_confirmed)),
        DataCell::count("trials", "trials", search.trials.len() as u64),
        DataCell::number(
            "elapsed_s",
            "time",
            end.map(|end| end.elapsed_s.round()),
            seconds,
        ),
        DataCell::hidden_text(
            "ended",
            end.map(|end| recorded_name(&end.reason))
                .unwrap_or_default(),
        ),
    ]);
    row
}

fn trial_row(search: &CapacityResult, number: u64, trial: &CapacityTrial) -> Vec<DataCell> {
    let figures = trial.figures.iter();
    let figures = figures.map(|of| format!("{}: {}", of.objective, of.figure));
    let fault = trial.fault.as_deref().unwrap_or_default();
    let mut row = Vec::from(name(search));
    row.extend([
        DataCell::count("number", "number", number),
        DataCell::number(
            "offered_per_s",
            "offered/s",
            Some(trial.rate_per_s),
            per_second,
        ),
        DataCell::text("start", "from", recorded_name(&trial.start)),
        DataCell::hidden_text("purpose", recorded_name(&trial.purpose)),
        DataCell::text("outcome", "outcome", recorded_name(&trial.outcome)),
        DataCell::text("figures", "figures", figures.collect::<Vec<_>>().join("; ")),
        DataCell::hidden_number("at_s", Some(trial.at_s)),
        DataCell::number("judged_s", "length", Some(trial.judged_s), seconds),
        DataCell::hidden_number("throughput_per_s", trial.throughput_per_s),
        DataCell::hidden_number("error_share", trial.error_share),
        DataCell::number("response_p50_us", "p50", trial.p50_us, microseconds),
        DataCell::number("response_p99_us", "p99", trial.p99_us, microseconds),
        DataCell::hidden_number("server_cpus", trial.server_cpus),
        DataCell::hidden_number("slow_cpu_share", trial.slow_cpu_share),
        DataCell::hidden_text("fault", fault),
    ]);
    row
}
