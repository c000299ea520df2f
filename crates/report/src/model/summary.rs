//! The summary of a record: full details of each run, or one table for attempts with the same load.

use floodmark_record::comparison::Threshold;
use floodmark_record::reason::joined;
use floodmark_record::result::{Overall, Record};
use floodmark_record::run::{Run, Status};
use floodmark_record::watch::Server;

use super::document::{
    Blocks, ColumnCell, Detail, Emphasis, Extent, Table, TextLine, data, faint, line, listed,
    number_cell, plain, shown, text_cell,
};
use super::figures::{
    NOT_MEASURED, count_of, cpu_per_request, cpus, ends, interval, interval_or_none, level,
    microseconds, optional, per_second, rate,
};
use super::run::{self, name_cells, response_times, same_load, service_times};
use super::verdict::cause_and_next;
use super::{outcomes, plan, process_use};

/// Returns the summary of a record with thresholds, skipped trials and the next step.
pub(crate) fn document(record: &Record, next: Option<&str>, extent: Extent) -> Blocks {
    let mut blocks = Blocks::default();
    let loads: Vec<&[Run]> = record.runs.chunk_by(same_load).collect();
    // For a single load, show the next step after the cause. For several loads, show it last.
    let (with_cause, last) = match loads.len() {
        1 => (next, None),
        _ => (None, next),
    };
    // `overall` covers all runs of a record, so it is shown only if there is a single load.
    let overall = record.overall.as_ref().filter(|_| loads.len() == 1);
    for (i, runs) in loads.into_iter().enumerate() {
        if i > 0 {
            blocks.gap();
        }
        blocks.paragraph(plan::headline(&runs[0], runs.len()));
        blocks.gap();
        match runs {
            [run] => add_run(&mut blocks, run, with_cause, extent),
            several => add_attempts(&mut blocks, several, overall, with_cause, extent),
        }
    }
    blocks.lines(record.skipped.iter().map(|text| line("skipped", text)));
    blocks.lines(record.thresholds.iter().map(threshold));
    blocks.lines(last.map(|next| line("next", next)));
    blocks
}

fn add_run(blocks: &mut Blocks, run: &Run, next: Option<&str>, extent: Extent) {
    let is_full = extent == Extent::Full;
    blocks.lines(run::ended(run));
    let throughput = run::throughput(run).into_iter();
    let rates = if is_full || run.goodput_per_s != run.throughput_per_s {
        usize::MAX
    } else {
        1
    };
    blocks.lines(throughput.take(rates));
    cause_and_next(blocks, [run], next, extent);
    if is_full || !run::is_whole(run) {
        blocks.lines(run::window(run, false));
    }
    match run::times(run) {
        Some(table) => {
            blocks.tables([table]);
            blocks.lines(run::blocked_by(run));
        }
        None => {
            let text = "not measured: no request succeeded or timed out";
            blocks.lines([line("times", text)]);
        }
    }
    blocks.tables(run::steps(run));
    blocks.lines(run::saturation(run));
    blocks.tables(run::requests(run));
    if is_full || outcomes::not_ok(&run.requests) > 0 {
        blocks.lines(outcomes::lines(&[run]));
    }
    blocks.lines(outcomes::traffic(&[run]).filter(|_| is_full));
    blocks.lines(run::held(run));
    if is_full {
        blocks.lines([process_use::client(run)]);
        process_use::add_agents(blocks, run);
        blocks.lines(process_use::external_client(run));
        blocks.lines(process_use::servers(run));
        blocks.lines(run::tls(run));
        blocks.lines(run::http2(run));
    }
    blocks.lines(run::validity(run));
    blocks.lines(run::checks(run));
    blocks.lines(run::notes(run));
}

/// Returns the result of a threshold: `fail-if   p99 > 50 ms – failed: 60 ms`.
pub(crate) fn threshold(threshold: &Threshold) -> TextLine {
    let result = match threshold.met {
        Some(true) => Emphasis::Bad.span("– failed:"),
        Some(false) => Emphasis::Good.span("– passed:"),
        None => Emphasis::Warn.span("– not evaluated:"),
    };
    let condition = plain(super::figures::glue(&threshold.condition));
    TextLine::new("fail-if", [condition, result, plain(&threshold.figure)])
}

/// Adds the attempts with the same load, the `overall` figures and the `next` step.
fn add_attempts(
    blocks: &mut Blocks,
    runs: &[Run],
    overall: Option<&Overall>,
    next: Option<&str>,
    extent: Extent,
) {
    let is_full = extent == Extent::Full;
    let names = names(runs);
    let named = || runs.iter().zip(&names);
    for (run, name) in named() {
        blocks.lines_of(name, run::ended(run));
    }
    blocks.lines(overall.map(throughput));
    cause_and_next(blocks, runs, next, extent);
    blocks.tables([table(named().map(|(run, name)| (name.clone(), run)))]);
    for (run, name) in named() {
        if is_full || !run::is_whole(run) {
            blocks.lines_of(name, run::window(run, false));
        }
        blocks.lines_of(name, run::held(run));
        if is_full {
            blocks.lines_of(name, process_use::agents_line(run));
        }
    }
    for (run, name) in named() {
        let captioned = |table: Table| table.captioned(name);
        blocks.tables(run::steps(run).map(captioned));
        blocks.lines_of(name, run::saturation(run));
        blocks.tables(run::requests(run).map(captioned));
    }
    let all = Vec::from_iter(runs);
    if is_full || all.iter().any(|run| outcomes::not_ok(&run.requests) > 0) {
        blocks.lines(outcomes::lines(&all));
    }
    if is_full {
        blocks.lines(outcomes::traffic(&all));
        blocks.lines(process_use::ranges(runs));
        blocks.lines(process_use::external_client(&runs[0]));
    }
    // The table shows the status of each attempt, so only attempts that are not valid need an
    // explanation.
    let validity = shared(runs, run::validity);
    blocks.lines(validity.unwrap_or_else(|| {
        let invalid = named().filter(|(run, _)| run.validity.status != Status::Valid);
        each(invalid, run::validity)
    }));
    for part in [run::checks, run::notes] {
        let lines = shared(runs, part);
        blocks.lines(lines.unwrap_or_else(|| each(named(), part)));
    }
    let notes = overall.iter().flat_map(|overall| &overall.notes);
    blocks.lines(notes.map(|note| line("note", note)));
}

