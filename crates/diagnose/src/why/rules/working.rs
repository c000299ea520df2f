//! Limits on the number of concurrent requests in the server when no resource is saturated.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::units::show_ns;

use super::{HALF, IDLE, per_s, percent, saturated_thread, show_idle};
use crate::why::candidate::{Candidate, EvidenceRank, Findings, not_available, ruled_out};
use crate::why::facts::{RunFacts, ThreadGroupFacts, UpstreamFacts, used};

/// Minimum share of the requests in flight that the server works on if no request waits for
/// another.
const NO_QUEUE: f64 = 0.8;

/// Range of a mean that indicates one request at a time.
pub(super) const ONE: std::ops::Range<f64> = 0.7..1.4;

/// Two numbers count as equal if their ratio is in this range. Both numbers are means of samples,
/// and service times vary.
const SAME: std::ops::RangeInclusive<f64> = 0.75..=1.34;

/// A thread group takes part in the work if it has at least this many waits per response.
const TAKES_PART: f64 = 0.3;

/// Causes that this rule distinguishes.
const CAUSES: [Cause; 4] = [
    Cause::Concurrency,
    Cause::Serialised,
    Cause::WorkerPool,
    Cause::ConnectionPool,
];

/// Returns whether CPUs were idle and the server's busiest thread was not saturated.
pub(super) fn has_spare_cpu(facts: &RunFacts<'_>) -> bool {
    let is_idle = facts
        .idle_cpus()
        .is_some_and(|(idle, cpus)| idle >= IDLE * cpus);
    is_idle && saturated_thread(facts).is_none()
}

/// Describes the idle CPUs and the server's busiest thread. Returns `None` if the number of idle
/// CPUs is unknown.
pub(super) fn show_spare_cpu(facts: &RunFacts<'_>) -> Option<String> {
    let (idle, _) = facts.idle_cpus()?;
    let busiest = facts.busiest_thread().map(|thread| {
        let on_cpu = percent(thread.on_cpu);
        format!("; busiest server thread: {on_cpu} of its time on a CPU")
    });
    Some(format!(
        "{idle:.2} CPUs idle{}",
        busiest.unwrap_or_default()
    ))
}

/// Detects a limit on the number of concurrent requests in the server.
pub(super) fn concurrency(facts: &RunFacts<'_>, findings: &mut Findings) {
    // Even without server metrics, the times show whether requests wait for each other.
    if facts.server.is_some() && !has_spare_cpu(facts) {
        for cause in CAUSES {
            findings.add(cause, show_spare_cpu(facts).and_then(ruled_out));
        }
        return;
    }
    let (Some(in_flight), Some(shortest_us)) = (facts.in_flight, facts.run.least_service_time_us)
    else {
        return;
    };
    let Some(concurrency) = facts.concurrency else {
        let missing = not_available(
            "service time without queueing (the server was cold, or requests differ)",
        );
        return findings.add(Cause::Concurrency, missing);
    };
    let figure =
        format!("the server works on {concurrency:.1} of {in_flight:.1} requests in flight");
    let connections = f64::from(facts.run.plan.connections);
    let shortest = show_ns(shortest_us * 1e3);
    let times = format!(
        "service time: shortest {shortest} (least_service_time_us), mean {}; at {}, {figure}",
        show_ns(facts.run.service_time_us.mean.unwrap_or(shortest_us) * 1e3),
        per_s(facts.ok_per_s)
    );
    let idle = facts.idle_cpus().map(show_idle);
    let evidence: Vec<String> = [times].into_iter().chain(idle).collect();
    let limit_of = |count: f64| count / (shortest_us / 1e6);
    let is_closed = !facts.run.plan.is_open();
    if is_closed && concurrency >= NO_QUEUE * connections.min(in_flight) {
        let limit = limit_of(connections);
        let more = (connections * 4.0).max(50.0);
        let candidate = Candidate::new(
            EvidenceRank::Demand,
            format!(
                "{connections:.0} concurrent requests are too few: each takes {shortest}, and no request \
                 waits for another"
            ),
            evidence,
            format!("use more connections: -c {more:.0}"),
        );
        return findings.add(
            Cause::Concurrency,
            candidate.with_limit(Some(limit)).found(),
        );
    }
    if facts.server.is_none() {
        let why = format!(
            "the reason why {figure}: without server metrics, a saturated CPU, a saturated thread, a lock and a pool look alike"
        );
        findings.add(Cause::Concurrency, ruled_out(figure));
        return findings.add(Cause::Concurrency, not_available(why));
    }
    let limit = limit_of(concurrency.round().max(1.0));
    let found = limits_in_server(facts, concurrency, &figure);
    let candidates = found.iter().chain(&findings.candidates);
    let named: Vec<Cause> = candidates.map(|(cause, _)| *cause).collect();
    let others = CAUSES.iter().filter(|cause| !named.contains(cause));
    if others.clone().count() == CAUSES.len() {
        let missing = format!(
            "the cause that limits the server to {concurrency:.1} requests at once: no pool of this size was found"
        );
        findings.add(Cause::Concurrency, not_available(missing));
    }
    for cause in others {
        findings.add(*cause, ruled_out(&figure));
    }
    for (cause, mut candidate) in found {
        candidate.evidence.splice(..0, evidence.iter().cloned());
        findings.add(cause, candidate.with_limit(Some(limit)).found());
    }
}

