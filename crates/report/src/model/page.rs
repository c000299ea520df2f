//! The page of a record or a comparison: the document that a terminal shows, curves, details, and
//! how to repeat the measurement.

use floodmark_record::Record;
use floodmark_record::comparison::ComparisonReport;
use floodmark_record::host::Environment;
use floodmark_record::run::{Run, Status};

use super::chart::{DamagedHistogram, distribution, over_time};
use super::document::{Block, Blocks, Row, Table, TextLine, faint, line, plain};
use super::figures::count_of;
use super::names::{self, NamedRun};
use super::{
    capacity, comparison, crash, environment, gate, outcomes, plan, process_use, run, summary,
    sweep, tuning,
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

/// One of two compared results.
#[derive(Debug, Clone, Copy)]
pub struct ComparedRuns<'a> {
    /// Name of the result.
    pub name: &'a str,
    /// Runs to draw; empty for a search, whose loads have different rates.
    pub runs: &'a [&'a Run],
}

impl PageContent {
    /// Builds the page for a record: the document that a terminal shows, charts, and details.
    /// `next` is the recommended next step.
    ///
    /// # Errors
    /// Fails if a histogram in the record is damaged.
    pub(crate) fn of(record: &Record, next: Option<&str>) -> Result<PageContent, DamagedHistogram> {
        let all = names::named(record);
        let (drawn, which) = names::drawn(&all);
        let (observed, other_series) = over_time::observed_charts(&drawn);
        let mut monitoring = Blocks::of_charts(observed, []);
        monitoring.tables(others(other_series));
        let mut environment = Blocks::of_lines(environment::lines(record));
        environment.gap();
        environment.lines(environment::host_settings(record));
        let is_load = record.experiment.is_none() && record.capacity.is_none();
        let mut sections = vec![
            ("Capacity", capacity_section(record)),
            ("Ranking", ranking(record, &all)),
            (
                match &record.gate {
                    Some(gate) if gate.rules.is_two_sided => "Comparison",
                    _ => "Gate",
                },
                gate_section(record),
            ),
            (
                "Crash rounds",
                Blocks::of_lines(crash::losses(&record.crash)),
            ),
            ("Tuning", Blocks::of_charts(tuning::charts(record), [])),
            ("Sweeps", sweeps(record)),
            (
                "Comparisons",
                Blocks::of_lines(comparison::appendix(&record.comparisons)),
            ),
            ("Curves", curves(&drawn, &record.environment, which)?),
            ("Figures", figures(&all, is_load)),
            ("Outcomes", all_outcomes(&drawn)),
            ("Agents", tables(&drawn, process_use::agents_table)),
        ];
        // The document of a load already contains these parts.
        if !is_load {
            sections.extend([
                ("Steps", tables(&drawn, run::steps)),
                ("Requests of the mix", tables(&drawn, run::requests)),
            ]);
        }
        sections.extend([
            ("Validity and notes", notes(record, &all, is_load)),
            ("Monitoring", monitoring),
            ("Rerun", repetition(record, &all)),
            ("Environment", environment),
        ]);
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
            answer: answer(record, &all, next),
            sections,
        })
    }

    /// Builds the page for a comparison. `environment` is that of the first result.
    ///
    /// # Errors
    /// Fails if a histogram in a record is damaged.
    pub(crate) fn of_comparison(
        compared: &ComparisonReport,
        sides: [ComparedRuns<'_>; 2],
        environment: &Environment,
    ) -> Result<PageContent, DamagedHistogram> {
        let drawn = sides.iter().filter_map(|side| {
            let name = side.name;
            let runs = side.runs.iter();
            let named = runs.map(|run| NamedRun {
                run,
                name: name.to_owned(),
            });
            names::median(named.collect())
        });
        let drawn: Vec<NamedRun<'_>> = drawn.collect();
        let which = sides.iter().any(|side| side.runs.len() > 1).then(|| {
            "The curves show the run with the median throughput of each result.".to_owned()
        });
        let (candidate, baseline) = (&compared.candidate.name, &compared.baseline.name);
        Ok(PageContent {
            title: format!("{candidate} ÷ {baseline}"),
            plans: plans(&drawn),
            answer: comparison::document(compared),
            sections: vec![
                ("Curves", curves(&drawn, environment, which)?),
                ("Outcomes", all_outcomes(&drawn)),
            ],
        })
    }
}

