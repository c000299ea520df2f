//! The answer in one sentence for each load: the figure, what it is worth, and what to do next.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_record::plan::Model;
use floodmark_record::result::{Overall, Record};
use floodmark_record::run::{Run, Saturation, Status};
use maud::{Markup, html};

use super::beside;
use super::figures::validity;
use super::knobs;
use super::names::{Named, by_load};
use super::text::Shown;
use crate::elsewhere;
use crate::experiment::resumed;
use crate::figures::{count_of, interval, rate, seconds, time};
use crate::logged;
use crate::summary::level;
use crate::why;

/// Draws the sentences.
pub(crate) fn draw(record: &Record, all: &[Named], next: Option<&str>) -> Markup {
    let loads: Vec<&[Named]> = by_load(all).collect();
    let several = loads.len() > 1;
    // One point makes no curve.
    let curves = loads.iter().filter(|load| is_swept(record, load)).count() > 1;
    let (swept, single): (Vec<&[Named]>, Vec<&[Named]>) = loads
        .into_iter()
        .partition(|load| curves && is_swept(record, load));
    html! {
        section.answer {
            @if all.is_empty() { p { "Nothing was measured." } }
            // Of a sweep its curves say more than a sentence for each of its points would.
            @for load in &single {
                p {
                    @if several { b { (Shown(&load_name(load))) ": " } }
                    (Shown(&capital(&sentence(load, record.overall.as_ref().filter(|_| !several)))))
                    " " (worth(load)) (broken(load))
                }
                (because(load, several, single.len() <= why::FEW))
            }
            (causes_of(&swept))
            @if let Some(resumed) = resumed(record) { p { "The measurement was " (resumed) "." } }
            @for sentence in knobs::sentences(record).chain(beside::sentences(record)) { p { (Shown(&capital(&sentence))) "." } }
            @for skipped in &record.skipped { p { "Left out: " (Shown(skipped)) } }
            @if let Some(next) = next { p { b { "Next: " } (Shown(next)) "." } }
        }
    }
}

/// Whether a load is a point of a sweep, with nothing to be said of it alone.
fn is_swept(record: &Record, load: &[Named]) -> bool {
    let mut points = record.sweeps.iter().flat_map(|swept| &swept.sweep.points);
    let trial = load[0].run.trial.as_ref();
    let is_point = trial.is_some_and(|trial| points.any(|point| point.trial == *trial));
    let fine = |run: &Run| {
        run.validity.status == Status::Valid && run.checks.iter().all(|check| check.held)
    };
    is_point && load.iter().all(|one| fine(one.run))
}

/// What limited the points of sweeps: each cause with its points.
fn causes_of(swept: &[&[Named]]) -> Markup {
    let mut causes: BTreeMap<Cause, Vec<String>> = BTreeMap::new();
    for load in swept {
        if let Some((verdict, _)) = why::most(load.iter().map(|one| one.run)) {
            causes
                .entry(verdict.cause)
                .or_default()
                .push(load_name(load));
        }
    }
    html! {
        @for (cause, names) in &causes {
            div.why { "Why: " b { (cause.id()) } " limits " (Shown(&names.join(", "))) "." }
        }
    }
}

/// What limited a load, by most of its runs, with the figures that speak for it where there are few loads, and what to do next where that
/// is not the whole page's.
fn because(load: &[Named], several: bool, few: bool) -> Markup {
    let runs = load.iter().map(|one| one.run);
    html! {
        @if let Some((verdict, alike)) = why::most(runs) {
            div.why {
                "Why: " b { (verdict.cause.id()) } " (" (why::sure(verdict, alike, load.len())) "): " (Shown(&verdict.summary)) "."
                @if few && !verdict.evidence.is_empty() {
                    ul {
                        @for line in &verdict.evidence { li { (Shown(line)) } }
                        @for tested in &verdict.tested { li { (Shown(&why::tried(tested))) } }
                        @if several { li { b { "Next: " } (Shown(&verdict.next)) } }
                    }
                }
            }
        }
    }
}

