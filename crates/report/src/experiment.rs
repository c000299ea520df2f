//! The table of an experiment: one line for each trial, medians over its runs.

use floodmark_record::Record;
use floodmark_record::experiment::Asked;
use floodmark_record::run::{Run, Status};
use floodmark_record::units::show_ns;
use floodmark_record::watch::Server;

use crate::beside;
use crate::driven;
use crate::figures::{NOT_MEASURED, per_second, time};
use crate::page::{Page, faint, plain};
use crate::style::{Paint, Style};
use crate::{ladder, logged, outcomes, place, summary, sweep, why};

/// Narrowest and widest column of names.
const NAMES: (usize, usize) = (13, 30);

/// Draws a record's experiment; nothing of one that has none.
#[must_use]
pub fn of_record(record: &Record, style: Style) -> String {
    let mut page = Page::new(style);
    let Some(asked) = &record.experiment else {
        return page.finish();
    };
    page.headline(&[(Paint::Strong, asked.question.clone())]);
    page.blank();
    let width = asked
        .trials
        .iter()
        .map(|name| name.chars().count() + 1)
        .max();
    let width = width.unwrap_or(0).clamp(NAMES.0, NAMES.1);
    let store = record.runs.iter().any(|run| run.store.is_some());
    let cells: Vec<_> = columns(store)
        .map(|(head, width)| (width, Paint::Faint, head.to_owned()))
        .collect();
    page.row_beside(width, "", &cells);
    for name in &asked.trials {
        page.row_beside(width, name, &cells_of(&of(record, name), store));
    }
    let most = asked.trials.iter().map(|name| of(record, name).len());
    let over = match most.max() {
        Some(n) if n > 1 => "medians over the runs; ",
        _ => "",
    };
    let others = match record.runs.iter().any(|run| run.client.tool.is_some()) {
        true => "; of other clients what they print, and the CPU of their whole run",
        false => "",
    };
    let whose = match store {
        true => "server, store: CPUs that their processes used",
        false => "server: CPUs that its processes used",
    };
    let explained = format!(
        "({over}ok answers per second in the window, percentiles of response time, CPU time of the load process per request sent; {whose}{others})"
    );
    page.headline(&[faint(explained)]);
    let trials = asked.trials.iter();
    let trials: Vec<_> = trials
        .map(|name| (name.as_str(), of(record, name)))
        .collect();
    why::of_trials(&mut page, &trials);
    draw_clients(&mut page, asked, record);
    draw_reasons(&mut page, record);
    draw_checks(&mut page, asked, record);
    for name in &asked.trials {
        for text in logged::sentences(&of(record, name)) {
            page.entry("log", &[plain(format!("{name}: {text}"))]);
        }
    }
    if let Some(text) = resumed(record) {
        page.entry("resumed", &[plain(text)]);
    }
    for line in place::lines(record) {
        page.entry("hosts", &[plain(line)]);
    }
    for what in &record.skipped {
        page.entry("missing", &[plain(what.as_str())]);
    }
    ladder::draw(&mut page, record);
    sweep::draw(&mut page, record);
    beside::draw(&mut page, record);
    page.finish()
}

/// That the result was not taken in one go.
#[must_use]
pub fn resumed(record: &Record) -> Option<String> {
    let times = match record.resumed.len() {
        0 => return None,
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    let anew: usize = record.resumed.iter().map(|one| one.anew.len()).sum();
    let runs = match anew {
        0 => "no run was measured anew".to_owned(),
        1 => "1 run was measured anew, with its process".to_owned(),
        n => format!("{n} runs were measured anew, with their processes"),
    };
    Some(format!("cut short and gone on with {times}; {runs}"))
}

/// The runs of a trial.
fn of<'a>(record: &'a Record, trial: &str) -> Vec<&'a Run> {
    let runs = record.runs.iter();
    runs.filter(|run| run.trial.as_deref() == Some(trial))
        .collect()
}

