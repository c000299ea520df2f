//! There is not enough evidence to name a cause.

use super::*;
use crate::asking;
use crate::text::show_s;
use crate::validity::MIN_LENGTH_S;
use crate::why::thresholds::SAME;

pub(super) static SPEC: CauseSpec = CauseSpec {
    is_limit: false,
    ..CauseSpec::new(Cause::Unknown, Place::NoLimit, |_| None)
};

/// Returns the candidate for a run without a conclusive cause. `weak` is the most likely cause and
/// its probability, if this probability is too low. `contradicted` is the first cause that the
/// counters suggest but that a perturbation contradicts.
pub(in crate::why) fn unknown(
    facts: &RunFacts<'_>,
    weak: Option<(&(Cause, Candidate), f64)>,
    contradicted: Option<&RuledOut>,
) -> Candidate {
    let (run, plan) = (facts.run, &facts.run.plan);
    let mut summary = "not enough evidence to name a cause".to_owned();
    let next = if let Some(RuledOut { cause, figure }) = contradicted {
        summary =
            format!("the counters suggest {cause}, but a perturbation contradicts it ({figure})");
        "repeat the proof with client and server on separate CPUs (taskset), so that each change \
         affects only one of them"
            .to_owned()
    } else if run.sending_s < MIN_LENGTH_S {
        summary = format!(
            "the run ({}) was too short to name a cause",
            show_s(run.sending_s)
        );
        let longer = asking::longer(plan).unwrap_or_else(|| asking::scaled(plan, 2.0));
        format!("run longer: {longer}")
    } else if plan.is_open() {
        "retry with a lower rate, and check what the server waits for".to_owned()
    } else if facts
        .in_flight
        .is_some_and(|n| n < SAME.start() * run.max_in_flight() as f64)
    {
        let carriers = facts.carriers();
        format!(
            "find out why {carriers} are idle: check how long connections take to open and close"
        )
    } else {
        let twice = plan.connections * 2;
        format!("retry with twice the connections: -c {twice}")
    };
    let weak = weak.map(|((cause, candidate), probability)| {
        let (probability, summary) = (percent(probability), &candidate.summary);
        format!("most likely cause (probability only {probability}): {cause} – {summary}")
    });
    Candidate::new(EvidenceRank::Demand, summary, weak, next)
}
