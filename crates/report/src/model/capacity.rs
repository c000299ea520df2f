//! Searches for a capacity: documents, tables, charts and progress lines.

use floodmark_record::Record;
use floodmark_record::capacity::{
    CapacityBound, CapacityEnd, CapacityKind, CapacityLevel, CapacityResult, CapacityTrial,
    TrialCapacity, TrialOutcome, TrialPurpose, TrialStart,
};
use floodmark_record::cause::Cause;
use floodmark_record::host::{OTHER_CPUS, show_processes};
use floodmark_record::reason::Worded;
use floodmark_record::run::Run;
use floodmark_stats::capacity::pass_probability;

use super::chart::{
    Axis, AxisFit, Chart, ChartMark, Curve, DotColor, MAX_CURVES, Quantity, more_in_table,
};
use super::document::{
    Blocks, ColumnCell, Emphasis, Extent, Span, Table, TextLine, count_cell, data, faint, line,
    listed, number_cell, plain, shown, text_cell,
};
use super::figures::{
    count_of, cpus, duration, ends, interval, interval_or_none, joined, level, median,
    microseconds, optional, per_second, rate, seconds, share, time,
};
use super::{plan, process_use, summary, verdict};

/// Maximum scatter, as a share of the capacity, at which intervals are reliable. Above it, a note
/// recommends longer trials, which scatter less.
const MOST_SCATTER: f64 = 0.04;

/// Maximum budget that a note recommends, in minutes.
const LONGEST_BUDGET_MIN: f64 = 60.0;

/// Returns the summary of a record with the result of a search.
pub(crate) fn document(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    let Some(result) = &record.capacity else {
        return summary::document(record, None, Extent::Full);
    };
    let url = record.runs.first().map(|run| run.plan.target.url.as_str());
    blocks.paragraph([Emphasis::Strong.span(title(result, url.unwrap_or_default()))]);
    blocks.gap();
    blocks.lines(answer(result));
    blocks.lines(failure(record, result));
    if let Some(levels) = levels(record, result) {
        blocks.gap();
        blocks.tables([levels]);
    }
    blocks.lines(notes(result, &record.runs));
    blocks.lines(record.thresholds.iter().map(summary::threshold));
    blocks
}

/// Returns the title of a search's result: `Capacity of URL for p99 < 5ms`.
pub(crate) fn title(result: &CapacityResult, url: &str) -> String {
    let objectives = result.settings.objectives.join(", ");
    format!("Capacity of {url} for {objectives}")
}

/// Returns the capacity with its interval, and how it was found.
pub(crate) fn answer(result: &CapacityResult) -> Vec<TextLine> {
    let mut lines = vec![TextLine::new("capacity", capacity(result))];
    if let Some(falling) = &result.falling {
        let bounds = match (falling.low, falling.high) {
            (Some(low), Some(high)) => format!(" [{} to {}]", per_second(low), rate(high)),
            _ => String::new(),
        };
        let text = format!(
            "{}{bounds}: after an overload, the server meets the objectives only up to this rate",
            rate(falling.rate_per_s)
        );
        lines.push(line("overload", text));
    }
    lines.push(line("trials", trials(result)));
    lines
}

/// Returns the capacity with its interval.
fn capacity(result: &CapacityResult) -> Vec<Span> {
    let known = result.rate_per_s.map(rate).unwrap_or_default();
    let figure = Emphasis::Strong.span(bounded(&known, result.bound));
    let (figure, remark) = match result.finding {
        CapacityKind::Capacity | CapacityKind::Hysteresis => {
            let range = result.interval().zip(result.rate_per_s);
            let range = range.map(|(range, per_s)| interval(per_s, &range));
            let level = level(result.level);
            let range = range.map(|range| format!("{range} ({level}; within this server process)"));
            let range = range.unwrap_or_default();
            let rising = match result.finding {
                CapacityKind::Hysteresis => "for a load that rises from idle",
                _ => "",
            };
            return vec![figure, plain(range), plain(rising)];
        }
        CapacityKind::NotStationary => {
            let last = result.last_per_s.map(rate).unwrap_or_default();
            let remark = format!(
                "{known} at the first trial, {last} at the last; find out what changes in the server \
                 (warm-up, memory, throttling), and repeat"
            );
            (Emphasis::Warn.span("not stationary"), remark)
        }
        CapacityKind::ClientLimit => {
            let remark = "at higher rates, the client cannot send on time; use more load threads (-t) or --agents";
            (figure, remark.to_owned())
        }
        CapacityKind::AboveHighest => (figure, "the search tried no higher rate".to_owned()),
        CapacityKind::Never => {
            let remark = format!("the server misses the objectives even at {known}");
            (Emphasis::Bad.span("none"), remark)
        }
        CapacityKind::Unfinished if result.rate_per_s.is_some() => {
            let remark = match result.missed_level_per_s() {
                Some(per_s) => format!("a load at {} after the search missed", rate(per_s)),
                None => "the search ended early".to_owned(),
            };
            (figure, remark)
        }
        CapacityKind::Unfinished if result.trials.is_empty() => {
            return vec![plain("unknown; no trial was complete")];
        }
        CapacityKind::Unfinished => {
            let remark = "unknown; every trial was void; give the client its own CPUs (taskset -c) or another host";
            return vec![plain(remark)];
        }
    };
    vec![figure, plain(format!("– {remark}"))]
}

/// Marks a rate that is only a bound: `at least 48,000/s`.
fn bounded(rate: &str, bound: Option<CapacityBound>) -> String {
    match bound {
        None => rate.to_owned(),
        Some(CapacityBound::Lower) => format!("at least {rate}"),
        Some(CapacityBound::Upper) => format!("below {rate}"),
    }
}

/// Describes the trials: `38 trials in 52 s: 17 met the objectives, 20 missed one, 1 was void`.
fn trials(result: &CapacityResult) -> String {
    let count = |outcome| {
        let trials = result.trials.iter();
        trials.filter(|trial| trial.outcome == outcome).count()
    };
    let mut text = count_of(result.trials.len() as u64, "trial");
    if let Some(end) = &result.end {
        text.push_str(&format!(" in {}", duration(end.elapsed_s.round())));
    }
    let (met, missed) = (count(TrialOutcome::Pass), count(TrialOutcome::Miss));
    text.push_str(&format!(": {met} met the objectives, {missed} missed"));
    match count(TrialOutcome::Void) {
        0 => {}
        n => text.push_str(&format!(", {n} void because the client was late")),
    }
    if let Some(scatter) = result.scatter {
        let percent = 100.0 * scatter;
        text.push_str(&format!("; scatter between trials {percent:.1} %"));
    }
    text
}

/// Maximum difference between rates that are shown as equal, as a share.
const SAME_RATE: f64 = 0.005;

