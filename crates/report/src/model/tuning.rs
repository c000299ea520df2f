//! A tuning: its steps and its frontier.

use floodmark_record::Record;
use floodmark_record::capacity::CapacityGoal;
use floodmark_record::experiment::ExperimentDescription;
use floodmark_record::tuning::{
    KnobValues, TunedSetting, Tuning, TuningAction, TuningDescription, TuningStep,
};

use super::figures::{self, duration, microseconds, optional, rate};
use super::table::{self, and_shown, data, listed, shown};
use super::{
    Blocks, Cell, ColumnCell, Detail, Emphasis, Table, experiment, line, placement, tuning_result,
};

/// Explanation of the intervals.
const INTERVALS: &str = "; 95 % intervals within the server process";

/// Explanation of the frontier.
pub(crate) const FRONTIER: &str = "no other setting has both a higher throughput and a lower p99; differences below 2 % do \
    not count";

/// Relative difference at which two figures count as equal.
pub(crate) const SAME: f64 = 0.02;

/// How to show the figure of a tuning.
pub(crate) struct TunedFigure {
    head: &'static str,
    /// Meaning of the figure.
    pub(crate) meaning: String,
    /// What makes the figure more precise.
    pub(crate) precision: &'static str,
}

impl TunedFigure {
    /// Returns the figure of an experiment's tuning. Only a tuning for capacity has objectives.
    pub(crate) fn of(experiment: &ExperimentDescription) -> Self {
        match &experiment.capacity {
            None => TunedFigure {
                head: "ok/s",
                meaning: "ok responses per second".to_owned(),
                precision: "a longer --duration",
            },
            Some(goal) => TunedFigure {
                head: "capacity/s",
                meaning: format!("highest rate with {}", goal.objectives.join(", ")),
                precision: "a longer `budget` in [capacity]",
            },
        }
    }
}

/// Returns the tuning of a record and its figure.
pub(crate) fn of(record: &Record) -> Option<(&Tuning, TunedFigure)> {
    let experiment = record.experiment.as_ref()?;
    Some((record.tuning.as_ref()?, TunedFigure::of(experiment)))
}

/// Returns the result of a record's tuning, or no blocks for other records.
pub(crate) fn document(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    let Some((experiment, (tuning, of))) = record.experiment.as_ref().zip(of(record)) else {
        return blocks;
    };
    blocks.paragraph([Emphasis::Strong.span(&experiment.question)]);
    blocks.gap();
    blocks.tables([steps(tuning, &of)]);
    blocks.gap();
    blocks.lines(tuning_result::lines(tuning, &of));
    blocks.lines(experiment::resumed(record).map(|text| line("resumed", text)));
    blocks.lines(placement::lines(record));
    blocks.lines(record.skipped.iter().map(|text| line("skipped", text)));
    if let Some(frontier) = frontier(tuning) {
        blocks.section("frontier", FRONTIER);
        blocks.tables([frontier]);
    }
    blocks
}

/// Returns a row per measured server process.
pub(crate) fn steps(tuning: &Tuning, of: &TunedFigure) -> Table {
    let rows = (1_u64..).zip(&tuning.steps).map(|(number, step)| {
        let name = format!("{number} {}", setting(&step.values));
        (name, step_cells(number, step, of))
    });
    let has_intervals = tuning.steps.iter().any(|step| step.interval.is_some());
    let note = format!(
        "one row per server process: {}, and the cause that limits the server",
        of.meaning
    );
    let mut table = Table::of(rows, &note);
    table.supplement_note = if has_intervals { INTERVALS } else { "" };
    table
}

fn step_cells(number: u64, step: &TuningStep, of: &TunedFigure) -> Vec<ColumnCell> {
    let essential = |cell| and_shown(Detail::Essential, cell);
    let range = step.interval.as_ref();
    let cause = step.cause.map_or("", |cause| cause.name());
    let process = table::count("process", "process", step.process);
    let [named, trial] = knob_cells(&step.values, &step.trial);
    vec![
        table::count("number", "number", number),
        essential(table::text("action", "step", step.action.name())),
        data("knob", step.knob.as_deref().unwrap_or_default()),
        data("reason", &step.reason),
        named,
        trial,
        shown(of.head, Detail::Essential, step_figure(step)),
        and_shown(Detail::Roomy, process),
        table::number(
            "figure_per_s",
            "figure/s",
            step.figure_per_s,
            figures::per_second,
        ),
        data("figure_low_per_s", range.map(|range| range.low)),
        data("figure_high_per_s", range.map(|range| range.high)),
        data("is_lower_bound", step.is_lower_bound),
        essential(table::text("cause", "limit", cause)),
        table::text("note", "note", step.note.as_deref().unwrap_or_default()),
    ]
}

fn knob_cells(values: &KnobValues, trial: &str) -> [ColumnCell; 2] {
    let pairs = values.iter().map(|(name, value)| format!("{name}={value}"));
    let pairs = pairs.collect::<Vec<_>>().join(";");
    [
        listed("setting", "setting", pairs, setting(values)),
        data("trial", trial),
    ]
}

/// Returns a row per measured setting. The figure is a throughput or a capacity.
pub(crate) fn settings(tuning: &Tuning) -> Table {
    let settings = tuning.settings.iter();
    Table::of_data(settings.map(|one| setting_cells(tuning, one)))
}

