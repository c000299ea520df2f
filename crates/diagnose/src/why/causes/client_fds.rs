//! The load generator reached its limit on open files.

use super::*;

/// Name of the error in records.
const ERROR: &str = "fds_exhausted";

pub(super) static SPEC: CauseSpec = CauseSpec {
    shows_at_once: true,
    client_error: Some(ERROR),
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::ClientFds, Place::Client, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    let failed = facts.client_errors(ERROR);
    let failures = show_count(failed);
    if !facts.affects(failed) {
        return ruled_out(format!("connections without a file descriptor: {failures}"));
    }
    let show = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), show_count);
    let limit = show(run.connections.fd_limit);
    Candidate::new(
        EvidenceRank::Counted,
        format!("the load generator reached its limit on open files ({limit})"),
        [format!(
            "errors.fds_exhausted: {failures} (EMFILE); connections.peak: {}, \
             connections.fd_limit: {limit}",
            show(run.connections.peak)
        )],
        format!(
            "raise the limit (ulimit -n {}), or use fewer connections (-c)",
            run.plan.connections * 2 + 100
        ),
    )
    .at([(StepKind::Files, Actor::Client)])
    .found()
}
