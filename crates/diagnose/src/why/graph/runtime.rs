//! Consumers of a saturated server's CPU: JIT compiler, garbage collector and TLS handshakes.

use floodmark_record::metric::{CodeFigure, JvmFigure};
use floodmark_record::path::{Actor, StepKind};
use floodmark_record::run::{Run, SteadyClass};
use floodmark_record::units::show_count;

use crate::text::{percent, show_us};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::{CpuUse, RunFacts, used};
use crate::why::rules::opened_by_others;
use crate::why::thresholds::{CONTENDED, MOST, NOTICEABLE, SATURATED};

/// Returns whether the server is the main consumer of its CPUs, and saturates either the CPUs or
/// one thread. Only such a server can be limited by a consumer of the server's CPU time.
fn is_saturated(facts: &RunFacts<'_>, server: &CpuUse) -> bool {
    let all = server.used + facts.client_on_server_cpus() + used(&facts.store);
    let cpus = server.used >= SATURATED * facts.available_to_server_side(server);
    server.used >= MOST * all && (cpus || facts.saturated_thread().is_some())
}

/// Returns the finding that a part of the runtime takes a share of the server's CPU time.
fn cost(share: f64, part: &str, figure: String, step: (StepKind, Actor)) -> Option<Finding> {
    let summary = format!("{part} takes {} of the server's CPU time", percent(share));
    Candidate::new(EvidenceRank::Cost, summary, vec![figure], "")
        .at([(StepKind::Cpu, Actor::Server), step])
        .with_share(share)
        .found()
}