/// Of several attempts at a load the name without the number of the attempt.
fn load_name(load: &[Named]) -> String {
    let name = &load[0].name;
    match load {
        [_] => name.clone(),
        _ => {
            let cut = name.find(", process ").or_else(|| name.find(", attempt "));
            cut.map_or_else(|| name.clone(), |at| name[..at].to_owned())
        }
    }
}

fn sentence(load: &[Named], overall: Option<&Overall>) -> String {
    let run = load[0].run;
    if let (Some(overall), true) = (overall, load.len() > 1) {
        let per_s = overall.throughput_per_s;
        let within = overall
            .throughput_interval
            .as_ref()
            .map_or_else(String::new, |i| {
                format!(
                    " {} ({} over attempts)",
                    interval(per_s, i),
                    level(i.confidence)
                )
            });
        let of = count_of(overall.attempts.into(), "attempt");
        return format!("{}{within} ok answers, the mean of {of}.", rate(per_s));
    }
    if load.len() > 1 {
        let mut all: Vec<f64> = load
            .iter()
            .filter_map(|one| one.run.throughput_per_s)
            .collect();
        all.sort_by(f64::total_cmp);
        let of = count_of(load.len() as u64, "attempt");
        return match (all.first(), all.last()) {
            (Some(least), Some(most)) => {
                format!("{} to {} ok answers over {of}.", rate(*least), rate(*most))
            }
            _ => format!("No throughput was measured in {of}."),
        };
    }
    let ended = match (run.ended.reason, run.server_gone_since_s) {
        (EndReason::Completed, _) => String::new(),
        (EndReason::Interrupted, _) => format!("Interrupted after {}: ", seconds(run.sending_s)),
        (EndReason::ClientFailed, _) => "The client failed: ".to_owned(),
        (EndReason::NotHttp, _) => "Ended early, since answers were no HTTP: ".to_owned(),
        (EndReason::ServerGone, Some(0.0)) => "The server never answered: ".to_owned(),
        (EndReason::ServerGone, _) => "The server went away: ".to_owned(),
    };
    let failed = crate::outcomes::not_ok(&run.requests);
    if run.requests.ok == 0 {
        let of = count_of(failed, "request");
        return format!("{ended}none of {of} was answered ok.");
    }
    let Some(per_s) = run.throughput_per_s else {
        return format!("{ended}no throughput was measured.");
    };
    let lower = match run.validity.status {
        Status::Bound => "at least ",
        Status::Valid | Status::Invalid => "",
    };
    let within = run
        .throughput_interval
        .as_ref()
        .map_or_else(String::new, |i| {
            format!(
                " {} ({} within this run)",
                interval(per_s, i),
                level(i.confidence)
            )
        });
    let offered = match (run.plan.model, run.plan.rate_per_s) {
        (Model::Open, Some(offered)) => format!(" of {} offered", rate(offered)),
        _ => String::new(),
    };
    let times = &run.response_time_us;
    let response = |us| time(us, times, run.plan.timeout_s);
    let took = match times.count {
        0 => String::new(),
        _ => format!(
            "; response time p50 {}, p99 {}",
            response(times.p50),
            response(times.p99)
        ),
    };
    let failed = match failed {
        0 => "; every request was answered ok".to_owned(),
        n => format!("; {} not ok", count_of(n, "request")),
    };
    format!(
        "{ended}{lower}{}{within} ok answers{offered}{took}{failed}.",
        rate(per_s)
    )
}

/// With a capital letter where it begins with a small one.
fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// The worst status of a load, with its first reason.
fn worth(load: &[Named]) -> Markup {
    let worst = load
        .iter()
        .map(|one| one.run)
        .max_by_key(|run| run.validity.status);
    let Some(run) = worst else { return html! {} };
    let answered = |run: &Run| run.requests.ok > 0 && run.throughput_per_s.is_some();
    if run.validity.status == Status::Valid && !load.iter().any(|one| answered(one.run)) {
        // There is no figure to call valid.
        return html! {};
    }
    html! {
        "The figure is " (validity(run))
        @match (run.validity.status, run.validity.reasons.first()) {
            (Status::Valid, _) if run.client.tool.is_some() => { ": it is what the client says of the server and of itself." }
            (Status::Valid, _) => { ": it is that of the server and the way to it." }
            (_, Some(reason)) => { ": " (Shown(reason)) "." }
            (_, None) => { "." }
        }
        @let alike = load.iter().filter(|one| one.run.validity.status == run.validity.status).count();
        @if alike < load.len() { " (" (alike) " of " (load.len()) " attempts)" }
    }
}

