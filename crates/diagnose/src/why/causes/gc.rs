//! Garbage collection slows the server down.

use std::fmt::Write;

use floodmark_record::metric::CodeFigure;
use floodmark_record::path::PathStep;

use super::server_cpu_one_thread::one_at_a_time;
use super::*;
use crate::why::facts::CpuUse;
use crate::why::thresholds::COLLECTING;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    ..CauseSpec::new(Cause::Gc, Place::Server, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    match facts.jvm(JvmFigure::CollectionTime) {
        Some(time) => in_jvm(facts, server, time),
        None => in_code(facts, server),
    }
}

/// Judges the collector of a runtime other than a JVM by the CPU time of its functions.
fn in_code(facts: &RunFacts<'_>, server: &CpuUse) -> Option<Finding> {
    let of_server = facts.code_share(CodeFigure::Collection)?;
    let mut figure = format!(
        "garbage collector: {} of the server's CPU time (perf_event_open)",
        percent(of_server)
    );
    // Other threads may collect on idle CPUs, which does not delay the saturated thread.
    let thread = facts.saturated_thread();
    let thread = thread.filter(|_| facts.thread_without_idle_cpu().is_none());
    let (share, who) = match thread {
        Some(thread) => {
            let elsewhere = server.used - thread.on_cpu;
            let share = ((of_server * server.used - elsewhere) / thread.on_cpu).max(0.0);
            let at_least = percent(share);
            let name = &thread.name;
            let _ = write!(figure, ", at least {at_least} of thread {name}'s CPU time");
            (share, "the server's saturated thread")
        }
        None => (of_server, "the server"),
    };
    // An interpreter lock also limits the collector to one CPU.
    let is_one_at_a_time = one_at_a_time(facts).is_some();
    let is_cpu_bound = is_one_at_a_time || facts.is_server_saturated(server);
    if share < NOTICEABLE || !is_cpu_bound {
        return ruled_out(figure);
    }
    if share < COLLECTING {
        return Candidate::cost(share, "garbage collection", figure, StepKind::Gc).found();
    }
    Candidate::consumer(
        StepKind::Gc,
        format!(
            "{who} spends {} of its CPU time on garbage collection",
            percent(share)
        ),
        [figure],
        "allocate less per request, or collect less often (Go: GOGC, GOMEMLIMIT; Node.js: \
         --max-semi-space-size; Ruby: RUBY_GC_*; Python: gc.set_threshold, gc.freeze)",
    )
    .behind(is_one_at_a_time.then(|| {
        let basis = "service times and CPU use";
        PathStep::new(StepKind::Threads, Actor::Server, basis)
    }))
    .found()
}

/// Judges the collector of a JVM. `time` is the share of elapsed time spent on collections.
fn in_jvm(facts: &RunFacts<'_>, server: &CpuUse, time: f64) -> Option<Finding> {
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
