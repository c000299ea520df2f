//! Causes visible in the responses: a rate limiter, failures, and an offered rate that was met.

use floodmark_record::cause::Cause;
use floodmark_record::metric::{CgroupFigure, ProcessFigure, Role, WaitObject};
use floodmark_record::path::{Actor, StepKind};
use floodmark_record::reason::FIX_STOPPED;
use floodmark_record::run::Run;
use floodmark_record::units::show_count;
use floodmark_record::{Metric, Observation};

use crate::next::{MET_SHARE, STEP_UP};
use crate::text::{per_s, percent, plural, show_s, show_us};
use crate::validity::MIN_LENGTH_S;
use crate::why::candidate::{Candidate, EvidenceRank, Finding, Findings, ruled_out};
use crate::why::facts::{RunFacts, WindowSamples, seconds};
use crate::why::thresholds::{MOST, NOTICEABLE};
use crate::{stalled, stopped};

/// Returns the candidate for a server that stopped responding. The means over the run describe
/// neither the time before nor the time after the stop, so no other cause is judged.
pub(in crate::why) fn stopped(facts: &RunFacts<'_>) -> Option<Candidate> {
    let summary = stopped::show_since(facts.run)?;
    let evidence = format!("requests without a response: {}", unanswered(facts.run));
    let candidate = Candidate::new(EvidenceRank::Counted, summary, vec![evidence], FIX_STOPPED);
    Some(candidate.at([(StepKind::Errors, Actor::Server)]))
}

/// Returns the candidate for a server that stalled. The means over the run describe neither the
/// stall nor the rest of the run, so no other cause is judged. Returns `None`, so that other rules
/// apply, if the server used CPU time during the silence (for example for garbage collection) or
/// waited for a disk or for another process.
pub(in crate::why) fn stalled(facts: &RunFacts<'_>) -> Option<Candidate> {
    let run = facts.run;
    let stall = stalled::server_stall(run).filter(|stall| stalled::distorts_means(run, stall))?;
    let is_met = |offered: f64| facts.ok_per_s >= MET_SHARE * offered;
    let throttled = facts.samples.cgroup(CgroupFigure::ThrottledTime);
    let during = WindowSamples::between(run, stall.from_s, stall.to_s);
    let cpus = |role| {
        let mean = |figure| during.mean(Metric::Process(role, figure));
        mean(ProcessFigure::User)
            .zip(mean(ProcessFigure::System))
            .map(|(user, system)| user + system)
    };
    let server = cpus(Role::Server)?;
    let is_at_work = server.max(cpus(Role::Store).unwrap_or(0.0)) >= NOTICEABLE;
    if facts.offered_per_s.is_some_and(is_met)
        || throttled.is_some_and(|throttled| throttled >= NOTICEABLE)
        || is_at_work
        || waits_for_others(run, &during)
    {
        return None;
    }
    let window_s = run.window.to_s - run.window.from_s;
    let outside = per_s(facts.ok_per_s * window_s / (window_s - stall.total_s));
    let slowest = show_us(run.service_time_us.max);
    let evidence = [
        format!("longest service time: {slowest}"),
        format!("server: {server:.2} CPUs used during the stall (/proc/PID/stat)"),
    ];
    let candidate = Candidate::new(
        EvidenceRank::Counted,
        format!("{}; outside the stall: {outside}", stalled::show(stall)),
        evidence,
        "find out what paused the server (a stopped process, a paused container or host, its store), \
         then repeat",
    );
    Some(candidate.at([(StepKind::Stall, Actor::Server)]))
}

/// Returns whether at least one of the server's threads waits for a file or for another process most
/// of the time.
fn waits_for_others(run: &Run, during: &WindowSamples<'_>) -> bool {
    let mean = |of: &Observation| match &of.metric {
        Metric::ThreadsBlocked {
            role: Role::Server,
            object:
                WaitObject::Connection(_)
                | WaitObject::UnixSocket(_)
                | WaitObject::File(_)
                | WaitObject::AppendedFile(_),
            ..
        } => during.mean(of.metric.clone()),
        _ => None,
    };
    run.observations.iter().filter_map(mean).sum::<f64>() >= MOST
}

/// Lists the numbers of requests without a response, by reason. Returns an empty text if all
/// requests received a response.
fn unanswered(run: &Run) -> String {
    let counts = &run.requests;
    let outcomes = [
        ("could not connect", counts.connect_failed),
        ("lost their connection", counts.reset),
        ("timed out", counts.timed_out),
        ("failed otherwise", counts.failed),
        ("were in flight at the end", counts.in_flight_at_end),
    ];
    let outcomes = outcomes.iter().filter(|(_, n)| *n > 0);
    let outcomes = outcomes.map(|(outcome, n)| format!("{} {outcome}", show_count(*n)));
    outcomes.collect::<Vec<_>>().join(", ")
}

