//! The wait graph: follows requests from the threads, locks, permits and connections that hold them
//! to the resource that limits them (docs/decisions/0025-following-waits.md).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use floodmark_record::cause::Cause;
use floodmark_record::metric::{ListenerFigure, Role, SocketFigure, WaitKind, WaitObject};
use floodmark_record::path::{Actor, ActorResource, PathStep, Place, StepKind};
use floodmark_record::units::show_ns;

use super::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use super::facts::{AcceptQueue, RunFacts, ThreadGroupFacts, UpstreamFacts, is_compiler, used};
use super::thresholds::{CONTENDED, MOST, NOTICEABLE, ONE, RARE, SAME, SPARE, same};
use crate::text::{per_s, show_idle};

/// Service times agree with a number of threads if the ratio of concurrency to threads is in this
/// range. The range is wide because the shortest service time is less reliable than thread states:
/// a buffered write, for example, can be much faster than most writes.
const AGREES: std::ops::RangeInclusive<f64> = MOST..=1.0 / MOST;

/// Findings about the requests in service, based on thread waits, service times and writes.
pub struct Service {
    pub demand: Demand,
    /// How many of the requests in flight the server is working on, as text.
    pub figure: String,
    shown: Shown,
    /// The accept queue in front of the limit.
    pub accept_queue: Option<AcceptQueueBefore>,
    /// Evidence that was not available.
    pub unseen: Option<String>,
}

/// Whether enough requests are in flight to reach a limit of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    /// The number of requests in flight is unknown.
    Unknown,
    /// The server is working on the requests of all connections at once.
    TooLow {
        concurrency: f64,
    },
    Met,
}

/// What limits the number of requests in service.
enum Shown {
    Limit(Box<ServiceLimit>),
    /// The server delays responses to keep a constant rate.
    Delay,
    /// No limit was found: no full pool, no lock and no delay.
    Nothing,
    /// The requests are not waiting, or it is not visible what they are waiting for.
    NotJudged,
}

/// The accept queue in front of a limit: established connections that are waiting to be accepted.
#[derive(Debug, Clone, Copy)]
pub struct AcceptQueueBefore {
    /// Mean number of waiting connections.
    waiting: f64,
    /// Whether the queue matters less than the limit: accepted connections are also waiting for the
    /// limit, or the limit also applies to the number of connections.
    pub is_minor: bool,
}

impl RunFacts<'_> {
    /// Returns what limits the number of requests in service.
    pub fn service(&self) -> &Service {
        self.service.get_or_init(|| Service::of(self))
    }
}

impl Service {
    fn of(facts: &RunFacts<'_>) -> Self {
        let not_judged = |demand, figure, unseen| Service {
            demand,
            figure,
            shown: Shown::NotJudged,
            accept_queue: None,
            unseen,
        };
        let Some(in_flight) = facts.in_flight else {
            return not_judged(Demand::Unknown, String::new(), None);
        };
        let is_closed = !facts.run.plan.is_open();
        let max_in_flight = facts.run.max_in_flight() as f64;
        let by_threads = shown_by_threads(facts, in_flight);
        // If one thread handles requests in batches, the service time of a request includes the
        // wait for the other requests in its batch.
        let is_one_thread = by_threads.as_ref().is_some_and(|limit| {
            let mut groups = facts.thread_groups.iter();
            let is_only = |group: &ThreadGroupFacts| is_only_thread(group, facts, in_flight);
            groups.any(|group| limit.group.as_ref() == Some(&group.name) && is_only(group))
        });
        // In the open model, requests that wait for a connection or a stream are not in flight.
        let blocked_by = &facts.run.blocked_by;
        let waiting = facts.mean_waiting(&blocked_by.server_limit_us)
            + facts.mean_waiting(&blocked_by.own_limit_us);
        let waits_to_be_sent = waiting >= NOTICEABLE * in_flight;
        if let Some(concurrency) = facts.concurrency
            && (is_closed || waits_to_be_sent)
            && !is_one_thread
            && concurrency >= SAME.start() * max_in_flight.min(in_flight)
        {
            // Connections without a request in flight may be unavailable for requests, for example
            // because they are being closed.
            let demand = if in_flight >= SAME.start() * max_in_flight {
                Demand::TooLow { concurrency }
            } else {
                Demand::Met
            };
            let figure = format!(
                "only {in_flight:.1} of {max_in_flight:.0} {} had a request in flight",
                facts.carriers()
            );
            return not_judged(demand, figure, None);
        }
        let figure = match facts.concurrency.filter(|_| !is_one_thread) {
            Some(concurrency) => {
                format!("the server works on {concurrency:.1} of {in_flight:.1} requests in flight")
            }
            None => format!("{in_flight:.1} requests are in flight"),
        };
        let mut groups = facts.thread_groups.iter();
        let hidden = if facts.server.is_none() {
            Some(
                "without server metrics, a saturated CPU, a saturated thread, a lock and a pool look alike",
            )
        } else if !facts.thread_groups.is_empty() && groups.all(|group| !group.has_known_waits()) {
            Some("if it is not visible what threads wait for, threads, locks and pools look alike")
        } else {
            None
        };
        if let Some(why) = hidden {
            let unseen = format!("what limits concurrency ({figure}): {why}");
            return not_judged(Demand::Met, figure, Some(unseen));
        }
        let limit = by_threads
            .or_else(|| shown_by_times(facts, in_flight))
            .or_else(|| shown_by_writes(facts, in_flight));
        let queue = limit.as_ref();
        let accept_queue = queue.and_then(|limit| accept_queue_before(facts, limit));
        let shown = match limit {
            Some(limit) => {
                Shown::Limit(Box::new(limit.behind_queue(facts, accept_queue, in_flight)))
            }
            None if are_delayed(facts, in_flight) => Shown::Delay,
            None => Shown::Nothing,
        };
        let is_missing = matches!(shown, Shown::Nothing) && facts.concurrency.is_none();
        let missing = "service time without queueing (the server was cold, or requests differ)";
        Service {
            demand: Demand::Met,
            figure,
            shown,
            accept_queue,
            unseen: is_missing.then(|| missing.to_owned()),
        }
    }

