//! Requests wait for a free connection from the server to its store or upstream.

use floodmark_record::cause::Cause;
use floodmark_record::path::StepKind;
use floodmark_record::tuning::KnobKind;

use super::{CauseSpec, Detect, Place, Tuning};
use crate::tuning::FullPool;
use crate::why::candidate::{Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::gain::GainModel;
use crate::why::graph::{Holder, Service};
use crate::why::proof::CauseClass;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Pool),
    gain: GainModel::InService,
    tuning: Tuning::Raise(|verdict| {
        FullPool::at(verdict, KnobKind::Connections, StepKind::Connections, false)
    }),
    ..CauseSpec::new(
        Cause::ConnectionPool,
        Place::Server,
        Detect::Waits(detect),
    )
};

fn detect(facts: &RunFacts<'_>, service: &Service) -> Option<Finding> {
    let limit = match service.limit_of(Cause::ConnectionPool) {
        Ok(limit) => limit,
        Err(figure) => return figure.and_then(ruled_out),
    };
    let count = limit.held.round();
    let (summary, kind) = if limit.holder == Holder::Connections {
        let summary = format!(
            "all {count:.0} connections from the server to the {} are in use",
            limit.resource.who
        );
        (summary, "connection")
    } else {
        let figure = &service.figure;
        let summary = format!(
            "the server limits itself to {count:.0} requests at once (a pool or a semaphore): {figure}"
        );
        (summary, "thread")
    };
    let next = limit.raise(facts, kind);
    limit.candidate(facts, summary, next).found()
}
