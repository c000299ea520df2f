//! The hypervisor gives CPU time to other guests.

use floodmark_record::metric::HostFigure;

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec::new(Cause::Steal, Place::OtherPrograms, detect);

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let steal = facts.samples.mean(Metric::Host(None, HostFigure::Steal))?;
    let share = steal / facts.allowed.client_host;
    let stolen = percent(share);
    let figure = format!("{stolen} of the CPU time (/proc/stat, steal)");
    if share < NOTICEABLE {
        return ruled_out(figure);
    }
    Candidate::new(
        // If less than half of the CPU time is stolen, the consumer of the rest matters more.
        EvidenceRank::Mechanism.unless_minor(share < MOST),
        format!("the hypervisor gives {stolen} of this host's CPU time to other guests"),
        [figure],
        "use a dedicated host, or repeat at another time",
    )
    .at([(StepKind::Steal, Actor::Host)])
    .found()
}