    /// Returns the limit if it indicates `cause`.
    pub fn limit_of(&self, cause: Cause) -> Option<&ServiceLimit> {
        match &self.shown {
            Shown::Limit(limit) if limit.cause() == cause => Some(limit),
            _ => None,
        }
    }

    /// Returns the candidate if the limit indicates `cause`. Otherwise, rules out the cause, unless
    /// it is not visible what the requests in service are waiting for.
    pub fn detect(
        &self,
        cause: Cause,
        candidate: impl FnOnce(&ServiceLimit) -> Candidate,
    ) -> Option<Finding> {
        match (self.limit_of(cause), &self.shown) {
            (Some(limit), _) => candidate(limit).found(),
            (None, Shown::NotJudged) => None,
            (None, _) => ruled_out(&self.figure),
        }
    }

    /// Returns whether the server delays responses to keep a constant rate.
    pub fn delays_responses(&self) -> bool {
        matches!(self.shown, Shown::Delay)
    }
}

/// A limit on the number of requests in service.
pub struct ServiceLimit {
    /// What the requests in service hold: threads, permits, a lock, or connections to another
    /// process. All of these are in use, so the other requests are waiting.
    pub holder: StepKind,
    /// Mean number of requests in service.
    pub held: f64,
    /// Name of the thread group, if the limit was inferred from thread states.
    pub group: Option<String>,
    /// What the requests in service are waiting for.
    pub resource: PathStep,
    evidence: Option<String>,
    /// The accept queue in front of the limit, if it is part of the path (see `behind_queue`).
    queue: Option<PathStep>,
}

impl ServiceLimit {
    /// Creates a limit without a thread group and without evidence.
    fn new(holder: StepKind, held: f64, resource: PathStep) -> Self {
        ServiceLimit {
            holder,
            held,
            group: None,
            resource,
            evidence: None,
            queue: None,
        }
    }

    /// Returns whether the resource is a log, a file whose path contains "log", or a file whose
    /// name is unknown.
    fn is_log(&self) -> bool {
        match &self.resource.who.resource {
            None | Some(ActorResource::Log(_)) => true,
            Some(ActorResource::Address(path)) => path.contains("log"),
            Some(ActorResource::Memory | ActorResource::ThreadGroup(_)) => false,
        }
    }

    fn cause(&self) -> Cause {
        match (self.resource.kind, self.holder) {
            (StepKind::Pipe, _) => Cause::SyncLogging,
            (StepKind::Disk, _) if self.is_log() => Cause::SyncLogging,
            (StepKind::Disk, _) => Cause::Disk,
            (_, StepKind::Connections) | (StepKind::Connections, StepKind::Permits) => {
                Cause::ConnectionPool
            }
            (_, StepKind::Lock) => Cause::Serialised,
            _ => Cause::WorkerPool,
        }
    }

