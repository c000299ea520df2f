//! What the threads of a group do, and which resources they use.

use floodmark_record::metric::{WaitKind, WaitObject};
use floodmark_record::path::{PathStep, StepKind};

use super::HALF;
use super::service::SAME;
use super::upstreams::{connections, process_behind};
use crate::why::facts::{RunFacts, ThreadGroupFacts, used};

/// A thread group takes part in the work if it has at least this many waits per response, or at
/// least this share of the server's CPU time.
const TAKES_PART: f64 = 0.3;

/// The threads of a group, by what they do.
pub(super) struct Activity {
    /// Threads that wait for new work.
    pub(super) idle: f64,
    /// Threads that wait for a lock or a condition.
    pub(super) locks: f64,
    /// Whether most of `locks` have a timeout, as with an interpreter lock.
    pub(super) timed: bool,
    /// Resources that the other threads use, with the number of threads.
    pub(super) resources: Vec<PathStep>,
}

/// Divides a group's threads by activity. HotSpot implements pauses as timed locks. Idle threads
/// may use timed locks too, so these count as pauses only if there are at most about `in_service`.
pub(super) fn activity(
    group: &ThreadGroupFacts,
    facts: &RunFacts<'_>,
    in_service: f64,
) -> Activity {
    use WaitKind::{Child, ClientWrite, OwnLock, PageFault, PipeRead, PipeWrite, TimedLock, Timer};
    let timed = group.blocked_on_kind(TimedLock);
    let is_pause = timed <= SAME.end() * in_service;
    let locks = group
        .blocked_on(|object| matches!(object, WaitObject::Kind(OwnLock) | WaitObject::Lock(_)));
    let mut resources: Vec<PathStep> = Vec::new();
    let mut add = |kind, who: String, threads: f64, basis: &str| {
        let known = resources
            .iter_mut()
            .find(|step: &&mut PathStep| step.kind == kind && step.who == who);
        match known.and_then(|step| step.waiting.as_mut()) {
            Some(waiting) => *waiting += threads,
            None => resources.push(PathStep::new(kind, who, basis).with_waiting(threads)),
        }
    };
    let server = || "server".to_owned();
    const SYSCALL: &str = "system calls of blocked threads (/proc/PID/task/TID/syscall)";
    add(
        StepKind::Cpu,
        server(),
        group.on_cpu + group.runnable,
        "schedstat",
    );
    if is_pause {
        add(StepKind::Timer, server(), timed, SYSCALL);
    }
    for (object, threads) in &group.blocked {
        let (kind, who) = match object {
            WaitObject::Kind(Timer) => (StepKind::Timer, server()),
            WaitObject::Kind(Child) => (StepKind::Child, server()),
            WaitObject::Kind(PipeWrite | PipeRead) => (StepKind::Pipe, server()),
            WaitObject::Kind(PageFault) => (StepKind::Disk, "server memory".to_owned()),
            WaitObject::Kind(ClientWrite) => (StepKind::Link, "client".to_owned()),
            WaitObject::File(path) => (
                StepKind::Disk,
                format!("server {path}").trim_end().to_owned(),
            ),
            WaitObject::Connection(address) => {
                (StepKind::Connections, process_behind(facts, *address))
            }
            WaitObject::UnixSocket(path) => (StepKind::Connections, format!("upstream {path}")),
            _ => continue,
        };
        add(kind, who, *threads, SYSCALL);
    }
    Activity {
        idle: group.idle(),
        locks: if is_pause { locks } else { locks + timed },
        timed: !is_pause && timed > locks,
        resources,
    }
}

/// Returns the resource used by most threads. All files count as one resource, named after the file
/// for which most threads wait.
pub(super) fn main_resource(mut resources: Vec<PathStep>) -> Option<PathStep> {
    let count = |step: &PathStep| step.waiting.unwrap_or(0.0);
    resources.sort_by(|a, b| count(b).total_cmp(&count(a)));
    let is_file = |step: &PathStep| step.kind == StepKind::Disk;
    let files = resources.iter().filter(|step| is_file(step));
    let in_files: f64 = files.map(count).sum();
    let file = resources.iter().find(|step| is_file(step)).cloned();
    let file = file.map(|step| step.with_waiting(in_files));
    let other = resources.into_iter().find(|step| !is_file(step));
    file.into_iter()
        .chain(other)
        .max_by(|a, b| count(a).total_cmp(&count(b)))
}

/// Returns the resource that the holder of a lock uses. The group's CPU time also includes work
/// outside the lock, so only half of that time counts.
pub(super) fn resource_of_holder(mut resources: Vec<PathStep>) -> Option<PathStep> {
    for step in resources
        .iter_mut()
        .filter(|step| step.kind == StepKind::Cpu)
    {
        step.waiting = step.waiting.map(|threads| HALF * threads);
    }
    main_resource(resources)
}

pub(super) fn takes_part(group: &ThreadGroupFacts, facts: &RunFacts<'_>) -> bool {
    group.waits_per_s >= TAKES_PART * facts.responses_per_s
        || group.on_cpu >= TAKES_PART * used(&facts.server)
}

/// Returns what most of the requests in service wait for. If no thread or connection shows it,
/// assumes that the requests wait for a timer or another event inside the server.
pub(super) fn resource_of_all(facts: &RunFacts<'_>, in_service: f64) -> Option<PathStep> {
    let groups = facts.thread_groups.iter();
    let used = groups
        .filter(|group| takes_part(group, facts))
        .flat_map(|group| activity(group, facts, in_service).resources);
    let upstreams = facts
        .upstreams
        .iter()
        .map(|upstream| connections(facts, upstream));
    let main = main_resource(used.chain(upstreams).collect());
    let shows = |step: &PathStep| step.waiting.is_some_and(|n| n >= HALF * in_service);
    main.filter(shows).or_else(|| {
        let basis = "no CPU, file, connection or child process explains the service time";
        Some(PathStep::new(StepKind::Timer, "server", basis).with_waiting(in_service))
    })
}