/// The trial that best shows which objective the server misses first.
#[derive(Debug, Clone, Copy)]
enum FirstMiss<'a> {
    /// A trial above the capacity, or one that shows an upper bound.
    Above(&'a CapacityTrial),
    /// A trial within the interval. No trial above the capacity missed.
    Within(&'a CapacityTrial),
    /// A trial below the interval or bound, which missed by chance. No trial at a higher rate
    /// missed.
    Below(&'a CapacityTrial),
}

impl<'a> FirstMiss<'a> {
    fn of(result: &'a CapacityResult) -> Option<Self> {
        let per_s = result.rate_per_s?;
        let trials = result.trials.iter();
        let misses = trials
            .filter(|trial| trial.outcome == TrialOutcome::Miss && trial.start == TrialStart::Idle);
        // If the capacity changed during the search, all trials count equally. If only an upper
        // bound is known, a trial below it can also be above the capacity.
        let lowest = match (result.finding, result.bound) {
            (CapacityKind::NotStationary, _) | (_, Some(CapacityBound::Upper)) => 0.0,
            _ => per_s * (1.0 + SAME_RATE),
        };
        let is_below = |trial: &CapacityTrial| trial.rate_per_s < lowest;
        let nearest = |trial: &CapacityTrial| (trial.rate_per_s / (1.05 * per_s)).ln().abs();
        let first = misses.min_by(|a, b| {
            let is_below = is_below(a).cmp(&is_below(b));
            is_below.then(nearest(a).total_cmp(&nearest(b)))
        })?;
        Some(match result.low {
            _ if !is_below(first) => FirstMiss::Above(first),
            Some(low) if first.rate_per_s >= low => FirstMiss::Within(first),
            _ => FirstMiss::Below(first),
        })
    }

    fn line(self) -> TextLine {
        let what = |trial| format!("{} at {}", missed(trial), rate(trial.rate_per_s));
        match self {
            FirstMiss::Above(trial) => line("fails first", what(trial)),
            FirstMiss::Within(trial) => {
                let text = "which is within the interval of the capacity";
                line("missed", format!("{}, {text}", what(trial)))
            }
            FirstMiss::Below(trial) => {
                let text = "although most trials near this rate met the objectives";
                line("missed", format!("{}, {text}", what(trial)))
            }
        }
    }
}

/// Returns what fails first above the capacity, and why.
fn failure(record: &Record, result: &CapacityResult) -> Vec<TextLine> {
    if result.rate_per_s.is_none() {
        return Vec::new();
    }
    let first = FirstMiss::of(result).map(FirstMiss::line);
    let mut lines = Vec::from_iter(first);
    if let Some(run) = limited_run(record, result)
        && let Some((verdict, cause)) = verdict::most_frequent([&run])
    {
        lines.push(cause);
        lines.extend(verdict::evidence(verdict));
    }
    lines
}

/// Returns the run whose verdict shows what limits the server above its capacity. Any upper bound
/// or prediction in the verdict is at least as high as every rate in the result and every rate that
/// the server answered.
fn limited_run(record: &Record, result: &CapacityResult) -> Option<Run> {
    let runs = || record.runs.iter().filter(move |run| is_of(result, run));
    let open = || open_runs(record, result);
    let has_limit = |run: &&Run| {
        let verdict = run.verdict.as_ref();
        verdict.is_some_and(|verdict| verdict.cause != Cause::None)
    };
    let mut run = match (result.finding, result.bound) {
        // If no rate meets the objectives, the load over a single connection shows why.
        (CapacityKind::Never, _) => runs().find(|run| run.plan.max_in_flight() == 1),
        // If only a lower bound is known, take the load with the highest rate. It may be below the
        // capacity.
        (_, Some(CapacityBound::Lower)) => open().next_back(),
        (_, Some(CapacityBound::Upper)) => open().rev().find(has_limit),
        // The closed model shows what limits a server that kept up with each of the short loads.
        (_, None) => {
            let closed = runs().filter(|run| !run.plan.is_open());
            open().rev().chain(closed).find(has_limit)
        }
    }?
    .clone();
    if let Some(verdict) = &mut run.verdict {
        let reached = [result.answered_per_s, result.rate_per_s, result.high];
        let answered = runs().map(|run| run.throughput_per_s);
        let reached = reached.into_iter().chain(answered).flatten();
        let most_per_s = reached.fold(0.0, f64::max);
        verdict.limit_per_s = verdict.limit_per_s.filter(|limit| *limit >= most_per_s);
        let gain = verdict.gain.take();
        verdict.gain = gain.filter(|gain| gain.low_per_s >= most_per_s);
    }
    Some(run)
}

/// Returns the objectives that a trial missed, with their figures. If it missed none, returns the
/// answered rate.
fn missed(trial: &CapacityTrial) -> String {
    let missed = trial.missed();
    let objectives = joined(
        missed.map(|of| format!("{} ({})", of.objective, of.figure)),
        ", ",
    );
    match &trial.flow {
        Some(flow) if objectives.is_empty() => {
            format!("throughput ({} answered)", rate(flow.answered.per_s))
        }
        _ => objectives,
    }
}

/// Returns the loads at rates around the capacity, in ascending order of their rates.
fn open_runs<'a>(
    record: &'a Record,
    result: &'a CapacityResult,
) -> impl DoubleEndedIterator<Item = &'a Run> {
    let runs = record.runs.iter();
    runs.filter(move |run| is_of(result, run) && is_evidence(result, run))
}

/// Returns whether a run is an open-model load of a search and provides evidence about the server.
/// Void loads, and misses that a repeated load refutes, do not.
fn is_evidence(result: &CapacityResult, run: &Run) -> bool {
    let is_void = |level: &CapacityLevel| level.outcome == TrialOutcome::Void;
    let level = result.level_of(run);
    run.plan.is_open() && level.is_none_or(|of| !is_void(of) && !result.is_refuted(of))
}

/// Returns whether a run belongs to a search.
fn is_of(result: &CapacityResult, run: &Run) -> bool {
    result.trial == run.trial && result.process == run.process
}

/// Returns a table of the loads: over a single connection, in the closed model, and at rates around
/// the capacity.
fn levels(record: &Record, result: &CapacityResult) -> Option<Table> {
    let per_s = result.rate_per_s?;
    let rows = record.runs.iter();
    let rows = rows.map(|run| {
        let mut cells = load_cells(run);
        // Results from older versions have no outcomes.
        if !result.levels.is_empty() {
            let level = result.level_of(run);
            let outcome = level.map(|level| level_outcome(result, level));
            cells.push(shown("objectives", outcome.unwrap_or_else(|| faint("–"))));
        }
        (load_name(run, per_s), cells)
    });
    Table::of(rows, "").captioned("load").not_empty()
}