    /// Adds the accept queue in front of the limit if the queue holds most of the requests that are
    /// waiting for the limit, or if the queue is minor but the server also limits connections.
    fn behind_queue(
        self,
        facts: &RunFacts<'_>,
        queue: Option<AcceptQueueBefore>,
        in_flight: f64,
    ) -> Self {
        let limits_connections = || {
            let full = |of: AcceptQueue| of.is_long && !of.is_out_of_files;
            facts.accept_queue().is_some_and(full) && facts.has_spare_cpu()
        };
        let queue = queue.filter(|queue| {
            let holds_most = queue.waiting >= MOST * (in_flight - self.held);
            queue.waiting >= ONE.start && (holds_most || (queue.is_minor && limits_connections()))
        });
        let step = |queue: AcceptQueueBefore| {
            let basis = "accept queue of the listener (sock_diag)";
            PathStep::new(StepKind::AcceptQueue, Actor::Server, basis).with_waiting(queue.waiting)
        };
        ServiceLimit {
            queue: queue.map(step),
            ..self
        }
    }

    /// Returns the steps from the requests in flight to the resource.
    fn path(&self) -> Vec<PathStep> {
        if self.holder == StepKind::Connections {
            return vec![self.resource.clone()];
        }
        let (who, basis) = match &self.group {
            Some(group) => (
                Actor::Server.with(ActorResource::ThreadGroup(group.clone())),
                "states of the threads",
            ),
            None => (
                Place::from(Actor::Server),
                "responses per second × shortest service time",
            ),
        };
        let holder = PathStep::new(self.holder, who, basis).with_waiting(self.held);
        vec![holder, self.resource.clone()]
    }

    /// Returns the next step: raise the setting whose value is near the number of requests in
    /// service, or the limit if no such setting is known. Settings whose names contain `kind` take
    /// precedence.
    pub fn raise(&self, facts: &RunFacts<'_>, kind: &str) -> String {
        match setting_near(&facts.run.setting, self.held, kind) {
            Some((name, value)) => {
                format!("raise `{name}` (now {value}), or reduce the time per request")
            }
            None => "raise the limit, or reduce the time per request".to_owned(),
        }
    }

    /// Returns the candidate for a cause of this limit.
    pub fn candidate(
        &self,
        facts: &RunFacts<'_>,
        summary: impl Into<String>,
        next: impl Into<String>,
    ) -> Candidate {
        // Requests that one thread handles in a batch wait for each other, so their service times
        // do not indicate a limit.
        let is_shown = |requests: f64| requests <= SAME.end() * self.held;
        let shown = facts.concurrency.is_some_and(is_shown);
        let shortest_us = facts.run.least_service_time_us.filter(|_| shown);
        let limit = shortest_us.map(|us| self.held.round().max(1.0) / (us / 1e6));
        let evidence = [
            show_times(facts).filter(|_| shown),
            facts.idle_cpus().map(show_idle),
            self.evidence.clone(),
            Some(format!("{} ({})", self.resource, self.resource.basis)),
        ];
        Candidate::new(EvidenceRank::Waiting, summary, evidence, next)
            .with_limit(limit)
            .via(self.path())
            .behind(self.queue.clone())
    }
}

/// Describes the service times, if the concurrency is known.
pub fn show_times(facts: &RunFacts<'_>) -> Option<String> {
    let (concurrency, shortest_us) = facts.concurrency.zip(facts.run.least_service_time_us)?;
    let mean_us = facts.run.service_time_us.mean.unwrap_or(shortest_us);
    Some(format!(
        "service time: shortest {} (least_service_time_us), mean {}; at {}, the server works on \
         {concurrency:.1} requests at once",
        show_ns(shortest_us * 1e3),
        show_ns(mean_us * 1e3),
        per_s(facts.responses_per_s)
    ))
}

/// Returns a setting whose value is near `concurrency`. Settings whose names contain `kind` take
/// precedence.
pub fn setting_near<'a>(
    settings: &'a BTreeMap<String, String>,
    concurrency: f64,
    kind: &str,
) -> Option<(&'a str, &'a str)> {
    let is_near = |value: &str| value.parse().is_ok_and(|value| same(concurrency, value));
    let mut near = settings
        .iter()
        .filter(|(_, value)| is_near(value))
        .map(|(name, value)| (&**name, &**value));
    let first = near.clone().next();
    near.find(|(name, _)| name.contains(kind)).or(first)
}

