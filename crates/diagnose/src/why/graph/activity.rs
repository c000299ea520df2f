//! What the threads of a group do, and which resources they use.

use floodmark_record::metric::{WaitKind, WaitObject};
use floodmark_record::path::{Actor, ActorResource, PathStep, Place, StepKind};

use super::upstreams::{connections, process_behind};
use crate::why::facts::{RunFacts, ThreadGroupFacts, is_compiler, used};
use crate::why::thresholds::{MOST, SAME, SPARE};

/// The threads of a group, by what they do. All numbers of threads are means.
pub(super) struct Activity {
    /// Threads that wait for new work.
    pub(super) idle: f64,
    /// Threads that wait for a lock or a condition.
    pub(super) locks: f64,
    /// Whether most of `locks` have a timeout, as with an interpreter lock.
    pub(super) timed: bool,
    /// Threads that run or are runnable.
    pub(super) cpu: f64,
    /// Resources that the other threads wait for, with the number of threads.
    pub(super) awaited: Vec<PathStep>,
}

impl Activity {
    /// Divides a group's threads by activity. HotSpot implements pauses as timed locks. Idle threads
    /// may use timed locks too, so these count as pauses only if there are at most about
    /// `in_service`.
    pub(super) fn of(group: &ThreadGroupFacts, facts: &RunFacts<'_>, in_service: f64) -> Self {
        use WaitKind::{Child, ClientWrite, PageFault, PipeRead, PipeWrite, TimedLock, Timer};
        let timed = group.blocked_on_kind(TimedLock);
        let is_pause = timed <= SAME.end() * in_service;
        let locks = group.untimed_locks();
        let mut awaited: Vec<PathStep> = Vec::new();
        for (object, threads) in &group.blocked {
            let mut threads = *threads;
            if *object == WaitObject::Kind(PipeRead) {
                threads -= group.inactive_readers();
            }
            let server = Place::from(Actor::Server);
            let address = |path: &String| ActorResource::Address(path.clone());
            let (kind, who) = match object {
                WaitObject::Kind(TimedLock) if is_pause => (StepKind::Timer, server),
                WaitObject::Kind(Timer) => (StepKind::Timer, server),
                WaitObject::Kind(Child | PipeRead) => (StepKind::Child, server),
                WaitObject::Kind(PipeWrite) => (StepKind::Pipe, server),
                WaitObject::Kind(PageFault) => {
                    (StepKind::Disk, Actor::Server.with(ActorResource::Memory))
                }
                WaitObject::Kind(ClientWrite) => (StepKind::Link, Actor::Client.into()),
                WaitObject::AppendedFile(path) => (
                    StepKind::Disk,
                    Actor::Server.with(ActorResource::Log(path.clone())),
                ),
                WaitObject::File(path) if path.is_empty() => (StepKind::Disk, server),
                WaitObject::File(path) => (StepKind::Disk, Actor::Server.with(address(path))),
                WaitObject::Connection(address) => {
                    (StepKind::Connections, process_behind(facts, *address))
                }
                WaitObject::UnixSocket(path) => {
                    (StepKind::Connections, Actor::Upstream.with(address(path)))
                }
                _ => continue,
            };
            let basis = "system calls of blocked threads (/proc/PID/task/TID/syscall)";
            let step = PathStep::new(kind, who, basis).with_waiting(threads);
            add(&mut awaited, step);
        }
        Activity {
            idle: group.idle(),
            locks: if is_pause { locks } else { locks + timed },
            timed: !is_pause && timed > locks,
            cpu: group.on_cpu + group.runnable,
            awaited,
        }
    }

    /// Returns the number of threads that wait for a resource.
    pub(super) fn used(&self) -> f64 {
        self.awaited.iter().map(waiting).sum()
    }

    /// Returns the number of threads that use a resource or the CPU.
    pub(super) fn in_service(&self) -> f64 {
        self.used() + self.cpu
    }

    /// Returns the CPU as a step.
    pub(super) fn cpu_step(&self) -> PathStep {
        PathStep::new(StepKind::Cpu, Actor::Server, "schedstat").with_waiting(self.cpu)
    }
}

/// Adds a step, or its number of threads if the resource is already a step.
pub(super) fn add(steps: &mut Vec<PathStep>, step: PathStep) {
    let mut known = steps.iter_mut();
    let known = known.find(|known| known.kind == step.kind && known.who == step.who);
    match known {
        Some(known) => *known = known.clone().with_waiting(waiting(known) + waiting(&step)),
        None => steps.push(step),
    }
}

fn waiting(step: &PathStep) -> f64 {
    step.waiting.unwrap_or(0.0)
}

/// Returns the resource that most threads wait for. All files count as one resource, named after
/// the file for which most threads wait. A timer is the result only if twice as many threads wait
/// for it as for any other resource, because idle threads wait for timers too.
pub(super) fn main_resource(steps: &[PathStep]) -> Option<PathStep> {
    let (files, others): (Vec<_>, Vec<_>) =
        (steps.iter().cloned()).partition(|step| step.kind == StepKind::Disk);
    let in_files: f64 = files.iter().map(waiting).sum();
    let most = |steps: Vec<PathStep>| {
        let mut steps = steps.into_iter();
        let first = steps.next();
        first.map(|first| steps.fold(first, |a, b| if waiting(&b) > waiting(&a) { b } else { a }))
    };
    let file = most(files).map(|file| file.with_waiting(in_files));
    let (timers, others): (Vec<_>, Vec<_>) =
        (others.into_iter()).partition(|step| step.kind == StepKind::Timer);
    let other = most(file.into_iter().chain(most(others)).collect());
    match (most(timers), other) {
        (Some(timer), Some(other)) if waiting(&other) < MOST * waiting(&timer) => Some(timer),
        (timer, other) => other.or(timer),
    }
}

/// Returns whether a thread group works on requests: it waits at least once per four responses, or
/// uses at least a quarter of the server's CPU time. Compiler threads are excluded, because they use
/// CPU time without working on requests.
pub(super) fn takes_part(group: &ThreadGroupFacts, facts: &RunFacts<'_>) -> bool {
    let waits = group.waits_per_s >= SPARE * facts.responses_per_s;
    let runs = group.on_cpu >= SPARE * used(&facts.server);
    (waits || runs) && !is_compiler(&group.name)
}

/// Returns what most of the requests in service wait for. If no thread or connection shows it,
/// assumes that the requests wait for a timer or another event inside the server.
pub fn resource_of_all(facts: &RunFacts<'_>, in_service: f64) -> Option<PathStep> {
    let groups = facts.thread_groups.iter();
    let groups = groups.filter(|group| takes_part(group, facts));
    let used = groups.flat_map(|group| {
        let of = Activity::of(group, facts, in_service);
        let cpu = of.cpu_step();
        of.awaited.into_iter().chain([cpu])
    });
    let upstreams = facts.upstreams.iter();
    let upstreams = upstreams.map(|upstream| connections(facts, upstream));
    // Idle threads wait for timers too, so any other resource is more specific.
    let is_timer = |step: &PathStep| step.kind == StepKind::Timer;
    let used: Vec<PathStep> = used
        .chain(upstreams)
        .filter(|step| !is_timer(step))
        .collect();
    let shown = main_resource(&used).filter(|step| waiting(step) >= MOST * in_service);
    shown.or_else(|| {
        let basis = "no CPU, file, connection or child process explains the service time";
        Some(PathStep::new(StepKind::Timer, Actor::Server, basis).with_waiting(in_service))
    })
}
