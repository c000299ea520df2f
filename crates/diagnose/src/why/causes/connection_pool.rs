//! Requests wait for a free connection from the server to its store or upstream.

use super::worker_pool::self_limit;
use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Pool),
    gain: GainModel::InService,
    tuning: Tuning::Raise(|verdict| {
        FullPool::at(verdict, KnobKind::Connections, StepKind::Connections, false)
    }),
    ..CauseSpec::new(Cause::ConnectionPool, Place::Server, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    facts.service().detect(Cause::ConnectionPool, |limit| {
        let count = limit.held.round();
        let (summary, kind) = if limit.holder == StepKind::Connections {
            let summary = format!(
                "all {count:.0} connections from the server to the {} are in use",
                limit.resource.who
            );
            (summary, "connection")
        } else {
            (self_limit(count, &facts.service().figure), "thread")
        };
        limit.candidate(facts, summary, limit.raise(facts, kind))
    })
}