/// Returns whether the server delays responses to keep a constant rate. In this case, its
/// throughput is constant and its CPU is idle. It has read the requests, is working on less than
/// one request at a time on average, and is not waiting for an upstream.
fn are_delayed(facts: &RunFacts<'_>, in_flight: f64) -> bool {
    let is_idle = facts
        .concurrency
        .is_some_and(|requests| requests < ONE.start);
    let mut upstreams = facts.upstreams.iter();
    let waits = upstreams.any(|upstream| upstream.perhaps_waiting >= ONE.start);
    let rates = facts.rates();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let is_constant = rates.len() > 1 && least > 0.0 && most - least <= RARE * most;
    is_idle
        && facts.are_unread(in_flight) == Some(false)
        && !waits
        && is_constant
        && facts.has_spare_cpu()
        && !facts.locks_one_cpu()
}

/// Returns the accept queue in front of a limit.
fn accept_queue_before(facts: &RunFacts<'_>, limit: &ServiceLimit) -> Option<AcceptQueueBefore> {
    let sockets = |figure| facts.samples.sockets(Role::Server, figure);
    let established = sockets(SocketFigure::Established);
    let waiting = facts.samples.listener(ListenerFigure::AcceptQueue)?;
    // The client has closed some of the connections that are waiting in the queue.
    let closed = sockets(SocketFigure::CloseWait).unwrap_or(0.0);
    let queued = (waiting - closed).max(0.0);
    // The threads of a prefork server accept connections themselves, so they also limit the number
    // of connections. In other servers, a separate thread may wait for a connection to end before
    // it accepts the next one. If connections are short-lived, that thread accepts one every few
    // responses.
    let mut groups = facts.thread_groups.iter();
    let may_wait_to_accept = groups.any(|group| {
        limit.group.as_ref() != Some(&group.name)
            && group.untimed_locks() >= ONE.start
            && (!facts.has_short_connections() || takes_part(group, facts))
    });
    let is_minor = (limit.holder == StepKind::Threads && !may_wait_to_accept)
        || established.is_some_and(|all| {
            let requests = (all - queued) * f64::from(facts.run.streams());
            limit.held < SAME.start() * requests
        });
    Some(AcceptQueueBefore { waiting, is_minor })
}

/// Finds a thread group without idle threads, or a group whose threads are waiting for a lock that
/// few of them hold. If several groups are limits, prefers the one that holds the most requests.
fn shown_by_threads(facts: &RunFacts<'_>, in_flight: f64) -> Option<ServiceLimit> {
    let in_service = facts.concurrency.unwrap_or(in_flight);
    let activities: Vec<(&ThreadGroupFacts, Activity)> = working_groups(facts)
        .map(|group| (group, Activity::of(group, facts, in_service)))
        .collect();
    let limits = activities.iter().filter_map(|(group, of)| {
        let limit = limit_of(group, of, facts, in_flight)?;
        // A thread that only sleeps may have nothing to do with the requests. However, if it is the
        // only thread that reads requests, requests stay unread while it sleeps.
        let sleeps = limit.holder == StepKind::Threads
            && group.workers() < ONE.end
            && limit.resource.kind == StepKind::Timer;
        let is_read = facts.are_unread(in_flight - limit.held) == Some(false);
        if sleeps && is_read && !is_only_thread(group, facts, in_flight) {
            return None;
        }
        let mut others = activities.iter();
        let mut others_wait = || {
            others.any(|(other, of)| other.name != group.name && of.locks >= MOST * other.threads)
        };
        (!sleeps || !others_wait()).then_some(limit)
    });
    let order = |limit: &ServiceLimit| (limit.held.round(), limit.resource.kind != StepKind::Timer);
    let higher = |best, limit| {
        if order(&limit) > order(&best) {
            limit
        } else {
            best
        }
    };
    let mut limit = limits.reduce(higher)?;
    // The main thread may belong to the pool, although it is in a separate group. Threads that
    // sleep may be unrelated.
    let resource = limit.resource.clone();
    let is_member = |group: &ThreadGroupFacts, of: &Activity| {
        let is_same = |step: &&PathStep| step.kind == resource.kind && step.who == resource.who;
        let waits: f64 = of.awaited.iter().filter(is_same).map(waiting).sum();
        limit.group.as_ref() != Some(&group.name) && waits >= SAME.start() * group.workers()
    };
    let members = activities.iter().filter(|(group, of)| is_member(group, of));
    let members: f64 = members.map(|(group, _)| group.workers()).sum();
    if limit.holder == StepKind::Threads && resource.kind != StepKind::Timer {
        limit.held += members;
    }
    Some(connections_in_use(facts, limit))
}

