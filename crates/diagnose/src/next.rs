//! The recommended next step after a run.

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_record::grpc::ResponseStatus;
use floodmark_record::plan::{Http, Schedule};
use floodmark_record::reason::{CLIENT_ERRORS, COMPRESSED_BODY, FIX_STOPPED};
use floodmark_record::run::{
    CheckResult, Run, Saturation, SeriesRow, Silence, Status, SteadyClass, StepFigures,
};
use floodmark_record::units::show_count;
use floodmark_record::verdict::Verdict;
use floodmark_stats::saturation::KEPT_UP_SHARE;

use crate::asking;
use crate::failures::{refused, rejection_statuses, reset_streams, response_fault};
use crate::notes::SHORT_RUN_S;
use crate::silence::server_stall;
use crate::text::{per_s, show_s};
use crate::tls;
use crate::validity::{ClientThreads, agent_fix, is_only_not_ok, other_limit};
use crate::why::thresholds::NOTICEABLE;
use crate::why::{is_limit, seconds};

/// Minimum share of failed requests at which the failures matter more than the throughput.
const FAILED_SHARE: f64 = 0.01;

/// Minimum share of requests with an ok response at which the server counts as keeping up with the
/// offered rate.
pub(crate) const MET_SHARE: f64 = 0.99;

/// Offered rate at which requests hardly queue, as a share of the maximum throughput.
const BELOW_LIMIT: f64 = 0.7;

/// The next rate to try, as a multiple of an offered rate that the server kept up with.
pub(crate) const STEP_UP: f64 = 1.5;

/// Returns the next step in one line. `cpus` is the number of CPUs that the client may use.
#[must_use]
pub fn next_step(run: &Run, cpus: u32) -> String {
    tls::handshake_failure(run)
        .or_else(|| early_end(run))
        .or_else(|| failed_check(run))
        .or_else(|| unreachable(run))
        .or_else(|| not_valid(run, cpus))
        .or_else(|| failed_requests(run))
        .or_else(|| not_steady(run))
        .or_else(|| next_of_verdict(run))
        .or_else(|| too_short(run))
        .unwrap_or_else(|| explore(run))
}

fn early_end(run: &Run) -> Option<String> {
    let (ended, address) = (run.ended.reason, &run.plan.target.authority);
    match ended {
        EndReason::ClientFailed => {
            Some("check the client's log in the result directory".to_owned())
        }
        EndReason::NotHttp => Some(match response_fault(run) {
            Some(fault) => fault.to_string(),
            None => format!("find out what listens on {address}, or use another port"),
        }),
        _ if ended == EndReason::ServerGone || run.server_gone_since_s.is_some() => {
            Some(FIX_STOPPED.to_owned())
        }
        EndReason::Interrupted => {
            Some("repeat without interruption, or shorten the run with -d or -n".to_owned())
        }
        EndReason::Aborted => Some("check the server's log, or reduce the load".to_owned()),
        EndReason::RowsUsedUp => Some(
            "add rows to the feed, send fewer requests, or reuse rows with take = \"in-turn\""
                .to_owned(),
        ),
        EndReason::Completed | EndReason::ServerGone => None,
    }
}

fn failed_check(run: &Run) -> Option<String> {
    let with_result = |held: Option<bool>| run.checks.iter().find(|check| check.held == held);
    if let Some(CheckResult { name, .. }) = with_result(Some(false)) {
        return Some(format!(
            "fix the failed check \"{name}\" first; figures from invalid responses are meaningless"
        ));
    }
    let CheckResult { name, .. } = with_result(None)?;
    Some(format!(
        "the check \"{name}\" was not evaluated: fix the cause shown on its line, then repeat"
    ))
}

fn unreachable(run: &Run) -> Option<String> {
    let counts = &run.requests;
    (counts.ended() == 0 && counts.connect_failed > 0).then(|| {
        format!(
            "check that a server listens on {} ({}): no connection could be opened",
            run.plan.target.authority,
            run.plan.target.show_addresses()
        )
    })
}

