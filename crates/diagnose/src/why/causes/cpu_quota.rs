//! The CPU quota of the control group throttles the server.

use floodmark_record::metric::CgroupFigure;

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    gain: GainModel::AllCpus,
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::CpuQuota, Place::Server, detect)
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
        [Some(figure), server],
        "raise or remove the quota (cpu.max, or --cpus of the container)",
    )
    .at([(StepKind::Quota, Actor::Server)])
    .found()
}