/// The first check that did not hold, and in how many attempts.
fn broken(load: &[Named]) -> Markup {
    let violated = |one: &Named| one.run.checks.iter().find(|check| !check.held).cloned();
    let all: Vec<_> = load.iter().filter_map(violated).collect();
    html! {
        @if let Some(first) = all.first() {
            " The check " (Shown(&first.name)) " is " span.invalid { "violated" }
            @if load.len() > 1 { " in " (all.len()) " of " (load.len()) " attempts" }
            ": " (Shown(&first.detail)) "."
        }
    }
}

/// What was judged besides: reasons, checks, thresholds, remarks.
pub(crate) fn judged(record: &Record, all: &[Named]) -> Option<Markup> {
    let several = all.len() > 1;
    let mut lines: Vec<(&str, String)> = Vec::new();
    for threshold in &record.thresholds {
        let word = match threshold.met {
            Some(true) => "met",
            Some(false) => "not met",
            None => "could not be told",
        };
        let text = format!("{} – {word}: {}", threshold.condition, threshold.figure);
        lines.push(("fail-if", text));
    }
    for one in all {
        let which = if several {
            format!("{}: ", one.name)
        } else {
            String::new()
        };
        let mut add = |label, text: String| lines.push((label, format!("{which}{text}")));
        let run: &Run = one.run;
        if let Some(detail) = &run.ended.detail {
            add("ended", detail.clone());
        }
        run.validity
            .reasons
            .iter()
            .for_each(|reason| add("validity", reason.clone()));
        for check in &run.checks {
            let word = if check.held { "held" } else { "violated" };
            add("check", format!("{} {word}: {}", check.name, check.detail));
        }
        if !run.window.why.is_empty() {
            add("window", run.window.why.clone());
        }
        match &run.saturation {
            Some(Saturation::KeptUp {
                up_to_per_s,
                method,
            }) => add(
                "kept up",
                format!("with the rate up to {} ({method})", rate(*up_to_per_s)),
            ),
            Some(Saturation::Undecided { why }) => {
                add("kept up", format!("could not be told: {why}"))
            }
            Some(Saturation::FellBehind(found)) => add(
                "fell behind",
                format!(
                    "from {} offered on, at {}; {} on average from there ({})",
                    rate(found.offered_per_s),
                    seconds(found.at_s),
                    rate(found.achieved_per_s),
                    found.method
                ),
            ),
            None => {}
        }
        if run.requests.reconnects > 0 {
            let n = count_of(run.requests.reconnects, "request");
            add(
                "note",
                format!("{n} sent again on a fresh connection: the server had closed the kept one"),
            );
        }
        run.log_errors
            .iter()
            .for_each(|errors| add("log", logged::sentence(errors)));
        if let Some(there) = &run.elsewhere {
            add("observed", elsewhere::sentence(there));
        }
        run.validity
            .notes
            .iter()
            .for_each(|note| add("note", note.clone()));
        run.missing
            .iter()
            .for_each(|missing| add("not read", missing.clone()));
    }
    let overall = record.overall.iter().flat_map(|overall| &overall.notes);
    lines.extend(overall.map(|note| ("note", note.clone())));
    // What holds of every attempt in the same words is said of each; more than a screen of it helps nobody.
    let left = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    (!lines.is_empty()).then(|| {
        html! {
            dl { @for (label, text) in &lines { dt { (label) } dd { (Shown(text)) } } }
            @if left > 0 { p.note { (left) " more remarks are in the record." } }
        }
    })
}

/// Remarks shown at most.
const MOST_LINES: usize = 60;
