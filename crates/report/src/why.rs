//! Verdicts on a terminal: the cause first, its evidence and the next step, then what it is not and where requests were.

use floodmark_record::proof::Tested;
use floodmark_record::run::Run;
use floodmark_record::verdict::{Confidence, Verdict};

use crate::figures::rate;
use crate::page::{Page, faint, plain};
use crate::style::{Paint, Style};

/// Draws what limited each run; of a run without a verdict that it has none.
#[must_use]
pub fn of_runs<'a>(
    judged: impl IntoIterator<Item = (&'a Run, Option<Verdict>)>,
    style: Style,
) -> String {
    let mut page = Page::new(style);
    for (i, (run, verdict)) in judged.into_iter().enumerate() {
        if i > 0 {
            page.blank();
        }
        let name = run.trial.as_ref().unwrap_or(&run.system);
        let figure = run
            .throughput_per_s
            .map_or_else(|| "no figure".to_owned(), rate);
        page.headline(&[
            plain(name),
            faint(format!("process {} attempt {}:", run.process, run.attempt)),
            plain(figure),
        ]);
        match verdict {
            Some(verdict) => draw(&mut page, &verdict),
            None => page.entry("why", &[plain("it has no figure to explain")]),
        }
    }
    page.finish()
}

/// What most of some runs say limited them, by the last one that says so, and how many do.
pub(crate) fn most<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Option<(&'a Verdict, usize)> {
    let verdicts: Vec<&Verdict> = runs
        .into_iter()
        .filter_map(|run| run.verdict.as_ref())
        .collect();
    let alike = |verdict: &Verdict| {
        let same = verdicts.iter().filter(|other| other.cause == verdict.cause);
        same.count()
    };
    let most = verdicts.iter().max_by_key(|verdict| alike(verdict))?;
    Some((most, alike(most)))
}

/// How sure it is, and in how many of some runs it was judged so.
pub(crate) fn sure(verdict: &Verdict, alike: usize, of: usize) -> String {
    let sure = match verdict.confidence {
        Confidence::Proven => "proven",
        Confidence::Likely => "likely",
        Confidence::Unknown => "the evidence does not suffice",
    };
    if alike == of {
        return sure.to_owned();
    }
    format!("{sure}; {alike} of {of} runs")
}

/// Draws the cause in one line. `which` names the runs, where there are others.
pub(crate) fn line<'a>(
    page: &mut Page,
    runs: impl IntoIterator<Item = &'a Run> + Clone,
    which: &str,
) {
    let of = runs.clone().into_iter().count();
    if let Some((verdict, alike)) = most(runs) {
        page.entry(
            "why",
            &[
                plain(which),
                (Paint::Strong, verdict.cause.id().to_owned()),
                faint(format!("({})", sure(verdict, alike, of))),
                plain("–"),
                plain(&verdict.summary),
            ],
        );
    }
}

/// Draws the figures that speak for a cause, and the most that it allows.
pub(crate) fn evidence(page: &mut Page, verdict: &Verdict) {
    for line in &verdict.evidence {
        page.entry("evidence", &[plain(line)]);
    }
    if let Some(limit) = verdict.limit_per_s {
        page.entry(
            "limit",
            &[plain(format!("at most {} come of it", rate(limit)))],
        );
    }
}

/// One change, what its cause predicts of it, and what came of it.
pub(crate) fn tried(tested: &Tested) -> String {
    let measured = match (tested.ratio, &tested.interval) {
        (Some(ratio), Some(i)) => format!("× {ratio:.3} ({:.3} – {:.3})", i.low, i.high),
        _ => "not measured".to_owned(),
    };
    let predicted = tested.predicted.map_or_else(
        || "the cause predicts nothing of it".to_owned(),
        |(low, high)| format!("predicted {low:.2} to {high:.2}"),
    );
    let agrees = match tested.agrees {
        Some(true) => ": as predicted",
        Some(false) => ": not as predicted",
        None => "",
    };
    format!(
        "{}: throughput {measured}, {predicted}{agrees}",
        tested.knob.as_deref().unwrap_or(tested.change.words())
    )
}

