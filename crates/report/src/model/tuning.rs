//! A tuning run: its path, the chosen setting and its figures.

use floodmark_record::Record;
use floodmark_record::capacity::CapacityGoal;
use floodmark_record::experiment::ExperimentDescription;
use floodmark_record::interval::Interval;
use floodmark_record::tuning::{
    KnobValues, TunedSetting, Tuning, TuningAction, TuningDescription, TuningEnd, TuningRatio,
    TuningStep,
};

use super::chart::{AxisFit, Chart, ChartMark, Curve, Quantity};
use super::document::{
    Blocks, Cell, ColumnCell, Detail, Emphasis, Table, TextLine, count_cell, data, line, listed,
    number_cell, plain, shown, text_cell,
};
use super::figures::{
    self, count_of, duration, ends, interval, interval_or_none, joined, level, microseconds,
    optional, per_second, rate, setting_pairs,
};
use super::{environment, experiment};

/// Explanation of the intervals.
const INTERVALS: &str = "; 95 % intervals within the server process";

/// Explanation of the frontier.
const FRONTIER: &str = "no other setting has both a higher throughput and a lower p99; differences below 2 % do \
    not count";

/// Maximum relative difference at which two figures count as equal.
const SAME: f64 = 0.02;

/// Relative half-width above which an interval is too wide to tell settings apart.
const UNCERTAIN: f64 = 0.05;

/// How to show the figure of a tuning run.
pub(crate) struct TunedFigure {
    head: &'static str,
    /// Meaning of the figure.
    pub(crate) meaning: String,
    /// What makes the figure more precise.
    precision: &'static str,
}

impl TunedFigure {
    /// Returns the figure of an experiment's tuning run. Only tuning for capacity has objectives.
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

/// Returns the tuning run of a record and its figure.
pub(crate) fn of(record: &Record) -> Option<(&Tuning, TunedFigure)> {
    let experiment = record.experiment.as_ref()?;
    Some((record.tuning.as_ref()?, TunedFigure::of(experiment)))
}

/// Returns the result of a record's tuning run, or no blocks for other records.
pub(crate) fn document(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    let Some((experiment, (tuning, of))) = record.experiment.as_ref().zip(of(record)) else {
        return blocks;
    };
    blocks.paragraph([Emphasis::Strong.span(&experiment.question)]);
    blocks.gap();
    blocks.tables([steps(tuning, &of)]);
    blocks.gap();
    blocks.lines(lines(tuning, &of));
    blocks.lines(experiment::resumed(record).map(|text| line("resumed", text)));
    blocks.lines(environment::placements(record));
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
    let (low, high) = ends(step.interval.as_ref());
    let cause = step.cause.map(|cause| cause.name());
    let process = count_cell("process", "process", step.process);
    let [named, trial] = knob_cells(&step.values, &step.trial);
    vec![
        count_cell("number", "number", number),
        text_cell("action", "step", step.action.name()).essential(),
        data("knob", &step.knob),
        data("reason", &step.reason),
        named,
        trial,
        shown(of.head, step_figure(step)),
        process.at(Detail::Roomy),
        number_cell("figure_per_s", "figure/s", step.figure_per_s, per_second),
        data("figure_low_per_s", low),
        data("figure_high_per_s", high),
        data("is_lower_bound", step.is_lower_bound),
        text_cell("cause", "limit", cause).essential(),
        text_cell("note", "note", &step.note),
    ]
}

fn knob_cells(values: &KnobValues, trial: &str) -> [ColumnCell; 2] {
    let pairs = setting_pairs(values);
    [
        listed("setting", "setting", pairs, setting(values)),
        data("trial", trial),
    ]
}

/// Returns a table with a row per measured setting. The figure is a throughput or a capacity.
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
    let (low, high) = ends(range);
    let interval = interval_or_none(one.figure_per_s, range);
    let figure = optional(one.figure_per_s, per_second);
    let [named, trial] = knob_cells(&one.values, &one.trial);
    vec![
        named,
        trial,
        shown("ok/s", figure.clone()),
        listed("figure_per_s", "figure/s", one.figure_per_s, figure),
        listed("figure_low_per_s", "interval", low, interval),
        data("figure_high_per_s", high),
        data("is_lower_bound", one.is_lower_bound),
        number_cell("response_p99_us", "p99", one.p99_us, microseconds).essential(),
        count_cell("processes", "processes", one.processes),
        listed("is_chosen", "role", is_chosen, role),
        data("is_best", is_best),
        data("is_on_frontier", one.on_frontier),
    ]
}

