//! Limits on the number of requests that the server works on at once, found from what its threads
//! wait for (docs/decisions/0025-following-waits.md).

use std::cmp::Ordering;

use floodmark_record::cause::Cause;
use floodmark_record::metric::{ListenerFigure, Role, SocketFigure, WaitKind};
use floodmark_record::path::{Actor, ActorResource, PathStep, StepKind};
use floodmark_record::units::show_ns;

use super::activity::{Activity, add, main_resource, resource_of_all, takes_part};
use super::delaying;
use super::service_limit::{Holder, ServiceLimit, evidence_of_times, setting_near};
use super::upstreams::{connections, is_full};
use crate::why::candidate::{Candidate, EvidenceRank, Findings, not_available, ruled_out};
use crate::why::facts::{RunFacts, ThreadGroupFacts, UpstreamFacts};
use crate::why::gain::more_connections;
use crate::why::thresholds::{CONTENDED, MOST, ONE, SAME, SPARE, same};

/// Service times agree with a number of threads if the ratio of concurrency to threads is in this
/// range. The shortest time is less reliable than thread states: a buffered write, for example,
/// can be much faster than the others.
const AGREES: std::ops::RangeInclusive<f64> = MOST..=1.0 / MOST;

/// Causes that this rule distinguishes, apart from too few requests.
const CAUSES: [Cause; 3] = [Cause::Serialised, Cause::WorkerPool, Cause::ConnectionPool];

/// Detects a limit on the number of requests that the server works on at once.
pub(in crate::why) fn limits(facts: &RunFacts<'_>, findings: &mut Findings) {
    let Some(in_flight) = facts.in_flight else {
        return;
    };
    let is_closed = !facts.run.plan.is_open();
    let connections = f64::from(facts.run.plan.connections);
    let shown = shown_by_threads(facts, in_flight);
    // The service times of requests that one thread handles together include waiting for it.
    let is_one_thread = shown.as_ref().is_some_and(|limit| {
        let mut groups = facts.thread_groups.iter();
        let group = groups.find(|group| limit.group.as_ref() == Some(&group.name));
        group.is_some_and(|group| is_only_thread(group, facts, in_flight))
    });
    if let Some(concurrency) = facts.concurrency
        && is_closed
        && !is_one_thread
        && concurrency >= SAME.start() * connections.min(in_flight)
    {
        // The client's connections may be busy with something else, such as being closed.
        let is_demand = in_flight >= SAME.start() * connections;
        let finding = match is_demand {
            true => too_few_requests(facts, concurrency).found(),
            false => ruled_out(format!(
                "only {in_flight:.1} of {connections:.0} connections had a request in flight"
            )),
        };
        return findings.add(Cause::Concurrency, finding);
    }
    let figure = match facts.concurrency.filter(|_| !is_one_thread) {
        Some(concurrency) => {
            format!("the server works on {concurrency:.1} of {in_flight:.1} requests in flight")
        }
        None => format!("{in_flight:.1} requests are in flight"),
    };
    findings.add(Cause::Concurrency, ruled_out(&figure));
    if facts.server.is_none() {
        let why = format!(
            "what limits concurrency ({figure}): without server metrics, a saturated CPU, a saturated thread, a lock and a pool look alike"
        );
        return findings.add(Cause::Concurrency, not_available(why));
    }
    let mut groups = facts.thread_groups.iter();
    if !facts.thread_groups.is_empty() && groups.all(|group| !group.has_known_waits()) {
        let why = format!(
            "what limits concurrency ({figure}): if it is not visible what threads wait for, threads, locks and pools look alike"
        );
        return findings.add(Cause::Concurrency, not_available(why));
    }
    let limit = shown
        .or_else(|| shown_by_times(facts, in_flight))
        .or_else(|| shown_by_writes(facts, in_flight));
    let named = limit.as_ref().map(ServiceLimit::cause);
    for cause in CAUSES.iter().filter(|cause| Some(**cause) != named) {
        findings.add(*cause, ruled_out(&figure));
    }
    match limit {
        Some(limit) => {
            let queue = accept_queue_before(facts, &limit, in_flight, findings);
            let candidate = limit.candidate(facts, &figure).behind(queue);
            findings.add(limit.cause(), candidate.found());
        }
        None if delaying::are_delayed(facts, in_flight) => {
            findings.add(Cause::RateLimiter, delaying::candidate(facts).found());
        }
        None if facts.concurrency.is_none() => {
            let missing = "service time without queueing (the server was cold, or requests differ)";
            findings.add(Cause::Concurrency, not_available(missing));
        }
        None => {}
    }
}

