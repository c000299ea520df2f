//! What a summary says of a run whose rate changed: a row for each step, and whether a ramp was kept up with.

use floodmark_record::plan::Plan;
use floodmark_record::profile::Profile;
use floodmark_record::run::{Run, Saturation, StepFigures};
use floodmark_record::units::show_count;
use floodmark_stats::saturation::KEPT_UP_SHARE;

use crate::figures::{per_second, rate, seconds, time};
use crate::page::{Page, faint, glue, plain};
use crate::style::Paint;

/// Steps shown; a longer list is cut, and the record has all.
const MOST_SHOWN: usize = 20;

/// Draws the steps and the saturation of a run. `which` names the attempt, where there are several.
pub(crate) fn draw(page: &mut Page, run: &Run, which: &str) {
    draw_steps(page, run, which);
    let whose = match which {
        "" => String::new(),
        which => format!("{which}:"),
    };
    match &run.saturation {
        Some(Saturation::FellBehind(found)) => {
            let spans = [
                plain(whose),
                plain("from"),
                (
                    Paint::Warn,
                    glue(&format!("{} offered", rate(found.offered_per_s))),
                ),
                plain(format!(
                    "on, at {}: {} on average from there",
                    glue(&seconds(found.at_s)),
                    glue(&format!("{} achieved", rate(found.achieved_per_s)))
                )),
                faint(format!("({})", found.method)),
            ];
            page.entry("fell behind", &spans);
        }
        Some(Saturation::KeptUp {
            up_to_per_s,
            method,
        }) => {
            let spans = [
                plain(whose),
                plain("with the rate up to"),
                plain(glue(&rate(*up_to_per_s))),
                faint(format!("({method})")),
            ];
            page.entry("kept up", &spans);
        }
        Some(Saturation::Undecided { why }) => {
            let spans = [plain(whose), plain("cannot be told:"), plain(why)];
            page.entry("kept up?", &spans);
        }
        None => {}
    }
}

fn draw_steps(page: &mut Page, run: &Run, which: &str) {
    if run.steps.is_empty() {
        return;
    }
    let width = if page.columns() < 70 { 9 } else { 11 };
    let heads = ["offered", "achieved", "p50", "p99", "not ok"];
    page.row(
        if which.is_empty() { "step" } else { which },
        &heads.map(|head| (width, Paint::Faint, head.to_owned())),
    );
    for step in run.steps.iter().take(MOST_SHOWN) {
        let label = format!("to {}", seconds(step.to_s));
        page.row(
            &label,
            &cells(run, step).map(|(paint, text)| (width, paint, text)),
        );
    }
    if let Some(more) = run.steps.len().checked_sub(MOST_SHOWN).filter(|n| *n > 0) {
        page.entry(
            "",
            &[faint(format!(
                "({more} more steps are in the record: --json)"
            ))],
        );
    }
    page.entry(
        "",
        &[faint(
            "(by when requests ended; percentiles are of response time)",
        )],
    );
}

fn cells(run: &Run, step: &StepFigures) -> [(Paint, String); 5] {
    let times = &step.response_time_us;
    let counts = &step.requests;
    let failed = counts.ended() - counts.ok + counts.connect_failed + counts.unsent;
    let achieved = match step.throughput_per_s {
        per_s if per_s < KEPT_UP_SHARE * step.offered_per_s => Paint::Warn,
        _ => Paint::Plain,
    };
    [
        (
            Paint::Plain,
            format!("{}/s", per_second(step.offered_per_s)),
        ),
        (achieved, rate(step.throughput_per_s)),
        (Paint::Plain, time(times.p50, times, run.plan.timeout_s)),
        (Paint::Plain, time(times.p99, times, run.plan.timeout_s)),
        (
            if failed > 0 { Paint::Bad } else { Paint::Plain },
            show_count(failed),
        ),
    ]
}

/// `ramp from 100/s to 5,000/s`, `3 steps from 1,000/s to 5,000/s`, `replay of times.log at 2x`.
pub(crate) fn describe(profile: &Profile) -> String {
    match profile {
        Profile::Ramp(ramp) => format!(
            "ramp from {} to {}",
            rate(ramp.from_per_s),
            rate(ramp.to_per_s)
        ),
        Profile::Steps(steps) => {
            let (first, last) = (steps.first(), steps.last());
            let ends = [first, last].map(|step| rate(step.map_or(0.0, |s| s.rate_per_s)));
            let [first, last] = ends;
            match steps.len() {
                1 => format!("1 step of {first}"),
                n => format!("{n} steps from {first} to {last}"),
            }
        }
        Profile::Replay(replay) if (replay.speed - 1.0).abs() > f64::EPSILON => {
            format!("replay of {} at {}x", replay.file, replay.speed)
        }
        Profile::Replay(replay) => format!("replay of {}", replay.file),
    }
}

/// How long a plan's rate changes, in words that follow [`describe`]; none for one rate.
pub(crate) fn length(plan: &Plan) -> Option<String> {
    match (plan.profile.as_ref()?, plan.requests) {
        (Profile::Replay(replay), Some(n)) => {
            let within = glue(&seconds(replay.window_s));
            Some(format!(
                "{} within {within}",
                crate::figures::count_of(n, "request")
            ))
        }
        _ => None,
    }
}
