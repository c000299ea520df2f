//! Many requests failed: unexpected or malformed responses, rejections that no rate limiter
//! explains, or no response at all.

use floodmark_record::grpc::{GrpcStatus, ResponseStatus};
use floodmark_record::plan::Http;
use floodmark_record::reason::FIX_STOPPED;

use super::rate_limiter::{is_limited, responses};
use super::*;
use crate::failures::{refused, reset_streams, response_fault};
use crate::silence;
use crate::text::show_s;
use crate::validity::MIN_LENGTH_S;
use crate::why::facts::AcceptQueue;

pub(super) static SPEC: CauseSpec = CauseSpec {
    interrupts: Some(stopped),
    explained_by: &[Cause::RateLimiter, Cause::ServerFds],
    explanation: |facts, _| {
        let (failed, lost) = (failed_share(facts.run), lost_share(facts.run));
        let is_limiter = failed.max(lost) < MOST && is_limited(facts.run);
        let is_full = |queue: AcceptQueue| queue.is_long && queue.is_out_of_files;
        let is_minor = is_limiter || lost > failed && facts.accept_queue().is_some_and(is_full);
        is_minor.then_some(Effect::Minor)
    },
    shows_at_once: true,
    live: Some(suspect),
    ..CauseSpec::new(Cause::Errors, Place::Responses, detect)
};

fn suspect(recent: &RecentFigures) -> Option<Suspicion> {
    let share = recent.failed_share;
    let text = format!("{} of the requests fail", percent(share));
    (share >= RARE).then_some(("limited by errors", text))
}

/// Returns the candidate for a server that stopped responding.
fn stopped(facts: &RunFacts<'_>) -> Option<Candidate> {
    let summary = silence::show_stop(facts.run)?;
    let evidence = format!("requests without a response: {}", unanswered(facts.run));
    let candidate = Candidate::new(EvidenceRank::Counted, summary, [evidence], FIX_STOPPED);
    Some(candidate.at([(StepKind::Errors, Actor::Server)]))
}

/// Lists how many requests received no response, by reason. Returns an empty string if all requests
/// received a response.
fn unanswered(run: &Run) -> String {
    let counts = &run.requests;
    let outcomes = [
        ("could not connect", counts.connect_failed),
        (lost(run), counts.reset),
        ("timed out", counts.timed_out),
        ("failed otherwise", counts.failed),
        ("were in flight at the end", counts.in_flight_at_end),
    ];
    let outcomes = outcomes.iter().filter(|(_, n)| *n > 0);
    let outcomes = outcomes.map(|(outcome, n)| format!("{} {outcome}", show_count(*n)));
    outcomes.collect::<Vec<_>>().join(", ")
}

/// Describes what requests with the outcome `reset` lost.
fn lost(run: &Run) -> &'static str {
    match run.plan.http {
        Http::V1 => "lost their connection",
        Http::V2(_) => "lost their connection or stream",
    }
}

/// Returns the share of the responses that were failures. Rejections by a rate limiter do not count
/// as failures.
fn failed_share(run: &Run) -> f64 {
    let (counts, responses) = (&run.requests, responses(run));
    let limited = if is_limited(run) { counts.rejected } else { 0 };
    (responses - counts.ok - limited) as f64 / responses as f64
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    let (counts, responses) = (&run.requests, responses(run));
    if responses == 0 {
        return no_response(facts);
    }
    let share = failed_share(run);
    let lost = lost_share(run);
    if lost >= share.max(NOTICEABLE) {
        return lost_connections(facts, lost);
    }
    if share < NOTICEABLE {
        let percent = share * 100.0;
        return ruled_out(format!(
            "{percent:.1} % of the responses were unexpected or malformed"
        ));
    }
    let is_limited = is_limited(run);
    let most_frequent = counts
        .by_status()
        .filter(|(status, _)| !status.is_success())
        .filter(|(status, _)| !(is_limited && status.is_rejection()))
        .max_by_key(|(_, n)| *n);
    let fault = response_fault(run)
        .filter(|_| counts.malformed > counts.wrong + counts.rejected)
        .or_else(|| refused(run));
    let kind = match (&fault, most_frequent) {
        (Some(fault), _) => fault.problem.clone(),
        (None, Some((status, n))) => format!("status {status}: {}", show_count(n)),
        (None, None) => "unexpected body".to_owned(),
    };
    Candidate::new(
        EvidenceRank::Counted,
        format!(
            "{} of the responses were failures ({kind}){}",
            percent(share),
            match counts.ok {
                0 => "",
                _ => ", which can be faster than successes",
            }
        ),
        [format!(
            "requests.rejected: {}, requests.wrong: {}, requests.malformed: {}, of {} responses; ok: {} of {}",
            show_count(counts.rejected),
            show_count(counts.wrong),
            show_count(counts.malformed),
            show_count(responses),
            per_s(facts.ok_per_s),
            per_s(facts.responses_per_s)
        )],
        match (fault, most_frequent) {
            (Some(fault), _) => fault.fix,
            (None, Some((status, _))) if is_unknown(status) => {
                "check the method and path of the request".into()
            }
            (None, Some((status, _))) if lacks_credentials(status) => {
                "add the required credentials (-H 'Authorization: ...')".into()
            }
            (None, _) => "check the server's log; count only successful responses".into(),
        },
    )
    .at([(StepKind::Errors, Actor::Server)])
    .found()
}