/// Returns the limit that a thread group imposes or indicates.
fn limit_of(
    group: &ThreadGroupFacts,
    of: &Activity,
    facts: &RunFacts<'_>,
    in_flight: f64,
) -> Option<ServiceLimit> {
    let agrees = |threads: f64| {
        let requests = facts.concurrency;
        requests.is_none_or(|requests| AGREES.contains(&(requests / threads.max(0.1))))
    };
    let is_unread = || facts.are_unread(in_flight) == Some(true);
    let workers = group.workers();
    // Samples miss some short waits for files. If the only thread never waits for work or a lock,
    // it spends the rest of its time in such waits.
    let rest = (workers - of.idle - of.locks - of.cpu).max(0.0);
    let awaited = main_resource(&of.awaited).map(|step| {
        let is_file = step.kind == StepKind::Disk && workers < ONE.end && group.never_waits();
        let waits = if is_file { rest } else { 0.0 };
        step.clone().with_waiting(waiting(&step).max(waits))
    });
    // A thread that sleeps or uses connections may be unrelated to the requests. It is related to
    // them if the database session of its connection is waiting for a lock.
    let sessions = facts.sessions.as_ref();
    let is_locked = sessions.is_some_and(|of| of.waiting_for_locks >= MOST * workers);
    let writes = awaited.as_ref().is_some_and(|step| match step.kind {
        StepKind::Disk | StepKind::Pipe | StepKind::Child => true,
        StepKind::Connections => is_locked && step.who.actor == Actor::Store,
        _ => false,
    });
    let is_saturated = of.idle + of.locks <= SPARE * workers;
    // The number of threads that are waiting for a lock must account for the requests that are not
    // in service.
    let held = of.in_service();
    let all_wait = of.locks >= SAME.start() * (in_flight - held) && of.idle < MOST * workers;
    let is_contended = all_wait && held >= MOST && held * SAME.end() < in_flight;
    let is_waited_for = |share: f64| {
        let awaited = awaited.clone();
        awaited.filter(|step| step.waiting.is_some_and(|n| n >= share))
    };
    let (holder, held, locks, resource) = if is_saturated
        && (writes || is_unread() || agrees(workers) || is_only_thread(group, facts, in_flight))
    {
        // Other rules detect a CPU-bound server.
        let is_cpu_bound = of.cpu >= MOST * workers;
        let resource = is_waited_for(SPARE * workers).filter(|_| !is_cpu_bound)?;
        (StepKind::Threads, group.pool_threads(), 0.0, resource)
    } else if is_contended && (writes || agrees(held)) {
        // Only one process at a time can hold a file lock.
        let is_file_lock = group.blocked_on_kind(WaitKind::FileLock) >= MOST * of.locks;
        let is_lock = is_file_lock || ONE.contains(&held);
        // The CPU time includes work outside the lock. An interpreter lock is held while its holder
        // uses the CPU, so the CPU does not explain why the lock is held.
        let minimum = if is_lock { CONTENDED } else { MOST * held };
        let is_cpu = is_lock && !of.timed;
        let resource = is_waited_for(minimum).or_else(|| is_cpu.then(|| of.cpu_step()))?;
        let holder = if is_lock {
            StepKind::Lock
        } else {
            StepKind::Permits
        };
        (holder, held, of.locks, resource)
    } else {
        return None;
    };
    let evidence = format!(
        "threads \"{}\": {:.0}, of which {held:.1} in use and {locks:.1} waiting for a lock (/proc/PID/task/TID/syscall)",
        group.name,
        workers.round(),
    );
    Some(ServiceLimit {
        group: Some(group.name.clone()),
        evidence: Some(evidence),
        ..ServiceLimit::new(holder, held, resource)
    })
}

/// Returns whether several requests are in flight, the group is a single thread, and no other group
/// takes part in the work.
fn is_only_thread(group: &ThreadGroupFacts, facts: &RunFacts<'_>, in_flight: f64) -> bool {
    let are_others_idle = || working_groups(facts).all(|other| other.name == group.name);
    in_flight >= ONE.end && group.workers() < ONE.end && are_others_idle()
}

