//! The server's runtime is still compiling code.

use floodmark_record::run::SteadyClass;

use super::*;
use crate::why::facts::is_compiler;

pub(super) static SPEC: CauseSpec = CauseSpec {
    explained_by: &[Cause::Gc],
    explanation: |facts, candidate| {
        let collecting = facts.jvm(JvmFigure::CollectionTime)?;
        let is_more = candidate.rank != EvidenceRank::Cost && collecting > share(facts)?;
        is_more.then(|| {
            Effect::RuledOut(format!(
                "{}; garbage collection takes more: {} of the time",
                candidate.evidence[0],
                percent(collecting)
            ))
        })
    },
    class: Some(CauseClass::ServerCpu),
    ..CauseSpec::new(Cause::Jit, Place::Server, detect)
};

/// Returns the share of the server's CPU time that the compiler takes.
fn share(facts: &RunFacts<'_>) -> Option<f64> {
    let server = facts.server.as_ref()?;
    Some(facts.jvm(JvmFigure::CompilerTime)? / server.used.max(1e-9))
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let (server, share) = (facts.server.as_ref()?, share(facts)?);
    let compiling = facts.jvm(JvmFigure::CompilerTime)?;
    let figure = format!(
        "compiler threads: {compiling:.2} of the server's {:.2} CPUs (schedstat)",
        server.used
    );
    let warming = facts.run.steady.class == SteadyClass::Warming;
    // Running interpreted code costs more CPU time than compiling it. On a cold server, even a
    // smaller CPU share of the compiler therefore indicates this cause. If CPUs are idle, requests
    // do not wait for the compiler.
    let never_idle = compiler_busy(facts.run).filter(|busy| *busy >= SATURATED);
    let cold = warming || (never_idle.is_some() && is_rising(facts));
    let compiles = share >= CONTENDED || (cold && share > NOTICEABLE);
    if !facts.is_server_saturated(server) || (share < NOTICEABLE && !compiles) {
        return ruled_out(figure);
    }
    if !compiles {
        return Candidate::cost(share, "the JIT compiler", figure, StepKind::Jit).found();
    }
    let methods = facts
        .jvm(JvmFigure::Compilations)
        .map(|per_s| format!("{per_s:.0} methods compiled per second (sun.ci.totalCompiles)"));
    let compiler = never_idle.map(|busy| {
        format!(
            "busiest compiler thread: running or runnable for {} of its time (schedstat)",
            percent(busy)
        )
    });
    let rise = "throughput still rose during the run (steady.class: warming)";
    Candidate::consumer(
        StepKind::Jit,
        format!(
            "the JVM is still warming up: its compiler takes {} of the server's CPU",
            percent(share)
        ),
        [
            Some(figure),
            methods,
            compiler,
            warming.then(|| rise.to_owned()),
        ],
        "use a warm-up that lasts until compilation stops (--warmup)",
    )
    .found()
}

/// Returns whether throughput rose by at least a tenth from the first to the last second.
fn is_rising(facts: &RunFacts<'_>) -> bool {
    let rates = facts.rates();
    let ends = rates.first().zip(rates.last());
    ends.is_some_and(|(first, last)| last - first >= NOTICEABLE * first)
}

/// Returns the share of the time that the busiest compiler thread was running or runnable.
fn compiler_busy(run: &Run) -> Option<f64> {
    let server = run.server.as_ref().filter(|server| server.wall_s > 0.0)?;
    let threads = server.seen.threads.iter();
    let compilers = threads.filter(|thread| is_compiler(&thread.name));
    compilers
        .map(|thread| (thread.on_cpu_s + thread.run_delay_s) / server.wall_s)
        .max_by(f64::total_cmp)
}
