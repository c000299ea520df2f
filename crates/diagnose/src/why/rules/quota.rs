//! CPU time that a control group or the hypervisor withholds.

use floodmark_record::Metric;
use floodmark_record::metric::{CgroupFigure, HostFigure};
use floodmark_record::path::{Actor, StepKind};

use crate::text::percent;
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::thresholds::{MOST, NOTICEABLE};

/// Detects throttling by the control group's CPU quota.
pub(in crate::why) fn quota(facts: &RunFacts<'_>) -> Option<Finding> {
    let times = facts.samples.cgroup(CgroupFigure::ThrottledPeriods)?;
    let throttled = facts.samples.cgroup(CgroupFigure::ThrottledTime)?;
    let figure = format!(
        "throttled {times:.1} times per second, for {throttled:.2} CPU-seconds per second (cpu.stat)"
    );
    if throttled < NOTICEABLE {
        return ruled_out(figure);
    }
    let server = facts.server.as_ref();
    let server = server.map(|server| format!("server: {:.2} CPUs used", server.used));
    Candidate::new(
        EvidenceRank::Counted,
        format!("the control group's CPU quota throttles the server {times:.0} times per second"),
        [figure].into_iter().chain(server),
        "raise or remove the quota (cpu.max, or --cpus of the container)",
    )
    .at([(StepKind::Quota, Actor::Server)])
    .found()
}

/// Detects CPU time that the hypervisor gives to other guests (steal).
pub(in crate::why) fn steal(facts: &RunFacts<'_>) -> Option<Finding> {
    let steal = facts.samples.mean(Metric::Host(None, HostFigure::Steal))?;
    let share = steal / facts.allowed.client_host;
    let stolen = percent(share);
    let figure = format!("{stolen} of the CPU time (/proc/stat, steal)");
    if share < NOTICEABLE {
        return ruled_out(figure);
    }
    Candidate::new(
        // If less than half is stolen, the consumer of the remaining CPU time matters more.
        EvidenceRank::Mechanism.unless_minor(share < MOST),
        format!("the hypervisor gives {stolen} of this host's CPU time to other guests"),
        vec![figure],
        "use a dedicated host, or repeat at another time",
    )
    .at([(StepKind::Steal, Actor::Host)])
    .found()
}
