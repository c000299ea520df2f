//! Garbage collection slows the server down.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    ..CauseSpec::new(Cause::Gc, Place::Server, detect)
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
    if time < NOTICEABLE && share < MOST {
        let is_cost = share >= NOTICEABLE && facts.is_server_saturated(server);
        return if is_cost {
            Candidate::cost(share, "garbage collection", figure, StepKind::Gc).found()
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
    Candidate::consumer(
        StepKind::Gc,
        format!(
            "the JVM spends {} of the time on garbage collection",
            percent(time)
        ),
        [Some(figure), stopped, collections],
        "increase the heap (-Xmx), or allocate less per request",
    )
    .found()
}