fn setting_cells(tuning: &Tuning, one: &TunedSetting) -> Vec<ColumnCell> {
    let is_chosen = tuning.chosen.as_ref() == Some(&one.trial);
    let is_best = tuning.best.as_ref() == Some(&one.trial);
    let role = match (is_chosen, is_best) {
        (true, true) => "chosen, best",
        (true, false) => "chosen",
        (false, true) => "best",
        (false, false) => "",
    };
    let range = one.interval.as_ref();
    let interval = one.figure_per_s.zip(range);
    let interval = interval.map_or_else(String::new, |(per_s, range)| {
        figures::interval(per_s, range)
    });
    let figure = optional(one.figure_per_s, figures::per_second);
    let [named, trial] = knob_cells(&one.values, &one.trial);
    vec![
        named,
        trial,
        shown("ok/s", Detail::Essential, figure.clone()),
        listed("figure_per_s", "figure/s", one.figure_per_s, figure),
        listed(
            "figure_low_per_s",
            "interval",
            range.map(|range| range.low),
            interval,
        ),
        data("figure_high_per_s", range.map(|range| range.high)),
        data("is_lower_bound", one.is_lower_bound),
        and_shown(
            Detail::Essential,
            table::number("response_p99_us", "p99", one.p99_us, microseconds),
        ),
        table::count("processes", "processes", one.processes),
        listed("is_chosen", "role", is_chosen, role),
        data("is_best", is_best),
        data("is_on_frontier", one.on_frontier),
    ]
}

fn step_figure(step: &TuningStep) -> Cell {
    let figure = step.figure_per_s;
    let interval = figure.zip(step.interval.as_ref());
    let interval = interval.map(|(figure, interval)| figures::interval(figure, interval));
    let text = match figure {
        Some(per_s) if step.is_lower_bound => format!("≥ {}", figures::per_second(per_s)),
        Some(per_s) => figures::per_second(per_s),
        None if step.note.is_some() => "none".to_owned(),
        None => "failed".to_owned(),
    };
    Cell::new(text, interval)
}

/// Returns the settings on the frontier by throughput and p99. Returns `None` if no setting trades
/// one for the other.
pub(crate) fn frontier(tuning: &Tuning) -> Option<Table> {
    let settings = tuning.settings.iter();
    let mut on_frontier: Vec<&TunedSetting> = settings.filter(|one| one.on_frontier).collect();
    on_frontier.sort_by(|a, b| {
        b.figure_per_s
            .partial_cmp(&a.figure_per_s)
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let rows = on_frontier.iter();
    let rows = rows.map(|one| (setting(&one.values), setting_cells(tuning, one)));
    // Settings with equal throughputs trade nothing.
    let ends = on_frontier.first().zip(on_frontier.last());
    let trades = ends.is_some_and(|(highest, lowest)| {
        let enough = highest.figure_per_s.map(|highest| highest * (1.0 - SAME));
        lowest.figure_per_s < enough
    });
    trades.then(|| Table::of(rows, ""))
}

/// Describes a measured server process: `threads = 8: 190/s ± 1.2 % (worker-pool: …)`.
#[must_use]
pub fn tuning_step(step: &TuningStep) -> String {
    let figure = match step.figure_per_s {
        Some(per_s) => {
            let interval = step.interval.as_ref();
            let interval =
                interval.map(|interval| format!(" {}", figures::interval(per_s, interval)));
            let figure = bounded(rate(per_s), step.is_lower_bound);
            format!("{figure}{}", interval.unwrap_or_default())
        }
        None => match &step.note {
            Some(note) => format!("none ({note})"),
            None => "failed".to_owned(),
        },
    };
    // Repeated measurements of a setting usually have the same limit.
    let is_first = step.process == 1;
    let limit = step.cause.zip(step.limit.as_ref()).filter(|_| is_first);
    let limit = limit.map(|(cause, limit)| format!(" – {cause}: {limit}"));
    format!(
        "  {}, process {}: {figure}{}",
        setting(&step.values),
        step.process,
        limit.unwrap_or_default()
    )
}

/// Describes the next step of a tuning: `raise threads: threads = 100, connections = 30, process 1
/// (its pool is full)`.
#[must_use]
pub fn tuning_action(
    action: TuningAction,
    knob: Option<&str>,
    (values, process): (&KnobValues, u32),
    reason: &str,
) -> String {
    let knob = knob.map(|knob| format!(" {knob}")).unwrap_or_default();
    let setting = setting(values);
    format!("{action}{knob}: {setting}, process {process} ({reason})")
}

/// Describes what a tuning changes: `trial far, knobs threads (1 to 200) and connections (1 to 50)`.
/// If the tuning searches for capacities, states their objectives and the length of each search.
#[must_use]
pub fn tuning_scope(tuning: &TuningDescription, capacity: Option<&CapacityGoal>) -> String {
    let knobs = tuning.knobs.iter();
    let knobs = knobs.map(|knob| format!("{} ({} to {})", knob.name, knob.low, knob.high));
    let noun = if tuning.knobs.len() == 1 {
        "knob"
    } else {
        "knobs"
    };
    let knobs = knobs.collect::<Vec<_>>().join(" and ");
    let scope = format!("trial {}, {noun} {knobs}", tuning.trial);
    match capacity {
        None => scope,
        Some(goal) => format!(
            "{scope}; capacity for {}, up to {} per server process",
            goal.objectives.join(", "),
            duration(goal.budget_s)
        ),
    }
}

/// Marks a figure that is only a lower bound: `at least 48,000/s`.
pub(crate) fn bounded(figure: String, is_lower_bound: bool) -> String {
    match is_lower_bound {
        true => format!("at least {figure}"),
        false => figure,
    }
}

/// Formats the values of knobs in reverse alphabetical order: `threads = 8, connections = 30`.
pub(crate) fn setting(values: &KnobValues) -> String {
    let each = values.iter().rev();
    let each = each.map(|(name, value)| format!("{name} = {value}"));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "tuning_tests.rs"]
pub(crate) mod tests;