/// Returns the search to which a run belongs, or `None` if it belongs to no search.
pub(crate) fn of_run<'a>(record: &'a Record, run: &Run) -> Option<&'a CapacityResult> {
    searches(record).find(|found| is_of(found, run))
}

/// Names a run of a search by its trial, if any, and its load.
pub(crate) fn run_name(found: &CapacityResult, run: &Run) -> String {
    let load = load_name(run, found.rate_per_s.unwrap_or(f64::INFINITY));
    match &run.trial {
        Some(trial) => format!("{trial}, process {}, {load}", run.process),
        None => load,
    }
}

/// Names an open-model load by its share of the capacity, and a closed-model load by its number of
/// connections and streams.
pub(crate) fn load_name(run: &Run, capacity_per_s: f64) -> String {
    match run.plan.rate_per_s() {
        Some(per_s) => format!("{:.0} %", 100.0 * per_s / capacity_per_s),
        None => {
            let streams = plan::streams(&run.plan);
            match run.plan.connections {
                1 => format!("closed, 1 connection{streams}"),
                n => format!("closed, {n} connections{streams}"),
            }
        }
    }
}

fn load_cells(run: &Run) -> Vec<ColumnCell> {
    let times = &run.response_time_us;
    let percentile = |us| time(us, times, &run.plan);
    let counts = &run.requests;
    let due = counts.intended.saturating_sub(counts.in_flight_at_end);
    let server_cpus = process_use::cpus(run.server.as_ref());
    vec![
        shown("offered/s", optional(run.plan.rate_per_s(), per_second)),
        shown("ok/s", optional(run.throughput_per_s, per_second)),
        shown("p50", percentile(times.p50)),
        shown("p99", percentile(times.p99)),
        shown("not ok", share(due.saturating_sub(counts.ok), due)),
        shown("server CPUs", optional(server_cpus, cpus)),
    ]
}

/// Returns remarks about the precision of the result.
fn notes(result: &CapacityResult, runs: &[Run]) -> Vec<TextLine> {
    let notes = void_loads(result)
        .into_iter()
        .chain(refuted_loads(result))
        .chain(disturbances([result], runs))
        .chain(precision(result));
    notes.map(|note| line("note", note)).collect()
}

/// Says that void loads after the search are not evidence about the server.
fn void_loads(result: &CapacityResult) -> Option<String> {
    let mut levels = result.levels.iter();
    levels
        .any(|level| level.outcome == TrialOutcome::Void)
        .then(|| "void: the client was late, so the load says nothing about the server".to_owned())
}

/// Explains that loads after the search are not evidence about the server if they missed only once.
fn refuted_loads(result: &CapacityResult) -> Option<String> {
    let mut levels = result.levels.iter();
    let is_refuted = levels.any(|level| result.is_refuted(level));
    is_refuted.then(|| "missed once: the repeated load met the objectives".to_owned())
}

/// Says how many of the trials that missed an objective ran while the server's CPUs were slow, and
/// names the programs that used the most CPU time during one of the runs, if any.
pub(crate) fn disturbances<'a>(
    results: impl IntoIterator<Item = &'a CapacityResult>,
    runs: &[Run],
) -> Option<String> {
    let trials = results.into_iter().flat_map(|result| &result.trials);
    let missed: Vec<&CapacityTrial> = trials
        .filter(|trial| trial.outcome == TrialOutcome::Miss)
        .collect();
    let disturbed = missed.iter().filter(|trial| trial.is_disturbed());
    let disturbed = disturbed.count();
    if disturbed == 0 {
        return None;
    }
    let cpus = |run: &&Run| run.other_processes.iter().map(|of| of.cpus).sum::<f64>();
    let busiest = runs.iter().max_by(|a, b| cpus(a).total_cmp(&cpus(b)));
    let reason = match busiest.filter(|run| cpus(run) >= OTHER_CPUS) {
        Some(run) => format!(
            "other programs may have caused this: {}; stop them and repeat",
            show_processes(&run.other_processes)
        ),
        None => "other machines may use the same cores; the capacity may be higher on a quiet host"
            .to_owned(),
    };
    Some(format!(
        "the server's CPUs were slower than usual in {} of {} that missed; {reason}",
        disturbed,
        count_of(missed.len() as u64, "trial")
    ))
}

/// Returns what limits the precision of a result.
pub(crate) fn precision(result: &CapacityResult) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let end = result.end.as_ref();
    match end.map(|end| end.reason) {
        Some(CapacityEnd::Settled) | None => {}
        Some(CapacityEnd::Budget) => notes.push(format!(
            "the budget of {} ended the search before the interval was ± {} %; use a longer --budget",
            duration(result.settings.budget_s),
            100.0 * result.settings.precision
        )),
        Some(CapacityEnd::Trials) => notes.push("the search reached its maximum number of trials".to_owned()),
        Some(CapacityEnd::Interrupted) => {
            notes.push("interrupted; continue with --resume".to_owned());
        }
        Some(CapacityEnd::Failed) => notes.push("a trial failed".to_owned()),
    }
    notes.extend(short_trials(result));
    if result.scatter.is_some_and(|scatter| scatter > MOST_SCATTER) {
        notes.push(
            "trials scatter by more than 4 %, so the interval may be too narrow; longer trials scatter \
             less (--budget)"
                .to_owned(),
        );
    }
    let has_recovered = |trial: &CapacityTrial| {
        trial.start == TrialStart::Overload && trial.outcome == TrialOutcome::Pass
    };
    if result.finding == CapacityKind::Capacity && !result.trials.iter().any(has_recovered) {
        notes.push("no trial shows whether the server recovers from an overload".to_owned());
    }
    notes.extend(end.into_iter().flat_map(|end| end.notes.iter().cloned()));
    notes
}

/// Says that trials were shorter than required, and which part of the result this concerns.
fn short_trials(result: &CapacityResult) -> Option<String> {
    let trials = result.trials.iter();
    let required = trials.filter_map(|trial| Some((trial, trial.required_s?)));
    let shares = required.map(|(trial, required_s)| (trial.share_of_required(), trial, required_s));
    let (share, trial, required_s) = shares.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let minutes = (result.settings.budget_s / share / 60.0).ceil();
    let fix = if minutes <= LONGEST_BUDGET_MIN {
        format!("use --budget {minutes:.0}m")
    } else {
        "use a longer --budget, or an objective for a lower percentile".to_owned()
    };
    let (judged, required) = (duration(trial.judged_s), duration(required_s.round()));
    let is_proof = |trial: &&CapacityTrial| trial.purpose == TrialPurpose::Prove;
    let proof = result.proved_per_s.and_then(|per_s| {
        let proofs = result.trials.iter().filter(is_proof);
        let same = |trial: &&CapacityTrial| (trial.rate_per_s / per_s - 1.0).abs() < SAME_RATE;
        proofs.rev().find(same).map(|trial| (per_s, trial.judged_s))
    });
    let reason = "because requests are correlated";
    match proof {
        Some((per_s, proved_s)) => Some(format!(
            "a trial of {} proves {}; higher rates are extrapolated from trials of {judged}, which \
             are shorter than the {required} that the percentile needs, {reason}; {fix}",
            duration(proved_s.round()),
            rate(per_s),
        )),
        None if trial.flow.is_some() && result.bound == Some(CapacityBound::Upper) => {
            Some(format!(
                "no rate is proved: trials of {judged} are shorter than the {required} that the \
                 percentile needs, {reason}; {fix}"
            ))
        }
        None if result.low.is_some() => Some(format!(
            "trials of {judged} are shorter than the {required} that the percentile needs, \
             {reason}; the interval is wider for this reason; {fix}"
        )),
        None => None,
    }
}

