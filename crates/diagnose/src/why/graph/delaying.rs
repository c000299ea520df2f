//! A rate limiter that delays requests instead of rejecting them.

use floodmark_record::path::{Actor, StepKind};

use crate::text::{per_s, show_idle};
use crate::why::candidate::{Candidate, EvidenceRank};
use crate::why::facts::RunFacts;
use crate::why::thresholds::{MOST, ONE, RARE};

/// Returns whether the server delays responses to keep a constant rate: on average, it works on
/// less than one request at a time, its CPU is idle, and it has read the requests.
pub(super) fn are_delayed(facts: &RunFacts<'_>, in_flight: f64) -> bool {
    let is_idle = facts
        .concurrency
        .is_some_and(|requests| requests < ONE.start);
    let is_unread = facts
        .unread()
        .is_none_or(|unread| unread >= MOST * in_flight);
    let mut upstreams = facts.upstreams.iter();
    let waits = upstreams.any(|upstream| upstream.perhaps_waiting >= ONE.start);
    let rates = facts.rates();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let is_constant = rates.len() > 1 && least > 0.0 && most - least <= RARE * most;
    is_idle && !is_unread && !waits && is_constant && facts.has_spare_cpu()
}

/// Returns the candidate for a rate limiter that delays requests instead of rejecting them.
pub(super) fn candidate(facts: &RunFacts<'_>) -> Candidate {
    let rate = per_s(facts.ok_per_s);
    Candidate::new(
        EvidenceRank::Waiting,
        format!("the server delays requests to keep a constant rate of {rate}"),
        facts.idle_cpus().map(show_idle),
        format!("raise the server's rate limit, or measure latency below {rate}"),
    )
    .at([(StepKind::RateLimit, Actor::Server)])
    .with_limit(Some(facts.ok_per_s))
}
