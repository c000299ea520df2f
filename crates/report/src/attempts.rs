//! Several attempts at the same load: one line each, and what holds over all of them.

use floodmark_record::result::Overall;
use floodmark_record::run::{Run, Status};
use floodmark_record::units::{show_count, show_ns};

use crate::changing;
use crate::driven;
use crate::elsewhere;
use crate::figures::{NOT_MEASURED, count_of, interval, per_second, rate, time};
use crate::groups;
use crate::held;
use crate::load_line;
use crate::outcomes;
use crate::page::{LABEL, Page, faint, plain};
use crate::style::Paint;
use crate::summary;
use crate::why;

/// Draws `runs`, all of one load; `overall` holds what was judged over them, `next` what to do then.
pub(crate) fn draw(page: &mut Page, runs: &[Run], overall: Option<&Overall>, next: Option<&str>) {
    let [first, ..] = runs else { return };
    load_line::draw(page, first, runs.len());
    page.blank();
    let names: Vec<String> = names(runs);
    for (run, name) in runs.iter().zip(&names) {
        summary::draw_ended(page, run, &format!("{name}:"));
    }
    if let Some(overall) = overall {
        draw_overall(page, overall);
    }
    why::line(page, runs, "");
    if let Some((verdict, _)) = why::most(runs) {
        why::evidence(page, verdict);
    }
    if let Some(next) = next {
        page.entry("next", &[plain(next)]);
    }
    draw_table(page, runs, &names);
    for (run, name) in runs.iter().zip(&names) {
        summary::draw_window(page, run, &format!("{name}:"));
        held::draw(page, run, &format!("{name}:"));
    }
    for (run, name) in runs.iter().zip(&names) {
        changing::draw(page, run, name);
        groups::draw(page, run, name);
    }
    outcomes::draw(page, &runs.iter().collect::<Vec<_>>());
    draw_cpu(page, "client", runs, |run| run.client.cpu_us_per_request);
    draw_cpu(page, "server", runs, |run| {
        run.server.as_ref()?.cpu_us_per_request
    });
    draw_cpu(page, "store", runs, |run| {
        run.store.as_ref()?.cpu_us_per_request
    });
    driven::draw(page, first, "");
    draw_judged(page, runs, &names);
    for note in overall.iter().flat_map(|overall| &overall.notes) {
        page.entry("note", &[plain(note)]);
    }
}

/// `attempt 2`, with the server process before it where there are several.
fn names(runs: &[Run]) -> Vec<String> {
    let several = runs.iter().any(|run| run.process != runs[0].process);
    runs.iter()
        .map(|run| match several {
            true => format!("process {} #{}", run.process, run.attempt),
            false => format!("attempt {}", run.attempt),
        })
        .collect()
}

fn draw_overall(page: &mut Page, overall: &Overall) {
    let mut spans = vec![(Paint::Strong, rate(overall.throughput_per_s))];
    let over = count_of(overall.attempts.into(), "attempt");
    match &overall.throughput_interval {
        Some(i) => {
            spans.push(plain(interval(overall.throughput_per_s, i)));
            let level = summary::level(i.confidence);
            spans.push(faint(format!("({level}, mean of {over}, {})", i.method)));
        }
        None => spans.push(faint(format!("(mean of {over})"))),
    }
    page.entry("throughput", &spans);
}

/// What one side took for a request, over the runs that tell.
fn draw_cpu(page: &mut Page, side: &str, runs: &[Run], of: impl Fn(&Run) -> Option<f64>) {
    let mut cpu: Vec<f64> = runs.iter().filter_map(of).collect();
    cpu.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (cpu.first(), cpu.last()) {
        let (least, most) = (show_ns(least * 1e3), show_ns(most * 1e3));
        let range = if least == most {
            least
        } else {
            format!("{least} to {most}")
        };
        page.entry(side, &[plain(format!("{range} CPU per request"))]);
    }
}

type Cell = (Paint, String);

/// A column: its head, its width, whether it is spared where there is no room, and its text.
struct Column {
    head: &'static str,
    width: usize,
    spared: bool,
    of: fn(&Run) -> Cell,
}