/// Returns whether rejections can come from a rate limiter. A limiter accepts requests in each second,
/// or responds with status 429. A server that responds with 503 for a while has failed.
fn is_limited(run: &Run) -> bool {
    let count = |status: u16| run.requests.statuses.get(&status).copied().unwrap_or(0);
    let mut seconds = seconds(run);
    run.requests.ok > 0
        && (count(429) > count(503) || seconds.all(|row| row.throughput_per_s > 0.0))
}

/// Detects a rate limiter from responses with status 429 or 503.
pub(in crate::why) fn rate_limiter(facts: &RunFacts<'_>) -> Option<Finding> {
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
            "requests.rejected: {} of {} responses; {accepted} ok of {} responses",
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

/// Detects unexpected and malformed responses, and rejections that no rate limiter explains.
pub(in crate::why) fn errors(facts: &RunFacts<'_>) -> Option<Finding> {
    let counts = &facts.run.requests;
    let (rejected, is_limited) = (counts.rejected, is_limited(facts.run));
    let responses = counts.ok + rejected + counts.wrong + counts.malformed;
    let failed = responses - counts.ok - if is_limited { rejected } else { 0 };
    if responses == 0 {
        return no_response(facts);
    }
    let share = failed as f64 / responses as f64;
    if share < NOTICEABLE {
        let percent = share * 100.0;
        return ruled_out(format!(
            "{percent:.1} % of the responses were unexpected or malformed"
        ));
    }
    let statuses = counts
        .statuses
        .iter()
        .filter(|(status, _)| !(200..400).contains(*status))
        .filter(|(status, _)| !(is_limited && matches!(status, 429 | 503)));
    let most_frequent = statuses.max_by_key(|(_, n)| **n);
    let kind = most_frequent.map_or_else(
        || "unexpected body".to_owned(),
        |(status, n)| format!("status {status}: {}", show_count(*n)),
    );
    Candidate::new(
        EvidenceRank::Counted.unless_minor(share < MOST && is_limited),
        format!(
            "{} of the responses were failures ({kind}){}",
            percent(share),
            match counts.ok {
                0 => "",
                _ => ", which can be faster than successes",
            }
        ),
        vec![format!(
            "requests.rejected: {}, requests.wrong: {}, requests.malformed: {}, of {} responses; {} ok of {} responses",
            show_count(rejected),
            show_count(counts.wrong),
            show_count(counts.malformed),
            show_count(responses),
            per_s(facts.ok_per_s),
            per_s(facts.responses_per_s)
        )],
        match most_frequent {
            Some((404 | 405, _)) => "check the method and path of the request",
            Some((401 | 403, _)) => "add the required credentials (-H 'Authorization: ...')",
            _ => "check the server's log; count only successful responses",
        },
    )
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
    let (summary, next) = match unanswered as f64 >= MOST * sent.max(1) as f64 {
        true => (
            format!(
                "the server never responded: {} of {} got no response within {}",
                show_count(unanswered),
                plural(sent, "request"),
                show_s(run.sending_s.min(run.plan.timeout.as_secs_f64())),
            ),
            FIX_STOPPED.to_owned(),
        ),
        false => (
            "no request received a response, so the server was not measured".to_owned(),
            format!(
                "check that the server listens on {} (curl -i {})",
                target.authority, target.url
            ),
        ),
    };
    Candidate::new(
        // A cause that prevents the client from sending or the server from accepting connections is
        // more specific.
        EvidenceRank::Minor,
        summary,
        evidence,
        next,
    )
    .at([(StepKind::Errors, Actor::Server)])
    .found()
}

/// Open model: detects that the server met the offered rate.
pub(in crate::why) fn offered_rate_met(facts: &RunFacts<'_>, findings: &mut Findings) {
    let Some(offered) = facts.offered_per_s else {
        return;
    };
    let share = facts.ok_per_s / offered;
    let (offered_text, ok_text) = (per_s(offered), per_s(facts.ok_per_s));
    if share < MET_SHARE {
        let figure = format!("offered {offered_text}, ok {ok_text}: the offered rate was not met");
        return findings.add(Cause::None, ruled_out(figure));
    }
    let candidate = Candidate::new(
        EvidenceRank::Counted,
        format!("the offered rate ({offered_text}) was met; the server's capacity was not reached"),
        vec![format!(
            "offered {offered_text}, ok {ok_text}: {:.1} %",
            share * 100.0
        )],
        format!(
            "to find the limit, offer a higher rate (--rate {:.0}) or omit the rate",
            offered * STEP_UP
        ),
    )
    .at([(StepKind::OfferedRate, Actor::Client)]);
    // An external client reports the requested rate as the measured rate.
    let cause = match facts.run.client.name {
        Some(_) => Cause::OfferedRate,
        None => Cause::None,
    };
    findings.add(cause, candidate.with_share(share).found());
}
