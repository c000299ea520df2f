//! Verdicts: cause, evidence and next step, followed by causes ruled out and the number of requests
//! at each place.

use floodmark_record::run::Run;
use floodmark_record::verdict::{Confidence, RunnerUp, Tested, Verdict};

use super::document::{
    Blocks, Emphasis, Extent, Span, TextLine, faint, gathered, gathered_lines, line,
    names_unless_all, plain,
};
use super::figures::{joined, rate};
use super::run;

/// Maximum number of loads for which a result includes evidence and next steps.
const FEW: usize = 3;

/// Next step for a result with more than [`FEW`] loads.
const SEE_WHY: &str =
    "to see the evidence and the next step for each trial, run `floodmark why` on this result";

/// Returns the causes that limited runs. `None` stands for a run without a verdict.
pub(crate) fn document<'a>(judged: impl IntoIterator<Item = (&'a Run, Option<Verdict>)>) -> Blocks {
    let mut blocks = Blocks::default();
    for (i, (run, verdict)) in judged.into_iter().enumerate() {
        if i > 0 {
            blocks.gap();
        }
        let name = run.trial.as_ref().unwrap_or(&run.system);
        let throughput = run.throughput_per_s.map(rate);
        blocks.paragraph([
            plain(name),
            faint(format!("{}:", run::attempt(run))),
            plain(throughput.unwrap_or_else(|| "no throughput".to_owned())),
        ]);
        match verdict {
            Some(verdict) => blocks.lines(all(&verdict)),
            None => blocks.lines([line("why", "not evaluated: the run has no throughput")]),
        }
    }
    blocks
}

/// Trials with the same cause and level of confidence.
struct CauseGroup<'a> {
    /// Name and verdict of the first trial.
    first: (&'a str, &'a Verdict),
    others: Vec<(&'a str, &'a Verdict)>,
    /// Number of runs with this cause.
    alike: usize,
    /// Number of runs.
    runs: usize,
}

impl<'a> CauseGroup<'a> {
    /// Returns the group of one trial: its last verdict with the most frequent cause.
    fn of(name: &'a str, runs: impl IntoIterator<Item = &'a Run>) -> Option<Self> {
        let verdicts: Vec<Option<&Verdict>> =
            runs.into_iter().map(|run| run.verdict.as_ref()).collect();
        let judged = || verdicts.iter().copied().flatten();
        let alike = |verdict: &Verdict| judged().filter(|v| v.cause == verdict.cause).count();
        let most = judged().max_by_key(|verdict| alike(verdict))?;
        Some(CauseGroup {
            first: (name, most),
            others: Vec::new(),
            alike: alike(most),
            runs: verdicts.len(),
        })
    }

    fn trials(&self) -> impl Iterator<Item = (&'a str, &'a Verdict)> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// Returns whether two groups have the same cause and level of confidence.
    fn matches(&self, other: &Self) -> bool {
        let key = |group: &Self| (group.first.1.cause, group.first.1.confidence);
        key(self) == key(other)
    }

    fn extend(&mut self, other: Self) {
        self.others.extend(other.trials());
        self.alike += other.alike;
        self.runs += other.runs;
    }

    /// Describes the cause. States the first trial's summary, with the trial's name if another
    /// trial has a different summary.
    fn line(&self) -> TextLine {
        let (name, verdict) = self.first;
        let confidence = match verdict.confidence {
            Confidence::Proven => Some("proven".to_owned()),
            Confidence::Likely => Some("likely".to_owned()),
            Confidence::Possible => Some(match self.percentages() {
                Some((low, high)) if low < high => format!("possible, {low:.0} to {high:.0} %"),
                Some((percent, _)) => format!("possible, {percent:.0} %"),
                None => "possible".to_owned(),
            }),
            Confidence::Unknown => None,
        };
        let share = (self.alike != self.runs).then(|| {
            let (alike, runs) = (self.alike, self.runs);
            format!("{alike} of {runs} runs")
        });
        let qualifiers = joined(confidence.into_iter().chain(share), "; ");
        let mut spans = vec![Emphasis::Strong.span(verdict.cause.name())];
        if !qualifiers.is_empty() {
            spans.push(faint(format!("({qualifiers})")));
        }
        let summary = &verdict.summary;
        let is_shared = self
            .others
            .iter()
            .all(|(_, other)| other.summary == *summary);
        spans.push(plain(if is_shared {
            format!("– {summary}")
        } else {
            format!("– {name}: {summary}")
        }));
        TextLine::new("why", spans)
    }

    /// Returns the lowest and the highest probability, rounded to the nearest percent.
    fn percentages(&self) -> Option<(f64, f64)> {
        let probabilities = self.trials().filter_map(|(_, verdict)| verdict.probability);
        let percentages = probabilities.map(|probability| (probability * 100.0).round());
        percentages
            .map(|percent| (percent, percent))
            .reduce(|(low, high), (percent, _)| (low.min(percent), high.max(percent)))
    }
}