/// Finds the cause that limits the server to `concurrency` requests.
fn limits_in_server(
    facts: &RunFacts<'_>,
    concurrency: f64,
    figure: &str,
) -> Vec<(Cause, Candidate)> {
    let mut found = Vec::new();
    let mut add = |cause, summary: &str, evidence, next: &str| {
        let candidate = Candidate::new(EvidenceRank::Waiting, summary, evidence, next);
        found.push((cause, candidate));
    };
    let raise_threads = raise(facts, concurrency, "thread");
    let mut groups = facts.thread_groups.iter();
    let pool = groups.find(|group| is_pool(group, concurrency, facts));
    if let Some(group) = pool {
        let (name, count) = (&group.name, group.threads.round());
        let place = group
            .waits_in
            .first()
            .map(|(function, threads)| format!("; {threads:.1} wait in {function} (wchan)"));
        add(
            Cause::WorkerPool,
            &format!("all {count:.0} worker threads (\"{name}\") wait while {figure}"),
            vec![format!(
                "threads \"{name}\": {count:.0}, {} waits per second, {:.2} CPUs{}",
                group.waits_per_s.round(),
                group.on_cpu,
                place.unwrap_or_default()
            )],
            &raise_threads,
        );
    }
    let mut upstreams = facts.upstreams.iter();
    let full_upstream = upstreams.find(|upstream| is_exhausted(upstream, concurrency));
    if let Some(upstream) = full_upstream {
        let (address, count) = (&upstream.address, upstream.established.round());
        add(
            Cause::ConnectionPool,
            &format!("all {count:.0} connections from the server to {address} are in use"),
            vec![format!(
                "{:.1} of {count:.0} connections to {address} wait for a response (sock_diag)",
                upstream.perhaps_waiting
            )],
            &raise(facts, concurrency, "connection"),
        );
    }
    // The kernel truncates thread names to 15 bytes, so pools can share a name. A server setting
    // near `concurrency` then identifies the pool.
    let setting = setting_near(&facts.run.setting, concurrency, "thread")
        .filter(|(name, _)| name.contains("thread") && !ONE.contains(&concurrency));
    if let (Some((name, value)), None, None) = (setting, pool, full_upstream) {
        let waiting = facts.upstreams.iter().find_map(|upstream| {
            let waiting = upstream
                .waiting
                .filter(|waiting| same(concurrency, *waiting))?;
            Some(format!(
                "{waiting:.1} of {:.0} connections to {} wait for a response",
                upstream.established.round(),
                upstream.address
            ))
        });
        let set_to = format!("server setting `{name}`: {value}");
        add(
            Cause::WorkerPool,
            &format!("`{name}` ({value}) limits concurrency: {figure}"),
            [set_to].into_iter().chain(waiting).collect(),
            &raise_threads,
        );
    }
    // A server that uses half a CPU or more is mostly running rather than waiting for a lock.
    if ONE.contains(&concurrency) && pool.is_none() && used(&facts.server) < HALF {
        add(
            Cause::Serialised,
            "the server processes one request at a time, for example because of a lock or a single writer",
            Vec::new(),
            "find out what all requests share (a lock, an actor, a queue), and split or shorten it",
        );
    }
    found
}

/// Returns the next step for a limit. The step names a setting whose value is near the limit.
fn raise(facts: &RunFacts<'_>, concurrency: f64, kind: &str) -> String {
    setting_near(&facts.run.setting, concurrency, kind).map_or_else(
        || "raise the limit, or make requests shorter".to_owned(),
        |(name, value)| format!("raise `{name}` (now {value}), or make requests shorter"),
    )
}

/// Returns a setting whose value is near `concurrency`. Settings whose names contain `kind` come
/// first.
pub(in crate::why) fn setting_near<'a>(
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

/// Minimum share of an event loop's threads that wait for events.
const EVENT_LOOP: f64 = 0.25;

/// Returns whether a thread group is an exhausted pool: its size equals the number of concurrent
/// requests, its threads take part in the work, and the threads do not wait for events.
pub(super) fn is_pool(group: &ThreadGroupFacts, concurrency: f64, facts: &RunFacts<'_>) -> bool {
    let takes_part =
        |group: &ThreadGroupFacts| group.waits_per_s >= TAKES_PART * facts.responses_per_s;
    let in_event_loop = group.waiting_in(|f| f.contains("ep_poll") || f.contains("epoll_wait"));
    if !takes_part(group) || in_event_loop >= EVENT_LOOP * group.threads {
        return false;
    }
    if ONE.contains(&concurrency) {
        // A pool of one thread must be the only thread group at work. Otherwise, other threads wait
        // for that thread.
        let groups = facts.thread_groups.iter();
        return groups.filter(|of| takes_part(of)).count() == 1 && group.threads < ONE.end;
    }
    same(concurrency, group.threads) || same(concurrency, group.at_work)
}

/// Minimum share of an exhausted pool's connections that wait for a response. The server holds the
/// other connections between two requests.
const IN_USE: f64 = 0.75;

/// Returns whether all connections of a pool wait for responses, and the size of the pool equals
/// the number of concurrent requests. A connection reused within a clock tick counts as waiting.
fn is_exhausted(upstream: &UpstreamFacts, concurrency: f64) -> bool {
    upstream.perhaps_waiting >= IN_USE * upstream.established
        && same(concurrency, upstream.established)
}

fn same(a: f64, b: f64) -> bool {
    b > 0.0 && SAME.contains(&(a / b))
}
