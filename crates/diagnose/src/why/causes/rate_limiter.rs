//! The server limits the request rate: it rejects requests, or delays them to keep a constant rate.

use floodmark_record::grpc::GrpcStatus;

use super::*;
use crate::failures::{refused, rejection_statuses};
use crate::why::facts::seconds;

pub(super) static SPEC: CauseSpec = CauseSpec {
    shows_at_once: true,
    class: Some(CauseClass::Waiting),
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::RateLimiter, Place::Responses, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    match rejecting(facts) {
        found @ Some(Finding::Limit(_)) => found,
        _ if facts.service().delays_responses() => delaying(facts).found(),
        other => other,
    }
}

/// Returns whether the rejections could come from a rate limiter. A rate limiter accepts some
/// requests every second, or responds with status 429. A server that responds only with 503 for a
/// while has failed. A server that refuses streams has another limit.
pub(super) fn is_limited(run: &Run) -> bool {
    let counts = &run.requests;
    let count = |http: u16, grpc| {
        let of_http = counts.statuses.get(&http).copied().unwrap_or(0);
        of_http + counts.grpc_statuses.get(&grpc).copied().unwrap_or(0)
    };
    let limited = count(429, GrpcStatus::ResourceExhausted);
    let unavailable = count(503, GrpcStatus::Unavailable);
    let mut seconds = seconds(run);
    refused(run).is_none()
        && run.requests.ok > 0
        && (limited > unavailable || seconds.all(|row| row.throughput_per_s > 0.0))
}

/// Returns the number of responses.
pub(super) fn responses(run: &Run) -> u64 {
    let counts = &run.requests;
    counts.ok + counts.rejected + counts.wrong + counts.malformed
}

/// Detects a rate limiter from responses with status 429 or 503.
fn rejecting(facts: &RunFacts<'_>) -> Option<Finding> {
    let (counts, responses) = (&facts.run.requests, responses(facts.run));
    let share = counts.rejected as f64 / responses.max(1) as f64;
    let rejected = format!(
        "{:.1} % of the responses had status {}",
        share * 100.0,
        rejection_statuses(facts.run)
    );
    if share < NOTICEABLE {
        return ruled_out(rejected);
    }
    if let Some(fault) = refused(facts.run) {
        return ruled_out(fault.problem);
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
        [format!(
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