fn not_valid(run: &Run, cpus: u32) -> Option<String> {
    let mut errors = CLIENT_ERRORS.iter();
    let error = errors.find(|(name, ..)| run.errors.contains_key(*name));
    let repeat = "check this host (floodmark doctor) and repeat";
    match (run.validity.status, error) {
        (Status::Invalid, _) if is_only_not_ok(run) => None,
        _ if run.validity.is_lower_bound() => match other_limit(run) {
            Some(verdict) => Some(verdict.next.clone()),
            None if !run.agents.is_empty() => agent_fix(run),
            None => {
                let fix = ClientThreads::of(&run.client.threads)?.fix(cpus);
                Some(fix.to_string())
            }
        },
        (Status::Valid | Status::Unsteady | Status::Bound, _) => None,
        (Status::Invalid, Some((.., fix))) => Some((*fix).to_owned()),
        (Status::Invalid, None) if !run.plan.is_open() => Some(repeat.to_owned()),
        (Status::Invalid, None) => {
            let less = asking::scaled(&run.plan, 0.5);
            Some(format!("{repeat}, or use {less}"))
        }
    }
}

/// Returns the next step for the most frequent failure. Returns `None` if fewer than
/// [`FAILED_SHARE`] of the requests failed.
fn failed_requests(run: &Run) -> Option<String> {
    let counts = &run.requests;
    let server = &run.plan.target.authority;
    let curl = curl(run);
    let less = asking::halved(&run.plan);
    let status = counts
        .by_status()
        .filter(|(status, _)| !status.is_success() && !status.is_rejection())
        .max_by_key(|(_, n)| *n);
    let why = format!("find out why ({curl})");
    let wrong = match (status, &run.plan.check) {
        (Some((status, _)), None) if can_accept(run, status) => format!(
            "unexpected responses (mostly status {status}): {why}, or accept them: --expect {}",
            status.expectation()
        ),
        (Some((status, _)), _) => {
            format!("unexpected responses (mostly status {status}): {why}")
        }
        (None, _) if run.errors.contains_key(COMPRESSED_BODY) => format!(
            "responses have a compressed body, which floodmark compares without decompressing it: \
             remove the Accept-Encoding header, or disable compression in the server ({curl})"
        ),
        (None, None) => format!("responses did not match --expect: {why}"),
        (None, Some(check)) => format!(
            "responses lack the content that --check {} needs: {why}",
            check.name()
        ),
    };
    let connect_refused = run.errors.get("connect_refused").unwrap_or(&0);
    let may_be_down = 2 * connect_refused >= counts.connect_failed || has_outage(run);
    let connect_failed = match &less {
        Some(less) if !may_be_down => format!(
            "connections failed to open; check the server's log, or open fewer at once: {less}"
        ),
        Some(_) | None => {
            "connections failed to open: check whether the server stopped or restarted (see its log)"
                .to_owned()
        }
    };
    let fault = response_fault(run);
    let malformed = match &fault {
        Some(fault) => format!("responses were malformed: {fault} (to reproduce: {curl})"),
        None => format!(
            "responses were malformed: check that {server} speaks {} ({curl})",
            run.plan.http.name()
        ),
    };
    // Without TLS, the fault only repeats that connections closed without a response.
    let reset = match &fault {
        Some(fault) if run.plan.tls.is_some() => fault.to_string(),
        Some(fault) => fault.fix.to_string(),
        None => "check the server's log".to_owned(),
    };
    let reset = match reset_streams(run) {
        Some(fault) => format!("requests failed: {fault}"),
        None => format!("connections closed without a response: {reset}"),
    };
    let timed_out = match (&fault, &less) {
        (Some(fault), _) => format!("requests timed out: {fault}"),
        (None, Some(less)) => format!("requests timed out: retry with {less}"),
        (None, None) => {
            "requests timed out: check the server's log, or use a longer --timeout".to_owned()
        }
    };
    let is_failing = |verdict: &Verdict| verdict.cause == Cause::Errors;
    let is_failing = run.verdict.as_ref().is_some_and(is_failing);
    let less = less.filter(|_| !is_failing);
    let statuses = rejection_statuses(run);
    let rejected = match (refused(run), less) {
        (Some(fault), _) => format!("requests were rejected: {fault}"),
        (None, Some(less)) => format!("requests were rejected ({statuses}): retry with {less}"),
        (None, None) => format!("requests were rejected ({statuses}): check the server's log"),
    };
    let failures = [
        (counts.connect_failed, connect_failed),
        (counts.malformed, malformed),
        (counts.reset, reset),
        (counts.timed_out, timed_out),
        (counts.rejected, rejected),
        (counts.wrong, wrong),
    ];
    let failed: u64 = failures.iter().map(|(n, _)| n).sum();
    let is_minor = (failed as f64) < FAILED_SHARE * counts.intended.max(1) as f64;
    let most_frequent = failures.iter().max_by_key(|(n, _)| *n);
    let (n, step) = most_frequent.filter(|_| !is_minor)?;
    Some(format!("{} {step}", show_count(*n)))
}

