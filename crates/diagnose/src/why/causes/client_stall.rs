//! The load generator stalled.

use super::*;
use crate::validity::STALL_S;

pub(super) static SPEC: CauseSpec = CauseSpec::new(Cause::ClientStall, Place::Client, detect);

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let longest_ns = facts.run.longest_stall_ns? as f64;
    let stall_s = longest_ns / 1e9;
    let window = facts.run.sending_s;
    let longest = show_ns(longest_ns);
    if stall_s < STALL_S || stall_s < RARE * window {
        return ruled_out(format!("longest client stall: {longest}"));
    }
    Candidate::new(
        // A stall reduces throughput by its share of the time.
        EvidenceRank::Counted.unless_minor(stall_s < NOTICEABLE * window),
        format!("the load generator stalled for {longest}: it neither sent nor received"),
        [format!(
            "longest_stall_ns: a client thread woke up {longest} late"
        )],
        "find out what stopped the client (another program, a paused host, SIGSTOP), then repeat",
    )
    .at([(StepKind::Stall, Actor::Client)])
    .found()
}
