//! Open model: the server kept up with the offered rate, so the run shows no limit.

use super::*;
use crate::next::{MET_SHARE, STEP_UP};
use crate::why::tail;

pub(super) static SPEC: CauseSpec = CauseSpec {
    explained_by: &[Cause::ConnectionStorm],
    // A storm of connections delays requests even if the offered rate is met.
    explanation: |facts, candidate| {
        let is_storm = connection_storm::SPEC.is_detected(facts);
        is_storm.then(|| Effect::RuledOut(candidate.evidence[0].clone()))
    },
    is_limit: false,
    shows_at_once: true,
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::None, Place::NoLimit, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let offered = facts.offered_per_s?;
    if let Some(met) = met(facts) {
        return met.found().filter(|_| facts.run.client.name.is_none());
    }
    let (offered, ok) = (per_s(offered), per_s(facts.ok_per_s));
    ruled_out(format!(
        "offered {offered}, ok {ok}: the offered rate was not met"
    ))
}

/// Returns the candidate for a server that kept up with the offered rate.
pub(super) fn met(facts: &RunFacts<'_>) -> Option<Candidate> {
    let offered = facts.offered_per_s?;
    let share = facts.ok_per_s / offered;
    let (offered_text, ok_text) = (per_s(offered), per_s(facts.ok_per_s));
    (share >= MET_SHARE).then(|| {
        let tail = tail::show(facts).map(|tail| format!("; {tail}"));
        Candidate::new(
            EvidenceRank::Counted,
            format!(
                "the offered rate ({offered_text}) was met; the server's capacity was not \
                 reached{}",
                tail.unwrap_or_default()
            ),
            [format!(
                "offered {offered_text}, ok {ok_text}: {:.1} %",
                share * 100.0
            )],
            format!(
                "to find the limit, offer a higher rate (--rate {:.0}) or omit the rate",
                offered * STEP_UP
            ),
        )
        .at([(StepKind::OfferedRate, Actor::Client)])
        .with_share(share)
    })
}
