//! How many requests the server works on at once, where no resource is full.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::units::show_ns;

use super::{HALF, IDLE, NEARLY, client, per_s, percent};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::{Facts, ThreadKind, Upstream};

/// From this share of the requests under way on that are worked on, none waits for another.
const ALL: f64 = 0.8;

/// What works on one request at a time is told from what works on two.
pub(super) const ONE: std::ops::Range<f64> = 0.7..1.4;

/// Two counts are the same within a third: both are means of readings, and times differ from request to request.
const SAME: std::ops::RangeInclusive<f64> = 0.75..=1.34;

/// Threads that do the work give the CPU up for each request at least now and then.
const TAKES_PART: f64 = 0.3;

/// Whether CPUs were idle that the server might use, and its busiest thread was not full.
pub(super) fn has_time(facts: &Facts<'_>) -> bool {
    let idle = facts
        .idle_to_server()
        .is_some_and(|(idle, of)| idle >= IDLE * of);
    let busiest = facts.server.as_ref().and_then(|s| s.busiest.as_ref());
    idle && busiest.is_none_or(|busiest| busiest.busy() < NEARLY)
}

/// How many CPUs were idle, and how full the server's busiest thread was.
pub(super) fn idle(facts: &Facts<'_>, idle: f64) -> String {
    let busiest = facts.server.as_ref().and_then(|s| s.busiest.as_ref());
    let busiest = busiest.map_or_else(String::new, |busiest| {
        format!(
            ", and the server's busiest thread was on one for {}",
            percent(busiest.on_cpu)
        )
    });
    format!("{idle:.2} CPUs were idle{busiest}")
}

/// What limits the number of requests that are worked on at once.
pub(super) fn at_once(facts: &Facts<'_>, findings: &mut Findings) {
    const AMONG: [Cause; 4] = [
        Cause::Concurrency,
        Cause::Serialised,
        Cause::WorkerPool,
        Cause::ConnectionPool,
    ];
    let idle = facts.idle_to_server();
    // Of a server of which nothing is known it is at least seen whether requests wait for one another at all.
    if facts.server.is_some() {
        let Some((idle, _)) = idle else {
            return;
        };
        if !has_time(facts) {
            let said = self::idle(facts, idle);
            for cause in AMONG {
                findings.not(cause, said.clone());
            }
            return;
        }
    }
    let (Some(under_way), Some(least_us)) = (facts.under_way, facts.run.least_service_time_us)
    else {
        return;
    };
    let Some(at_once) = facts.at_once else {
        findings.unseen.push(
            "how long a request takes that meets no other (the server was cold, or was asked different things): without it waiting for one \
             another is not told from work"
                .to_owned(),
        );
        return;
    };
    let mut evidence = vec![format!(
        "the shortest of all answers took {} (least_service_time_us), the mean {}: at {} the server works on {at_once:.1} requests at \
             once, of {under_way:.1} under way",
        show_ns(least_us * 1e3),
        show_ns(facts.run.service_time_us.mean.unwrap_or(least_us) * 1e3),
        per_s(facts.ok_per_s)
    )];
    evidence
        .extend(idle.map(|(idle, cpus)| format!("{idle:.2} of {cpus:.0} CPUs idle (/proc/stat)")));
    let said =
        format!("the server works on {at_once:.1} requests at once, of {under_way:.1} under way");
    let limit = |count: f64| Some(count / (least_us / 1e6));
    let mut found = |cause: Cause,
                     limit_per_s: Option<f64>,
                     summary: String,
                     more: Vec<String>,
                     next: String| {
        findings.found(Candidate {
            cause,
            shown: match cause {
                Cause::Concurrency => Shown::Asked,
                _ => Shown::Waiting,
            },
            used: 1.0,
            limit_per_s,
            summary,
            evidence: evidence.iter().cloned().chain(more).collect(),
            next,
            takes: None,
        });
    };
    let connections = f64::from(facts.run.plan.connections);
    if client::is_closed(facts) && at_once >= ALL * connections.min(under_way) {
        found(
            Cause::Concurrency,
            limit(connections),
            format!(
                "{connections:.0} requests at a time are all that is asked, and none waits for another: each takes {}, so no more than {} \
                 can come of it",
                show_ns(least_us * 1e3),
                per_s(connections / (least_us / 1e6))
            ),
            Vec::new(),
            format!(
                "load it with more connections (-c {:.0})",
                (connections * 4.0).max(50.0)
            ),
        );
        return;
    }
    if facts.server.is_none() {
        findings.not(Cause::Concurrency, said.clone());
        findings.unseen.push(format!(
            "why {said}: its CPU, one thread of it, a lock and a pool all look alike from here"
        ));
        return;
    }
    findings_of_few(facts, at_once, &said, &mut found);
    let named = |cause: &Cause| findings.candidates.iter().any(|c| c.cause == *cause);
    let others: Vec<Cause> = AMONG.into_iter().filter(|cause| !named(cause)).collect();
    let none = others.len() == AMONG.len();
    for cause in others {
        findings.not(cause, said.clone());
    }
    if none {
        findings.unseen.push(format!(
            "what lets the server work on {at_once:.1} requests at once and no more: no kind of its threads, and no connections of its own, \
             are as many"
        ));
    }
}

