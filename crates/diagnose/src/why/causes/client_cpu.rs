//! The load generator is CPU-bound.

use super::*;
use crate::validity::{ClientThreads, SATURATED_SHARE};

pub(super) static SPEC: CauseSpec = CauseSpec {
    explained_by: &[Cause::EphemeralPorts],
    explanation: |facts, _| {
        let searched = facts.client_errors("ports_exhausted") > facts.run.requests.sent;
        let figure = || "the client used its CPU to search for free local ports".to_owned();
        searched.then(|| Effect::RuledOut(figure()))
    },
    class: Some(CauseClass::ClientCpu),
    tuning: Tuning::Stop,
    live: Some(suspect),
    ..CauseSpec::new(Cause::ClientCpu, Place::Client, detect)
};

fn suspect(recent: &RecentFigures) -> Option<Suspicion> {
    let (threads, used) = (recent.client_threads, recent.client_cpus);
    let threads_text = plural(threads.into(), "thread");
    let text = format!("the load generator uses {used:.2} CPUs with {threads_text}");
    let is_saturated = used >= SATURATED_SHARE * f64::from(threads);
    is_saturated.then_some(("client-bound", text))
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let client = &facts.client;
    let run = facts.run;
    let external = run.client.name.is_some();
    let server = used(&facts.server);
    let (busy, figure) = match ClientThreads::of(&run.client.threads).filter(|_| !external) {
        Some(threads) => (
            // Threads that often wait for a CPU are not saturated by their own work.
            match threads.used.runnable {
                Some(runnable) if runnable >= CONTENDED * threads.used.on_cpu => {
                    threads.used.on_cpu
                }
                _ => threads.busy(),
            },
            format!("client: {}", threads.used),
        ),
        None => {
            let available = facts.available_to_client();
            let figure = show_available("client", client.used, available);
            ((client.used / available).min(1.0), figure)
        }
    };
    // If client and server saturate the same CPUs, the larger consumer is the cause.
    let server_uses_more =
        client.busiest.is_none() && !facts.is_client_separate() && client.used < server;
    if busy < SATURATED_SHARE || server_uses_more {
        return ruled_out(figure);
    }
    let threads = run.plan.threads;
    let cost = show_us(client.cpu_us);
    Candidate::new(
        EvidenceRank::Saturated,
        format!("the load generator is CPU-bound ({cost} per request); the server may be faster"),
        [figure],
        if client.busiest.is_some() && facts.client_threads() < client.allowed {
            format!("add a client thread: -t {}", threads + 1)
        } else if external {
            "use floodmark as the client, or run the client on several hosts".to_owned()
        } else {
            "run the client on another host, or on several (--agents)".to_owned()
        },
    )
    .at([(StepKind::Cpu, Actor::Client)])
    .with_utilization(busy, facts.responses_per_s)
    .found()
}
