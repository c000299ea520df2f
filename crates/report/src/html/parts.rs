//! Tables of what a run consists of: its outcomes, the steps of its rate, the requests of its mix.

use floodmark_record::outcome::Counts;
use floodmark_record::run::Run;
use floodmark_record::units::show_count;
use maud::{Markup, html};

use super::figures::{MOST_ROWS, rest};
use super::names::Named;
use super::text::Shown;
use crate::figures::{NOT_MEASURED, per_second, seconds, share, time};
use crate::outcomes::{most_frequent, not_ok};

/// An outcome and how many requests had it.
type Kind = (&'static str, fn(&Counts) -> u64);

/// What became of the requests, one column for each run.
pub(crate) fn outcomes(drawn: &[Named]) -> Markup {
    let kinds: [Kind; 11] = [
        ("ok", |c| c.ok),
        ("rejected", |c| c.rejected),
        ("wrong", |c| c.wrong),
        ("malformed", |c| c.malformed),
        ("reset", |c| c.reset),
        ("timed out", |c| c.timed_out),
        ("failed", |c| c.failed),
        ("in flight at the end", |c| c.in_flight_at_end),
        ("connect failed", |c| c.connect_failed),
        ("unsent", |c| c.unsent),
        ("intended", |c| c.intended),
    ];
    let met = |of: fn(&Counts) -> u64| drawn.iter().any(|one| of(&one.run.requests) > 0);
    let shown = kinds
        .iter()
        .filter(|(name, of)| matches!(*name, "ok" | "intended") || met(*of));
    html! {
        div.wide { table {
            @if drawn.len() > 1 {
                tr { th {} @for one in drawn { th scope="col" colspan="2" { (Shown(&one.name)) } } }
            }
            @for (name, of) in shown {
                tr {
                    th scope="row" { (name) }
                    @for one in drawn {
                        @let counts = &one.run.requests;
                        td { (show_count(of(counts))) }
                        td.how { @if counts.intended > 0 { (share(of(counts), counts.intended)) } }
                    }
                }
            }
        } }
        @for one in drawn {
            @let told = told(one.run);
            @if !told.is_empty() {
                p { @if drawn.len() > 1 { (Shown(&one.name)) ": " } (Shown(&told.join("; "))) }
            }
        }
        @for one in drawn {
            @if let Err(equation) = one.run.requests.balance() {
                p.invalid { "The counts do not add up: " (equation) }
            }
        }
    }
}

/// Which statuses and errors there were, each kind in words.
fn told(run: &Run) -> Vec<String> {
    let statuses = most_frequent(&run.requests.statuses);
    let errors = most_frequent(&run.errors);
    let kinds = [("statuses", statuses), ("errors", errors)];
    let met = kinds.iter().filter(|(_, which)| !which.is_empty());
    met.map(|(kind, which)| format!("{kind} {which}")).collect()
}

/// Offered and achieved, step by step; nothing without steps.
pub(crate) fn steps(drawn: &[Named]) -> Option<Markup> {
    let with = || drawn.iter().filter(|one| !one.run.steps.is_empty());
    with().next()?;
    Some(html! {
        @for one in with() {
            @if drawn.len() > 1 { h3 { (Shown(&one.name)) } }
            div.wide { table {
                tr { @for head in ["step", "offered/s", "ok/s", "p50", "p99", "not ok"] { th scope="col" { (head) } } }
                @for step in one.run.steps.iter().take(MOST_ROWS) {
                    @let times = &step.response_time_us;
                    tr {
                        th scope="row" { (start(step.from_s)) " to " (seconds(step.to_s)) }
                        td { (per_second(step.offered_per_s)) }
                        td { (per_second(step.throughput_per_s)) }
                        td { (time(times.p50, times, one.run.plan.timeout_s)) }
                        td { (time(times.p99, times, one.run.plan.timeout_s)) }
                        td { (show_count(step.requests.ended().saturating_sub(step.requests.ok)
                            .saturating_add(step.requests.connect_failed).saturating_add(step.requests.unsent))) }
                    }
                }
            } }
            (rest(one.run.steps.len()))
        }
        p.note { "By when requests ended; percentiles are of response time." }
    })
}

fn start(from_s: f64) -> String {
    if from_s == 0.0 {
        "0".to_owned()
    } else {
        seconds(from_s)
    }
}

/// The requests of a mix; nothing without one.
pub(crate) fn groups(drawn: &[Named]) -> Option<Markup> {
    let with = || drawn.iter().filter(|one| !one.run.groups.is_empty());
    with().next()?;
    Some(html! {
        @for one in with() {
            @if drawn.len() > 1 { h3 { (Shown(&one.name)) } }
            div.wide { table {
                tr { @for head in ["request", "share", "ok/s", "p50", "p99", "p99.9", "max", "not ok"] { th scope="col" { (head) } } }
                @for group in &one.run.groups {
                    @let times = &group.response_time_us;
                    tr {
                        th scope="row" { (Shown(&group.name)) }
                        td { (part(group.requests.intended, one.run.requests.intended)) }
                        td { (group.throughput_per_s.map_or_else(|| NOT_MEASURED.to_owned(), per_second)) }
                        @for us in [times.p50, times.p99, times.p99_9, times.max] {
                            td { (time(us, times, one.run.plan.timeout_s)) }
                        }
                        td { (show_count(not_ok(&group.requests))) }
                    }
                }
            } }
        }
        p.note { "Rates are of the window; percentiles are of response time in the whole run." }
    })
}

fn part(of: u64, whole: u64) -> String {
    match whole {
        0 => NOT_MEASURED.to_owned(),
        whole => share(of, whole),
    }
}