/// Says what was found: cause, most requests per second, summary, evidence, next step.
type Say<'a> = dyn FnMut(Cause, Option<f64>, String, Vec<String>, String) + 'a;

/// What it is that works on few requests at once.
fn findings_of_few(facts: &Facts<'_>, at_once: f64, said: &str, found: &mut Say<'_>) {
    let limit = facts
        .run
        .least_service_time_us
        .map(|us| at_once.round().max(1.0) / (us / 1e6));
    if let Some(kind) = facts
        .kinds
        .iter()
        .find(|kind| is_pool(kind, at_once, facts))
    {
        let count = kind.threads.round();
        let place = kind.waits_in.first();
        found(
            Cause::WorkerPool,
            limit,
            format!(
                "all {count:.0} threads \"{}\" that do the work wait: {said}, and CPUs are idle",
                kind.name
            ),
            vec![format!(
                "{count:.0} threads \"{}\", {} waits a second, {:.2} CPUs{}",
                kind.name,
                kind.waits_per_s.round(),
                kind.on_cpu,
                place.map_or_else(String::new, |(function, threads)| format!(
                    "; {threads:.1} of them found in {function} (wchan)"
                ))
            )],
            format!(
                "the pool of threads is full of calls that wait: {}",
                raise(facts, at_once, "thread")
            ),
        );
    }
    if let Some(upstream) = facts
        .upstreams
        .iter()
        .find(|upstream| is_full(upstream, at_once))
    {
        let count = upstream.established.round();
        found(
            Cause::ConnectionPool,
            limit,
            format!(
                "all {count:.0} connections of the server to {} wait for an answer all the time, and requests wait for one of them",
                upstream.address
            ),
            vec![format!(
                "{:.1} of {count:.0} connections to {} wait for an answer (tcpi_last_data_sent not before tcpi_last_data_recv)",
                upstream.perhaps_waiting, upstream.address
            )],
            format!(
                "the pool of connections is full: {}, or look at why an answer from there takes so long",
                raise(facts, at_once, "connection")
            ),
        );
    }
    let pool = facts.kinds.iter().any(|kind| is_pool(kind, at_once, facts));
    let full = facts
        .upstreams
        .iter()
        .any(|upstream| is_full(upstream, at_once));
    // Threads of several pools may have one name as far as the kernel keeps it (15 bytes): then the server's own setting says which of
    // them are as many as are worked on.
    let set = knob(&facts.run.setting, at_once, "thread")
        .filter(|(name, _)| name.contains("thread") && !ONE.contains(&at_once));
    if let (Some((name, value)), false, false) = (set, pool, full) {
        let waiting = facts.upstreams.iter().find_map(|upstream| {
            let waiting = upstream.waiting.filter(|waiting| same(at_once, *waiting))?;
            Some(format!(
                "{waiting:.1} of {:.0} connections to {} wait for an answer at a time: there are more than are used",
                upstream.established.round(),
                upstream.address
            ))
        });
        let evidence = format!("`{name}` of the server is set to {value}");
        found(
            Cause::WorkerPool,
            limit,
            format!(
                "as many requests are worked on at once as `{name}` allows threads ({value}): {said}, and CPUs are idle"
            ),
            [evidence].into_iter().chain(waiting).collect(),
            format!(
                "the pool of threads is full of calls that wait: {}",
                raise(facts, at_once, "thread")
            ),
        );
    }
    // What runs most of that time does not wait for others: it is one thread's work.
    let runs = facts
        .server
        .as_ref()
        .is_some_and(|server| server.used >= HALF);
    if ONE.contains(&at_once) && !pool && !runs {
        found(
            Cause::Serialised,
            limit,
            "one request at a time is worked on, and all others wait for it: a lock, an actor or a single writer that each of them goes \
             through"
                .to_owned(),
            Vec::new(),
            "find what all requests go through (a lock, an actor, a queue with one reader), and split it or make it shorter".to_owned(),
        );
    }
}

