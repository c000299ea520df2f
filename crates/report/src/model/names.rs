//! The runs of a page: their names, the selection of runs to draw, and the loads of an experiment
//! ranked by their figure.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::comparison::counted_attempts;
use floodmark_record::run::{Run, Status};
use floodmark_stats::attempts::geometric_median;
use jiff::Timestamp;

use super::chart::MAX_CURVES;
use super::document::{Emphasis, RankedBar, Ranking, plain};
use super::figures::{count_of, extremes, joined, settings};
use super::run::{badness, same_load, status_word};
use super::{capacity, plan, verdict};

/// A run with a name that is unique on the page.
#[derive(Debug, Clone)]
pub(crate) struct NamedRun<'a> {
    pub(crate) run: &'a Run,
    pub(crate) name: String,
}

/// Groups the runs of a record by load, and names each run by what distinguishes it from the
/// others.
pub(crate) fn named(record: &Record) -> Vec<NamedRun<'_>> {
    type NamePart = fn(&Run) -> String;
    let runs = &record.runs;
    let of_plan: [NamePart; 4] = [
        |run| run.system.clone(),
        |run| run.workload.clone(),
        |run| settings(&run.setting),
        |run| plan::describe(&run.plan, 1),
    ];
    let attempt: NamePart = |run| format!("attempt {}", run.attempt);
    let repetition: [NamePart; 2] = [|run| format!("process {}", run.process), attempt];
    let differs = |part: &NamePart| runs.windows(2).any(|two| part(&two[0]) != part(&two[1]));
    let mut parts: Vec<NamePart> = if runs.iter().all(|run| run.trial.is_some()) {
        vec![|run| run.trial.clone().unwrap_or_default()]
    } else {
        of_plan.into_iter().filter(differs).collect()
    };
    parts.extend(repetition.into_iter().filter(differs));
    let name = |run: &Run| {
        if let Some(found) = capacity::of_run(record, run) {
            return capacity::run_name(found, run);
        }
        let texts = parts.iter().map(|part| part(run));
        let name = joined(texts.filter(|text| !text.is_empty()), ", ");
        if name.is_empty() { attempt(run) } else { name }
    };
    // Experiments interleave the runs of different trials.
    let mut loads: Vec<Vec<NamedRun<'_>>> = Vec::new();
    for run in runs {
        let name = name(run);
        let named = NamedRun { run, name };
        match loads.iter_mut().find(|load| same_load(load[0].run, run)) {
            Some(load) => load.push(named),
            None => loads.push(vec![named]),
        }
    }
    loads.into_iter().flatten().collect()
}

/// Returns the name of a load, which is a run's name without the process and attempt.
pub(crate) fn load_name(load: &[NamedRun<'_>]) -> String {
    let name = &load[0].name;
    let cut = name.find(", process ").or_else(|| name.find(", attempt "));
    match (load, cut) {
        ([_], _) | (_, None) => name.clone(),
        (_, Some(at)) => name[..at].to_owned(),
    }
}

/// Groups named runs by load.
pub(crate) fn by_load<'a, 'b>(all: &'b [NamedRun<'a>]) -> impl Iterator<Item = &'b [NamedRun<'a>]> {
    all.chunk_by(|a, b| same_load(a.run, b.run))
}

