//! The server is CPU-bound.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    tuning: Tuning::Stop,
    live: Some(suspect),
    ..CauseSpec::new(Cause::ServerCpu, Place::Server, detect)
};

fn suspect(recent: &RecentFigures) -> Option<Suspicion> {
    let (cpus, server) = recent.full_host().zip(recent.server_cpus)?;
    let text = format!("the server uses {server:.2} of {cpus:.0} CPUs");
    (server >= MOST * cpus).then_some(("server-bound", text))
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let Some(server) = &facts.server else {
        return not_available(
            "CPU, threads and runtime of the server (not on this host, or access denied)",
        );
    };
    let available = facts.available_to_server_side(server);
    let mut share = (server.used / available).min(1.0);
    let mut evidence = vec![show_available("server", server.used, available)];
    if let Some((of_all, thread)) = facts.thread_without_idle_cpu() {
        share = share.max(of_all);
        evidence.push(thread);
    }
    // If several processes saturate the same CPUs, the largest consumer is the cause.
    let others = facts.client_on_server_cpus().max(used(&facts.store));
    if share < SATURATED || server.used < others {
        return ruled_out(evidence.join("; "));
    }
    let cost = show_us(server.cpu_us);
    evidence.push(format!(
        "server: {cost} of CPU per request, {} of it in the kernel",
        percent(1.0 - server.in_user())
    ));
    Candidate::new(
        EvidenceRank::Saturated,
        format!("the server is CPU-bound ({cost} per request)"),
        evidence,
        "profile the server and reduce its CPU time per request, or give it more CPUs",
    )
    .at([(StepKind::Cpu, Actor::Server)])
    .with_utilization(share, facts.responses_per_s)
    .found()
}
