//! The CPU quota of the control group throttles the server.

use floodmark_record::cause::Cause;
use floodmark_record::metric::CgroupFigure;
use floodmark_record::path::{Actor, StepKind};

use super::{CauseSpec, Detect, Place, Tuning};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::gain::GainModel;
use crate::why::thresholds::NOTICEABLE;

pub(super) static SPEC: CauseSpec = CauseSpec {
    gain: GainModel::AllCpus,
    tuning: Tuning::Stop,
    ..CauseSpec::new(
        Cause::CpuQuota,
        Place::Server,
        Detect::Figures(detect),
    )
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
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