/// Heads and widths of the columns after the name.
const COLUMNS: [(&str, usize); 8] = [
    ("ok/s", 10),
    ("p50", 8),
    ("p99", 8),
    ("CPU/request", 12),
    ("server", 8),
    STORE,
    ("runs", 5),
    ("validity", 16),
];

/// The one that is there only where a run has a store.
const STORE: (&str, usize) = ("store", 7);

fn columns(store: bool) -> impl Iterator<Item = (&'static str, usize)> {
    COLUMNS
        .into_iter()
        .filter(move |column| store || *column != STORE)
}

fn cells_of(runs: &[&Run], store: bool) -> Vec<(usize, Paint, String)> {
    let (paint, validity) = validity(runs);
    let cpu = median(runs.iter().map(|run| run.client.cpu_us_per_request));
    let cpus = |side: fn(&Run) -> Option<&Server>| {
        median(runs.iter().map(|run| cpus_of(side(run))))
            .map_or_else(|| NOT_MEASURED.to_owned(), |cpus| format!("{cpus:.2}"))
    };
    let texts = [
        median(runs.iter().map(|run| run.throughput_per_s))
            .map_or_else(|| NOT_MEASURED.to_owned(), per_second),
        percentile(runs, |run| run.response_time_us.p50),
        percentile(runs, |run| run.response_time_us.p99),
        cpu.map_or_else(|| NOT_MEASURED.to_owned(), |us| show_ns(us * 1e3)),
        cpus(|run| run.server.as_ref()),
        cpus(|run| run.store.as_ref()),
        runs.len().to_string(),
        validity,
    ];
    let painted = |head: &str| match head {
        "ok/s" => Paint::Strong,
        "validity" => paint,
        _ => Paint::Plain,
    };
    let cells = COLUMNS.into_iter().zip(texts);
    cells
        .filter(|(column, _)| store || *column != STORE)
        .map(|((head, width), text)| (width, painted(head), text))
        .collect()
}

/// The median of a percentile over runs. One that lies among requests that timed out is larger than any that was measured.
fn percentile(runs: &[&Run], of: fn(&Run) -> Option<f64>) -> String {
    let censored = |run: &&Run| run.response_time_us.censored > 0;
    let figures = runs.iter().map(|run| match of(run) {
        None if censored(run) => Some(f64::INFINITY),
        figure => figure,
    });
    match (median(figures), runs.first()) {
        (Some(us), _) if us.is_finite() => show_ns(us * 1e3),
        (Some(_), Some(first)) => {
            let of = runs.iter().find(|run| censored(run)).unwrap_or(first);
            time(None, &of.response_time_us, of.plan.timeout_s)
        }
        _ => NOT_MEASURED.to_owned(),
    }
}

/// The median of the figures that there are; the mean of the middle two where their number is even.
fn median(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.flatten().collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        n if n % 2 == 1 => Some(figures[middle]),
        _ => Some(f64::midpoint(figures[middle - 1], figures[middle])),
    }
}

/// CPUs that a side's process tree used, on average.
fn cpus_of(side: Option<&Server>) -> Option<f64> {
    let side = side.filter(|side| side.wall_s > 0.0)?;
    Some(side.cpu_s / side.wall_s)
}

/// What the worst run is worth, and of how many that holds where not of all.
fn validity(runs: &[&Run]) -> (Paint, String) {
    let badness = |run: &Run| (run.validity.status, outcomes::unanswered(&run.requests));
    let Some(worst) = runs.iter().max_by_key(|run| badness(run)) else {
        return (Paint::Plain, NOT_MEASURED.to_owned());
    };
    let (paint, word) = summary::validity_of(worst);
    let alike = runs
        .iter()
        .filter(|run| summary::validity_of(run).1 == word);
    let text = match alike.count() {
        n if n == runs.len() => word.to_owned(),
        n => format!("{word} {n} of {}", runs.len()),
    };
    (paint, text)
}