/// Returns whether the server does not know the method or path.
fn is_unknown(status: ResponseStatus) -> bool {
    matches!(status.http, 404 | 405) || status.grpc == Some(GrpcStatus::Unimplemented)
}

/// Returns whether the server requires credentials.
fn lacks_credentials(status: ResponseStatus) -> bool {
    let is_denied = |status| {
        matches!(
            status,
            GrpcStatus::Unauthenticated | GrpcStatus::PermissionDenied
        )
    };
    matches!(status.http, 401 | 403) || status.grpc.is_some_and(is_denied)
}

/// Returns the share of the requests that lost their connection, of those and the answered ones.
fn lost_share(run: &Run) -> f64 {
    let reset = run.requests.reset;
    reset as f64 / (responses(run) + reset).max(1) as f64
}

/// Handles a run in which many requests lost their connection before the response. A cause that
/// explains these losses has a higher utilization and ranks first.
fn lost_connections(facts: &RunFacts<'_>, share: f64) -> Option<Finding> {
    let (lost, reset) = (lost(facts.run), reset_streams(facts.run));
    let next = match &reset {
        Some(fault) => &*fault.fix,
        None => "check the server's log and its limits on connections",
    };
    let reason = reset
        .as_ref()
        .map_or_else(String::new, |fault| format!(": {}", fault.problem));
    Candidate::new(
        EvidenceRank::Counted.unless_minor(share < MOST),
        format!(
            "{} of the requests {lost} before the response{reason}",
            percent(share)
        ),
        [format!(
            "requests: {}, {} responses",
            unanswered(facts.run),
            show_count(responses(facts.run))
        )],
        next,
    )
    .with_share(share)
    .at([(StepKind::Errors, Actor::Server)])
    .found()
}

/// Handles a run without any response.
fn no_response(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    let outcomes = unanswered(run);
    if outcomes.is_empty() {
        return ruled_out("no responses and no failed requests");
    }
    let errors: Vec<String> = run
        .request_errors()
        .map(|(error, n)| format!("{error} × {}", show_count(n)))
        .collect();
    let mut evidence = vec![format!("requests: {outcomes}, 0 responses")];
    if !errors.is_empty() {
        evidence.push(format!("errors: {}", errors.join(", ")));
    }
    let counts = &run.requests;
    if run.sending_s < MIN_LENGTH_S && counts.sent > 0 && counts.in_flight_at_end == counts.sent {
        return None;
    }
    let unanswered = counts.timed_out + counts.in_flight_at_end;
    let (target, sent) = (&run.plan.target, counts.sent);
    let (summary, next) = if let Some(fault) = response_fault(run) {
        (fault.problem, fault.fix.into_owned())
    } else if unanswered as f64 >= MOST * sent.max(1) as f64 {
        (
            format!(
                "the server never responded: {} of {} got no response within {}",
                show_count(unanswered),
                plural(sent, "request"),
                show_s(run.sending_s.min(run.plan.timeout.as_secs_f64())),
            ),
            FIX_STOPPED.to_owned(),
        )
    } else {
        (
            "no request received a response, so the server was not measured".to_owned(),
            format!(
                "check that the server listens on {} (curl -i {})",
                target.authority, target.url
            ),
        )
    };
    // A cause that prevents the client from sending requests, or the server from accepting
    // connections, is more specific, so this candidate is minor.
    Candidate::new(EvidenceRank::Minor, summary, evidence, next)
        .at([(StepKind::Errors, Actor::Server)])
        .found()
}
