//! A limit on the number of requests in service, and how a verdict presents it.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::path::{Actor, ActorResource, PathStep, Place, StepKind};
use floodmark_record::units::show_ns;

use crate::text::{per_s, show_idle};
use crate::why::candidate::{Candidate, EvidenceRank};
use crate::why::facts::RunFacts;
use crate::why::thresholds::{SAME, same};

/// Kind of resource that limits the number of requests in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// All threads of a group are in use.
    Threads,
    /// A limited number of requests hold permits; the others wait.
    Permits,
    /// One request holds a lock; the others wait.
    Lock,
    /// All connections to another process are in use.
    Connections,
}

/// A limit on the number of requests in service.
pub(super) struct ServiceLimit {
    pub(super) holder: Holder,
    /// Mean number of requests in service.
    pub(super) held: f64,
    /// Name of the thread group, if the limit was found from thread states.
    pub(super) group: Option<String>,
    /// What the requests in service wait for.
    pub(super) resource: PathStep,
    pub(super) evidence: Vec<String>,
}

impl ServiceLimit {
    /// Returns whether requests wait for a write to a file or pipe, such as a log.
    fn waits_for_writes(&self) -> bool {
        matches!(self.resource.kind, StepKind::Disk | StepKind::Pipe)
    }

    /// Returns whether the resource is a log, or a file of unknown name.
    fn is_log(&self) -> bool {
        match &self.resource.who.resource {
            None | Some(ActorResource::Log(_)) => true,
            Some(ActorResource::Address(path)) => path.contains("log"),
            Some(ActorResource::Memory | ActorResource::ThreadGroup(_)) => false,
        }
    }

    pub(super) fn cause(&self) -> Cause {
        match (self.resource.kind, self.holder) {
            (StepKind::Pipe, _) => Cause::SyncLogging,
            (StepKind::Disk, _) if self.is_log() => Cause::SyncLogging,
            (StepKind::Disk, _) => Cause::Disk,
            (_, Holder::Connections) | (StepKind::Connections, Holder::Permits) => {
                Cause::ConnectionPool
            }
            (_, Holder::Lock) => Cause::Serialised,
            (_, Holder::Threads | Holder::Permits) => Cause::WorkerPool,
        }
    }

    /// Returns the steps from the requests in flight to the resource.
    fn path(&self) -> Vec<PathStep> {
        let kind = match self.holder {
            Holder::Threads => StepKind::Threads,
            Holder::Permits => StepKind::Permits,
            Holder::Lock => StepKind::Lock,
            Holder::Connections => return vec![self.resource.clone()],
        };
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
        let holder = PathStep::new(kind, who, basis).with_waiting(self.held);
        vec![holder, self.resource.clone()]
    }

    pub(super) fn candidate(&self, facts: &RunFacts<'_>, figure: &str) -> Candidate {
        let (count, resource) = (self.held.round(), &self.resource);
        let group = self.group.as_ref();
        let name = group
            .map(|group| format!(" (\"{group}\")"))
            .unwrap_or_default();
        let summary = match self.holder {
            _ if self.waits_for_writes() => {
                format!("requests wait for the server's writes: {resource}")
            }
            Holder::Threads if count <= 1.0 => {
                format!("the only worker thread{name} waits while {figure}")
            }
            Holder::Threads => format!("all {count:.0} worker threads{name} wait while {figure}"),
            Holder::Permits => format!(
                "the server limits itself to {count:.0} requests at once (a pool or a semaphore): {figure}"
            ),
            Holder::Lock => "the server processes one request at a time, for example because of a lock or a single writer".to_owned(),
            Holder::Connections => format!(
                "all {count:.0} connections from the server to the {} are in use", resource.who
            ),
        };
        let kind = match self.holder {
            Holder::Connections => "connection",
            _ => "thread",
        };
        let next = match (self.holder, setting_near(&facts.run.setting, self.held, kind)) {
            _ if self.waits_for_writes() => {
                "log less, log from a separate thread, or flush less often".to_owned()
            }
            (Holder::Lock, _) => "find out what all requests share (a lock, an actor, a queue), and split or shorten it".to_owned(),
            (_, Some((name, value))) => {
                format!("raise `{name}` (now {value}), or make requests shorter")
            }
            (_, None) => "raise the limit, or make requests shorter".to_owned(),
        };
        let rank = match self.waits_for_writes() {
            true => EvidenceRank::Located,
            false => EvidenceRank::Waiting,
        };
        // Requests that one thread handles together each wait for the others, so their service times
        // show no limit.
        let is_shown = |requests: f64| requests <= SAME.end() * self.held;
        let shown = facts.concurrency.is_some_and(is_shown);
        let shortest_us = facts.run.least_service_time_us.filter(|_| shown);
        let limit = shortest_us.map(|us| self.held.round().max(1.0) / (us / 1e6));
        let mut evidence: Vec<String> = match facts.concurrency.is_none() || shown {
            true => evidence_of_times(facts),
            false => facts.idle_cpus().map(show_idle).into_iter().collect(),
        };
        evidence.extend(self.evidence.iter().cloned());
        evidence.push(format!("{resource} ({})", resource.basis));
        Candidate::new(rank, summary, evidence, next)
            .with_limit(limit)
            .via(self.path())
    }
}

/// Describes the service times and the idle CPUs.
pub(super) fn evidence_of_times(facts: &RunFacts<'_>) -> Vec<String> {
    let show = |us: f64| show_ns(us * 1e3);
    let times = facts.concurrency.zip(facts.run.least_service_time_us);
    let times = times.map(|(concurrency, shortest_us)| {
        format!(
            "service time: shortest {} (least_service_time_us), mean {}; at {}, the server works on \
             {concurrency:.1} requests at once",
            show(shortest_us),
            show(facts.run.service_time_us.mean.unwrap_or(shortest_us)),
            per_s(facts.responses_per_s)
        )
    });
    times
        .into_iter()
        .chain(facts.idle_cpus().map(show_idle))
        .collect()
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