/// Returns the accept queue as a step if it holds most of the requests that wait for `limit`. If
/// accepted connections also wait for `limit`, the limit on connections is demoted to a minor cause.
fn accept_queue_before(
    facts: &RunFacts<'_>,
    limit: &ServiceLimit,
    in_flight: f64,
    findings: &mut Findings,
) -> Option<PathStep> {
    let sockets = |figure| facts.samples.sockets(Role::Server, figure);
    let established = sockets(SocketFigure::Established);
    let queue = facts.samples.listener(ListenerFigure::AcceptQueue)?;
    // The client has closed some of the connections that wait in the queue.
    let closed = sockets(SocketFigure::CloseWait).unwrap_or(0.0);
    let queued = (queue - closed).max(0.0);
    // The threads of a prefork server accept connections themselves, so they also limit the number
    // of connections. Otherwise, another thread may wait for a connection to end.
    let mut groups = facts.thread_groups.iter();
    let may_wait_to_accept = groups.any(|group| {
        limit.group.as_ref() != Some(&group.name) && group.untimed_locks() >= ONE.start
    });
    let is_minor = (limit.holder == Holder::Threads && !may_wait_to_accept)
        || established.is_some_and(|all| limit.held < SAME.start() * (all - queued));
    let mut candidates = findings.candidates.iter_mut();
    let connections = candidates.find(|(cause, _)| *cause == Cause::MaxConnections);
    let is_named = connections.is_some();
    if let Some((_, connections)) = connections.filter(|_| is_minor) {
        connections.rank = EvidenceRank::Minor;
    }
    let holds_most = queue >= MOST * (in_flight - limit.held);
    (queue >= ONE.start && (holds_most || (is_minor && is_named))).then(|| {
        let basis = "accept queue of the listener (sock_diag)";
        PathStep::new(StepKind::AcceptQueue, Actor::Server, basis).with_waiting(queue)
    })
}

/// Returns the candidate for a closed-model load with too few connections.
fn too_few_requests(facts: &RunFacts<'_>, concurrency: f64) -> Candidate {
    let connections = f64::from(facts.run.plan.connections);
    let shortest_us = facts.run.least_service_time_us.unwrap_or(0.0);
    let shortest = show_ns(shortest_us * 1e3);
    let more = more_connections(facts.run.plan.connections);
    let step = resource_of_all(facts, concurrency)
        .filter(|step| step.kind != StepKind::Cpu)
        .unwrap_or_else(|| PathStep::new(StepKind::Concurrency, Actor::Client, "connections (-c)"));
    Candidate::new(
        EvidenceRank::Demand,
        format!(
            "{connections:.0} concurrent requests are too few: each takes {shortest}, and no request \
             waits for another"
        ),
        evidence_of_times(facts),
        format!("use more connections in the load: -c {more}"),
    )
    .with_limit(Some(connections / (shortest_us / 1e6)))
    .via(vec![step])
}

/// Finds a thread group without idle threads, or a group whose threads wait for a lock that few of
/// them hold. If several groups are limits, prefers the one that holds most requests.
fn shown_by_threads(facts: &RunFacts<'_>, in_flight: f64) -> Option<ServiceLimit> {
    let in_service = facts.concurrency.unwrap_or(in_flight);
    let groups = facts.thread_groups.iter();
    let groups = groups.filter(|group| takes_part(group, facts));
    let activities: Vec<(&ThreadGroupFacts, Activity)> = groups
        .map(|group| (group, Activity::of(group, facts, in_service)))
        .collect();
    let limits = activities.iter().filter_map(|(group, of)| {
        let limit = limit_of(group, of, facts, in_flight)?;
        // A thread that only sleeps may have nothing to do with the requests. While the only thread
        // that reads requests sleeps, requests stay unread.
        let sleeps = limit.holder == Holder::Threads
            && group.workers() < ONE.end
            && limit.resource.kind == StepKind::Timer;
        let reads = |unread| unread >= MOST * (in_flight - limit.held);
        if sleeps && !is_only_thread(group, facts, in_flight) && !facts.unread().is_none_or(reads) {
            return None;
        }
        let mut others = activities.iter();
        let mut others_wait = || {
            others.any(|(other, of)| other.name != group.name && of.locks >= MOST * other.threads)
        };
        (!sleeps || !others_wait()).then_some(limit)
    });
    let order = |limit: &ServiceLimit| (limit.held.round(), limit.resource.kind != StepKind::Timer);
    let limit = limits.reduce(
        |best, limit| match order(&limit).partial_cmp(&order(&best)) {
            Some(Ordering::Greater) => limit,
            _ => best,
        },
    )?;
    Some(connections_in_use(facts, limit))
}