/// Returns whether there was a second in which requests failed and none was answered,
/// although the server answered requests at other times.
fn has_outage(run: &Run) -> bool {
    let is_down = |row: &SeriesRow| row.throughput_per_s == 0.0 && row.failed > 0;
    run.requests.ok > 0 && seconds(run).any(is_down)
}

/// Describes the only response of a run if it is unexpected, and how to continue.
#[must_use]
pub fn unexpected_response(run: &Run) -> Option<String> {
    let (status, _) = run.requests.by_status().next()?;
    if run.requests.wrong == 0 {
        return None;
    }
    let body = run.not_ok_responses.first().map(|response| &response.body);
    let body = body.filter(|body| !body.is_empty());
    let body = body.map_or_else(String::new, |body| format!(" and the body \"{body}\""));
    if (400..500).contains(&status.http) && tls::lacks_certificate(run) {
        return Some(format!(
            "the response has status {status}{body}, and the server requested a client certificate: use --cert FILE"
        ));
    }
    let curl = curl(run);
    Some(if status.is_success() {
        format!(
            "the response has status {status}{body}, which --expect does not accept: find out why ({curl})"
        )
    } else if can_accept(run, status) {
        format!(
            "the response has status {status}{body}: find out why ({curl}), or accept it: --expect {}",
            status.expectation()
        )
    } else {
        format!("the response has status {status}{body}: find out why ({curl})")
    })
}

/// Returns whether `--expect` can accept a status. A gRPC call needs a gRPC status.
fn can_accept(run: &Run, status: ResponseStatus) -> bool {
    status.grpc.is_some() || !run.plan.request.is_grpc
}

/// Returns a curl command that sends the request with the most unexpected responses. For a gRPC
/// call, whose body is not text, names the server's log instead.
fn curl(run: &Run) -> String {
    let target = &run.plan.target;
    let mix = run.plan.mix.iter().flat_map(|mix| &mix.requests);
    let groups = mix.zip(run.groups.iter().map(|group| group.requests.wrong));
    let (request, url) = match groups.max_by_key(|(_, wrong)| *wrong) {
        Some((failing, _)) => {
            let base = target.url.strip_suffix(&target.path).unwrap_or(&target.url);
            (&failing.request, format!("{base}{}", failing.path))
        }
        None => (&run.plan.request, target.url.clone()),
    };
    if request.is_grpc {
        return "check the server's log".to_owned();
    }
    let mut words = vec!["curl -i".to_owned()];
    words.extend(match (run.plan.http, &run.plan.tls) {
        (Http::V1, _) => None,
        (Http::V2(_), None) => Some("--http2-prior-knowledge".to_owned()),
        (Http::V2(_), Some(_)) => Some("--http2".to_owned()),
    });
    let tls = run.plan.tls.as_ref();
    if tls.is_some_and(|tls| tls.client_certificate_sha256.is_some()) {
        words.push("--cert FILE --key FILE".to_owned());
    }
    if target.credentials.is_some() {
        words.push("-u USER:PASSWORD".to_owned());
    }
    if request.method != "GET" {
        words.push(format!("-X {}", request.method));
    }
    let headers = request.headers.iter();
    words
        .extend(headers.map(|(name, value)| format!("-H {}", quoted(&format!("{name}: {value}")))));
    if let Some(body) = request.body.bytes().filter(|body| !body.is_empty()) {
        let body = String::from_utf8_lossy(body);
        words.push(format!("--data-binary {}", quoted(&body)));
    }
    words.push(quoted(&url));
    // The first request of a template.
    let command = words.join(" ");
    command.replace("{seq}", "1").replace("{key}", "1")
}