/// What to do about a limit: the knob of the server that is set to it is named.
fn raise(facts: &Facts<'_>, at_once: f64, called: &str) -> String {
    knob(&facts.run.setting, at_once, called).map_or_else(
        || "raise it, or make each request shorter".to_owned(),
        |(name, value)| format!("raise `{name}` (it is {value}), or make each request shorter"),
    )
}

/// The knob that is set to as many as are worked on at once, of several the one that is called for what is limited.
pub(in crate::why) fn knob<'a>(
    settings: &'a BTreeMap<String, String>,
    at_once: f64,
    called: &str,
) -> Option<(&'a str, &'a str)> {
    let set_to_it = |value: &str| {
        let value = value.parse::<f64>();
        value.is_ok_and(|value| same(at_once, value))
    };
    let knobs = settings.iter().filter(|(_, value)| set_to_it(value));
    let knobs: Vec<(&str, &str)> = knobs.map(|(name, value)| (&**name, &**value)).collect();
    let named = knobs.iter().find(|(name, _)| name.contains(called));
    named.or(knobs.first()).copied()
}

/// From this share of a kind's threads on that wait for events, it is no pool of threads that wait for something else.
const FOR_EVENTS: f64 = 0.25;

/// Whether threads of a kind are as many as the requests that are worked on, do that work, and wait for something else than work.
pub(super) fn is_pool(kind: &ThreadKind, at_once: f64, facts: &Facts<'_>) -> bool {
    let takes_part = |kind: &ThreadKind| kind.waits_per_s >= TAKES_PART * facts.answered_per_s;
    // An event loop waits for events: what it works on is in no thread.
    let for_events = kind.waiting_in(|f| f.contains("ep_poll") || f.contains("epoll_wait"));
    if !takes_part(kind) || for_events >= FOR_EVENTS * kind.threads {
        return false;
    }
    if ONE.contains(&at_once) {
        // One thread is a pool only where no other does any work: else it is one that the others wait for, or one of many that tick.
        let alone = facts.kinds.iter().filter(|kind| takes_part(kind)).count() == 1;
        return alone && kind.threads < ONE.end;
    }
    same(at_once, kind.threads) || same(at_once, kind.at_work)
}

/// From this share of a pool's connections on that wait, it is full: between two uses one is with the server, however many want it.
const BUSY: f64 = 0.75;

/// Whether all connections wait, and are as many as the requests that are worked on. One that is used again at once has sent within the
/// tick in which it received: it counts as one that waits, for an idle pool is as large as what is worked on by chance alone.
fn is_full(upstream: &Upstream, at_once: f64) -> bool {
    upstream.perhaps_waiting >= BUSY * upstream.established && same(at_once, upstream.established)
}

fn same(a: f64, b: f64) -> bool {
    b > 0.0 && SAME.contains(&(a / b))
}