/// Returns `attempt 2`, or `process 3, attempt 2` if there are several server processes.
fn names(runs: &[Run]) -> Vec<String> {
    let several = runs.iter().any(|run| run.process != runs[0].process);
    let name = |run: &Run| {
        if several {
            run::attempt(run)
        } else {
            format!("attempt {}", run.attempt)
        }
    };
    runs.iter().map(name).collect()
}

/// Returns the lines that `part` yields for every run, or `None` if the lines differ between runs.
fn shared(runs: &[Run], part: fn(&Run) -> Vec<TextLine>) -> Option<Vec<TextLine>> {
    let mut lines = runs.iter().map(part);
    let first = lines.next()?;
    lines.all(|other| other == first).then_some(first)
}

fn each<'a>(
    named: impl Iterator<Item = (&'a Run, &'a String)>,
    part: fn(&Run) -> Vec<TextLine>,
) -> Vec<TextLine> {
    let lines = named.flat_map(|(run, name)| part(run).into_iter().map(move |line| line.of(name)));
    lines.collect()
}

/// Returns the line with the mean throughput of the attempts.
fn throughput(overall: &Overall) -> TextLine {
    let mut spans = vec![Emphasis::Strong.span(rate(overall.throughput_per_s))];
    let attempts = count_of(overall.attempts.into(), "attempt");
    match &overall.throughput_interval {
        Some(i) => {
            spans.push(plain(interval(overall.throughput_per_s, i)));
            let (level, method) = (level(i.confidence), &i.method);
            spans.push(faint(format!(
                "({level} interval, mean of {attempts}, {method})"
            )));
        }
        None => spans.push(faint(format!("(mean of {attempts})"))),
    }
    TextLine::new("throughput", spans)
}

/// Returns a table of figures with one row per named run.
pub(crate) fn table<'a>(named: impl Iterator<Item = (String, &'a Run)>) -> Table {
    let rows = named.map(|(name, run)| (name, cells(run)));
    Table::of(rows, "percentiles of response time")
}

fn cells(run: &Run) -> Vec<ColumnCell> {
    let missing = || NOT_MEASURED.to_owned();
    let throughput_per_s = run.throughput_per_s;
    let within = run.throughput_interval.as_ref();
    let (low, high) = ends(within);
    let range = interval_or_none(throughput_per_s, within);
    let shown_range = if range.is_empty() {
        missing()
    } else {
        range.clone()
    };
    let cause = run.verdict.as_ref().map(|verdict| verdict.cause.name());
    let offered = run.plan.rate_per_s();
    let goodput = optional(run.goodput_per_s, per_second);
    let [throughput, goodput_per_s] = outcomes::rates(throughput_per_s, run.goodput_per_s);
    let mut cells = name_cells(run);
    cells.extend([
        data("started_unix_ms", run.started_unix_ms),
        data("ended", run.ended.reason),
        data("validity", run.validity.status),
        data("sending_s", run.sending_s),
        data("window_from_s", run.window.from_s),
        data("window_to_s", run.window.to_s),
        number_cell("offered_per_s", "offered/s", offered, per_second),
        throughput.essential(),
        goodput_per_s,
        listed("throughput_low_per_s", "interval", low, range),
        shown("interval", shown_range).at(Detail::Page),
        data("throughput_high_per_s", high),
        data("throughput_confidence", within.map(|of| of.confidence)),
        shown("goodput/s", goodput).at(Detail::Roomy),
    ]);
    cells.extend(response_times(&run.response_time_us, &run.plan));
    cells.extend(service_times(&run.service_time_us));
    cells.extend(outcomes::count_cells(&run.requests));
    cells.push(outcomes::failures(outcomes::not_ok(&run.requests)));
    let per_request =
        |used: &Option<Server>| used.as_ref().and_then(|used| used.cpu_us_per_request);
    let cpu = |us| cpu_per_request(us).unwrap_or_else(missing);
    let (server, store) = (per_request(&run.server), per_request(&run.store));
    let store_cpu = run.store.as_ref().map_or_else(String::new, |_| cpu(store));
    let client = run.client.cpu_us_per_request.filter(|us| *us > 0.0);
    let used = |used: &Option<Server>| process_use::cpus(used.as_ref());
    let client = number_cell(
        "client_cpu_us_per_request",
        "client CPU/request",
        client,
        microseconds,
    );
    let reasons = joined(&run.validity.reasons);
    cells.extend([
        client.at(Detail::Page),
        data("server_cpu_us_per_request", server),
        shown("server CPU/request", cpu(server)).at(Detail::Page),
        data("store_cpu_us_per_request", store),
        shown("store CPU/request", store_cpu).at(Detail::Page),
        number_cell("server_cpus", "server CPUs", used(&run.server), cpus),
        number_cell("store_cpus", "store CPUs", used(&run.store), cpus),
        text_cell("cause", "cause", cause),
        listed(
            "validity_reasons",
            "validity",
            reasons,
            run::validity_of(run),
        )
        .essential(),
    ]);
    cells
}
