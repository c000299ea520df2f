//! The result of an experiment: a row per trial, then causes, checks, comparisons and claims.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::figure::Statistic;
use floodmark_record::run::{Run, Status};

use super::document::{
    Blocks, ColumnCell, Detail, Emphasis, Span, Table, TextLine, faint, line, plain, shown,
};
use super::figures::{
    NOT_MEASURED, count_of, cpu_per_request, cpus, median, microseconds, optional, per_second, time,
};
use super::{capacity, comparison, crash, environment, gate, process_use, run, sweep, verdict};

/// Explanation above the table of trials.
const EXPLANATION: &str = "(ok responses per second in the window, percentiles of response time, \
    client CPU time per request: geometric means over server processes if trials are compared, \
    otherwise medians over the runs; CPUs used by server and store: medians)";

/// The runs of a trial.
type TrialRuns<'a> = Vec<&'a Run>;

/// Returns the result of a record's experiment, or no blocks for other records.
pub(crate) fn document(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    let Some(experiment) = &record.experiment else {
        return blocks;
    };
    let trials = experiment.trials.iter();
    let trials = trials.map(|name| (name.as_str(), record.runs_of(name).collect()));
    let trials: Vec<(&str, TrialRuns<'_>)> = trials.collect();
    blocks.paragraph([Emphasis::Strong.span(&experiment.question)]);
    blocks.gap();
    if let Some(gate) = &record.gate {
        blocks.lines(gate::lines(gate));
        blocks.gap();
    }
    let results = comparison::results(&record.comparisons);
    if !results.is_empty() {
        blocks.lines(results);
        blocks.gap();
    }
    let has_capacities = experiment.capacity.is_some();
    capacity::add_trial_capacities(&mut blocks, record);
    // Alternating loads report the figures of the pairs. The ordinary runs only show whether
    // these figures are valid.
    let is_alternating = experiment
        .gate
        .as_ref()
        .is_some_and(|gate| gate.is_alternating);
    if experiment.crash.is_none() && !has_capacities && !is_alternating {
        let rows = trials.iter();
        let rows = rows.map(|(name, runs)| ((*name).to_owned(), cells(name, runs, record)));
        blocks.tables([Table::of(rows, "")]);
        blocks.paragraph([faint(EXPLANATION)]);
    }
    crash::add(&mut blocks, &record.crash);
    if !has_capacities {
        blocks.lines(verdict::of_trials(&trials));
    }
    for (name, runs) in &trials {
        let client = runs.first().map(|run| process_use::external_client(run));
        blocks.lines_of(name, client.into_iter().flatten());
    }
    blocks.lines(reasons(record));
    blocks.lines(checks(&trials));
    for (name, runs) in &trials {
        blocks.lines_of(name, log_lines(runs));
    }
    blocks.lines(resumed(record).map(|text| line("resumed", text)));
    blocks.lines(environment::placements(record));
    blocks.lines(record.skipped.iter().map(|text| line("skipped", text)));
    if let Some(mut ladder) = comparison::ladder_table(record) {
        blocks.section("ladder", &std::mem::take(&mut ladder.note));
        blocks.tables([ladder]);
    }
    for swept in &record.sweeps {
        blocks.section(format!("sweep {}", swept.sweep.name), sweep::NOTE);
        blocks.tables([sweep::table(swept)]);
        blocks.lines(sweep::result(swept).map(|text| line("result", text)));
    }
    comparison::add_pairs(&mut blocks, record);
    comparison::add_claims(&mut blocks, &record.claims);
    blocks
}

/// Returns the cells of a trial. Compared metrics show the same figure as the comparison.
fn cells(trial: &str, runs: &TrialRuns<'_>, record: &Record) -> Vec<ColumnCell> {
    let compared = |metric| comparison::figure_of(&record.comparisons, trial, metric);
    let time = |metric, statistic| match compared(metric) {
        Some(us) => plain(microseconds(us)),
        None => percentile(runs, statistic),
    };
    let median_of = |of: fn(&Run) -> Option<f64>| median(runs.iter().map(|run| of(run)));
    let ok = compared(ComparedMetric::Throughput).or(median_of(|run| run.throughput_per_s));
    let ok = optional(ok, per_second);
    let cpu = compared(ComparedMetric::CpuPerRequest);
    let cpu = cpu_per_request(cpu.or(median_of(|run| run.client.cpu_us_per_request)));
    let cpu = cpu.unwrap_or_else(|| NOT_MEASURED.to_owned());
    let server = median_of(|run| process_use::cpus(run.server.as_ref()));
    let store = median_of(|run| process_use::cpus(run.store.as_ref()));
    let has_store = runs.iter().any(|run| run.store.is_some());
    let store = has_store.then(|| optional(store, cpus));
    vec![
        shown("ok/s", Emphasis::Strong.span(ok)),
        shown("p50", time(ComparedMetric::P50, Statistic::P50)),
        shown("p99", time(ComparedMetric::P99, Statistic::P99)),
        shown("CPU/request", cpu).at(Detail::Roomy),
        shown("server", optional(server, cpus)),
        shown("store", store.unwrap_or_default()),
        shown("runs", runs.len().to_string()),
        shown("validity", validity(runs)),
    ]
}

/// Returns the median of a percentile across the runs. A percentile that falls among requests
/// without a response ranks above all measured ones.
fn percentile(runs: &TrialRuns<'_>, statistic: Statistic) -> Span {
    let median = median(runs.iter().map(|run| statistic.of(&run.response_time_us)));
    let mut censored = runs.iter().filter(|run| run.response_time_us.censored > 0);
    plain(match (median, censored.next()) {
        (Some(us), _) if us.is_finite() => microseconds(us),
        (Some(_), Some(run)) => time(None, &run.response_time_us, &run.plan),
        _ => NOT_MEASURED.to_owned(),
    })
}

/// Returns the worst status among the runs, and how many runs have it, unless all runs have the
/// same status.
fn validity(runs: &TrialRuns<'_>) -> Span {
    let Some(worst) = runs.iter().max_by_key(|run| run::badness(run)) else {
        return plain(NOT_MEASURED);
    };
    let mut worst = run::validity_of(worst);
    let all = runs.iter().map(|run| run::validity_of(run));
    let alike = all.filter(|status| *status == worst).count();
    if alike < runs.len() {
        worst.text.push_str(&format!(" {alike} of {}", runs.len()));
    }
    worst
}

/// Returns text such as `interrupted; resumed once; 2 runs repeated on fresh server processes`.
/// Complete crash rounds are never repeated.
pub(crate) fn resumed(record: &Record) -> Option<String> {
    let times = match record.resumed.len() {
        0 => return None,
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    let runs = record.resumed.iter().map(|one| one.anew.len() as u64).sum();
    let repeated = match record.crash.len() {
        0 => format!(
            "; {} repeated on fresh server processes",
            count_of(runs, "run")
        ),
        _ => String::new(),
    };
    Some(format!("interrupted; resumed {times}{repeated}"))
}

/// Returns the number of server log lines that contain each text, summed over all runs of a trial.
fn log_lines(runs: &TrialRuns<'_>) -> Vec<TextLine> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for errors in runs.iter().flat_map(|run| &run.log_errors) {
        *sums.entry(&errors.text).or_default() += errors.lines;
    }
    let found = sums.into_iter().filter(|(_, lines)| *lines > 0);
    let found = found.map(|(text, lines)| line("log", run::log_lines(text, lines)));
    found.collect()
}

/// For each trial, returns the reasons of one run per status other than valid, and the reasons why
/// the trial's runs ended early.
fn reasons(record: &Record) -> Vec<TextLine> {
    let mut known: Vec<(&str, Span)> = Vec::new();
    let mut lines = Vec::new();
    for run in &record.runs {
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        let status = run::validity_of(run);
        let reasons = &run.validity.reasons;
        if run.validity.status != Status::Valid
            && !reasons.is_empty()
            && !known.contains(&(trial, status.clone()))
        {
            let attempt = run::attempt(run);
            let label = run::status_word(run.validity.status).text;
            lines.extend(reasons.iter().map(|reason| {
                let text = format!("{trial}, {attempt}: {reason}");
                TextLine::new(&label, [status.emphasis.span(text)])
            }));
            known.push((trial, status));
        }
        let detail = run.ended.detail.as_ref();
        let detail = detail.map(|detail| format!("{trial}, {}: {detail}", run::attempt(run)));
        lines.extend(detail.map(|detail| line("ended", detail)));
    }
    lines
}

/// For each trial, returns the first violated check and the first check that was not evaluated. For
/// each check, another line lists the trials in which it always held.
fn checks(trials: &[(&str, TrialRuns<'_>)]) -> Vec<TextLine> {
    let mut held: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut lines = Vec::new();
    for (trial, runs) in trials {
        let checks = runs
            .iter()
            .flat_map(|run| run.checks.iter().map(move |check| (run, check)));
        let checks: Vec<_> = checks.collect();
        let all = count_of(checks.len() as u64, "run");
        let results = [
            (Some(false), Emphasis::Bad, "violated"),
            (None, Emphasis::Warn, "not evaluated"),
        ];
        for (result, emphasis, words) in results {
            let mut with_result = checks.iter().filter(|(_, check)| check.held == result);
            let n = with_result.clone().count();
            if let Some((run, check)) = with_result.next() {
                let (first, detail) = (run::attempt(run), &check.detail);
                let text = format!("in {n} of {all} of {trial}, first in {first}: {detail}");
                let result = emphasis.span(format!("{} {words}", check.name));
                lines.push(TextLine::new("check", [result, plain(text)]));
                lines.extend(run::history(&check.history));
            }
        }
        if let Some((_, check)) = checks.first()
            && checks.iter().all(|(_, check)| check.held == Some(true))
        {
            held.entry(&check.name).or_default().push(trial);
        }
    }
    lines.extend(held.iter().map(|(name, trials)| {
        let trials = plain(format!("in all runs of {}", trials.join(", ")));
        let held = Emphasis::Good.span(format!("{name} held"));
        TextLine::new("check", [held, trials])
    }));
    lines
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