/// Returns the runs to draw as curves. If runs are left out, also returns a note that names the
/// drawn runs.
///
/// For a single load, the drawn runs are spread evenly over its attempts. For several loads, each
/// is represented by the run with median throughput. Loads with per-second data come first,
/// followed by open-model loads, because a capacity search ends with these, in ascending order.
pub(crate) fn drawn<'a>(all: &[NamedRun<'a>]) -> (Vec<NamedRun<'a>>, Option<String>) {
    if all.len() <= MAX_CURVES {
        return (all.to_vec(), None);
    }
    let mut loads: Vec<&[NamedRun<'a>]> = by_load(all).collect();
    let n = count_of(all.len() as u64, "run");
    if let [_] = loads.as_slice() {
        let last = MAX_CURVES - 1;
        let spread = (0..=last).map(|i| all[i * (all.len() - 1) / last].clone());
        let which = format!(
            "The curves show {MAX_CURVES} of {n}, including the first and the last. The table shows all."
        );
        return (spread.collect(), Some(which));
    }
    let shown = loads.len().min(MAX_CURVES);
    loads.sort_by_key(|load| {
        let is_closed = load.iter().all(|one| !one.run.plan.is_open());
        (load.iter().all(|one| one.run.series.is_empty()), is_closed)
    });
    let drawn = loads.iter().take(shown);
    let drawn = drawn.filter_map(|load| median(load.to_vec())).collect();
    let which = format!(
        "The curves show the run with median throughput for {shown} of {}. The table shows all {n}.",
        count_of(loads.len() as u64, "load")
    );
    (drawn, Some(which))
}

/// Returns the run with the median throughput, or `None` without runs.
pub(crate) fn median(mut runs: Vec<NamedRun<'_>>) -> Option<NamedRun<'_>> {
    let throughput = |one: &NamedRun<'_>| one.run.throughput_per_s.unwrap_or(-1.0);
    runs.sort_by(|a, b| throughput(a).total_cmp(&throughput(b)));
    let middle = runs.len() / 2;
    runs.into_iter().nth(middle)
}

/// Formats a wall-clock time in UTC, from milliseconds since 1970: `2026-11-21 16:08:16 UTC`.
pub(crate) fn timestamp(unix_ms: u64) -> String {
    let timestamp = formatted(unix_ms, "%Y-%m-%d %H:%M:%S UTC");
    timestamp.unwrap_or_else(|| "at an unknown time".to_owned())
}

/// Formats a Unix time in milliseconds as a UTC time without seconds: `2026-11-21 16:08`.
pub(crate) fn minute(unix_ms: u64) -> String {
    formatted(unix_ms, "%Y-%m-%d %H:%M").unwrap_or_default()
}

/// Formats a Unix time in milliseconds as a UTC date: `Nov 21`.
pub(crate) fn day(unix_ms: u64) -> String {
    formatted(unix_ms, "%b %-d").unwrap_or_default()
}

/// Formats a wall-clock time in UTC as in JUnit files, from milliseconds since 1970:
/// `2026-11-21T16:08:16`. Returns `None` if the time is out of range.
pub(crate) fn iso_timestamp(unix_ms: u64) -> Option<String> {
    formatted(unix_ms, "%Y-%m-%dT%H:%M:%S")
}

fn formatted(unix_ms: u64, format: &str) -> Option<String> {
    let ms = i64::try_from(unix_ms).ok()?;
    let timestamp = Timestamp::from_millisecond(ms).ok()?;
    Some(timestamp.strftime(format).to_string())
}

/// Minimum number of loads; fewer need no chart.
const FEWEST: usize = 3;

/// Ranks closed-model loads by throughput, which is computed as in comparisons. Leaves out
/// open-model loads. If the workloads differ, keeps the original order. Returns `None` for fewer
/// than [`FEWEST`] loads, or if the throughput of any load was not measured.
pub(crate) fn ranked_loads(loads: &[&[NamedRun<'_>]]) -> Option<Ranking> {
    let is_closed = |load: &&&[NamedRun<'_>]| load.iter().all(|one| !one.run.plan.is_open());
    let loads: Vec<&[NamedRun<'_>]> = loads.iter().filter(is_closed).copied().collect();
    let mut workloads = loads.iter().map(|load| &load[0].run.workload);
    let first = workloads.next()?;
    let is_sorted = workloads.all(|workload| workload == first);
    let bars: Option<Vec<RankedBar>> = loads.iter().map(|load| bar(load)).collect();
    let attempts = loads.iter().map(|load| load.len()).max()?;
    let caption = match attempts {
        1 => "ok responses per second".to_owned(),
        _ => "ok responses per second; bar: mean of the server processes, line: range of the attempts \
              that count".to_owned(),
    };
    ranked(is_sorted, caption, bars?)
}

/// Ranks the trials of an experiment by their capacity.
pub(crate) fn ranked_capacities(record: &Record) -> Option<Ranking> {
    let bars = record.trial_capacities.iter().map(|trial| {
        Some(RankedBar {
            name: trial.trial.clone(),
            per_s: trial.rate_per_s?,
            range: trial.interval.as_ref().map(|of| (of.low, of.high)),
            about: Vec::new(),
        })
    });
    let bars: Option<Vec<RankedBar>> = bars.collect();
    let caption = "capacity in requests per second; line: 95 % interval";
    ranked(true, caption.to_owned(), bars?)
}

fn ranked(is_sorted: bool, caption: String, mut bars: Vec<RankedBar>) -> Option<Ranking> {
    if is_sorted {
        bars.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
    }
    (bars.len() >= FEWEST).then_some(Ranking { caption, bars })
}

/// Returns the attempts that count in comparisons, by server process. If there are none, all
/// attempts count.
fn counted<'a>(load: &[NamedRun<'a>]) -> BTreeMap<u32, Vec<&'a Run>> {
    let mut all: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
    for one in load {
        all.entry(one.run.process).or_default().push(one.run);
    }
    let counted = all.iter().map(|(n, runs)| (*n, counted_attempts(runs)));
    let counted: BTreeMap<u32, Vec<&Run>> = counted.filter(|(_, runs)| !runs.is_empty()).collect();
    if counted.is_empty() { all } else { counted }
}

/// Returns the geometric mean of the throughputs of the server processes. The throughput of a
/// process is the median of its attempts on a logarithmic scale.
fn geometric_mean<'a>(processes: impl Iterator<Item = &'a Vec<&'a Run>>) -> Option<f64> {
    let figures = processes.filter_map(|runs| {
        let figures: Vec<f64> = runs.iter().filter_map(|run| run.throughput_per_s).collect();
        (!figures.is_empty()).then(|| geometric_median(&figures))
    });
    let logs: Vec<f64> = figures.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

fn bar(load: &[NamedRun<'_>]) -> Option<RankedBar> {
    let counted = counted(load);
    let runs = || counted.values().flatten().copied();
    let figures: Vec<f64> = runs().filter_map(|run| run.throughput_per_s).collect();
    let (least, most) = extremes(&figures)?;
    let mut about = Vec::new();
    if let Some((verdict, _)) = verdict::most_frequent(load.iter().map(|one| one.run)) {
        about.push(plain(verdict.cause.name()));
    }
    let worst = &runs().max_by_key(|run| badness(run))?.validity;
    if let Status::Unsteady | Status::Invalid = worst.status {
        about.push(status_word(worst.status));
    }
    if worst.is_lower_bound() {
        about.push(Emphasis::Warn.span("lower bound"));
    }
    let mut checks = load.iter().flat_map(|one| &one.run.checks);
    if checks.any(|check| check.held == Some(false)) {
        about.push(Emphasis::Bad.span("check violated"));
    }
    Some(RankedBar {
        name: load_name(load),
        per_s: geometric_mean(counted.values())?,
        range: (least < most).then_some((least, most)),
        about,
    })
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "ranking_tests.rs"]
mod ranking_tests;