fn step_figure(step: &TuningStep) -> Cell {
    let text = match step.figure_per_s {
        Some(per_s) if step.is_lower_bound => format!("≥ {}", per_second(per_s)),
        Some(per_s) => per_second(per_s),
        None if step.note.is_some() => "none".to_owned(),
        None => "failed".to_owned(),
    };
    let interval = interval_or_none(step.figure_per_s, step.interval.as_ref());
    Cell::new(text, Some(interval))
}

/// Returns the settings on the frontier by throughput and p99. Returns `None` if no setting trades
/// one for the other.
fn frontier(tuning: &Tuning) -> Option<Table> {
    let settings = tuning.settings.iter();
    let mut on_frontier: Vec<&TunedSetting> = settings.filter(|one| one.on_frontier).collect();
    on_frontier.sort_by(|a, b| {
        b.figure_per_s
            .partial_cmp(&a.figure_per_s)
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let rows = on_frontier.iter();
    let rows = rows.map(|one| (setting(&one.values), setting_cells(tuning, one)));
    // If the throughputs are nearly equal, no setting trades throughput for p99.
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
    let figure = match (step.figure_per_s, &step.note) {
        (Some(per_s), _) => {
            let figure = bounded(rate(per_s), step.is_lower_bound);
            let range = step.interval.as_ref();
            let range = range.map(|range| format!(" {}", interval(per_s, range)));
            format!("{figure}{}", range.unwrap_or_default())
        }
        (None, Some(note)) => format!("none ({note})"),
        (None, None) => "failed".to_owned(),
    };
    // Show the limit only for the first process, because other processes usually have the same
    // limit.
    let is_first = step.process == 1;
    let limit = step.cause.zip(step.limit.as_ref()).filter(|_| is_first);
    let limit = limit.map(|(cause, limit)| format!(" – {cause}: {limit}"));
    let (setting, limit) = (setting(&step.values), limit.unwrap_or_default());
    format!("  {setting}, process {}: {figure}{limit}", step.process)
}

/// Describes the next step of a tuning run: `raise threads: threads = 100, connections = 30,
/// process 1 (its pool is full)`.
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

/// Describes what a tuning run changes: `trial far, knobs threads (1 to 200) and connections (1 to
/// 50)`. If the tuning run searches for capacities, also states the objectives and the maximum
/// length of each search.
#[must_use]
pub fn tuning_scope(tuning: &TuningDescription, capacity: Option<&CapacityGoal>) -> String {
    let knobs = tuning.knobs.iter();
    let knobs = knobs.map(|knob| format!("{} ({} to {})", knob.name, knob.low, knob.high));
    let plural = if tuning.knobs.len() == 1 { "" } else { "s" };
    let knobs = joined(knobs, " and ");
    let scope = format!("trial {}, knob{plural} {knobs}", tuning.trial);
    match capacity {
        None => scope,
        Some(goal) => {
            let (objectives, budget) = (goal.objectives.join(", "), duration(goal.budget_s));
            format!("{scope}; capacity for {objectives}, up to {budget} per server process")
        }
    }
}

/// Marks a figure that is only a lower bound: `at least 48,000/s`.
fn bounded(figure: String, is_lower_bound: bool) -> String {
    if is_lower_bound {
        format!("at least {figure}")
    } else {
        figure
    }
}

/// Formats the values of knobs in reverse alphabetical order: `threads = 8, connections = 30`.
fn setting(values: &KnobValues) -> String {
    figures::settings(values.iter().rev())
}

/// Returns the result in labeled lines.
fn lines(tuning: &Tuning, of: &TunedFigure) -> Vec<TextLine> {
    let mut lines = Vec::new();
    if let Some(chosen) = chosen(tuning) {
        let setting = Emphasis::Strong.span(setting(&chosen.values));
        lines.push(TextLine::new(
            "setting",
            [setting, plain(format!("– {}", shown_figure(chosen)))],
        ));
    }
    lines.extend(choice(tuning).map(|text| line("", text)));
    lines.extend(against_default(tuning).map(|text| line("default", text)));
    let irrelevant = tuning.irrelevant.iter();
    lines.extend(irrelevant.map(|knob| line("note", irrelevance(tuning, knob))));
    let notes = beyond_client(tuning).into_iter();
    let notes = notes.chain(uncertainty(tuning, of)).chain(missing(tuning));
    lines.extend(notes.map(|text| line("note", text)));
    let failed = tuning.failed.iter();
    lines.extend(failed.map(|failed| line("failed", format!("{}: {}", failed.trial, failed.what))));
    let label = match tuning.ended {
        TuningEnd::Complete => "limit",
        TuningEnd::OutOfTime | TuningEnd::NoStart | TuningEnd::Interrupted => "ended",
    };
    lines.push(line(label, &tuning.why_ended));
    lines
}

fn chosen(tuning: &Tuning) -> Option<&TunedSetting> {
    tuning.setting(tuning.chosen.as_ref()?)
}

/// Formats a setting's figure: `2,182/s (95 % interval 2,100 – 2,260/s over 4 server processes)`.
fn shown_figure(of: &TunedSetting) -> String {
    let figure = bounded(optional(of.figure_per_s, rate), of.is_lower_bound);
    let processes = count_of(u64::from(of.processes), "server process");
    let basis = match of.processes {
        1 => "within 1 server process".to_owned(),
        _ => format!("over {processes}"),
    };
    match &of.interval {
        Some(interval) => format!("{figure} ({} {basis})", bounds(interval, rate)),
        None => format!("{figure} ({processes})"),
    }
}

fn bounds(interval: &Interval, show: fn(f64) -> String) -> String {
    let level = level(interval.confidence);
    let (low, high) = (show(interval.low), show(interval.high));
    format!("{level} interval {low} to {high}")
}

/// Describes how the chosen setting compares with the best one.
fn choice(tuning: &Tuning) -> Option<String> {
    let chosen = chosen(tuning)?;
    let best = tuning.setting(tuning.best.as_ref()?)?;
    let is_complete = tuning.ended == TuningEnd::Complete;
    let Some(ratio) = &tuning.ratio else {
        return Some(match (is_complete, tuning.settings.len()) {
            (false, _) => "best setting so far; not confirmed by fresh processes".to_owned(),
            (true, 1) => "no other value was worth a trial".to_owned(),
            (true, _) if best.is_lower_bound => {
                "no smaller measured setting is within 2 % of its figure".to_owned()
            }
            (true, _) => {
                "the best setting; no smaller measured setting is within 2 % of its figure"
                    .to_owned()
            }
        });
    };
    let ratio_text = ratio_of(ratio);
    let best_setting = setting(&best.values);
    let best_figure = bounded(optional(best.figure_per_s, rate), best.is_lower_bound);
    let smallest = if is_complete {
        "the smallest measured setting within 2 % of the best"
    } else {
        "the smallest setting so far within 2 % of the best; not confirmed by fresh processes"
    };
    debug_assert_ne!(chosen.trial, best.trial);
    Some(format!(
        "{smallest}: {ratio_text} of {best_setting} ({best_figure})"
    ))
}

fn ratio_of(ratio: &TuningRatio) -> String {
    let share = show_share(ratio.ratio);
    let Some(interval) = &ratio.interval else {
        return share;
    };
    let processes = match ratio.confirmed_by {
        0 => String::new(),
        n => format!(", {} each", count_of(n.into(), "fresh process")),
    };
    format!("{share} ({}{processes})", bounds(interval, show_share))
}

fn show_share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Compares the chosen setting with the default.
fn against_default(tuning: &Tuning) -> Option<String> {
    let default = tuning.settings.first()?;
    let chosen = chosen(tuning)?;
    if chosen.trial == default.trial {
        return Some("the chosen setting is the default".to_owned());
    }
    let (own, before) = chosen.figure_per_s.zip(default.figure_per_s)?;
    if default.is_lower_bound {
        return None;
    }
    let compared = match own / before {
        ratio if (1.0 - SAME..=1.0 + SAME).contains(&ratio) => "about the same".to_owned(),
        ratio => format!("{ratio:.2} times that rate"),
    };
    let (setting, before) = (setting(&default.values), rate(before));
    let compared = bounded(compared, chosen.is_lower_bound);
    Some(format!(
        "{setting} reaches {before}; the chosen setting reaches {compared}"
    ))
}

/// States that the client limits the best setting, so tuning cannot find better ones.
fn beyond_client(tuning: &Tuning) -> Option<String> {
    let best = tuning.setting(tuning.best.as_ref()?)?;
    let figure = optional(best.figure_per_s, rate);
    best.is_lower_bound.then(|| {
        format!(
            "the client cannot send more than {figure} on time, so settings with a higher capacity cannot be told apart; \
             repeat the tuning with more load threads or agents"
        )
    })
}

/// States why no capacity was found for some processes, unless this ended the tuning run.
fn missing(tuning: &Tuning) -> impl Iterator<Item = String> {
    let steps = tuning.steps.iter();
    let has_start = tuning.ended != TuningEnd::NoStart;
    let missing = steps.filter(move |step| has_start && step.figure_per_s.is_none());
    missing.filter_map(|step| {
        let note = step.note.as_ref()?;
        let setting = setting(&step.values);
        Some(format!("{setting}, process {}: {note}", step.process))
    })
}

/// States that the chosen setting's interval is too wide to tell settings apart.
fn uncertainty(tuning: &Tuning, of: &TunedFigure) -> Option<String> {
    let chosen = chosen(tuning)?;
    let (figure, interval) = chosen.figure_per_s.zip(chosen.interval.as_ref())?;
    let half = (interval.high - interval.low) / 2.0 / figure;
    (half > UNCERTAIN).then(|| {
        let half = figures::percent(half * 100.0);
        format!(
            "the interval of ± {half} is wider than the 2 % that the search looks for, so another setting may be better; \
             repeat the tuning on an idle host, or with {}",
            of.precision
        )
    })
}

/// Returns the settings that differ from the chosen one in no knob other than `knob`, ordered by
/// the value of that knob.
fn along<'a>(tuning: &'a Tuning, knob: &str) -> Vec<(u64, &'a TunedSetting)> {
    let others = |one: &TunedSetting| {
        let mut values = one.values.clone();
        values.remove(knob);
        values
    };
    let fixed = chosen(tuning).map(others);
    let settings = tuning.settings.iter();
    let settings = settings.filter(|one| Some(others(one)) == fixed);
    let found = settings.filter_map(|one| Some((*one.values.get(knob)?, one)));
    let mut found: Vec<(u64, &TunedSetting)> = found.collect();
    found.sort_by_key(|(value, _)| *value);
    found
}

/// Describes a knob that does not matter.
fn irrelevance(tuning: &Tuning, knob: &str) -> String {
    let settings = along(tuning, knob);
    let value = |of: Option<&(u64, _)>| of.map_or(0, |(value, _)| *value);
    let (least, most) = (value(settings.first()), value(settings.last()));
    format!(
        "{knob} does not matter: at all measured values from {least} to {most}, the rate is within 2 % of the best"
    )
}

/// Returns the charts of a record's tuning run.
pub(crate) fn charts(record: &Record) -> Vec<Chart> {
    let Some((tuning, of)) = of(record) else {
        return Vec::new();
    };
    let figure = &of.meaning;
    let path = path(tuning, figure).into_iter();
    let knobs = tuning.settings.first().into_iter();
    let knobs = knobs.flat_map(|setting| setting.values.keys().rev());
    path.chain(settings_path(tuning))
        .chain(knobs.filter_map(|knob| by_knob(tuning, knob, figure)))
        .collect()
}

/// Returns a chart of the figure by step.
fn path(tuning: &Tuning, figure: &str) -> Option<Chart> {
    let steps = (1..).zip(&tuning.steps);
    let points = steps.filter_map(|(number, step)| Some((f64::from(number), step.figure_per_s?)));
    let title = "Path of the tuning";
    let quantities = (Quantity::Number, Quantity::Rate);
    let unit = format!("{figure} by step");
    chart(title, &unit, points, quantities, None)
}

/// Returns a chart of the settings of two knobs, in the order in which they were tried.
fn settings_path(tuning: &Tuning) -> Option<Chart> {
    let names: Vec<&String> = tuning.settings.first()?.values.keys().collect();
    let [x, y] = names[..] else { return None };
    let at = |setting: &TunedSetting, name| setting.values.get(name).map(|value| *value as f64);
    let points = tuning.settings.iter();
    let points = points.filter_map(|setting| at(setting, x).zip(at(setting, y)));
    let title = format!("Path over {y} and {x}");
    let unit = format!("{y} by {x}; the line marks the chosen value");
    let quantities = (Quantity::Number, Quantity::Number);
    let chosen = chosen(tuning).and_then(|chosen| at(chosen, x));
    chart(&title, &unit, points, quantities, chosen)
}

/// Returns a chart of the figure by the value of a knob, with the other knobs as in the chosen
/// setting. A mark shows the chosen value.
fn by_knob(tuning: &Tuning, knob: &str, figure: &str) -> Option<Chart> {
    let points = along(tuning, knob).into_iter();
    let points = points.filter_map(|(value, one)| Some((value as f64, one.figure_per_s?)));
    let title = format!("Figure by {knob}");
    let unit = format!("{figure} by {knob}; the line marks the chosen value");
    let quantities = (Quantity::Number, Quantity::Rate);
    let chosen = chosen(tuning)?.values.get(knob).map(|value| *value as f64);
    chart(&title, &unit, points, quantities, chosen)
}

/// Returns a chart, or `None` if there are fewer than two points. `x` and `y` are the quantities on
/// the axes.
fn chart(
    title: &str,
    unit: &str,
    points: impl IntoIterator<Item = (f64, f64)>,
    (x, y): (Quantity, Quantity),
    chosen: Option<f64>,
) -> Option<Chart> {
    let curve = Curve::line(0, title, points);
    let axes = (AxisFit::FromZero(x), AxisFit::FromZero(y));
    let mark = chosen.map(|at| ChartMark::new(at, "chosen"));
    (curve.points().count() > 1)
        .then(|| Chart::new(title, unit, axes, vec![curve]).with_marks(mark))
}

#[cfg(test)]
#[path = "tuning_tests.rs"]
pub(crate) mod tests;