/// Returns the last verdict with the most frequent cause, and a line that describes this cause.
pub(crate) fn most_frequent<'a>(
    runs: impl IntoIterator<Item = &'a Run>,
) -> Option<(&'a Verdict, TextLine)> {
    let group = CauseGroup::of("", runs)?;
    Some((group.first.1, group.line()))
}

/// Returns the path to the limit, the evidence for a cause and the throughput that the cause
/// allows.
pub(crate) fn evidence(verdict: &Verdict) -> Vec<TextLine> {
    let steps = verdict.path.iter();
    let steps = steps.map(|step| Emphasis::Step.span(step.to_string()));
    let path: Vec<Span> = steps.flat_map(|step| [plain("→"), step]).skip(1).collect();
    let mut lines = Vec::new();
    lines.extend(verdict.runner_up.as_ref().map(runner_up));
    if !path.is_empty() {
        lines.push(TextLine::new("path", path));
    }
    lines.extend(verdict.evidence.iter().map(|text| line("evidence", text)));
    let limit = verdict.limit_per_s.map(rate);
    lines.extend(limit.map(|limit| line("limit", format!("upper bound with this limit: {limit}"))));
    lines.extend(verdict.gain.as_ref().map(|gain| {
        let range = format!("{} to {}", rate(gain.low_per_s), rate(gain.high_per_s));
        let gain = format!("predicted without this limit: {range} ({})", gain.basis);
        line("gain", gain)
    }));
    lines
}

/// Names the second most likely cause, and the measurement that decides between the two causes.
fn runner_up(other: &RunnerUp) -> TextLine {
    let cause = plain(other.cause.name());
    TextLine::new(
        "or",
        [cause, plain(format!("– to decide, {}", other.measurement))],
    )
}

/// Describes a perturbation: the change, the predicted effect and the measured effect.
fn perturbation(tested: &Tested) -> TextLine {
    let measured = match (tested.ratio, &tested.interval) {
        (Some(ratio), Some(i)) => format!("× {ratio:.3} ({:.3} – {:.3})", i.low, i.high),
        _ => "not measured".to_owned(),
    };
    let predicted = match tested.predicted {
        Some((low, high)) => format!("predicted {low:.2} to {high:.2}"),
        None => "no prediction".to_owned(),
    };
    let agrees = match tested.agrees {
        Some(true) => "; as predicted",
        Some(false) => "; not as predicted",
        None => "",
    };
    let change = tested.knob.as_deref().unwrap_or(tested.change.words());
    let text = format!("{change}: throughput {measured}, {predicted}{agrees}");
    line("tested", text)
}

/// Returns each distinct cause with its trials. If there are few trials, also returns the evidence
/// and each distinct next step.
pub(crate) fn of_trials(trials: &[(&str, Vec<&Run>)]) -> Vec<TextLine> {
    let few = trials.len() <= FEW;
    let mut groups: Vec<CauseGroup<'_>> = Vec::new();
    for (name, runs) in trials {
        let Some(trial) = CauseGroup::of(name, runs.iter().copied()) else {
            continue;
        };
        match groups.iter_mut().find(|group| group.matches(&trial)) {
            Some(group) => group.extend(trial),
            None => groups.push(trial),
        }
    }
    let mut lines = Vec::new();
    for group in &groups {
        let names: Vec<&str> = group.trials().map(|(name, _)| name).collect();
        lines.push(group.line().of(&names_unless_all(&names, trials.len())));
        if few {
            lines.extend(gathered_lines(group.trials().map(|(name, verdict)| {
                let tested = verdict.tested.iter().map(perturbation);
                (name, evidence(verdict).into_iter().chain(tested))
            })));
        }
    }
    if few {
        let trials = groups.iter().flat_map(CauseGroup::trials);
        let next = trials.map(|(name, verdict)| (name, [verdict.next.clone()]));
        lines.extend(gathered("next", next));
    } else if !lines.is_empty() {
        lines.push(line("next", SEE_WHY));
    }
    lines
}