/// Replaces permits or a lock with the connections that their holders use, if all of these
/// connections are in use. Threads are also replaced if there are fewer connections than threads.
fn connections_in_use(facts: &RunFacts<'_>, limit: ServiceLimit) -> ServiceLimit {
    let requests = [Some(limit.held), facts.concurrency];
    let mut upstreams = facts.upstreams.iter();
    let full = upstreams.find(|upstream| {
        let mut requests = requests.iter().flatten();
        requests.any(|requests| is_full(upstream, *requests))
    });
    let are_held = |upstream: &&UpstreamFacts| match limit.holder {
        StepKind::Threads => {
            limit.resource.kind == StepKind::Connections
                && upstream.established.round() < limit.held.round()
        }
        holder => holder != StepKind::Connections,
    };
    match full.filter(are_held) {
        Some(upstream) => ServiceLimit {
            holder: StepKind::Connections,
            resource: connections(facts, upstream),
            ..limit
        },
        None => limit,
    }
}

/// Finds a file or pipe that only one thread writes to at a time. If a runtime moves tasks between
/// threads, as Go's runtime does, it may be a different thread each time. If most requests are
/// waiting for a thread to read them, several threads may write at a time.
fn shown_by_writes(facts: &RunFacts<'_>, in_flight: f64) -> Option<ServiceLimit> {
    let groups = facts.thread_groups.iter();
    let awaited = groups.flat_map(|group| Activity::of(group, facts, in_flight).awaited);
    let mut writes: Vec<PathStep> = Vec::new();
    for step in awaited.filter(|step| step.kind == StepKind::Pipe || is_file(step)) {
        add(&mut writes, step);
    }
    let resource = main_resource(&writes)?;
    let held = resource.waiting.filter(|held| *held >= ONE.start)?;
    let is_one = ONE.contains(&held);
    let is_unread = facts.are_unread(in_flight) == Some(true);
    let mut upstreams = facts.upstreams.iter();
    let is_elsewhere = upstreams
        .any(|upstream| upstream.perhaps_waiting >= MOST * upstream.established.min(in_flight));
    let many_wait = held * SAME.end() < in_flight;
    let blocks = (is_one && !is_elsewhere) || is_unread;
    let holder = if is_unread {
        StepKind::Threads
    } else {
        StepKind::Lock
    };
    (many_wait && blocks && facts.has_spare_cpu())
        .then(|| ServiceLimit::new(holder, held, resource))
}

/// Infers the limit from the service times. Thread states are not enough, because a request can
/// wait without occupying a thread.
fn shown_by_times(facts: &RunFacts<'_>, in_flight: f64) -> Option<ServiceLimit> {
    let in_service = facts
        .concurrency
        .filter(|requests| *requests >= ONE.start)?;
    let server = facts.server.as_ref()?;
    let on_cpu = server.used - facts.waits_in_file_sync() + server.runnable.unwrap_or(0.0);
    // If most requests are waiting for a response from another process, the limit is in that
    // process.
    let mut upstreams = facts.upstreams.iter();
    let is_elsewhere = upstreams.any(|upstream| {
        let waiting = upstream.waiting;
        waiting.is_some_and(|waiting| waiting >= SAME.start() * in_flight)
    });
    if is_elsewhere || on_cpu >= MOST * in_service {
        return None;
    }
    let is_one = ONE.contains(&in_service);
    let mut upstreams = facts.upstreams.iter();
    if let Some(upstream) = upstreams.find(|upstream| is_full(upstream, in_service)) {
        let resource = connections(facts, upstream);
        return Some(ServiceLimit::new(
            StepKind::Connections,
            in_service,
            resource,
        ));
    }
    let resource = resource_of_all(facts, in_service)?;
    let mut groups = facts.thread_groups.iter();
    let pool = groups.find(|group| is_pool(group, in_service, facts));
    let setting = setting_near(&facts.run.setting, in_service, "thread")
        .filter(|(name, _)| name.contains("thread") && !is_one);
    let holder = match (pool, setting) {
        (None, None) if is_one => StepKind::Lock,
        // Without thread states, a pool looks like permits.
        (None, None) if facts.thread_groups.is_empty() => return None,
        (None, None) => StepKind::Permits,
        _ => StepKind::Threads,
    };
    let setting = setting.map(|(name, value)| format!("server setting `{name}`: {value}"));
    Some(ServiceLimit {
        group: pool.map(|group| group.name.clone()),
        evidence: setting,
        ..ServiceLimit::new(holder, in_service, resource)
    })
}

