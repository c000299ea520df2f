//! Several attempts at the same load: one row per attempt, and the lines that all attempts share.

use floodmark_record::result::Overall;
use floodmark_record::run::{Run, Status};
use floodmark_record::watch::Server;

use super::figures::{
    NOT_MEASURED, count_of, cpu_per_request, interval, level, optional, per_second, rate,
};
use super::times::percentiles;
use super::{
    Blocks, ColumnCell, Detail, Emphasis, FigureTable, TextLine, agents, faint, groups, line,
    outcomes, plain, process_use, run, steps, summary,
};

/// Adds the attempts at one load, with the `overall` figures and the `next` step.
pub(crate) fn add(
    blocks: &mut Blocks,
    runs: &[Run],
    overall: Option<&Overall>,
    next: Option<&str>,
) {
    let names = names(runs);
    let named = || runs.iter().zip(&names);
    for (run, name) in named() {
        blocks.lines_of(name, run::ended(run));
    }
    blocks.lines(overall.map(throughput));
    summary::cause_and_next(blocks, runs, next);
    blocks.tables([table(named().map(|(run, name)| (name.clone(), run)))]);
    for (run, name) in named() {
        blocks.lines_of(name, run::window(run, false));
        blocks.lines_of(name, run::held(run));
        blocks.lines_of(name, agents::line(run));
    }
    for (run, name) in named() {
        let captioned = |table: FigureTable| table.captioned(name);
        blocks.tables(steps::table(run).map(captioned));
        blocks.lines_of(name, run::saturation(run));
        blocks.tables(groups::table(run).map(captioned));
    }
    blocks.lines(outcomes::lines(&runs.iter().collect::<Vec<_>>()));
    blocks.lines(process_use::ranges(runs));
    blocks.lines(process_use::external_client(&runs[0]));
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
    let name = |run: &Run| match several {
        true => format!("process {}, attempt {}", run.process, run.attempt),
        false => format!("attempt {}", run.attempt),
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
pub(crate) fn throughput(overall: &Overall) -> TextLine {
    let mut spans = vec![Emphasis::Strong.span(rate(overall.throughput_per_s))];
    let attempts = count_of(overall.attempts.into(), "attempt");
    match &overall.throughput_interval {
        Some(i) => {
            spans.push(plain(interval(overall.throughput_per_s, i)));
            let level = level(i.confidence);
            spans.push(faint(format!(
                "({level} interval, mean of {attempts}, {})",
                i.method
            )));
        }
        None => spans.push(faint(format!("(mean of {attempts})"))),
    }
    TextLine::new("throughput", spans)
}

/// Returns a table of figures with one row per named run.
pub(crate) fn table<'a>(named: impl Iterator<Item = (String, &'a Run)>) -> FigureTable {
    let rows = named.map(|(name, run)| (name, cells(run)));
    FigureTable::of(rows, "percentiles of response time")
}

fn cells(run: &Run) -> Vec<ColumnCell> {
    let missing = || NOT_MEASURED.to_owned();
    let within = run.throughput_per_s.zip(run.throughput_interval.as_ref());
    let within = within.map_or_else(missing, |(per_s, i)| interval(per_s, i));
    let goodput = optional(run.goodput_per_s, per_second);
    let mut cells = vec![
        outcomes::ok_per_s(run.throughput_per_s),
        ("interval", Detail::Page, within.into()),
        ("goodput/s", Detail::Roomy, goodput.into()),
    ];
    let times = &run.response_time_us;
    cells.extend(percentiles(times, &run.plan));
    cells.push(outcomes::failures(outcomes::not_ok(&run.requests)));
    let cpu = |us| cpu_per_request(us).unwrap_or_else(missing).into();
    let of = |used: &Option<Server>| cpu(used.as_ref().and_then(|used| used.cpu_us_per_request));
    let client = cpu(run.client.cpu_us_per_request);
    cells.push(("client CPU/request", Detail::Page, client));
    cells.push(("server CPU/request", Detail::Page, of(&run.server)));
    let store = run.store.as_ref().map(|_| of(&run.store));
    let store = store.unwrap_or_else(|| String::new().into());
    cells.push(("store CPU/request", Detail::Page, store));
    let validity = run::validity_of(run);
    cells.push(("validity", Detail::Essential, validity.into()));
    cells
}