/// Returns all details of one verdict.
fn all(verdict: &Verdict) -> Vec<TextLine> {
    let group = CauseGroup {
        first: ("", verdict),
        others: Vec::new(),
        alike: 1,
        runs: 1,
    };
    let mut lines = vec![group.line()];
    lines.extend(evidence(verdict));
    lines.push(line("next", &verdict.next));
    lines.extend(verdict.tested.iter().map(perturbation));
    lines.extend(verdict.also.iter().map(|cause| {
        let cost = verdict.costs.iter().find(|cost| cost.cause == *cause);
        let cost = cost.map(|cost| faint(format!("– {}", cost.summary)));
        let name = plain(cause.name());
        TextLine::new("also", [name].into_iter().chain(cost).collect::<Vec<_>>())
    }));
    let (ruled_out, unseen) = (verdict.ruled_out.iter(), verdict.unseen.iter());
    lines.extend(ruled_out.map(|one| TextLine::new("ruled out", [faint(one.to_string())])));
    lines.extend(unseen.map(|text| TextLine::new("not visible", [faint(text)])));
    if let Some(ledger) = &verdict.ledger {
        let in_flight = format!("{:.1} in flight on average:", ledger.under_way);
        lines.push(line("requests", in_flight));
        lines.extend(ledger.places.iter().map(|entry| {
            let text = plain(format!("{:.1} {}", entry.mean, entry.place));
            TextLine::new("", [text, faint(format!("({})", entry.source))])
        }));
        lines.push(line("", format!("{:.1} unexplained", ledger.unexplained)));
    }
    lines.extend(verdict.ceilings.iter().map(|ceiling| {
        let (limit, percent) = (rate(ceiling.limit_per_s), ceiling.used * 100.0);
        let demand = format!("{:.1} {} per request", ceiling.demand, ceiling.unit);
        let resource = &ceiling.resource;
        let text = format!("{limit} for {resource}: {demand}, {percent:.0} % used");
        line("ceiling", text)
    }));
    lines
}

/// Adds the most frequent cause and the next step; in a full summary, also the evidence.
pub(crate) fn cause_and_next<'a>(
    blocks: &mut Blocks,
    runs: impl IntoIterator<Item = &'a Run>,
    next: Option<&str>,
    extent: Extent,
) {
    if let Some((verdict, cause)) = most_frequent(runs) {
        blocks.lines([cause]);
        match extent {
            Extent::Full => blocks.lines(evidence(verdict)),
            _ => blocks.lines(verdict.runner_up.as_ref().map(runner_up)),
        }
    }
    blocks.lines(next.map(|next| line("next", next)));
}

#[cfg(test)]
mod unit_tests {
    use floodmark_record::cause::Cause;

    use super::*;
    use crate::fixture;
    use crate::terminal::tests::drawn;

    #[test]
    fn few_trials_show_evidence_and_many_refer_to_it() {
        let run = fixture::judged(Cause::WorkerPool);
        let of = |trials: usize| drawn(of_trials(&vec![("kept", vec![&run]); trials]), 80);
        let few = of(FEW);
        for text in [
            "why          worker-pool (likely)",
            "1.50 of 2 CPUs idle",
            "raise `threads`",
        ] {
            assert_eq!(few.matches(text).count(), 1, "{few}");
        }
        let many = of(FEW + 1);
        assert_eq!(many.matches("worker-pool (likely)").count(), 1, "{many}");
        assert!(!many.contains("evidence     "), "{many}");
        assert_eq!(many.matches("floodmark why").count(), 1, "{many}");
    }

    #[test]
    fn trials_with_the_same_cause_share_its_lines() {
        let [kept, mut fresh] = [(); 2].map(|()| fixture::judged(Cause::WorkerPool));
        let mut rate = fixture::judged(Cause::None);
        let verdict = fresh.verdict.as_mut().unwrap();
        verdict.evidence.pop();
        verdict.limit_per_s = Some(170.0);
        rate.verdict.as_mut().unwrap().evidence.clear();
        let trials = [("kept", &kept), ("rate", &rate), ("fresh", &fresh)];
        let text = drawn(of_trials(&trials.map(|(name, run)| (name, vec![run]))), 80);
        let lines = [
            "why          kept, fresh: worker-pool (likely) – all 8",
            "evidence     8 of 8 threads busy",
            // Fresh does not have this evidence.
            "evidence     kept: 1.50 of 2 CPUs idle",
            "limit        kept: upper bound with this limit: 160/s",
            "limit        fresh: upper bound with this limit: 170/s",
            "why          rate: none (likely)",
        ];
        let places: Vec<_> = lines.iter().map(|line| text.find(line)).collect();
        assert!(places.is_sorted() && places[0].is_some(), "{text}");
        assert_eq!(text.matches("8 of 8 threads busy").count(), 1, "{text}");
    }

    #[test]
    fn trials_with_different_figures_share_a_cause() {
        let possible = |probability, summary: &str| {
            let mut run = fixture::judged(Cause::Jit);
            let verdict = run.verdict.as_mut().unwrap();
            verdict.confidence = Confidence::Possible;
            verdict.probability = Some(probability);
            verdict.summary = summary.to_owned();
            run
        };
        let (short, long) = (possible(0.68, "22 % of the CPU"), possible(0.64, "28 %"));
        let likely = fixture::judged(Cause::Jit);
        let trials = [("short", &short), ("long", &long), ("other", &likely)];
        let text = drawn(of_trials(&trials.map(|(name, run)| (name, vec![run]))), 80);
        for line in [
            "why          short, long: jit (possible, 64 to 68 %) – short: 22 % of the CPU",
            "why          other: jit (likely) – all 8",
        ] {
            assert_eq!(text.matches(line).count(), 1, "{text}");
        }
    }
}