const COLUMNS: [Column; 8] = [
    Column {
        head: "ok/s",
        width: 10,
        spared: false,
        of: |run| per_s(run.throughput_per_s),
    },
    Column {
        head: "goodput/s",
        width: 11,
        spared: true,
        of: |run| per_s(run.goodput_per_s),
    },
    Column {
        head: "p50",
        width: 9,
        spared: false,
        of: |run| response(run, run.response_time_us.p50),
    },
    Column {
        head: "p99",
        width: 9,
        spared: false,
        of: |run| response(run, run.response_time_us.p99),
    },
    Column {
        head: "p99.9",
        width: 9,
        spared: true,
        of: |run| response(run, run.response_time_us.p99_9),
    },
    Column {
        head: "max",
        width: 9,
        spared: true,
        of: |run| response(run, run.response_time_us.max),
    },
    Column {
        head: "not ok",
        width: 9,
        spared: false,
        of: not_ok,
    },
    Column {
        head: "validity",
        width: 10,
        spared: false,
        of: |run| {
            let (paint, word) = summary::validity_of(run);
            (paint, word.to_owned())
        },
    },
];

fn draw_table(page: &mut Page, runs: &[Run], names: &[String]) {
    let all: usize = COLUMNS.iter().map(|column| column.width).sum();
    let roomy = LABEL + all <= page.columns();
    let columns: Vec<&Column> = COLUMNS.iter().filter(|c| roomy || !c.spared).collect();
    let heads: Vec<_> = columns
        .iter()
        .map(|c| (c.width, Paint::Faint, c.head.to_owned()))
        .collect();
    page.row("", &heads);
    for (run, name) in runs.iter().zip(names) {
        let cells: Vec<_> = columns
            .iter()
            .map(|c| {
                let (paint, text) = (c.of)(run);
                (c.width, paint, text)
            })
            .collect();
        page.row(name, &cells);
    }
    page.entry("", &[faint("(percentiles are of response time)")]);
}

fn per_s(figure: Option<f64>) -> Cell {
    let text = figure.map_or_else(|| NOT_MEASURED.to_owned(), per_second);
    (Paint::Plain, text)
}

fn response(run: &Run, us: Option<f64>) -> Cell {
    let text = time(us, &run.response_time_us, run.plan.timeout_s);
    (Paint::Plain, text)
}

fn not_ok(run: &Run) -> Cell {
    let n = outcomes::not_ok(&run.requests);
    let paint = if n > 0 { Paint::Bad } else { Paint::Plain };
    (paint, show_count(n))
}

/// Validity, checks and notes, said once where they are the same for every attempt.
fn draw_judged(page: &mut Page, runs: &[Run], names: &[String]) {
    let named = || runs.iter().zip(names.iter().map(|name| format!("{name}:")));
    if same(runs, |run| (run.validity.status, &run.validity.reasons)) {
        summary::draw_validity(page, &runs[0], "");
    } else {
        // The table has each attempt's word; only those with something to explain get a line.
        for (run, name) in named().filter(|(run, _)| run.validity.status != Status::Valid) {
            summary::draw_validity(page, run, &name);
        }
    }
    if same(runs, |run| &run.checks) {
        summary::draw_checks(page, &runs[0], "");
    } else {
        for (run, name) in named() {
            summary::draw_checks(page, run, &name);
        }
    }
    let noted = |run| {
        let run: &Run = run;
        let elsewhere = run.elsewhere.as_ref().map(elsewhere::sentence);
        let Run { validity, .. } = run;
        (
            &validity.notes,
            &run.missing,
            run.requests.reconnects,
            elsewhere,
        )
    };
    if same(runs, noted) {
        summary::draw_notes(page, &runs[0], "");
    } else {
        for (run, name) in named() {
            summary::draw_notes(page, run, &name);
        }
    }
}

/// Whether every run has the same of something.
fn same<'a, T: PartialEq>(runs: &'a [Run], of: impl Fn(&'a Run) -> T) -> bool {
    runs.windows(2).all(|pair| of(&pair[0]) == of(&pair[1]))
}