/// What drove each trial that floodmark did not, by its first run.
fn draw_clients(page: &mut Page, asked: &Asked, record: &Record) {
    for name in &asked.trials {
        let mut runs = record.runs.iter();
        if let Some(run) = runs.find(|run| run.trial.as_ref() == Some(name)) {
            driven::draw(page, run, &format!("{name}:"));
        }
    }
}

/// Why runs are not valid, and why they ended early: each reason once for each trial.
fn draw_reasons(page: &mut Page, record: &Record) {
    let mut said: Vec<(&str, &str)> = Vec::new();
    for run in &record.runs {
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        let (paint, word) = summary::validity_word(run.validity.status);
        let first = run.validity.reasons.first();
        if let Some(reason) = first.filter(|_| run.validity.status != Status::Valid) {
            // Figures in a reason differ from run to run: one of each status will do.
            if !said.contains(&(trial, word)) {
                said.push((trial, word));
                let text = format!("{trial}, {}: {reason}", place(run));
                page.entry(word, &[(paint, text)]);
            }
        }
        if let Some(detail) = &run.ended.detail {
            page.entry(
                "cut short",
                &[plain(format!("{trial}, {}: {detail}", place(run)))],
            );
        }
    }
}

/// What became of the checks: where one did not hold a line for the trial with the first run's detail, and one for all that held.
fn draw_checks(page: &mut Page, asked: &Asked, record: &Record) {
    let mut held: Vec<(&str, Vec<&str>)> = Vec::new();
    for trial in &asked.trials {
        let runs = record
            .runs
            .iter()
            .filter(|run| run.trial.as_ref() == Some(trial));
        let checks: Vec<_> = runs
            .flat_map(|run| run.checks.iter().map(move |check| (run, check)))
            .collect();
        let violated = checks.iter().filter(|(_, check)| !check.held);
        let count = violated.clone().count();
        match (violated.clone().next(), checks.first()) {
            (Some((run, check)), _) => {
                let of = format!(
                    "in {count} of {} runs of {trial}, first in {}",
                    checks.len(),
                    place(run)
                );
                page.entry(
                    "check",
                    &[
                        (Paint::Bad, format!("{} violated", check.name)),
                        plain(format!("{of}: {}", check.detail)),
                    ],
                );
            }
            (None, Some((_, check))) => match held.iter_mut().find(|(name, _)| *name == check.name)
            {
                Some((_, trials)) => trials.push(trial),
                None => held.push((&check.name, vec![trial])),
            },
            (None, None) => {}
        }
    }
    for (name, trials) in held {
        let all = format!("in all runs of {}", trials.join(", "));
        page.entry(
            "check",
            &[(Paint::Good, format!("{name} held")), plain(all)],
        );
    }
}

fn place(run: &Run) -> String {
    format!("process {} attempt {}", run.process, run.attempt)
}

#[cfg(test)]
mod tests {
    use floodmark_record::run::CheckResult;

    use super::*;
    use crate::fixture;

    const STYLE: Style = Style {
        colour: false,
        width: 100,
    };

    /// A run of a trial on its n-th process.
    fn of(trial: &str, process: u32, run: Run) -> Run {
        Run {
            trial: Some(trial.to_owned()),
            process,
            ..run
        }
    }

    fn record(trials: &[&str], runs: Vec<Run>) -> Record {
        let mut record = fixture::record(runs);
        record.experiment = Some(Asked {
            question: "Which is faster?".to_owned(),
            trials: trials.iter().map(|name| (*name).to_owned()).collect(),
            ..Asked::default()
        });
        record
    }