/// Returns a table of all trials.
pub(crate) fn trials_table(result: &CapacityResult) -> Table {
    let rows = (1..).zip(&result.trials);
    let rows = rows.map(|(number, trial)| (number.to_string(), trial_cells(result, number, trial)));
    let mut table = Table::of(rows, "").captioned("trial");
    table.collapsed = Some(count_of(result.trials.len() as u64, "trial"));
    table
}

/// Returns the trials of all searches.
pub(crate) fn all_trials(record: &Record) -> Table {
    Table::of_data(searches(record).flat_map(|search| {
        let trials = (1..).zip(&search.trials);
        trials.map(|(number, trial)| trial_cells(search, number, trial))
    }))
}

/// Returns whether a load met the objectives.
fn outcome(outcome: TrialOutcome) -> Span {
    match outcome {
        TrialOutcome::Pass => Emphasis::Good.span("met"),
        TrialOutcome::Miss => Emphasis::Bad.span("missed"),
        TrialOutcome::Void => Emphasis::Warn.span("void"),
    }
}

/// Returns whether a load after the search met the objectives.
fn level_outcome(result: &CapacityResult, level: &CapacityLevel) -> Span {
    if result.is_refuted(level) {
        return Emphasis::Warn.span("missed once");
    }
    outcome(level.outcome)
}

fn trial_cells(search: &CapacityResult, number: u64, trial: &CapacityTrial) -> Vec<ColumnCell> {
    let outcome = match trial.outcome {
        TrialOutcome::Miss if trial.is_disturbed() => Emphasis::Warn.span("missed, slow CPUs"),
        of => outcome(of),
    };
    let of_each = trial.figures.iter();
    let objectives = of_each
        .clone()
        .map(|of| format!("{}: {}", of.objective, of.figure));
    let figures = joined(of_each.map(|of| of.figure.clone()), ", ");
    let offered = Some(trial.rate_per_s);
    let [name, process] = search_name(search);
    vec![
        name,
        process,
        count_cell("number", "number", number),
        number_cell("offered_per_s", "offered/s", offered, per_second).essential(),
        text_cell("start", "from", trial.start).essential(),
        data("purpose", trial.purpose),
        text_cell("outcome", "outcome", trial.outcome),
        text_cell("figures", "figures", joined(objectives, "; ")),
        data("at_s", trial.at_s),
        number_cell("judged_s", "length", Some(trial.judged_s), duration).essential(),
        shown("objectives", outcome),
        shown("figures", figures),
        data("throughput_per_s", trial.throughput_per_s),
        data(
            "in_flight_growth_per_s",
            trial.flow.map(|flow| flow.growth_per_s),
        ),
        data(
            "in_flight_growth_error_per_s",
            trial.flow.map(|flow| flow.growth_error_per_s),
        ),
        data("error_share", trial.error_share),
        number_cell("response_p50_us", "p50", trial.p50_us, microseconds),
        number_cell("response_p99_us", "p99", trial.p99_us, microseconds),
        data("server_cpus", trial.server_cpus),
        data("slow_cpu_share", trial.slow_cpu_share),
        data("fault", trial.fault.as_ref().map(Worded::to_string)),
    ]
}

/// Returns a table with a row per search, that is, per server process.
pub(crate) fn searches_table(record: &Record) -> Table {
    Table::of_data(searches(record).map(search_cells))
}

fn searches(record: &Record) -> impl Iterator<Item = &CapacityResult> {
    record.capacity.iter().chain(&record.capacities)
}

fn search_name(search: &CapacityResult) -> [ColumnCell; 2] {
    [
        text_cell("trial", "trial", &search.trial),
        count_cell("process", "process", search.process),
    ]
}

fn search_cells(search: &CapacityResult) -> Vec<ColumnCell> {
    let per_s = search.rate_per_s;
    let range = interval_or_none(per_s, search.interval().as_ref());
    let falling = search.falling.as_ref();
    let end = search.end.as_ref();
    let objectives = search.settings.objectives.join("; ");
    let elapsed_s = end.map(|end| end.elapsed_s.round());
    let [name, process] = search_name(search);
    vec![
        name,
        process,
        text_cell("objectives", "objectives", objectives),
        number_cell("capacity_per_s", "capacity/s", per_s, per_second),
        listed("capacity_low_per_s", "interval", search.low, range),
        data("capacity_high_per_s", search.high),
        data("confidence", search.level),
        text_cell("bound", "bound", search.bound),
        text_cell("finding", "finding", search.finding),
        data("falling_capacity_per_s", falling.map(|of| of.rate_per_s)),
        data("falling_low_per_s", falling.and_then(|of| of.low)),
        data("falling_high_per_s", falling.and_then(|of| of.high)),
        data("last_capacity_per_s", search.last_per_s),
        data("answered_per_s", search.answered_per_s),
        data("proved_per_s", search.proved_per_s),
        data("scatter_share", search.scatter),
        data("is_confirmed", search.is_confirmed),
        count_cell("trials", "trials", search.trials.len() as u64),
        number_cell("elapsed_s", "time", elapsed_s, seconds),
        data("ended", end.map(|end| end.reason)),
    ]
}

/// Describes a trial in one line: `trial 12: 20,104/s missed p99 < 5ms (7.31 ms); capacity 19,842/s
/// ± 3.1 %`.
#[must_use]
pub fn capacity_trial_line(trial: &CapacityTrial, result: &CapacityResult) -> String {
    let outcome = match trial.outcome {
        TrialOutcome::Pass => "met the objectives".to_owned(),
        TrialOutcome::Void => {
            // Omit the rest of the fault, which is advice for a single load.
            let fault = trial.fault.as_ref().map(Worded::problem);
            let fault = fault.unwrap_or_else(|| "the client was late".to_owned());
            format!("void: {fault}")
        }
        TrialOutcome::Miss => {
            let slow = trial.slow_cpu_share.filter(|_| trial.is_disturbed());
            let slow =
                slow.map(|share| format!("; CPUs slow for {:.0} % of the time", 100.0 * share));
            format!("missed {}{}", missed(trial), slow.unwrap_or_default())
        }
    };
    let start = match trial.start {
        TrialStart::Idle => "",
        TrialStart::Overload => " after an overload",
    };
    let (number, so_far) = (result.trials.len(), so_far(result));
    let rate = rate(trial.rate_per_s);
    format!("trial {number}: {rate}{start} {outcome}{so_far}").replace('\u{a0}', " ")
}

