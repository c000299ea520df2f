//! Programs outside the experiment take CPU time that the client or the server needs.

use super::*;
use crate::text::show_processes;

pub(super) static SPEC: CauseSpec = CauseSpec {
    live: Some(suspect),
    ..CauseSpec::new(Cause::OtherProcesses, Place::OtherPrograms, detect)
};

fn suspect(recent: &RecentFigures) -> Option<Suspicion> {
    // Other programs that use half of the CPUs disturb the load even if some CPU time is idle.
    let is_full = recent.full_host().is_some();
    let least = if is_full { CONTENDED } else { MOST };
    let (cpus, other) = (recent.host_cpus?, recent.programs_cpus()?);
    let text = format!("other programs use {other:.2} of {cpus:.0} CPUs");
    (other >= least * cpus).then_some(("disturbed", text))
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let programs = facts.other_programs()?;
    let (cpus, busy) = match (facts.allowed.server_has_own, &facts.server) {
        (true, Some(server)) => (server.allowed, server.used + used(&facts.store) + programs),
        _ => (facts.allowed.server_host, facts.server_host_busy?),
    };
    let busy = busy / cpus;
    let named = &facts.run.other_processes;
    let busiest = (!named.is_empty()).then(|| {
        let rest = programs - named.iter().map(|of| of.cpus).sum::<f64>();
        let rest = if rest >= NOTICEABLE * cpus {
            format!("; kernel and all other processes: {rest:.2}")
        } else {
            String::new()
        };
        format!("busiest: {}{rest}", show_processes(named))
    });
    let figure = format!(
        "programs outside the experiment: {programs:.2} of {cpus:.0} CPUs (/proc/stat, /proc/PID/stat)"
    );
    if programs < CONTENDED * cpus || busy < SATURATED || !facts.lacks_cpu() {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Mechanism,
        format!("programs outside the experiment use {programs:.2} of {cpus:.0} CPUs"),
        [Some(figure), busiest],
        "end these programs, or give client and server their own CPUs, then repeat",
    )
    .at([(StepKind::Cpu, Actor::Others)])
    .with_share(busy.min(1.0))
    .found()
}