/// Quotes a word for a shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/:.,-_=%@+[]".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn not_steady(run: &Run) -> Option<String> {
    let has_stalled = |verdict: &Verdict| verdict.cause == Cause::ServerStall;
    if run.verdict.as_ref().is_some_and(has_stalled) {
        return None;
    }
    let (seconds, longer) = (run.sending_s, run.sending_s * 3.0);
    let is_long = seconds >= SHORT_RUN_S && asking::longer(&run.plan).is_some();
    let never = match run.steady.class {
        SteadyClass::Unsteady => !run.steady.changes_s.is_empty(),
        SteadyClass::Warming | SteadyClass::Slowing => run.steady.from_s.is_none(),
        SteadyClass::Steady | SteadyClass::Varied => false,
    };
    (is_long && never).then(|| {
        format!(
            "the server did not become steady: add --warmup {seconds:.0}s, or run longer: -d {longer:.0}s"
        )
    })
}

fn too_short(run: &Run) -> Option<String> {
    let longer = asking::longer(&run.plan).filter(|_| run.sending_s < SHORT_RUN_S)?;
    Some(format!("run longer: {longer}"))
}

/// Returns the verdict's next step if the verdict names a limit.
fn next_of_verdict(run: &Run) -> Option<String> {
    let verdict = run.verdict.as_ref()?;
    (is_limit(verdict.cause) && !run.plan.rate_changes()).then(|| verdict.next.clone())
}

/// Returns a server stall that is long enough to raise the 99th percentile of response time.
fn slow_stall(run: &Run) -> Option<&Silence> {
    let p99_us = run.response_time_us.p99?;
    let is_slow = |stall: &&Silence| p99_us >= NOTICEABLE * (stall.to_s - stall.from_s) * 1e6;
    server_stall(run).filter(is_slow)
}

/// Returns a next step that finds the server's limit or measures the latency below that limit.
fn explore(run: &Run) -> String {
    let plan = &run.plan;
    let scaled = |factor| asking::scaled(plan, factor);
    let hold = |limit_per_s: f64| asking::rate(limit_per_s * BELOW_LIMIT);
    let Some(throughput) = run.throughput_per_s.filter(|x| *x > 0.0) else {
        return match asking::longer(plan) {
            Some(longer) => format!("run longer: {longer}"),
            None => format!("increase the load: {}", scaled(2.0)),
        };
    };
    let lower = hold(throughput);
    let below = format!("measure latency below the limit: --rate {lower}");
    let Some(schedule) = plan.schedule() else {
        return below;
    };
    let kept_up = match schedule {
        Schedule::Ramp { .. } | Schedule::Steps { .. } => KEPT_UP_SHARE,
        _ => MET_SHARE,
    };
    let met = throughput >= kept_up * schedule.rate_per_s();
    let is_unmet = |step: &&StepFigures| step.throughput_per_s < KEPT_UP_SHARE * step.offered_per_s;
    let unmet_step = run.steps.iter().find(is_unmet);
    match (schedule, &run.saturation, unmet_step) {
        (Schedule::Burst { .. }, ..) => {
            let n = run.requests.intended;
            if run.requests.ok as f64 >= MET_SHARE * n as f64 {
                format!("try twice the burst: --burst {}", n.saturating_mul(2))
            } else {
                format!("try half the burst: --burst {}", (n / 2).max(1))
            }
        }
        (Schedule::Ramp { .. }, Some(Saturation::FellBehind(found)), _) => format!(
            "the server fell behind at {}; measure latency below that rate: --rate {}",
            per_s(found.offered_per_s),
            hold(found.achieved_per_s)
        ),
        (Schedule::Steps { .. }, _, Some(step)) if step.throughput_per_s > 0.0 => format!(
            "the {} step was not met; measure latency below the achieved rate: --rate {}",
            per_s(step.offered_per_s),
            hold(step.throughput_per_s)
        ),
        (Schedule::Ramp { .. }, Some(Saturation::Undecided { .. }), _) => format!(
            "it is unclear whether the server kept up; use a longer ramp: -d {:.0}s",
            run.sending_s * 2.0
        ),
        (_, _, None) if met => match slow_stall(run) {
            Some(stall) => format!(
                "check the server's log: the server sent no response for {} from {:.1} s on",
                show_s(stall.to_s - stall.from_s),
                stall.from_s
            ),
            None => format!(
                "the offered rate was met; try a higher rate: {}",
                scaled(STEP_UP)
            ),
        },
        (Schedule::Constant { .. }, ..) => format!("the offered rate was not met; {below}"),
        _ => format!(
            "the offered rate was not met; try a lower rate: {}",
            scaled(0.5)
        ),
    }
}

#[cfg(test)]
#[path = "next_tests.rs"]
pub(crate) mod tests;