/// Describes the search so far in one line, with the time that remained after the last trial.
#[must_use]
pub fn capacity_progress_line(result: &CapacityResult) -> String {
    let used_s = result
        .trials
        .last()
        .map_or(0.0, |last| last.at_s + last.transient_s + last.judged_s);
    let left_s = (result.settings.budget_s - used_s).max(0.0);
    let last = result.trials.last().map_or_else(String::new, |trial| {
        let outcome = match trial.outcome {
            TrialOutcome::Pass => "met",
            TrialOutcome::Miss => "missed",
            TrialOutcome::Void => "void",
        };
        format!(" · {} {outcome}", rate(trial.rate_per_s))
    });
    let (number, so_far) = (result.trials.len(), so_far(result));
    let left = seconds(left_s.floor());
    format!("trial {number}{last}{so_far} · at most {left} left").replace('\u{a0}', " ")
}

/// Returns the estimate so far.
fn so_far(result: &CapacityResult) -> String {
    let Some(per_s) = result.rate_per_s else {
        return String::new();
    };
    match (result.interval(), result.bound) {
        (Some(range), _) => format!("; capacity {} {}", rate(per_s), interval(per_s, &range)),
        (None, Some(_)) => format!("; capacity {}", bounded(&rate(per_s), result.bound)),
        (None, None) => String::new(),
    }
}

/// Load whose response time the table shows, as a share of the capacity.
const MODERATE: f64 = 0.8;

/// Maximum difference between a load's actual and nominal share of the capacity. Rates are not
/// rounded, so the actual difference is small.
const TOLERANCE: f64 = 0.01;

/// Adds a table of the trials' capacities, and states what limits each trial above its capacity.
pub(crate) fn add_trial_capacities(blocks: &mut Blocks, record: &Record) {
    let experiment = record.experiment.as_ref();
    let Some(goal) = experiment.and_then(|asked| asked.capacity.as_ref()) else {
        return;
    };
    blocks.tables([trial_capacities(record)]);
    blocks.paragraph([faint(format!(
        "(highest rate with {}; geometric mean and 95 % interval over server processes, or over the \
         trials of a single process; p99 and CPUs: medians of the loads at 80 % and 100 % of the \
         capacity)",
        goal.objectives.join(", ")
    ))]);
    let trials = record.trial_capacities.iter();
    let limited = trials.map(|trial| (trial.trial.as_str(), limited_runs(record, &trial.trial)));
    let limited: Vec<(&str, Vec<Run>)> = limited.collect();
    let trials = limited
        .iter()
        .map(|(name, runs)| (*name, Vec::from_iter(runs)));
    blocks.lines(verdict::of_trials(&trials.collect::<Vec<_>>()));
    blocks.lines(remarks(record));
}

/// Returns a table with a row per trial.
pub(crate) fn trial_capacities(record: &Record) -> Table {
    let rows = record.trial_capacities.iter();
    let rows = rows.map(|trial| (trial.trial.clone(), trial_capacity_cells(record, trial)));
    Table::of(rows, "").captioned("trial")
}

fn trial_capacity_cells(record: &Record, trial: &TrialCapacity) -> Vec<ColumnCell> {
    let range = trial.interval.as_ref();
    let (low, high) = ends(range);
    let interval = interval_or_none(trial.rate_per_s, range);
    let at = |share: f64, of: fn(&Run) -> Option<f64>| {
        let runs = loads(record, &trial.trial);
        let runs = runs.filter(move |(_, level)| (level - share).abs() < TOLERANCE);
        median(runs.map(|(run, _)| of(run)))
    };
    let p99 = at(MODERATE, |run| run.response_time_us.p99);
    let server_cpus = at(1.0, |run| process_use::cpus(run.server.as_ref()));
    let processes = match trial.bounded {
        0 => trial.processes.to_string(),
        bounded => format!("{} of {}", trial.processes, trial.processes + bounded),
    };
    let capacity = Emphasis::Strong.span(optional(trial.rate_per_s, per_second));
    vec![
        text_cell("trial", "trial", &trial.trial),
        listed("capacity_per_s", "capacity/s", trial.rate_per_s, capacity).essential(),
        listed("capacity_low_per_s", "interval", low, interval).essential(),
        data("capacity_high_per_s", high),
        data("confidence", range.map(|range| range.confidence)),
        shown("p99 at 80 %", optional(p99, microseconds)),
        shown("server CPUs", optional(server_cpus, cpus)),
        shown("processes", processes),
        count_cell("processes", "processes", trial.processes),
        data("bounded_processes", trial.bounded),
    ]
}

/// Returns the open-model loads of a trial, with their shares of the capacity. Void loads are
/// omitted.
pub(crate) fn loads<'a>(
    record: &'a Record,
    trial: &'a str,
) -> impl Iterator<Item = (&'a Run, f64)> {
    record.runs_of(trial).filter_map(|run| {
        let found = of_run(record, run).filter(|found| is_evidence(found, run))?;
        Some((run, run.plan.rate_per_s()? / found.rate_per_s?))
    })
}

/// For each search of a trial, returns the run whose verdict shows what limits the server.
fn limited_runs(record: &Record, trial: &str) -> Vec<Run> {
    let searches = record.capacities.iter();
    let own = searches.filter(|found| found.trial.as_deref() == Some(trial));
    own.filter_map(|found| limited_run(record, found)).collect()
}

/// Returns a line for each process whose search did not find exactly one capacity, and notes on
/// precision.
fn remarks(record: &Record) -> Vec<TextLine> {
    let mut lines = Vec::new();
    for found in &record.capacities {
        let trial = found.trial.as_deref().unwrap_or_default();
        let name = format!("{trial}, process {}", found.process);
        if found.finding != CapacityKind::Capacity {
            lines.extend(answer(found).into_iter().map(|line| line.of(&name)));
        }
    }
    let disturbances = disturbances(&record.capacities, &record.runs);
    lines.extend(disturbances.map(|note| line("note", note)));
    let notes = record.capacities.iter().flat_map(precision);
    let mut notes: Vec<String> = notes.collect();
    notes.sort_unstable();
    lines.extend(notes.chunk_by(|a, b| a == b).map(|same| {
        let plural = if same.len() == 1 { "" } else { "es" };
        line(
            "note",
            format!("{} search{plural}: {}", same.len(), same[0]),
        )
    }));
    lines
}

