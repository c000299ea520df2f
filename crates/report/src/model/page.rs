//! The page of a record: result, figures, curves, notes, and how to repeat the measurement.

use floodmark_record::Record;
use floodmark_record::run::{Run, Status};

use super::chart::{self, DamagedHistogram, distribution, observed, over_time, swept, tuned};
use super::figures::count_of;
use super::names::{self, NamedRun};
use super::{
    Block, Blocks, Row, Table, TextLine, agents, answer, attempts, capacity, claims, comparison,
    crash, environment, faint, gate, groups, ladder, line, outcomes, plain, plan, process_use,
    repeat, run, steps, summary, sweep, times, trial_capacities, tuning,
};

/// Maximum number of rows in a table.
const MAX_ROWS: usize = 100;

/// Maximum number of notes on a page.
const MAX_NOTES: usize = 60;

/// The content of a page.
pub(crate) struct PageContent {
    pub(crate) title: String,
    /// Descriptions of the plans.
    pub(crate) plans: Blocks,
    pub(crate) answer: Blocks,
    /// Further sections with headings. Empty sections are not shown.
    pub(crate) sections: Vec<(&'static str, Blocks)>,
}

impl PageContent {
    /// Builds the page for a record. `next` is the recommended next step.
    ///
    /// # Errors
    /// Fails if a histogram in the record is damaged.
    pub(crate) fn of(record: &Record, next: Option<&str>) -> Result<PageContent, DamagedHistogram> {
        let all = names::named(record);
        let (drawn, which) = names::drawn(&all);
        let mut curves = over_time::charts(&drawn, &record.environment);
        curves.extend(distribution::charts(&drawn)?);
        let (observed, other_series) = observed::charts(&drawn);
        let which = which.map(|which| format!("{which}."));
        let curve_notes = which.into_iter().chain(over_time::notes(&drawn));
        let mut monitoring = Blocks::of_charts(observed, []);
        monitoring.tables(others(other_series));
        let mut environment = Blocks::default();
        environment.lines(environment::lines(record));
        environment.gap();
        environment.lines(environment::settings(record));
        let (answer, results) = match &record.capacity {
            Some(found) => (capacity::paragraphs(record, found), Blocks::default()),
            None => {
                let answer = answer::answer(record, &all, next);
                (answer.short, answer.details)
            }
        };
        Ok(PageContent {
            title: match (&record.experiment, &record.capacity) {
                (Some(experiment), _) => experiment.question.clone(),
                (None, Some(found)) => capacity::title(found, &title(&all)),
                (None, None) => title(&all),
            },
            plans: match record.capacity {
                Some(_) => plans(&all[..all.len().min(1)]),
                None => plans(&all),
            },
            answer,
            sections: vec![
                ("Capacity", capacity_section(record)),
                ("Gate", gate_section(record)),
                ("Crash rounds", crash_rounds(record)),
                ("Tuning", tuned(record)),
                (
                    "Cost of each step",
                    Blocks::of_tables(ladder::table(record)),
                ),
                ("Sweeps", sweeps(record)),
                ("Comparisons", comparisons(record)),
                ("Claims", Blocks::of_tables(claims::table(&record.claims))),
                ("Curves", Blocks::of_charts(curves, curve_notes)),
                ("Results", results),
                ("Figures", figures(&all)),
                ("Outcomes", all_outcomes(&drawn)),
                ("Agents", tables(&drawn, agents::table)),
                ("Steps", tables(&drawn, steps::table)),
                ("Requests of the mix", tables(&drawn, groups::table)),
                ("Validity and notes", notes(record, &all)),
                ("Monitoring", monitoring),
                ("Rerun", repetition(record, &all)),
                ("Environment", environment),
            ],
        })
    }
}

/// Returns a collapsed list of the metrics without a chart, or `None` if there are none.
fn others(names: Vec<String>) -> Option<Table> {
    let summary = count_of(names.len() as u64, "other metric");
    let rows = names.into_iter();
    let rows = rows.map(|name| Row::new(name, Vec::new()));
    let table = Table::new([""; 0], rows);
    (!table.rows.is_empty()).then(|| Table {
        collapsed: Some(format!("{summary} in the record")),
        ..table
    })
}

/// Returns the page title, which is the method and URL of the requests.
fn title(all: &[NamedRun<'_>]) -> String {
    let url = |run: &Run| match run.plan.request.method.as_str() {
        "GET" => run.plan.target.url.clone(),
        method => format!("{method} {}", run.plan.target.url),
    };
    let mut urls = all.iter().map(|one| url(one.run));
    match urls.next() {
        None => "No measurement".to_owned(),
        Some(first) if urls.all(|other| other == first) => first,
        Some(first) => format!("{first} and others"),
    }
}

/// Describes each plan, the number of loads that use it and the start time of the first load.
pub(super) fn plans(all: &[NamedRun<'_>]) -> Blocks {
    let mut plans: Vec<(String, u64, u64)> = Vec::new();
    for load in names::by_load(all) {
        let run = load[0].run;
        let mut words = plan::describe(&run.plan, load.len());
        if let Some(name) = &run.client.name {
            words = format!("{name}: {words}");
        }
        match plans.iter_mut().find(|(other, ..)| *other == words) {
            Some((_, loads, _)) => *loads += 1,
            None => plans.push((words, 1, run.started_unix_ms)),
        }
    }
    let mut blocks = Blocks::default();
    for (words, loads, started) in plans {
        let times = match loads {
            1 => String::new(),
            n => format!(", in {n} trials"),
        };
        let started = names::timestamp(started);
        blocks.paragraph([plain(format!("{words}{times}. Started {started}."))]);
    }
    blocks
}

/// Returns the charts and tables of a search for a capacity.
fn capacity_section(record: &Record) -> Blocks {
    let Some(found) = &record.capacity else {
        let mut blocks = Blocks::default();
        if !record.trial_capacities.is_empty() {
            blocks
                .0
                .push(Block::Charts(Vec::from_iter(chart::capacity::trials(
                    record,
                ))));
            blocks.tables([trial_capacities::table(record)]);
        }
        return blocks;
    };
    let mut blocks = Blocks::of_charts(chart::capacity::charts(record, found), []);
    blocks.tables(capacity::levels(record, found));
    blocks.subheading("Trials");
    blocks.tables([capacity::trials_table(found)]);
    blocks
}

fn gate_section(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    if let Some(gate) = &record.gate {
        let chart = chart::gate::chart(gate).into_iter();
        blocks
            .0
            .extend(chart.map(|chart| Block::Charts(vec![chart])));
        blocks.tables([gate::table(gate)]);
        blocks.lines(gate.excluded.iter().map(|text| line("excluded", text)));
    }
    blocks
}

fn crash_rounds(record: &Record) -> Blocks {
    let mut blocks = Blocks::of_tables(crash::table(&record.crash));
    blocks.lines(crash::losses(&record.crash));
    blocks
}

fn tuned(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    if let Some((tuning, of)) = tuning::of(record) {
        let charts = tuned::charts(tuning, &of.meaning);
        blocks.0.push(Block::Charts(charts));
        blocks.tables([tuning::steps(tuning, &of)]);
        if let Some(frontier) = tuning::frontier(tuning) {
            blocks.subheading("Frontier");
            blocks.paragraph([faint(tuning::FRONTIER)]);
            blocks.tables([frontier]);
        }
    }
    blocks
}

fn sweeps(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    for one in &record.sweeps {
        blocks.subheading(&one.sweep.name);
        blocks
            .0
            .extend(swept::chart(one).map(|chart| Block::Charts(vec![chart])));
        blocks.tables([sweep::table(one)]);
    }
    if !record.sweeps.is_empty() {
        blocks.paragraph([faint(sweep::NOTE)]);
    }
    blocks
}

fn comparisons(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    let all: Vec<_> = record.comparisons.iter().collect();
    if all.is_empty() {
        return blocks;
    }
    let note = "Ratio: the first figure divided by the second, with an interval over server processes; n: \
                number of processes of the first and the second.";
    blocks.paragraph([faint(note)]);
    for pair in comparison::pairs(&record.comparisons) {
        let (a, b) = (&pair[0].a, &pair[0].b);
        blocks.subheading(&format!("{a} ÷ {b}"));
        blocks.tables([comparison::table(pair, a, b)]);
    }
    blocks.lines(comparison::inconclusive(&all));
    blocks.lines(comparison::notes(&all));
    blocks.lines(comparison::methods(&all));
    blocks
}

fn figures(all: &[NamedRun<'_>]) -> Blocks {
    let mut blocks = Blocks::default();
    if let [one] = all {
        blocks.lines(run::throughput(one.run));
        let interval = one.run.throughput_interval.as_ref();
        blocks.lines(interval.map(|interval| line("interval", &interval.method)));
        blocks.lines([process_use::client(one.run)]);
        blocks.lines(process_use::external_client(one.run));
        blocks.lines(process_use::servers(one.run));
        blocks.lines(process_use::totals(one.run));
        blocks.lines(run::held(one.run).into_iter().chain(run::tls(one.run)));
        blocks.lines(outcomes::traffic(&[one.run]));
        if let Some(times) = times::table(one.run) {
            blocks.subheading("Times");
            blocks.tables([times]);
        }
    } else if !all.is_empty() {
        let rows = all.iter().map(|one| (one.name.clone(), one.run));
        blocks.tables([attempts::table(rows).limited(MAX_ROWS)]);
        for one in all.iter().take(MAX_ROWS) {
            blocks.lines_of(&one.name, process_use::external_client(one.run));
        }
    }
    blocks
}

/// Returns the counts and shares for each run, followed by statuses and errors.
pub(super) fn all_outcomes(drawn: &[NamedRun<'_>]) -> Blocks {
    let mut blocks = Blocks::default();
    let named = drawn.iter().map(|one| match drawn.len() {
        1 => ("", one.run),
        _ => (one.name.as_str(), one.run),
    });
    let named: Vec<(&str, &Run)> = named.collect();
    if !named.is_empty() {
        blocks.tables([outcomes::table(&named)]);
    }
    for (name, run) in named {
        let statuses = outcomes::frequencies("statuses", &run.requests.statuses);
        let errors = outcomes::frequencies("errors", &run.request_errors().collect());
        let imbalance = outcomes::imbalance("counts", &run.requests);
        let bodies = outcomes::bodies(&[run]);
        let rest = [errors, imbalance].into_iter().flatten();
        blocks.lines_of(name, statuses.into_iter().chain(bodies).chain(rest));
    }
    blocks
}

/// Returns a table for each run that has one.
fn tables(drawn: &[NamedRun<'_>], table: fn(&Run) -> Option<Table>) -> Blocks {
    let mut blocks = Blocks::default();
    for one in drawn {
        if let Some(table) = table(one.run) {
            if drawn.len() > 1 {
                blocks.subheading(&one.name);
            }
            blocks.tables([table]);
        }
    }
    blocks
}

/// Returns thresholds, reasons, checks and notes.
fn notes(record: &Record, all: &[NamedRun<'_>]) -> Blocks {
    let mut blocks = Blocks::default();
    blocks.lines(record.thresholds.iter().map(summary::threshold));
    let mut lines = Vec::new();
    for one in all {
        let run = one.run;
        let mut own = Vec::from_iter(run::ended(run));
        if run.validity.status != Status::Valid {
            own.extend(run::validity(run));
        }
        own.extend(run::checks(run));
        own.extend(run::window(run, true));
        own.extend(run::saturation(run));
        own.extend(run::notes(run));
        lines.push((one.name.as_str(), own));
    }
    blocks.lines(shared_lines(&lines));
    let overall = record.overall.iter().flat_map(|overall| &overall.notes);
    blocks.lines(overall.map(|note| line("note", note)));
    let more = blocks.0.len().saturating_sub(MAX_NOTES);
    blocks.0.truncate(MAX_NOTES);
    if more > 0 {
        let more = count_of(more as u64, "more note");
        blocks.paragraph([faint(format!("{more} in the record."))]);
    }
    blocks
}

/// Returns the lines of all runs. A line that several runs share appears once, with their names.
/// Continuation lines stay with the line before them.
fn shared_lines(runs: &[(&str, Vec<TextLine>)]) -> Vec<TextLine> {
    let mut shared: Vec<(&[TextLine], Vec<&str>)> = Vec::new();
    for (name, lines) in runs {
        for part in lines.chunk_by(|_, next| next.label.is_empty()) {
            match shared.iter_mut().find(|(other, _)| *other == part) {
                Some((_, names)) if names.last() == Some(name) => {}
                Some((_, names)) => names.push(name),
                None => shared.push((part, vec![name])),
            }
        }
    }
    let named = shared.into_iter().flat_map(|(part, names)| {
        let names = match names.len() {
            _ if runs.len() == 1 => String::new(),
            n if n == runs.len() => "all runs".to_owned(),
            _ => names.join("; "),
        };
        part.iter().map(move |line| line.clone().of(&names))
    });
    named.collect()
}

/// Returns the command and the plan of each load.
fn repetition(record: &Record, all: &[NamedRun<'_>]) -> Blocks {
    let mut blocks = Blocks::default();
    if let Some(command) = repeat::command(record) {
        blocks.command("", &command);
    }
    for load in names::by_load(all) {
        if all.len() > load.len() {
            blocks.subheading(&load[0].name);
        }
        blocks.lines(repeat::plan(load[0].run));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_several_runs_appears_once() {
        let note = |text| line("note", text);
        let runs = [
            ("a", vec![note("slow"), line("", "more"), note("short")]),
            ("b", vec![note("slow"), line("", "less"), note("short")]),
            ("c", vec![note("slow"), line("", "more"), note("short")]),
        ];
        let shown: Vec<String> = shared_lines(&runs)
            .iter()
            .map(|line| {
                let spans: Vec<&str> = line.spans.iter().map(|span| &span.text[..]).collect();
                spans.join(" ")
            })
            .collect();
        let expected = ["a; c: slow", "more", "all runs: short", "b: slow", "less"];
        assert_eq!(shown, expected);
        assert_eq!(shared_lines(&runs[..1])[0], note("slow"));
    }
}
