//! Client and server compete for the same CPUs.

use super::*;
use crate::why::facts::CpuUse;
use crate::why::thresholds::SPARE;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::SharedCpu),
    tuning: Tuning::Stop,
    live: Some(suspect),
    ..CauseSpec::new(Cause::SharedCpu, Place::ClientAndServer, detect)
};

fn suspect(recent: &RecentFigures) -> Option<Suspicion> {
    let cpus = recent.full_host()?;
    let (client, server) = (recent.client_cpus, recent.server_cpus?);
    let text = format!("client ({client:.2}) and server ({server:.2}) compete for {cpus:.0} CPUs");
    let is_shared = client.min(server) >= CONTENDED * cpus;
    let is_of_store = recent.store_cpus.is_some_and(|store| store >= MOST * cpus);
    (is_shared && !is_of_store).then_some(("limited by shared CPUs", text))
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let (client, server) = (facts.client_here.as_ref()?, facts.server.as_ref()?);
    let run_delay = |of: &CpuUse| of.runnable.map(|runnable| runnable / of.used.max(1e-9));
    let Some((client_delay, server_delay)) = run_delay(client).zip(run_delay(server)) else {
        return not_available(
            "run delay (schedstat), which shows whether client and server compete for CPUs",
        );
    };
    let figure = format!(
        "run delay is {} of the client's CPU time and {} of the server's",
        percent(client_delay),
        percent(server_delay)
    );
    // With separate CPUs, the larger consumer would gain the CPU time that the smaller consumer
    // uses now.
    let store = used(&facts.store);
    let smaller = server.used.min(client.used);
    let share = smaller / (server.used + client.used + store).max(1e-9);
    if facts.is_client_separate()
        || store > server.used.max(client.used)
        || client_delay < CONTENDED
        || server_delay < CONTENDED
        || share < CONTENDED
        || !facts.lacks_cpu()
    {
        return ruled_out(format!(
            "{figure}; the smaller consumer uses {} of the total CPU time (client, server and store)",
            percent(share)
        ));
    }
    let busy = facts.host_busy?;
    let cpus = facts.allowed.client_host;
    let busy_share = (busy / cpus).min(1.0);
    // Threads that hand work to each other leave CPUs idle for short periods. Contention still
    // dominates if the idle time is short and less than the smaller consumer's CPU time.
    let idle = (cpus - busy).max(0.0);
    let momentarily_idle = idle < SPARE * cpus && idle < smaller;
    let busy_text = format!("{busy:.2} of {cpus:.0} CPUs busy (/proc/stat)");
    if busy_share < SATURATED && !momentarily_idle {
        return ruled_out(busy_text);
    }
    Candidate::new(
        EvidenceRank::Mechanism,
        format!("client and server compete for the same {cpus:.0} CPUs; the figures describe both"),
        [
            figure + " (schedstat)",
            format!(
                "{busy_text}: client {:.2}, server {:.2}",
                client.used, server.used
            ),
        ],
        "give each its own CPUs (hosts = \"separate\", or taskset), or use two hosts",
    )
    .at([(StepKind::Cpu, Actor::Shared)])
    .with_utilization(busy_share, facts.responses_per_s)
    .found()
}