/// Minimum range of rates in the charts, as shares of the capacity.
const SHOWN: (f64, f64) = (0.7, 1.3);

/// Number of points of the pass curve, which shows, for each rate, the expected share of trials
/// that meet the objectives.
const POINTS: u32 = 120;

/// Returns a chart of the pass curve with the trials that started with an idle server, and a chart
/// of response times by rate. Without an estimate, returns no charts.
pub(crate) fn charts(record: &Record, result: &CapacityResult) -> Vec<Chart> {
    let (Some(per_s), Some(scatter)) = (result.rate_per_s, result.scatter) else {
        return Vec::new();
    };
    let least = result.low.map_or(per_s, |low| 0.95 * low);
    let most = result.high.map_or(per_s, |high| 1.05 * high);
    let range = (least.min(SHOWN.0 * per_s), most.max(SHOWN.1 * per_s));
    let is_shown = |rate: &f64| (range.0..=range.1).contains(rate);
    let trials = result.trials.iter();
    let idle = trials.filter(|trial| trial.start == TrialStart::Idle);
    let (shown, hidden): (Vec<&CapacityTrial>, Vec<_>) =
        idle.partition(|trial| is_shown(&trial.rate_per_s));
    let hidden = hidden.len();
    let note = (hidden > 0).then(|| format!("Trials outside this range: {hidden}."));
    let chart = |title, unit, y, curves| {
        let axes = (Axis::of_range(range, Quantity::Rate), y);
        let mut chart = Chart::new(title, unit, axes, curves).with_notes(note.clone());
        chart.shades.extend(result.low.zip(result.high));
        chart.with_marks([ChartMark::new(per_s, "capacity")])
    };
    let dots = |outcome, name, y: fn(&CapacityTrial) -> Option<f64>| {
        let color = match outcome {
            TrialOutcome::Pass => DotColor::Good,
            _ => DotColor::Bad,
        };
        let trials = shown.iter().filter(|trial| trial.outcome == outcome);
        let points = trials.filter_map(|trial| Some((trial.rate_per_s, y(trial)?)));
        Curve::dots(color, name, points)
    };
    let levels = |color, name, y: fn(&Run) -> Option<f64>| {
        let points = open_runs(record, result);
        let points = points.filter_map(|run| Some((run.plan.rate_per_s()?, y(run)?)));
        Curve::line(color, name, points.filter(|(rate, _)| is_shown(rate)))
    };
    let expected = (0..=POINTS).map(|i| {
        let at = range.0 + (range.1 - range.0) * f64::from(i) / f64::from(POINTS);
        (at, 100.0 * pass_probability((per_s / at).ln(), scatter))
    });
    let shares = vec![
        Curve::line(0, "expected share", expected),
        dots(TrialOutcome::Pass, "met", |_| Some(100.0)),
        dots(TrialOutcome::Miss, "missed", |_| Some(0.0)),
    ];
    let p99 = |trial: &CapacityTrial| trial.p99_us;
    let times = vec![
        levels(0, "p50", |run| run.response_time_us.p50),
        levels(3, "p99", |run| run.response_time_us.p99),
        dots(
            TrialOutcome::Pass,
            "p99 of trials that met the objectives",
            p99,
        ),
        dots(TrialOutcome::Miss, "p99 of trials that missed", p99),
    ];
    let (share, by_rate) = (
        AxisFit::FromZero(Quantity::Percent),
        "by offered requests per second",
    );
    let limits = time_limits(result);
    let axis = times_axis(&times, &limits);
    let mut response = chart("Response time", by_rate, axis, times);
    response.levels = limits;
    vec![
        chart(
            "Trials that meet the objectives",
            &format!("% {by_rate}"),
            share,
            shares,
        ),
        response,
    ]
}

/// Returns a horizontal line for each objective on a time.
fn time_limits(result: &CapacityResult) -> Vec<ChartMark> {
    let figures = result.trials.first().map(|trial| trial.figures.iter());
    let limits = figures.into_iter().flatten();
    let limits = limits.filter_map(|of| Some(ChartMark::new(of.limit_us?, &of.objective)));
    limits.collect()
}

/// Returns a time axis that covers the curves and the limits.
fn times_axis(curves: &[Curve], limits: &[ChartMark]) -> AxisFit {
    let values = curves.iter().flat_map(Curve::values);
    let values = Vec::from_iter(values.chain(limits.iter().map(|limit| limit.at)));
    AxisFit::Given(Axis::of_times(values.iter().copied()))
}

/// Returns a chart of p99 by offered rate, with a curve for the first server process of each trial.
/// Returns `None` if there are no open-model loads.
pub(crate) fn trial_charts(record: &Record) -> Option<Chart> {
    let trials = record.trial_capacities.iter().take(MAX_CURVES);
    let curves = trials.enumerate().map(|(i, trial)| {
        let loads = loads(record, &trial.trial);
        let first = loads.filter(|(run, _)| run.process == 1);
        let points =
            first.filter_map(|(run, _)| Some((run.plan.rate_per_s()?, run.response_time_us.p99?)));
        Curve::line(i, &trial.trial, points)
    });
    let curves: Vec<Curve> = curves.collect();
    curves.iter().flat_map(Curve::points).next()?;
    // All searches have the same objectives.
    let limits = record.capacities.first().map(time_limits);
    let limits = limits.unwrap_or_default();
    let axes = (
        AxisFit::FromZero(Quantity::Rate),
        times_axis(&curves, &limits),
    );
    let unit = "p99 by offered requests per second, 50 to 105 % of the capacity";
    let mut chart = Chart::new("Response time", unit, axes, curves);
    chart.levels = limits;
    Some(chart.with_notes(more_in_table(record.trial_capacities.len())))
}

#[cfg(test)]
mod tests {
    use floodmark_record::capacity::{AnsweredRate, TrialFlow};
    use floodmark_record::host::BusyProcess;
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{self, capacity as searched};

    /// Returns a result whose trials at `rates` missed.
    fn with_misses(finding: CapacityKind, rates: &[f64]) -> CapacityResult {
        let mut result = searched(finding);
        let miss = result.trials[1].clone();
        result.trials.truncate(1);
        let misses = rates.iter().map(|rate_per_s| CapacityTrial {
            rate_per_s: *rate_per_s,
            ..miss.clone()
        });
        result.trials.extend(misses);
        result
    }

