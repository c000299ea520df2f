//! The summary of a record on a terminal: about ten lines for one run, a table for several attempts.

use floodmark_record::events::EndReason;
use floodmark_record::plan::{Model, Plan};
use floodmark_record::result::{Record, Threshold};
use floodmark_record::run::{Run, Status, SteadyClass};
use floodmark_record::units::{show_count, show_ns};

use crate::attempts;
use crate::changing;
use crate::driven;
use crate::elsewhere;
use crate::figures::{NOT_MEASURED, count_of, interval, rate, seconds};
use crate::groups;
use crate::held;
use crate::load_line;
use crate::logged;
use crate::outcomes;
use crate::page::{Page, Span, faint, glue, plain};
use crate::server_line;
use crate::style::{Paint, Style};
use crate::times_table;
use crate::why;

/// Draws all of a record: each run in full, or one table for the attempts of one plan; then thresholds,
/// what was skipped, and the next step.
#[must_use]
pub fn of_record(record: &Record, next: Option<&str>, style: Style) -> String {
    let mut page = Page::new(style);
    let whole = |runs: &[Run]| runs.len() == record.runs.len();
    // Of one load the next step stands below its cause; of several it is the last line.
    let mut last = next;
    for (i, runs) in record.runs.chunk_by(same_load).enumerate() {
        if i > 0 {
            page.blank();
        }
        let here = last.take_if(|_| whole(runs));
        match runs {
            [run] => draw_run(&mut page, run, here),
            several => {
                // `overall` is of all runs of a record: it belongs to the attempts only where they are all.
                let overall = record.overall.as_ref().filter(|_| whole(several));
                attempts::draw(&mut page, several, overall, here);
            }
        }
    }
    for skipped in &record.skipped {
        page.entry("skipped", &[plain(skipped)]);
    }
    draw_end(&mut page, &record.thresholds, last);
    page.finish()
}

/// Draws one run with its thresholds and next step.
#[must_use]
pub fn of_run(run: &Run, thresholds: &[Threshold], next: Option<&str>, style: Style) -> String {
    let mut page = Page::new(style);
    draw_run(&mut page, run, next);
    draw_end(&mut page, thresholds, None);
    page.finish()
}

/// Whether two runs are attempts at the same load; only their seeds may differ. In an experiment those of a trial are, whose servers
/// have a port of their own each time.
pub(crate) fn same_load(a: &Run, b: &Run) -> bool {
    if a.trial.is_some() || b.trial.is_some() {
        return a.trial == b.trial;
    }
    let seedless = |plan: &Plan| Plan {
        seed: 0,
        ..plan.clone()
    };
    (&a.system, &a.workload, &a.setting) == (&b.system, &b.workload, &b.setting)
        && seedless(&a.plan) == seedless(&b.plan)
}

fn draw_run(page: &mut Page, run: &Run, next: Option<&str>) {
    load_line::draw(page, run, 1);
    page.blank();
    draw_ended(page, run, "");
    draw_throughput(page, run);
    why::line(page, [run], "");
    if let Some(verdict) = &run.verdict {
        why::evidence(page, verdict);
    }
    if let Some(next) = next {
        page.entry("next", &[plain(next)]);
    }
    draw_window(page, run, "");
    times_table::draw(page, run);
    changing::draw(page, run, "");
    groups::draw(page, run, "");
    outcomes::draw(page, &[run]);
    held::draw(page, run, "");
    draw_client(page, run);
    driven::draw(page, run, "");
    server_line::draw(page, run);
    draw_tls(page, run);
    draw_validity(page, run, "");
    draw_checks(page, run, "");
    draw_notes(page, run, "");
}

fn draw_end(page: &mut Page, thresholds: &[Threshold], next: Option<&str>) {
    for threshold in thresholds {
        let (paint, word) = match threshold.met {
            Some(true) => (Paint::Bad, "– met:"),
            Some(false) => (Paint::Good, "– not met:"),
            None => (Paint::Warn, "– could not be told:"),
        };
        page.entry(
            "fail-if",
            &[
                plain(glue(&threshold.condition)),
                (paint, word.to_owned()),
                plain(&threshold.figure),
            ],
        );
    }
    if let Some(next) = next {
        page.entry("next", &[plain(next)]);
    }
}

