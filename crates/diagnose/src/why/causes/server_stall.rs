//! The server sent no response for a while, and then resumed.

use floodmark_record::Observation;
use floodmark_record::metric::{CgroupFigure, ProcessFigure, WaitObject};

use super::*;
use crate::next::MET_SHARE;
use crate::silence;
use crate::why::facts::WindowSamples;

pub(super) static SPEC: CauseSpec = CauseSpec {
    interrupts: Some(stalled),
    ..CauseSpec::new(Cause::ServerStall, Place::Server, |_| None)
};

/// Returns the candidate if the server stalled. Returns `None` if the server used CPU time during
/// the silence (for example for garbage collection) or waited for a disk or another process. Other
/// causes are then evaluated.
fn stalled(facts: &RunFacts<'_>) -> Option<Candidate> {
    let run = facts.run;
    let stall = silence::server_stall(run).filter(|stall| silence::distorts_means(run, stall))?;
    let is_met = |offered: f64| facts.ok_per_s >= MET_SHARE * offered;
    let throttled = facts.samples.cgroup(CgroupFigure::ThrottledTime);
    let during = WindowSamples::between(run, stall.from_s, stall.to_s);
    let cpus = |role| {
        let mean = |figure| during.mean(Metric::Process(role, figure));
        mean(ProcessFigure::User)
            .zip(mean(ProcessFigure::System))
            .map(|(user, system)| user + system)
    };
    let server = cpus(Role::Server)?;
    let is_at_work = server.max(cpus(Role::Store).unwrap_or(0.0)) >= NOTICEABLE;
    if facts.offered_per_s.is_some_and(is_met)
        || throttled.is_some_and(|throttled| throttled >= NOTICEABLE)
        || is_at_work
        || waits_for_others(run, &during)
    {
        return None;
    }
    let window_s = run.window.to_s - run.window.from_s;
    let outside = per_s(facts.ok_per_s * window_s / (window_s - stall.total_s));
    let slowest = show_us(run.service_time_us.max);
    let evidence = [
        format!("longest service time: {slowest}"),
        format!("server: {server:.2} CPUs used during the stall (/proc/PID/stat)"),
    ];
    let candidate = Candidate::new(
        EvidenceRank::Counted,
        format!(
            "{}; outside the stall: {outside}",
            silence::show_stall(stall)
        ),
        evidence,
        "find out what paused the server (a stopped process, a paused container or host, its store), \
         then repeat",
    );
    Some(candidate.at([(StepKind::Stall, Actor::Server)]))
}

/// Returns whether, most of the time, at least one of the server's threads is waiting for a file or
/// for another process.
fn waits_for_others(run: &Run, during: &WindowSamples<'_>) -> bool {
    let mean = |of: &Observation| match &of.metric {
        Metric::ThreadsBlocked {
            role: Role::Server,
            object:
                WaitObject::Connection(_)
                | WaitObject::UnixSocket(_)
                | WaitObject::File(_)
                | WaitObject::AppendedFile(_),
            ..
        } => during.mean(of.metric.clone()),
        _ => None,
    };
    run.observations.iter().filter_map(mean).sum::<f64>() >= MOST
}