    #[test]
    fn a_note_on_slow_cpus_names_the_programs_of_this_host() {
        let mut result = with_misses(CapacityKind::Capacity, &[20_400.0]);
        result.trials[1].slow_cpu_share = Some(0.5);
        result.trials[1].throughput_per_s = Some(20_000.0);
        let mut run = fixture::judged(Cause::WorkerPool);
        run.other_processes.clear();
        let note = |run: &Run| disturbances([&result], std::slice::from_ref(run)).unwrap();
        let words = "that missed; other machines may use";
        assert!(note(&run).contains(words), "{}", note(&run));
        // Less CPU time than a disturbance takes.
        run.other_processes = vec![BusyProcess {
            pid: 7,
            name: "rustc".to_owned(),
            cpus: 0.05,
        }];
        result.trials[1].slow_cpu_share = Some(0.03);
        result.trials[1].throughput_per_s = Some(20_400.0);
        assert!(
            disturbances([&result], std::slice::from_ref(&run))
                .unwrap()
                .contains(words)
        );
        run.other_processes[0].cpus = 1.4;
        let note = |run: &Run| disturbances([&result], std::slice::from_ref(run)).unwrap();
        let words = "other programs may have caused this: rustc (pid 7) 1.40; stop them and repeat";
        assert!(note(&run).ends_with(words), "{}", note(&run));
    }

    #[test]
    fn an_upper_bound_below_the_capacity_is_not_shown() {
        let mut run = fixture::judged(Cause::WorkerPool);
        run.throughput_per_s = Some(150.0);
        let labels = |capacity_per_s: f64, high: f64| {
            let result = CapacityResult {
                trial: run.trial.clone(),
                process: run.process,
                rate_per_s: Some(capacity_per_s),
                high: Some(high),
                answered_per_s: Some(150.0),
                ..searched(CapacityKind::Capacity)
            };
            let lines = failure(&fixture::record(vec![run.clone()]), &result);
            Vec::from_iter(lines.into_iter().map(|line| line.label))
        };
        assert!(labels(155.0, 160.0).contains(&"limit".to_owned()));
        for above in [labels(155.0, 161.0), labels(165.0, 170.0)] {
            assert!(above.contains(&"why".to_owned()), "{above:?}");
            assert!(!above.contains(&"limit".to_owned()), "{above:?}");
        }
    }

    #[test]
    fn an_experiment_shows_no_capacity_that_was_not_reached() {
        let mut result = searched(CapacityKind::Capacity);
        result.rate_per_s = Some(150.0);
        let trial = result.trial.clone().unwrap();
        let of_cause = |cause| {
            let mut run = fixture::judged(cause);
            run.throughput_per_s = Some(150.0);
            run.plan = fixture::open_censored().plan;
            (run.trial, run.process) = (result.trial.clone(), result.process);
            run
        };
        let mut record = fixture::record(vec![of_cause(Cause::None)]);
        record.capacities = vec![result.clone()];
        assert_eq!(limited_runs(&record, &trial), [], "no load shows a limit");
        record.runs.insert(0, of_cause(Cause::WorkerPool));
        let limited = limited_runs(&record, &trial);
        let verdicts = limited.iter().flat_map(|run| &run.verdict);
        let limits: Vec<_> = verdicts.map(|of| (of.cause, of.limit_per_s)).collect();
        assert_eq!(
            limits,
            [(Cause::WorkerPool, None)],
            "160/s is below the interval"
        );
    }

    #[test]
    fn void_and_refuted_loads_are_shown_but_are_no_evidence() {
        use TrialOutcome::{Miss, Pass, Void};
        let mut run = fixture::judged(Cause::WorkerPool);
        run.plan = fixture::open_censored().plan;
        let found = |outcomes: &[TrialOutcome]| {
            let mut result = searched(CapacityKind::ClientLimit);
            (result.trial, result.process) = (run.trial.clone(), run.process);
            result.bound = Some(CapacityBound::Lower);
            let level = |(attempt, outcome): (u32, &TrialOutcome)| CapacityLevel {
                attempt,
                rate_per_s: run.plan.rate_per_s().unwrap(),
                outcome: *outcome,
            };
            result.levels = (run.attempt..).zip(outcomes).map(level).collect();
            let mut record = fixture::record(vec![run.clone()]);
            record.capacity = Some(result.clone());
            let is_evidence = limited_run(&record, &result).is_some();
            (is_evidence, void_loads(&result).is_some())
        };
        assert_eq!(found(&[Pass]), (true, false));
        assert_eq!(found(&[Miss, Miss]), (true, false));
        assert_eq!(found(&[Void]), (false, true));
        assert_eq!(found(&[Miss, Pass]), (false, false));
    }

    #[test]
    fn a_load_that_missed_once_is_named() {
        let mut result = searched(CapacityKind::Capacity);
        let level = |attempt, outcome| CapacityLevel {
            attempt,
            rate_per_s: 19_000.0,
            outcome,
        };
        let shown = |result: &CapacityResult| {
            let first = level_outcome(result, &result.levels[0]).text;
            (first, refuted_loads(result).is_some())
        };
        result.levels = vec![level(1, TrialOutcome::Miss), level(2, TrialOutcome::Miss)];
        assert_eq!(shown(&result), ("missed".to_owned(), false));
        result.levels[1].outcome = TrialOutcome::Pass;
        assert_eq!(shown(&result), ("missed once".to_owned(), true));
    }

    #[test]
    fn a_result_that_a_load_lowered_names_the_load() {
        let mut result = searched(CapacityKind::Unfinished);
        result.bound = Some(CapacityBound::Lower);
        let remark = |result: &CapacityResult| capacity(result)[1].text.replace('\u{a0}', " ");
        assert_eq!(remark(&result), "– the search ended early");
        let missed = |attempt| CapacityLevel {
            attempt,
            rate_per_s: 21_000.0,
            outcome: TrialOutcome::Miss,
        };
        result.levels = vec![missed(9)];
        assert_eq!(remark(&result), "– the search ended early");
        result.levels.push(missed(10));
        let expected = "– a load at 21,000/s after the search missed";
        assert_eq!(remark(&result), expected);
    }

    #[test]
    fn a_load_without_a_limit_does_not_show_what_limits_the_server() {
        let open = |cause| Run {
            plan: fixture::open_censored().plan,
            ..fixture::judged(cause)
        };
        let limit = |runs: Vec<Run>| {
            let mut result = searched(CapacityKind::Capacity);
            (result.trial, result.process) = (runs[0].trial.clone(), runs[0].process);
            let mut record = fixture::record(runs);
            record.capacity = Some(result.clone());
            let run = limited_run(&record, &result);
            run.and_then(|run| Some(run.verdict.as_ref()?.cause))
        };
        let (pool, none) = (open(Cause::WorkerPool), open(Cause::None));
        let closed = fixture::judged(Cause::Serialised);
        // The last load that has a limit.
        let runs = vec![closed.clone(), pool, none.clone()];
        assert_eq!(limit(runs), Some(Cause::WorkerPool));
        assert_eq!(limit(vec![closed, none.clone()]), Some(Cause::Serialised));
        assert_eq!(limit(vec![none]), None);
    }