/// A run that did not run its course says so before any figure. `which` names the attempt, where there are several.
pub(crate) fn draw_ended(page: &mut Page, run: &Run, which: &str) {
    let sending = glue(&seconds(run.sending_s));
    let (word, when) = match (run.ended.reason, run.server_gone_since_s) {
        (EndReason::Completed, _) => return,
        (EndReason::Interrupted, _) => ("interrupted", format!("after {sending}")),
        (EndReason::ClientFailed, _) => ("the client failed", format!("after {sending}")),
        (EndReason::NotHttp, _) => ("ended early", format!("after {sending}")),
        (EndReason::ServerGone, None) => ("the server went away", format!("within {sending}")),
        (EndReason::ServerGone, Some(0.0)) => {
            ("the server never answered", format!("in {sending}"))
        }
        (EndReason::ServerGone, Some(since)) => (
            "the server went away:",
            format!("no answer after {}", glue(&seconds(since))),
        ),
    };
    let mut spans = vec![
        plain(which),
        (Paint::Bad, word.to_owned()),
        plain(format!("{when}; figures are of what was measured")),
    ];
    if let Some(detail) = &run.ended.detail {
        spans.push(faint(format!("({detail})")));
    }
    page.entry("ended", &spans);
}

fn draw_throughput(page: &mut Page, run: &Run) {
    let Some(throughput) = run.throughput_per_s else {
        page.entry("throughput", &[plain(NOT_MEASURED)]);
        return;
    };
    let mut spans = vec![(Paint::Strong, rate(throughput))];
    if let Some(i) = &run.throughput_interval {
        spans.push(plain(interval(throughput, i)));
    }
    let length = glue(&seconds(run.window.to_s - run.window.from_s));
    spans.push(faint(match &run.throughput_interval {
        Some(i) => format!("({} within this run, {length})", level(i.confidence)),
        None => format!("({length})"),
    }));
    if run.plan.model == Model::Open
        && let Some(offered) = run.plan.rate_per_s
    {
        let mean = match run.plan.profile {
            Some(_) => " on average",
            None => "",
        };
        spans.push(plain(format!("of {} offered{mean}", glue(&rate(offered)))));
    }
    if let Some(standing) = standing(run.validity.status) {
        spans.push(plain("–"));
        spans.push(standing);
    }
    page.entry("throughput", &spans);
    if let Some(good) = run.goodput_per_s {
        let deadline = glue(&seconds(run.plan.deadline_s));
        let within = faint(format!("(within {deadline} of the intended time)"));
        page.entry("goodput", &[plain(rate(good)), within]);
    }
}

/// What a throughput is worth, said beside it.
fn standing(status: Status) -> Option<Span> {
    match status {
        Status::Valid => None,
        Status::Bound => Some((Paint::Warn, "a lower bound, see validity".to_owned())),
        Status::Invalid => Some((Paint::Bad, "not the server's, see validity".to_owned())),
    }
}

/// A confidence level: `95 %`.
pub(crate) fn level(confidence: f64) -> String {
    let percent = (confidence * 1e4).round() / 1e2;
    glue(&format!("{percent} %"))
}

/// Which part of the run the figures are of and why, where it is not all of it or the run was not steady.
pub(crate) fn draw_window(page: &mut Page, run: &Run, which: &str) {
    let window = &run.window;
    let whole = window.from_s <= 0.0 && window.to_s >= run.sending_s * 0.99;
    let calm = whole && matches!(run.steady.class, SteadyClass::Steady | SteadyClass::Varied);
    if calm || window.to_s <= window.from_s {
        return;
    }
    let (from, to) = (seconds(window.from_s), seconds(window.to_s));
    let part = if whole {
        String::new()
    } else if window.from_s <= 0.0 {
        format!("the first {}:", glue(&to))
    } else {
        format!("from {} to {}:", glue(&from), glue(&to))
    };
    page.entry("window", &[plain(which), plain(part), plain(&window.why)]);
}

fn draw_client(page: &mut Page, run: &Run) {
    let mut spans = Vec::new();
    if let Some(us) = run.client.cpu_us_per_request {
        let cpu = show_ns(us * 1e3);
        spans.push(plain(format!("{} CPU per request;", glue(&cpu))));
    }
    let loaders: Vec<_> = run
        .client
        .threads
        .iter()
        .filter(|t| t.drives_load && t.wall_s > 0.0)
        .collect();
    let busy: Vec<f64> = loaders
        .iter()
        .map(|t| 100.0 * (t.user_s + t.system_s) / t.wall_s)
        .collect();
    let (least, most) = range(&busy);
    match busy.as_slice() {
        [] => {}
        [one] => spans.push(plain(format!("its thread was {} busy", percent(*one)))),
        [a, b] => spans.push(plain(format!(
            "its 2 threads were {} and {} busy",
            percent(*a),
            percent(*b)
        ))),
        more => spans.push(plain(format!(
            "its {} threads were {} to {} busy",
            more.len(),
            percent(least),
            percent(most)
        ))),
    }
    let told: Option<Vec<f64>> = loaders
        .iter()
        .map(|t| Some(100.0 * t.run_delay_s? / t.wall_s))
        .collect();
    match told
        .as_deref()
        .map(|waited| (waited.len(), range(waited).1))
    {
        None => spans.push(plain(format!(
            "and waited {NOT_MEASURED} for a CPU (not known)"
        ))),
        // Below a hundredth of the time it explains nothing.
        Some((_, longest)) if longest < 1.0 => {}
        Some((n, longest)) => {
            let most = if n > 1 { "up to " } else { "" };
            let longest = percent(longest);
            spans.push(plain(format!("and waited {most}{longest} for a CPU")));
        }
    }
    if !spans.is_empty() {
        page.entry("client", &spans);
    }
}

