//! The server limits the request rate: it rejects requests, or delays them to keep a constant rate.

use floodmark_record::cause::Cause;
use floodmark_record::path::{Actor, StepKind};
use floodmark_record::run::Run;
use floodmark_record::units::show_count;

use super::{CauseSpec, Detect, Place, Tuning};
use crate::text::{per_s, show_idle};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::{RunFacts, seconds};
use crate::why::graph::Service;
use crate::why::proof::CauseClass;
use crate::why::thresholds::NOTICEABLE;

pub(super) static SPEC: CauseSpec = CauseSpec {
    shows_at_once: true,
    class: Some(CauseClass::Waiting),
    tuning: Tuning::Stop,
    ..CauseSpec::new(
        Cause::RateLimiter,
        Place::Responses,
        Detect::Waits(detect),
    )
};

fn detect(facts: &RunFacts<'_>, service: &Service) -> Option<Finding> {
    match rejecting(facts) {
        found @ Some(Finding::Limit(_)) => found,
        _ if service.delays_responses() => delaying(facts).found(),
        other => other,
    }
}

/// Returns whether the rejections could come from a rate limiter. A rate limiter accepts some requests
/// every second, or responds with status 429. A server that responds with 503 for a while has failed.
pub(super) fn is_limited(run: &Run) -> bool {
    let count = |status: u16| run.requests.statuses.get(&status).copied().unwrap_or(0);
    let mut seconds = seconds(run);
    run.requests.ok > 0
        && (count(429) > count(503) || seconds.all(|row| row.throughput_per_s > 0.0))
}

/// Detects a rate limiter from responses with status 429 or 503.
fn rejecting(facts: &RunFacts<'_>) -> Option<Finding> {
    let counts = &facts.run.requests;
    let responses = counts.ok + counts.rejected + counts.wrong + counts.malformed;
    let share = counts.rejected as f64 / responses.max(1) as f64;
    let rejected = format!(
        "{:.1} % of the responses had status 429 or 503",
        share * 100.0
    );
    if share < NOTICEABLE {
        return ruled_out(rejected);
    }
    if !is_limited(facts.run) {
        return ruled_out(match counts.ok {
            0 => "no response was ok",
            _ => "part of the run had no ok response",
        });
    }
    let accepted = per_s(facts.ok_per_s);
    Candidate::new(
        EvidenceRank::Counted,
        format!("the server accepts {accepted} and rejects the rest: {rejected}"),
        vec![format!(
            "requests.rejected: {} of {} responses; ok: {accepted} of {}",
            show_count(counts.rejected),
            show_count(responses),
            per_s(facts.responses_per_s)
        )],
        format!("raise the server's limit, or measure latency below {accepted}"),
    )
    .at([(StepKind::RateLimit, Actor::Server)])
    .with_limit(Some(facts.ok_per_s))
    .found()
}

/// Returns the candidate for a rate limiter that delays requests instead of rejecting them.
fn delaying(facts: &RunFacts<'_>) -> Candidate {
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