/// Loads whose evidence and next steps are shown with a result; of more they would hide the others.
pub(crate) const FEW: usize = 3;

/// Draws the cause of each trial, with its evidence and the next step where there are few.
pub(crate) fn of_trials<'a>(page: &mut Page, trials: &[(&'a str, Vec<&'a Run>)]) {
    let mut left_out = false;
    for (name, runs) in trials {
        line(page, runs.iter().copied(), &format!("{name}:"));
        let Some((verdict, _)) = most(runs.iter().copied()) else {
            continue;
        };
        if trials.len() > FEW {
            left_out = true;
            continue;
        }
        evidence(page, verdict);
        for tested in &verdict.tested {
            page.entry("tried", &[plain(tried(tested))]);
        }
        page.entry("next", &[plain(&verdict.next)]);
    }
    if left_out {
        page.entry(
            "next",
            &[plain(
                "floodmark why, with this result, has the evidence and the next step of each",
            )],
        );
    }
}

/// Draws one verdict.
fn draw(page: &mut Page, verdict: &Verdict) {
    page.entry(
        "why",
        &[
            (Paint::Strong, verdict.cause.id().to_owned()),
            faint(format!("({})", sure(verdict, 1, 1))),
            plain("–"),
            plain(&verdict.summary),
        ],
    );
    evidence(page, verdict);
    page.entry("next", &[plain(&verdict.next)]);
    for tested in &verdict.tested {
        page.entry("tried", &[plain(tried(tested))]);
    }
    if !verdict.also.is_empty() {
        let also: Vec<&str> = verdict.also.iter().map(|cause| cause.id()).collect();
        page.entry("also", &[plain(also.join(", "))]);
    }
    for line in &verdict.ruled_out {
        page.entry("not", &[faint(line.as_str())]);
    }
    for line in &verdict.unseen {
        page.entry("unseen", &[faint(line.as_str())]);
    }
    if let Some(ledger) = &verdict.ledger {
        page.entry(
            "requests",
            &[plain(format!(
                "{:.1} under way on average, of which",
                ledger.under_way
            ))],
        );
        for place in &ledger.places {
            page.entry(
                "",
                &[
                    plain(format!("{:.1} {}", place.mean, place.place)),
                    faint(format!("({})", place.source)),
                ],
            );
        }
        page.entry(
            "",
            &[plain(format!(
                "{:.1} where nothing tells",
                ledger.unexplained
            ))],
        );
    }
    for ceiling in &verdict.ceilings {
        page.entry(
            "ceiling",
            &[plain(format!(
                "{} for {}: {:.1} {} a request, {:.0} % used",
                rate(ceiling.limit_per_s),
                ceiling.resource,
                ceiling.demand,
                ceiling.unit,
                ceiling.used * 100.0
            ))],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use floodmark_record::cause::Cause;

    #[test]
    fn few_trials_have_their_evidence_and_many_say_where_it_is() {
        let run = fixture::judged(Cause::WorkerPool);
        let drawn = |trials: usize| {
            let mut page = Page::new(Style {
                colour: false,
                width: 80,
            });
            of_trials(&mut page, &vec![("kept", vec![&run]); trials]);
            page.finish()
        };
        let few = drawn(FEW);
        assert_eq!(few.matches("raise `threads`").count(), FEW, "{few}");
        assert_eq!(few.matches("1.50 of 2 CPUs idle").count(), FEW, "{few}");
        let many = drawn(FEW + 1);
        assert_eq!(
            many.matches("worker-pool (likely)").count(),
            FEW + 1,
            "{many}"
        );
        assert!(!many.contains("evidence     "), "{many}");
        assert_eq!(many.matches("floodmark why").count(), 1, "{many}");
    }
}
