//! The capacities of an experiment's trials.

use floodmark_record::Record;
use floodmark_record::capacity::{CapacityKind, TrialCapacity};
use floodmark_record::run::Run;

use super::figures::{interval, median, microseconds, optional, per_second};
use super::table::{self, data, essential, listed, shown};
use super::{
    Blocks, ColumnCell, Detail, Emphasis, Table, TextLine, capacity, faint, line, process_use,
    verdict,
};

/// Load whose response time the table shows, as a share of the capacity.
const MODERATE: f64 = 0.8;

/// Maximum difference of a load from a share of the capacity. Rates are not rounded.
const TOLERANCE: f64 = 0.01;

/// Adds a table of the trials, and what limits them above their capacity.
pub(crate) fn add(blocks: &mut Blocks, record: &Record) {
    let Some(goal) = record
        .experiment
        .as_ref()
        .and_then(|asked| asked.capacity.as_ref())
    else {
        return;
    };
    blocks.tables([table(record)]);
    blocks.paragraph([faint(format!(
        "(highest rate with {}; geometric mean and 95 % interval over server processes, or over the \
         trials of a single process; p99 and CPUs: medians of the loads at 80 % and 100 % of the \
         capacity)",
        goal.objectives.join(", ")
    ))]);
    let overloaded: Vec<(&str, Vec<&Run>)> = record
        .trial_capacities
        .iter()
        .map(|trial| (trial.trial.as_str(), overloaded(record, &trial.trial)))
        .collect();
    blocks.lines(verdict::of_trials(&overloaded));
    blocks.lines(remarks(record));
}

/// Returns a table with a row per trial.
pub(crate) fn table(record: &Record) -> Table {
    let rows = record.trial_capacities.iter();
    let rows = rows.map(|trial| (trial.trial.clone(), cells(record, trial)));
    Table::of(rows, "").captioned("trial")
}

fn cells(record: &Record, trial: &TrialCapacity) -> Vec<ColumnCell> {
    let range = trial.interval.as_ref();
    let shown_range = trial.rate_per_s.zip(range);
    let shown_range = shown_range.map_or_else(String::new, |(per_s, range)| interval(per_s, range));
    let at = |share: f64, of: fn(&Run) -> Option<f64>| {
        let runs = loads(record, &trial.trial);
        let runs = runs.filter(move |(_, level)| (level - share).abs() < TOLERANCE);
        median(runs.map(|(run, _)| of(run)))
    };
    let p99 = at(MODERATE, |run| run.response_time_us.p99);
    let cpus = at(1.0, |run| process_use::cpus(run.server.as_ref()));
    let cpus = optional(cpus, |cpus| format!("{cpus:.2}"));
    let processes = match trial.bounded {
        0 => trial.processes.to_string(),
        bounded => format!("{} of {}", trial.processes, trial.processes + bounded),
    };
    let capacity = Emphasis::Strong.span(optional(trial.rate_per_s, per_second));
    vec![
        table::text("trial", "trial", &trial.trial),
        essential(listed(
            "capacity_per_s",
            "capacity/s",
            trial.rate_per_s,
            capacity,
        )),
        essential(listed(
            "capacity_low_per_s",
            "interval",
            range.map(|range| range.low),
            shown_range,
        )),
        data("capacity_high_per_s", range.map(|range| range.high)),
        data("confidence", range.map(|range| range.confidence)),
        shown(
            "p99 at 80 %",
            Detail::Essential,
            optional(p99, microseconds),
        ),
        shown("server CPUs", Detail::Essential, cpus),
        shown("processes", Detail::Essential, processes),
        table::count("processes", "processes", trial.processes),
        data("bounded_processes", trial.bounded),
    ]
}

/// Returns the open-model loads of a trial, with their shares of the capacity.
pub(crate) fn loads<'a>(
    record: &'a Record,
    trial: &'a str,
) -> impl Iterator<Item = (&'a Run, f64)> {
    record.runs_of(trial).filter_map(|run| {
        let found = capacity::of_run(record, run)?;
        Some((run, run.plan.rate_per_s()? / found.rate_per_s?))
    })
}

/// Returns the load with the highest rate of each process.
fn overloaded<'a>(record: &'a Record, trial: &'a str) -> Vec<&'a Run> {
    let runs = loads(record, trial).filter(|(_, level)| *level > 1.0 + TOLERANCE);
    runs.map(|(run, _)| run).collect()
}

/// Returns a line for each process without a single capacity, and notes on precision.
fn remarks(record: &Record) -> Vec<TextLine> {
    let mut lines = Vec::new();
    for found in &record.capacities {
        let name = format!(
            "{}, process {}",
            found.trial.as_deref().unwrap_or_default(),
            found.process
        );
        if found.finding != CapacityKind::Capacity {
            lines.extend(
                capacity::answer(found)
                    .into_iter()
                    .map(|line| line.of(&name)),
            );
        }
    }
    let disturbances = capacity::disturbances(&record.capacities);
    lines.extend(disturbances.map(|note| line("note", note)));
    let notes = record.capacities.iter().flat_map(capacity::precision);
    let mut notes: Vec<String> = notes.collect();
    notes.sort_unstable();
    notes.chunk_by(|a, b| a == b).for_each(|same| {
        let searches = match same.len() {
            1 => "1 search".to_owned(),
            n => format!("{n} searches"),
        };
        lines.push(line("note", format!("{searches}: {}", same[0])));
    });
    lines
}