/// Returns the limit that a thread group is or shows.
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
    // Most requests wait until a thread reads them.
    let is_unread = || {
        facts
            .unread()
            .is_some_and(|unread| unread >= MOST * in_flight)
    };
    let workers = group.workers();
    let awaited = main_resource(&of.awaited);
    // A thread that sleeps or uses connections may be unrelated to the requests. A connection whose
    // session waits for a lock is related to them.
    let sessions = facts.sessions.as_ref();
    let is_locked = sessions.is_some_and(|of| of.waiting_for_locks >= MOST * workers);
    let writes = awaited.as_ref().is_some_and(|step| match step.kind {
        StepKind::Disk | StepKind::Pipe | StepKind::Child => true,
        StepKind::Connections => is_locked && step.who.actor == Actor::Store,
        _ => false,
    });
    let is_saturated = of.idle + of.locks <= SPARE * workers;
    // Enough threads wait to account for the requests that are not in service.
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
        // Other rules judge the CPU.
        let is_cpu_bound = of.cpu >= MOST * workers;
        let resource = is_waited_for(SPARE * workers).filter(|_| !is_cpu_bound)?;
        (Holder::Threads, workers, 0.0, resource)
    } else if is_contended && (writes || agrees(held)) {
        // Only one process holds a file lock.
        let is_file_lock = group.blocked_on_kind(WaitKind::FileLock) >= MOST * of.locks;
        let is_lock = is_file_lock || ONE.contains(&held);
        // The CPU time includes work outside the lock. An interpreter lock protects the CPU itself.
        let minimum = if is_lock { CONTENDED } else { MOST * held };
        let is_cpu = is_lock && !of.timed;
        let resource = is_waited_for(minimum).or_else(|| is_cpu.then(|| of.cpu_step()))?;
        let holder = if is_lock {
            Holder::Lock
        } else {
            Holder::Permits
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
        holder,
        held,
        group: Some(group.name.clone()),
        resource,
        evidence: vec![evidence],
    })
}

/// Returns whether several requests are in flight, the group is a single thread, and no other group
/// takes part in the work.
fn is_only_thread(group: &ThreadGroupFacts, facts: &RunFacts<'_>, in_flight: f64) -> bool {
    let groups = facts.thread_groups.iter();
    let mut others = groups.filter(|other| other.name != group.name);
    in_flight >= ONE.end
        && group.workers() < ONE.end
        && !others.any(|other| takes_part(other, facts))
}

/// Replaces a set of permits by the connections that its holders use, if all of these connections
/// are in use. Threads are replaced too if there are fewer connections than threads.
fn connections_in_use(facts: &RunFacts<'_>, limit: ServiceLimit) -> ServiceLimit {
    let requests = [Some(limit.held), facts.concurrency];
    let mut upstreams = facts.upstreams.iter();
    let full = upstreams.find(|upstream| {
        let mut requests = requests.iter().flatten();
        requests.any(|requests| is_full(upstream, *requests))
    });
    let are_held = |upstream: &&UpstreamFacts| match limit.holder {
        Holder::Permits | Holder::Lock => true,
        Holder::Threads => {
            limit.resource.kind == StepKind::Connections
                && upstream.established.round() < limit.held.round()
        }
        Holder::Connections => false,
    };
    match full.filter(are_held) {
        Some(upstream) => ServiceLimit {
            holder: Holder::Connections,
            resource: connections(facts, upstream),
            ..limit
        },
        None => limit,
    }
}

