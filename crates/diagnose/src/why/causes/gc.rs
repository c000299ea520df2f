//! Garbage collection slows the server down.

use floodmark_record::cause::Cause;
use floodmark_record::metric::JvmFigure;
use floodmark_record::path::{Actor, StepKind};

use super::{CauseSpec, Detect, Place};
use crate::text::percent;
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::proof::CauseClass;
use crate::why::thresholds::{MOST, NOTICEABLE};

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    ..CauseSpec::new(
        Cause::Gc,
        Place::Server,
        Detect::Figures(detect),
    )
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    let time = facts.jvm(JvmFigure::CollectionTime)?;
    let share = facts.jvm(JvmFigure::CollectorTime)? / server.used.max(1e-9);
    let figure = format!(
        "garbage collection: {} of the time (sun.gc.collector), {} of the server's CPU (schedstat)",
        percent(time),
        percent(share)
    );
    let step = (StepKind::Gc, Actor::Server);
    if time < NOTICEABLE && share < MOST {
        let is_cost = share >= NOTICEABLE && facts.is_server_saturated(server);
        return if is_cost {
            Candidate::cost(share, "garbage collection", figure, step).found()
        } else {
            ruled_out(figure)
        };
    }
    let stopped = facts.jvm(JvmFigure::SafepointTime).map(|stopped| {
        let stopped = percent(stopped);
        format!("all threads paused for {stopped} of the time (sun.rt.safepointTime)")
    });
    let collections = facts
        .jvm(JvmFigure::Collections)
        .map(|per_s| format!("{per_s:.1} collections per second (sun.gc.collector.*.invocations)"));
    let evidence = [Some(figure), stopped, collections];
    Candidate::new(
        EvidenceRank::Mechanism,
        format!(
            "the JVM spends {} of the time on garbage collection",
            percent(time)
        ),
        evidence.into_iter().flatten(),
        "increase the heap (-Xmx), or allocate less per request",
    )
    .at([(StepKind::Cpu, Actor::Server), step])
    .found()
}