/// Returns the document that a terminal shows, without a title that the header of the page already
/// contains.
fn answer(record: &Record, all: &[NamedRun<'_>], next: Option<&str>) -> Blocks {
    let mut blocks = super::document(record, next).limited(MAX_ROWS);
    let has_several_titles =
        record.experiment.is_none() && record.capacity.is_none() && names::by_load(all).count() > 1;
    if let Some(Block::Paragraph(_)) = blocks.0.first()
        && !has_several_titles
    {
        blocks.0.remove(0);
    }
    blocks
}

/// Returns the charts of the drawn runs. `which` is a note on the selection of these runs.
///
/// # Errors
/// Fails if a histogram is damaged.
fn curves(
    drawn: &[NamedRun<'_>],
    environment: &Environment,
    which: Option<String>,
) -> Result<Blocks, DamagedHistogram> {
    let mut charts = over_time::charts(drawn, environment);
    charts.extend(distribution::charts(drawn)?);
    let notes = which.into_iter().chain(over_time::notes(drawn));
    Ok(Blocks::of_charts(charts, notes))
}

/// Returns a collapsed list of the metrics without a chart, or `None` if there are none.
fn others(names: Vec<String>) -> Option<Table> {
    let summary = count_of(names.len() as u64, "other metric");
    let rows = names.into_iter().map(|name| Row::new(name, Vec::new()));
    let mut table = Table::new([""; 0], rows);
    table.collapsed = Some(format!("{summary} in the record"));
    table.not_empty()
}

/// Returns the page title, which is the method and URL of the requests.
fn title(all: &[NamedRun<'_>]) -> String {
    let mut urls = all.iter().map(|one| plan::requests(&one.run.plan));
    match urls.next() {
        None => "No measurement".to_owned(),
        Some(first) if urls.all(|other| other == first) => first,
        Some(first) => format!("{first} and others"),
    }
}

/// Describes each plan, the number of loads that use it and the start time of the first load.
fn plans(all: &[NamedRun<'_>]) -> Blocks {
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

/// Returns the charts and the trials of a search for a capacity.
fn capacity_section(record: &Record) -> Blocks {
    let Some(found) = &record.capacity else {
        return Blocks::of_charts(capacity::trial_charts(record), []);
    };
    let mut blocks = Blocks::of_charts(capacity::charts(record, found), []);
    blocks.subheading("Trials");
    blocks.tables([capacity::trials_table(found)]);
    blocks
}

/// Ranks the loads by throughput, or the trials by capacity. The points of a sweep and the settings
/// of a tuning run are not ranked.
fn ranking(record: &Record, all: &[NamedRun<'_>]) -> Blocks {
    let ranking = if record.tuning.is_some() || !record.sweeps.is_empty() {
        None
    } else if record.trial_capacities.is_empty() {
        names::ranked_loads(&names::by_load(all).collect::<Vec<_>>())
    } else {
        names::ranked_capacities(record)
    };
    Blocks(ranking.map(Block::Ranking).into_iter().collect())
}

fn gate_section(record: &Record) -> Blocks {
    let mut blocks = Blocks::of_charts(record.gate.iter().filter_map(gate::chart), []);
    blocks.tables(record.gate.as_ref().map(gate::table));
    blocks
}

fn sweeps(record: &Record) -> Blocks {
    let mut blocks = Blocks::default();
    for one in &record.sweeps {
        blocks.subheading(&one.sweep.name);
        blocks
            .0
            .extend(sweep::chart(one).map(|chart| Block::Charts(vec![chart])));
        blocks.tables(sweep::cause_table(one, &record.runs));
        blocks.lines(sweep::open_end(one).map(|text| line("note", text)));
    }
    blocks
}

/// Returns the figures of each run. If `is_load`, omits those that the document of a load contains.
fn figures(all: &[NamedRun<'_>], is_load: bool) -> Blocks {
    let mut blocks = Blocks::default();
    if let [one] = all {
        let interval = one.run.throughput_interval.as_ref();
        blocks.lines(interval.map(|interval| line("interval", &interval.method)));
        if is_load {
            blocks.lines(process_use::totals(one.run));
            return blocks;
        }
        blocks.lines(run::throughput(one.run));
        blocks.lines([process_use::client(one.run)]);
        blocks.lines(process_use::external_client(one.run));
        blocks.lines(process_use::servers(one.run));
        blocks.lines(process_use::totals(one.run));
        blocks.lines(
            run::held(one.run)
                .into_iter()
                .chain(run::tls(one.run))
                .chain(run::http2(one.run)),
        );
        blocks.lines(outcomes::traffic(&[one.run]));
        if let Some(times) = run::times(one.run) {
            blocks.subheading("Times");
            blocks.tables([times]);
            blocks.lines(run::blocked_by(one.run));
        }
    } else if !is_load || names::by_load(all).count() > 1 {
        let rows = all.iter().map(|one| (one.name.clone(), one.run));
        blocks.tables(summary::table(rows).limited(MAX_ROWS).not_empty());
        for one in all.iter().take(MAX_ROWS) {
            blocks.lines_of(&one.name, process_use::external_client(one.run));
        }
    }
    blocks
}

/// Returns the counts and shares for each run, followed by statuses and errors.
fn all_outcomes(drawn: &[NamedRun<'_>]) -> Blocks {
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
        let statuses = outcomes::statuses(&run.requests);
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

/// Returns thresholds, reasons, checks and notes. The document of a load already contains them, so
/// for a load, returns only the window of a run that is steady throughout.
fn notes(record: &Record, all: &[NamedRun<'_>], is_load: bool) -> Blocks {
    let mut blocks = Blocks::default();
    let mut lines = Vec::new();
    for one in all {
        let run = one.run;
        let mut own = Vec::new();
        if is_load {
            let is_known = run::window(run, false).is_some();
            own.extend(run::window(run, true).filter(|_| !is_known));
        } else {
            own.extend(run::ended(run));
            if run.validity.status != Status::Valid {
                own.extend(run::validity(run));
            }
            own.extend(run::checks(run));
            own.extend(run::window(run, true));
            own.extend(run::saturation(run));
            own.extend(run::notes(run));
        }
        lines.push((one.name.as_str(), own));
    }
    if !is_load {
        blocks.lines(record.thresholds.iter().map(summary::threshold));
    }
    blocks.lines(shared_lines(&lines));
    let overall = record.overall.iter().filter(|_| !is_load);
    let overall = overall.flat_map(|overall| &overall.notes);
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
    if let Some(command) = plan::command(record) {
        blocks.command("", &command);
    }
    for load in names::by_load(all) {
        if all.len() > load.len() {
            blocks.subheading(&load[0].name);
        }
        blocks.lines(plan::details(load[0].run));
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