/// Returns whether a thread group is an exhausted pool. The threads of such a pool work on requests
/// and do not wait for events. The number of concurrent requests equals the number of all threads,
/// of active threads, or of threads that are waiting for a resource.
pub fn is_pool(group: &ThreadGroupFacts, concurrency: f64, facts: &RunFacts<'_>) -> bool {
    let in_event_loop = group.blocked_on_kind(WaitKind::Events);
    if !takes_part(group, facts) || in_event_loop >= SPARE * group.threads {
        return false;
    }
    if ONE.contains(&concurrency) {
        // A pool of one thread must be the only thread group that works on requests. If there are
        // other groups, their threads are waiting for that thread.
        return working_groups(facts).count() == 1 && group.threads < ONE.end;
    }
    let used = Activity::of(group, facts, concurrency).used();
    [group.threads, group.at_work, used]
        .iter()
        .any(|threads| same(concurrency, *threads))
}

/// Returns whether few of the threads that work on requests are waiting for a resource other than a
/// CPU or a lock. Returns `false` if the system calls of the threads are not visible.
pub fn await_no_resource(facts: &RunFacts<'_>, concurrency: f64) -> bool {
    let used = working_groups(facts).map(|group| Activity::of(group, facts, concurrency).used());
    facts.sees_system_calls() && used.sum::<f64>() < SPARE * concurrency
}

/// The threads of a group, by activity. All numbers of threads are means.
struct Activity {
    /// Threads that are waiting for new work.
    idle: f64,
    /// Threads that are waiting for a lock or a condition.
    locks: f64,
    /// Whether most of the waits that `locks` counts have a timeout, as with an interpreter lock.
    timed: bool,
    /// Threads that are running or runnable, except those in a system call that writes a file to
    /// disk.
    cpu: f64,
    /// Resources that the other threads are waiting for, each with the number of threads.
    awaited: Vec<PathStep>,
}