/// Protocol and suite, how many handshakes, and what they cost.
fn draw_tls(page: &mut Page, run: &Run) {
    let Some(tls) = run.tls.as_ref().filter(|tls| tls.used.handshakes > 0) else {
        return;
    };
    let suites: Vec<&str> = tls.used.negotiated.keys().map(String::as_str).collect();
    let handshakes = count_of(tls.used.handshakes, "handshake");
    let resumed = glue(&format!("{} resumed", show_count(tls.used.resumed)));
    // Those of kept connections are made before the clock starts.
    let cost = match tls.handshake_cpu_share.filter(|share| *share > 0.0) {
        Some(share) => format!(", {} of the client's CPU", percent(share * 100.0)),
        None => String::new(),
    };
    page.entry(
        "TLS",
        &[
            plain(format!("{};", suites.join(", "))),
            plain(format!("{handshakes}, {resumed}{cost}")),
        ],
    );
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(low, high), v| {
        (low.min(*v), f64::max(high, *v))
    })
}

fn percent(p: f64) -> String {
    match p {
        p if p > 0.0 && p < 0.5 => glue("< 1 %"),
        p => glue(&format!("{p:.0} %")),
    }
}

/// The status, then each reason on a line of its own. `which` names the attempt, where there are several.
pub(crate) fn draw_validity(page: &mut Page, run: &Run, which: &str) {
    let (paint, word) = validity_of(run);
    let mut reasons = run.validity.reasons.iter();
    let mut first = vec![plain(which), (paint, word.to_owned())];
    if let Some(reason) = reasons.next() {
        first.push((paint, "–".to_owned()));
        first.push(plain(reason));
    }
    page.entry("validity", &first);
    for reason in reasons {
        page.entry("", &[(paint, "–".to_owned()), plain(reason)]);
    }
}

/// The word for what a run is worth: its status, but nothing is called valid of which there was no answer.
pub(crate) fn validity_of(run: &Run) -> (Paint, &'static str) {
    match run.validity.status {
        Status::Valid if outcomes::unanswered(&run.requests) => (Paint::Bad, "no answer"),
        status => validity_word(status),
    }
}

pub(crate) fn validity_word(status: Status) -> (Paint, &'static str) {
    match status {
        Status::Valid => (Paint::Good, "valid"),
        Status::Bound => (Paint::Warn, "bound"),
        Status::Invalid => (Paint::Bad, "invalid"),
    }
}

pub(crate) fn draw_checks(page: &mut Page, run: &Run, which: &str) {
    for check in &run.checks {
        let (paint, word) = if check.held {
            (Paint::Good, "held:")
        } else {
            (Paint::Bad, "violated:")
        };
        page.entry(
            "check",
            &[
                plain(which),
                plain(&check.name),
                (paint, word.to_owned()),
                plain(&check.detail),
            ],
        );
    }
}

/// Remarks, and what could not be read, in one line.
pub(crate) fn draw_notes(page: &mut Page, run: &Run, which: &str) {
    if run.requests.reconnects > 0 {
        let n = count_of(run.requests.reconnects, "request");
        page.entry(
            "note",
            &[
                plain(which),
                plain(format!(
                    "{n} sent again on a fresh connection: the server had closed the kept one"
                )),
            ],
        );
    }
    if let Some(warmup) = &run.warmup
        && warmup.requests.ok < warmup.requests.intended
    {
        let failed = show_count(warmup.requests.intended - warmup.requests.ok);
        let of = count_of(warmup.requests.intended, "request");
        page.entry(
            "note",
            &[
                plain(which),
                plain(format!("in the warm-up {failed} of {of} were not ok")),
            ],
        );
    }
    for errors in run.log_errors.iter().filter(|errors| errors.lines > 0) {
        page.entry("log", &[plain(which), plain(logged::sentence(errors))]);
    }
    if let Some(there) = &run.elsewhere {
        page.entry(
            "observed",
            &[plain(which), plain(elsewhere::sentence(there))],
        );
    }
    for note in &run.validity.notes {
        page.entry("note", &[plain(which), plain(note)]);
    }
    if !run.missing.is_empty() {
        page.entry("not read", &[plain(which), faint(run.missing.join("; "))]);
    }
}