    #[test]
    fn only_a_miss_above_the_capacity_fails_first() {
        let shown = |result: &CapacityResult| {
            let lines = failure(&fixture::record(Vec::new()), result);
            let text = lines[0].spans[0].text.replace('\u{a0}', " ");
            (lines[0].label.clone(), text)
        };
        let mut above = with_misses(CapacityKind::ClientLimit, &[21_000.0, 19_900.0]);
        above.low = None;
        let (label, text) = shown(&above);
        assert_eq!(
            (&label[..], &text[..]),
            ("fails first", "p99 < 5ms (4.1 ms) at 21,000/s")
        );
        let mut below = with_misses(CapacityKind::ClientLimit, &[19_900.0, 20_000.0]);
        below.low = None;
        let (label, text) = shown(&below);
        assert_eq!(label, "missed");
        assert!(
            text.ends_with("at 20,000/s, although most trials near this rate met the objectives"),
            "{text}"
        );
        let mut upper = below.clone();
        upper.bound = Some(CapacityBound::Upper);
        assert_eq!(shown(&upper).0, "fails first");
        below.finding = CapacityKind::NotStationary;
        assert_eq!(shown(&below).0, "fails first");
        let within = with_misses(CapacityKind::Capacity, &[19_900.0]);
        let (label, text) = shown(&within);
        assert_eq!(label, "missed");
        assert!(
            text.ends_with("within the interval of the capacity"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn nothing_fails_first_at_the_capacity(
            rates in prop::collection::vec(19_000.0f64..21_000.0, 0..6),
            bound in prop::option::of(Just(CapacityBound::Lower)),
        ) {
            let mut result = with_misses(CapacityKind::Capacity, &rates);
            result.bound = bound;
            if let Some(FirstMiss::Above(trial)) = FirstMiss::of(&result) {
                let capacity = result.rate_per_s.map(rate);
                prop_assert!(trial.rate_per_s > 20_000.0);
                prop_assert_ne!(Some(rate(trial.rate_per_s)), capacity);
            }
        }
    }

    #[test]
    fn the_chart_of_response_times_shows_the_limit() {
        let mut result = searched(CapacityKind::Capacity);
        let record = fixture::record(Vec::new());
        let chart = &charts(&record, &result)[1];
        let [level] = &chart.levels[..] else {
            panic!("{:?}", chart.levels);
        };
        assert_eq!((level.at, &*level.label), (5_000.0, "p99 < 5ms"));
        assert!(chart.y.to >= 5_000.0);
        // Errors are not response times.
        result.trials[0].figures[0].limit_us = None;
        assert!(charts(&record, &result)[1].levels.is_empty());
    }

    #[test]
    fn the_chart_of_trials_shows_the_limit() {
        let mut run = fixture::open_censored();
        run.response_time_us.p99 = Some(900.0);
        let search = searched(CapacityKind::Capacity);
        (run.trial, run.process) = (search.trial.clone(), search.process);
        let mut record = fixture::record(vec![run]);
        record.trial_capacities = vec![TrialCapacity {
            trial: search.trial.clone().unwrap(),
            rate_per_s: search.rate_per_s,
            interval: None,
            processes: 1,
            bounded: 0,
        }];
        record.capacities = vec![search];
        let chart = trial_charts(&record).unwrap();
        assert_eq!(chart.levels, [ChartMark::new(5_000.0, "p99 < 5ms")]);
        assert!(chart.y.to >= 5_000.0);
    }

    #[test]
    fn a_note_says_that_recovery_is_unknown() {
        let note = ["no trial shows whether the server recovers from an overload"];
        let mut result = searched(CapacityKind::Capacity);
        assert_eq!(precision(&result), note);
        let mut overload = result.trials[0].clone();
        overload.start = TrialStart::Overload;
        result.trials.push(CapacityTrial {
            outcome: TrialOutcome::Miss,
            ..overload.clone()
        });
        assert_eq!(
            precision(&result),
            note,
            "a disturbance may have caused the miss"
        );
        result.trials.push(overload);
        assert_eq!(precision(&result), [""; 0]);
        result.finding = CapacityKind::Hysteresis;
        result.trials.truncate(2);
        assert_eq!(precision(&result), [""; 0]);
    }

    #[test]
    fn a_note_says_which_rate_is_proved() {
        let mut result = searched(CapacityKind::Hysteresis);
        result.trials[0].required_s = Some(8.0);
        result.trials[0].flow = Some(TrialFlow {
            answered: AnsweredRate {
                per_s: 19_000.0,
                error_per_s: 10.0,
                seconds: 2.0,
            },
            growth_per_s: 0.0,
            growth_error_per_s: 1.0,
        });
        let mut proof = result.trials[0].clone();
        proof.purpose = TrialPurpose::Prove;
        proof.judged_s = 11.0;
        proof.rate_per_s = 19_600.0;
        result.trials.push(proof);
        let shown = |result: &CapacityResult| precision(result)[0].replace('\u{a0}', " ");
        result.proved_per_s = Some(19_600.0);
        let note = shown(&result);
        assert!(
            note.starts_with("a trial of 11 s proves 19,600/s; higher"),
            "{note}"
        );
        assert!(note.ends_with("use --budget 12m"), "{note}");
        result.proved_per_s = None;
        (result.low, result.high) = (None, None);
        result.bound = Some(CapacityBound::Upper);
        let note = shown(&result);
        assert!(
            note.starts_with("no rate is proved: trials of 2 s"),
            "{note}"
        );
    }

    #[test]
    fn a_trial_that_was_not_sustained_shows_what_was_answered() {
        let mut trial = searched(CapacityKind::Capacity).trials[0].clone();
        trial.outcome = TrialOutcome::Miss;
        trial.flow = Some(TrialFlow {
            answered: AnsweredRate {
                per_s: 391.0,
                error_per_s: 1.0,
                seconds: 2.0,
            },
            growth_per_s: 30.0,
            growth_error_per_s: 5.0,
        });
        assert_eq!(
            missed(&trial).replace('\u{a0}', " "),
            "throughput (391/s answered)"
        );
    }

    #[test]
    fn a_note_names_the_budget_for_trials_of_the_required_length() {
        let mut result = searched(CapacityKind::Hysteresis);
        result.trials[0].required_s = Some(3.0);
        result.trials[1].required_s = Some(8.0);
        let notes = precision(&result);
        let [note] = &notes[..] else {
            panic!("{notes:?}")
        };
        let note = note.replace('\u{a0}', " ");
        // 8 s is 4 times the length of the trials, so the note suggests 4 times the budget of 3
        // min.
        assert!(
            note.starts_with("trials of 2 s are shorter than the 8 s"),
            "{note}"
        );
        assert!(note.ends_with("use --budget 12m"), "{note}");
        result.trials[1].required_s = Some(60.0);
        assert!(precision(&result)[0].ends_with("an objective for a lower percentile"));
    }
}