/// Finds a file or pipe that only one thread writes to at a time. It may be a different thread each
/// time, if a runtime moves tasks between threads, as Go does. If most requests wait for a thread to
/// read them, several threads may write at a time.
fn shown_by_writes(facts: &RunFacts<'_>, in_flight: f64) -> Option<ServiceLimit> {
    let groups = facts.thread_groups.iter();
    let awaited = groups.flat_map(|group| Activity::of(group, facts, in_flight).awaited);
    let mut writes: Vec<PathStep> = Vec::new();
    let is_write = |step: &PathStep| {
        matches!(step.kind, StepKind::Disk | StepKind::Pipe)
            && step.who.resource != Some(ActorResource::Memory)
    };
    for step in awaited.filter(is_write) {
        add(&mut writes, step);
    }
    let resource = main_resource(&writes)?;
    let held = resource.waiting.filter(|held| *held >= ONE.start)?;
    let is_one = ONE.contains(&held);
    let is_unread = facts
        .unread()
        .is_some_and(|unread| unread >= MOST * in_flight);
    let mut upstreams = facts.upstreams.iter();
    let is_elsewhere = upstreams
        .any(|upstream| upstream.perhaps_waiting >= MOST * upstream.established.min(in_flight));
    let many_wait = held * SAME.end() < in_flight;
    let blocks = (is_one && !is_elsewhere) || is_unread;
    (many_wait && blocks && facts.has_spare_cpu()).then(|| ServiceLimit {
        holder: if is_unread {
            Holder::Threads
        } else {
            Holder::Lock
        },
        held,
        group: None,
        resource,
        evidence: Vec::new(),
    })
}

/// Finds the limit from the service times, because waiting requests may not occupy a thread.
fn shown_by_times(facts: &RunFacts<'_>, in_flight: f64) -> Option<ServiceLimit> {
    let in_service = facts
        .concurrency
        .filter(|requests| *requests >= ONE.start)?;
    let server = facts.server.as_ref()?;
    let on_cpu = server.used + server.runnable.unwrap_or(0.0);
    // Most requests wait for a response from another process, so the limit is there.
    let mut upstreams = facts.upstreams.iter();
    let is_elsewhere = upstreams.any(|upstream| {
        let waiting = upstream.waiting;
        waiting.is_some_and(|waiting| waiting >= SAME.start() * in_flight)
    });
    if is_elsewhere || on_cpu >= MOST * in_service {
        return None;
    }
    let is_one = ONE.contains(&in_service);
    let limit = |holder, group, resource| ServiceLimit {
        holder,
        held: in_service,
        group,
        resource,
        evidence: Vec::new(),
    };
    let mut upstreams = facts.upstreams.iter();
    if let Some(upstream) = upstreams.find(|upstream| is_full(upstream, in_service)) {
        return Some(limit(
            Holder::Connections,
            None,
            connections(facts, upstream),
        ));
    }
    let resource = resource_of_all(facts, in_service)?;
    let mut groups = facts.thread_groups.iter();
    let pool = groups.find(|group| is_pool(group, in_service, facts));
    let setting = setting_near(&facts.run.setting, in_service, "thread")
        .filter(|(name, _)| name.contains("thread") && !is_one);
    let holder = match (pool, setting) {
        (None, None) if is_one => Holder::Lock,
        // Without thread states, a pool looks like permits.
        (None, None) if facts.thread_groups.is_empty() => return None,
        (None, None) => Holder::Permits,
        _ => Holder::Threads,
    };
    let setting = setting.map(|(name, value)| format!("server setting `{name}`: {value}"));
    Some(ServiceLimit {
        evidence: setting.into_iter().collect(),
        ..limit(holder, pool.map(|group| group.name.clone()), resource)
    })
}

/// Returns whether a thread group is an exhausted pool: its size, or the number of its threads that
/// wait for a resource, equals the number of concurrent requests, its threads take part in the work,
/// and the threads do not wait for events.
pub(super) fn is_pool(group: &ThreadGroupFacts, concurrency: f64, facts: &RunFacts<'_>) -> bool {
    let in_event_loop = group.blocked_on_kind(WaitKind::Events);
    if !takes_part(group, facts) || in_event_loop >= SPARE * group.threads {
        return false;
    }
    if ONE.contains(&concurrency) {
        // A pool of one thread must be the only thread group at work. Otherwise, other threads wait
        // for that thread.
        let groups = facts.thread_groups.iter();
        return groups.filter(|of| takes_part(of, facts)).count() == 1 && group.threads < ONE.end;
    }
    let used = Activity::of(group, facts, concurrency).used();
    [group.threads, group.at_work, used]
        .iter()
        .any(|threads| same(concurrency, *threads))
}