impl Activity {
    /// Divides a group's threads by activity. HotSpot implements a pause as a lock wait with a
    /// timeout. Idle threads may also wait for a lock with a timeout. Such waits therefore count as
    /// pauses only if their number does not clearly exceed `in_service`.
    fn of(group: &ThreadGroupFacts, facts: &RunFacts<'_>, in_service: f64) -> Self {
        use WaitKind::{Child, ClientWrite, PageFault, PipeRead, PipeWrite, TimedLock, Timer};
        let timed = group.blocked_on_kind(TimedLock);
        let is_pause = timed <= SAME.end() * in_service;
        let locks = group.untimed_locks();
        let mut awaited: Vec<PathStep> = Vec::new();
        for (object, threads) in &group.blocked {
            let mut threads = *threads;
            match object {
                WaitObject::Kind(PipeRead) => threads -= group.inactive_on(PipeRead),
                WaitObject::Kind(TimedLock) => threads -= group.inactive_on_timed_locks(),
                _ => {}
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
        let cpu = group.on_cpu + group.runnable;
        let waits = facts.waits_in_file_sync() > 0.0;
        let in_file_sync = if waits {
            cpu * group.file_sync_share()
        } else {
            0.0
        };
        if in_file_sync > 0.0 {
            // CPU time in fsync counts as a wait for the disk. Assume that the threads write the
            // same files while they run and while they are blocked.
            let files = Vec::from_iter(awaited.iter().filter(|step| is_file(step)).cloned());
            let who = main_resource(&files).map_or(Actor::Server.into(), |file| file.who);
            let basis = "threads that run in fsync or a similar system call (perf_event_open)";
            let step = PathStep::new(StepKind::Disk, who, basis);
            add(&mut awaited, step.with_waiting(in_file_sync));
        }
        Activity {
            idle: group.idle(),
            locks: if is_pause { locks } else { locks + timed },
            timed: !is_pause && timed > locks,
            cpu: cpu - in_file_sync,
            awaited,
        }
    }

    /// Returns the number of threads that are waiting for a resource.
    fn used(&self) -> f64 {
        self.awaited.iter().map(waiting).sum()
    }

    /// Returns the number of threads that are waiting for a resource, running or runnable.
    fn in_service(&self) -> f64 {
        self.used() + self.cpu
    }

    /// Returns the CPU as a step.
    fn cpu_step(&self) -> PathStep {
        PathStep::new(StepKind::Cpu, Actor::Server, "schedstat").with_waiting(self.cpu)
    }
}

/// Adds a step. If its resource already has a step, adds the number of threads to that step.
fn add(steps: &mut Vec<PathStep>, step: PathStep) {
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

/// Returns whether a step is a file. The disk that backs memory pages does not count.
fn is_file(step: &PathStep) -> bool {
    step.kind == StepKind::Disk && step.who.resource != Some(ActorResource::Memory)
}

/// Returns the resource that most threads are waiting for. All files count as one resource, named
/// after the file that most threads are waiting for. A timer is the result only if more than twice
/// as many threads are waiting for it as for any other resource, because idle threads wait for
/// timers too.
fn main_resource(steps: &[PathStep]) -> Option<PathStep> {
    let (files, others): (Vec<_>, Vec<_>) =
        (steps.iter().cloned()).partition(|step| step.kind == StepKind::Disk);
    let in_files: f64 = files.iter().map(waiting).sum();
    let higher = |a, b| if waiting(&b) > waiting(&a) { b } else { a };
    let most = |steps: Vec<PathStep>| steps.into_iter().reduce(higher);
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
/// uses at least a quarter of the server's CPU time. Compiler threads are excluded, because they
/// use CPU time without working on requests.
fn takes_part(group: &ThreadGroupFacts, facts: &RunFacts<'_>) -> bool {
    let waits = group.waits_per_s >= SPARE * facts.responses_per_s;
    let runs = group.on_cpu >= SPARE * used(&facts.server);
    (waits || runs) && !is_compiler(&group.name)
}

/// Returns the thread groups that work on requests.
fn working_groups<'f>(facts: &'f RunFacts<'_>) -> impl Iterator<Item = &'f ThreadGroupFacts> {
    facts
        .thread_groups
        .iter()
        .filter(|group| takes_part(group, facts))
}

/// Returns what most of the requests in service are waiting for. If no thread or connection shows
/// it, assumes that the requests are waiting for a timer or another event inside the server.
pub fn resource_of_all(facts: &RunFacts<'_>, in_service: f64) -> Option<PathStep> {
    let used = working_groups(facts).flat_map(|group| {
        let of = Activity::of(group, facts, in_service);
        let cpu = of.cpu_step();
        of.awaited.into_iter().chain([cpu])
    });
    let upstreams = facts.upstreams.iter();
    let upstreams = upstreams.map(|upstream| connections(facts, upstream));
    // Idle threads wait for timers too, so any other resource is more specific.
    let used = used
        .chain(upstreams)
        .filter(|step| step.kind != StepKind::Timer);
    let used = Vec::from_iter(used);
    let shown = main_resource(&used).filter(|step| waiting(step) >= MOST * in_service);
    shown.or_else(|| {
        let basis = "no CPU, file, connection or child process explains the service time";
        Some(PathStep::new(StepKind::Timer, Actor::Server, basis).with_waiting(in_service))
    })
}

/// Well-known ports of databases and caches.
const STORE_PORTS: [u16; 7] = [3306, 5432, 6379, 6432, 9042, 11_211, 27_017];

/// Returns the store or upstream at the other end of a server's connection, with its address.
fn process_behind(facts: &RunFacts<'_>, address: SocketAddr) -> Place {
    let is_store = facts.store.is_some() || STORE_PORTS.contains(&address.port());
    let actor = if is_store {
        Actor::Store
    } else {
        Actor::Upstream
    };
    actor.with(ActorResource::Address(address.to_string()))
}

fn connections(facts: &RunFacts<'_>, upstream: &UpstreamFacts) -> PathStep {
    PathStep::new(
        StepKind::Connections,
        process_behind(facts, upstream.address),
        "connections whose last send follows their last receive (sock_diag)",
    )
    .with_waiting(upstream.waiting.unwrap_or(upstream.perhaps_waiting))
}

/// Returns whether all connections of a pool are waiting for responses, and the size of the pool
/// equals the number of concurrent requests.
fn is_full(upstream: &UpstreamFacts, concurrency: f64) -> bool {
    is_in_use(upstream) && same(concurrency, upstream.established)
}

/// Returns whether all connections are waiting for responses. A connection reused within a clock
/// tick counts as waiting.
fn is_in_use(upstream: &UpstreamFacts) -> bool {
    upstream.perhaps_waiting >= SAME.start() * upstream.established
}

/// Returns the connections to the store if requests are waiting for them because all are in use.
pub fn full_store_pool(facts: &RunFacts<'_>) -> Option<PathStep> {
    let in_flight = facts.in_flight?;
    let mut steps = facts.upstreams.iter().filter_map(|upstream| {
        let is_limit = is_in_use(upstream) && upstream.established <= SAME.start() * in_flight;
        is_limit.then(|| connections(facts, upstream))
    });
    steps.find(|step| step.who.actor == Actor::Store)
}