/// Detects a server that is limited by the JVM's compiler.
pub(in crate::why) fn jit(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    let compiling = facts.jvm(JvmFigure::CompilerTime)?;
    let share = compiling / server.used.max(1e-9);
    let figure = format!(
        "compiler threads: {compiling:.2} of the server's {:.2} CPUs (schedstat)",
        server.used
    );
    let warming = facts.run.steady.class == SteadyClass::Warming;
    // Running interpreted code costs more CPU time than compiling it. If CPUs are idle, requests do
    // not wait for the compiler.
    let never_idle = compiler_busy(facts.run).filter(|busy| *busy >= SATURATED);
    let cold = warming || (never_idle.is_some() && is_rising(facts));
    let compiles = share >= CONTENDED || (cold && share > NOTICEABLE);
    if !is_saturated(facts, server) || (share < NOTICEABLE && !compiles) {
        return ruled_out(figure);
    }
    if !compiles {
        return cost(
            share,
            "the JIT compiler",
            figure,
            (StepKind::Jit, Actor::Server),
        );
    }
    let collecting = facts.jvm(JvmFigure::CollectionTime);
    if let Some(collecting) = collecting.filter(|collecting| *collecting > share) {
        return ruled_out(format!(
            "{figure}; garbage collection takes more: {} of the time",
            percent(collecting)
        ));
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
    let rise = warming.then(|| rise.to_owned());
    let evidence = [Some(figure), methods, compiler, rise];
    Candidate::new(
        EvidenceRank::Mechanism,
        format!(
            "the JVM is still warming up: its compiler takes {} of the server's CPU",
            percent(share)
        ),
        evidence.into_iter().flatten(),
        "use a warm-up that lasts until compilation stops (--warmup)",
    )
    .at([
        (StepKind::Cpu, Actor::Server),
        (StepKind::Jit, Actor::Server),
    ])
    .found()
}

/// Returns whether throughput rose by at least a tenth from the first to the last second.
fn is_rising(facts: &RunFacts<'_>) -> bool {
    let rates = facts.rates();
    let ends = rates.first().zip(rates.last());
    ends.is_some_and(|(first, last)| last - first >= NOTICEABLE * first)
}

/// Returns whether a thread group consists of the JVM's compiler threads. The kernel truncates thread
/// names to 15 bytes.
pub(super) fn is_compiler(name: &str) -> bool {
    ["C1 CompilerThre", "C2 CompilerThre"].contains(&name)
}

/// Returns the busy share of the busiest compiler thread.
fn compiler_busy(run: &Run) -> Option<f64> {
    let server = run.server.as_ref().filter(|server| server.wall_s > 0.0)?;
    let threads = server.seen.threads.iter();
    let compilers = threads.filter(|thread| is_compiler(&thread.name));
    compilers
        .map(|thread| (thread.on_cpu_s + thread.run_delay_s) / server.wall_s)
        .max_by(f64::total_cmp)
}

/// Detects a server that is limited by the JVM's garbage collector.
pub(in crate::why) fn gc(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    let time = facts.jvm(JvmFigure::CollectionTime)?;
    let share = facts.jvm(JvmFigure::CollectorTime)? / server.used.max(1e-9);
    let figure = format!(
        "garbage collection: {} of the time (sun.gc.collector), {} of the server's CPU (schedstat)",
        percent(time),
        percent(share)
    );
    if time < NOTICEABLE && share < MOST {
        return match share >= NOTICEABLE && is_saturated(facts, server) {
            true => cost(
                share,
                "garbage collection",
                figure,
                (StepKind::Gc, Actor::Server),
            ),
            false => ruled_out(figure),
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
    .at([
        (StepKind::Cpu, Actor::Server),
        (StepKind::Gc, Actor::Server),
    ])
    .found()
}

/// Detects TLS handshakes, with clients or with an upstream, that consume the CPU of a saturated
/// server.
pub(in crate::why) fn tls(facts: &RunFacts<'_>) -> Option<Finding> {
    let (run, server) = (facts.run, facts.server.as_ref()?);
    let code = facts.code_share(CodeFigure::Cryptography);
    // Cryptography runs in user mode, while connections are opened in kernel mode.
    let share = code.unwrap_or_else(|| server.in_user());
    let (per_request, figure) = match &run.tls {
        Some(tls) => {
            let full = tls.used.handshakes.saturating_sub(tls.used.resumed);
            let (handshakes, ok) = (show_count(full), show_count(run.requests.ok));
            let figure = format!(
                "{handshakes} full handshakes for {ok} ok responses (tls.handshakes, tls.resumed)"
            );
            (full as f64 / run.requests.ok.max(1) as f64, figure)
        }
        // Without samples of code, handshakes with an upstream are not visible.
        None => {
            let per_request = opened_by_others(facts)? / facts.responses_per_s.max(1e-9);
            let figure = format!(
                "processes other than the client opened {per_request:.2} connections per response (ActiveOpens)"
            );
            code.filter(|share| *share >= NOTICEABLE)
                .map(|_| (per_request, figure))?
        }
    };
    let of_cpu = match code {
        Some(share) => format!(
            "cryptography: {} of the server's CPU time (perf_event_open)",
            percent(share)
        ),
        None => format!("{} of the server's CPU time in user mode", percent(share)),
    };
    if per_request < MOST || share < MOST || !is_saturated(facts, server) {
        return ruled_out(format!("{figure}; {of_cpu}"));
    }
    let time = run.handshake_time_us.mean.map(|us| {
        format!(
            "mean handshake time: {} (handshake_time_us)",
            show_us(Some(us))
        )
    });
    Candidate::new(
        EvidenceRank::Mechanism,
        match &run.tls {
            Some(_) => {
                format!("the server is busy with TLS: {per_request:.2} full handshakes per request")
            }
            None => format!(
                "the server is busy with cryptography, probably TLS handshakes: it opens \
                 {per_request:.2} upstream connections per request"
            ),
        },
        [Some(figure), Some(of_cpu), time].into_iter().flatten(),
        "keep connections, resume sessions, or use an ECDSA certificate instead of RSA",
    )
    .at([
        (StepKind::Cpu, Actor::Server),
        (StepKind::Tls, Actor::Server),
    ])
    .found()
}
