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
    let counts = &facts.run.requests;
    let of_status = counts
        .by_status()
        .filter(|(status, _)| status.is_rejection());
    let of_status: u64 = of_status.map(|(_, n)| n).sum();
    // Expected statuses are not rejections. The remaining rejected requests are refused streams,
    // which have no response.
    let rejected = of_status.min(counts.rejected);
    let responses = responses(facts.run) - (counts.rejected - rejected);
    let share_of = |n: u64| n as f64 / responses.max(1) as f64;
    let statuses = rejection_statuses(facts.run);
    let share = format!(
        "{:.1} % of the responses had status {statuses}",
        share_of(rejected) * 100.0
    );
    match refused(facts.run) {
        Some(fault) if share_of(counts.rejected) >= NOTICEABLE => return ruled_out(fault.problem),
        _ if share_of(rejected) < NOTICEABLE => return ruled_out(share),
        _ => {}
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
        format!("the server accepts {accepted} and rejects the rest: {share}"),
        [format!(
            "status {statuses}: {} of {} responses; ok: {accepted} of {}",
            show_count(rejected),
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