    #[test]
    fn medians_the_worst_status_and_what_is_missing() {
        let with = |per_s: f64| Run {
            throughput_per_s: Some(per_s),
            ..fixture::closed()
        };
        let mut record = record(
            &["kept", "rate", "absent"],
            vec![
                of("kept", 1, with(100_000.0)),
                of("rate", 1, fixture::invalid()),
                of("kept", 2, with(300_000.0)),
                of("rate", 2, fixture::open_censored()),
                of("kept", 3, with(150_000.0)),
            ],
        );
        record.skipped = vec!["absent is skipped: nginx is not installed".to_owned()];
        insta::assert_snapshot!(of_record(&record, STYLE));
    }

    #[test]
    fn a_row_keeps_its_columns_apart_and_calls_nothing_valid_that_never_answered() {
        let mut runs: Vec<Run> = (1..=12).map(|n| of("a", n, fixture::watched())).collect();
        runs[0].validity.status = Status::Invalid;
        runs.push(of("b", 1, fixture::no_answers()));
        let drawn = of_record(&record(&["a", "b"], runs), STYLE);
        let row = |name: &str| {
            let mut lines = drawn.lines();
            let line = lines.find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        // 11.5 s of CPU in 10 s.
        assert!(row("a").ends_with("1.15 12 invalid 1 of 12"), "{drawn}");
        assert!(row("b").ends_with("– 1 no answer"), "{drawn}");
    }

    #[test]
    fn a_store_has_a_column_where_there_is_one() {
        let runs = vec![
            of("bars", 1, fixture::with_store()),
            of("hello", 1, fixture::watched()),
        ];
        let drawn = of_record(&record(&["bars", "hello"], runs), STYLE);
        let words = |n: usize| {
            let line = drawn.lines().nth(n).unwrap();
            line.split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(words(2)[4..7], ["server", "store", "runs"], "{drawn}");
        assert!(drawn.contains(" 1.15   0.28    1 "), "{drawn}");
        assert!(drawn.contains(" 1.15      –    1 "), "{drawn}");
        let without = vec![of("hello", 1, fixture::watched())];
        let drawn = of_record(&record(&["hello"], without), STYLE);
        assert!(!drawn.contains("store"), "{drawn}");
    }

    #[test]
    fn a_percentile_among_timed_out_requests_is_a_bound() {
        let run = of("rate", 1, fixture::open_censored());
        let drawn = of_record(&record(&["rate"], vec![run.clone()]), STYLE);
        assert!(run.response_time_us.p99.is_none());
        assert!(drawn.contains("> 5 s"), "{drawn}");
    }

    #[test]
    fn checks_are_told_by_trial_with_the_first_that_did_not_hold() {
        let checked = |trial: &str, process: u32, held: bool| {
            let mut run = of(trial, process, fixture::closed());
            run.checks = vec![CheckResult {
                name: "sequence".to_owned(),
                held,
                detail: format!("detail of {process}"),
            }];
            run
        };
        let runs = vec![
            checked("bad", 1, true),
            checked("good", 1, true),
            checked("bad", 2, false),
            checked("fine", 1, true),
            of("none", 1, fixture::closed()),
        ];
        let drawn = of_record(&record(&["bad", "good", "fine", "none"], runs), STYLE);
        let lines: Vec<&str> = drawn
            .lines()
            .filter(|line| line.starts_with("check"))
            .collect();
        assert_eq!(
            lines,
            [
                "check        sequence violated in 1 of 2 runs of bad, first in process 2 attempt 1: detail of 2",
                "check        sequence held in all runs of good, fine"
            ]
        );
    }

    #[test]
    fn one_load_has_no_table() {
        let record = fixture::record(vec![fixture::closed()]);
        assert_eq!(of_record(&record, STYLE), "");
    }

    #[test]
    fn medians() {
        let of = |figures: &[Option<f64>]| median(figures.iter().copied());
        assert_eq!(of(&[Some(3.0), None, Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(of(&[Some(3.0), Some(1.0)]), Some(2.0));
        assert_eq!(of(&[None]), None);
    }
}
