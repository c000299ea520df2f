//! Derives exit statuses from records.

use floodmark_diagnose::response_fault;
use floodmark_diagnose::validity::is_only_not_ok;
use floodmark_host::Stop;
use floodmark_record::Record;
use floodmark_record::comparison::Threshold;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{Address, Target};
use floodmark_record::reason::{FIX_STOPPED, joined};
use floodmark_record::run::{Run, Status};
use floodmark_record::units::show_s;
use floodmark_report::junit::CaseOutcome;

use crate::exit::{Ending, Exit};

/// Returns an [`Ending`] if the run was interrupted. If `shown`, the summary has already reported
/// the interruption, and the message is empty.
pub fn interrupted(record: &Record, stop: &Stop, failed: bool, shown: bool) -> Option<Ending> {
    let is_interrupted = |run: &Run| run.ended.reason == EndReason::Interrupted;
    // A run whose load process failed looks interrupted, because its final event is missing too.
    let interrupted = stop.is_set() || (!failed && record.runs.iter().any(is_interrupted));
    interrupted.then(|| {
        if shown {
            Ending::new(Exit::Interrupted, "")
        } else if record.has_no_measurement() {
            Ending::before_result("the first measurement")
        } else {
            Ending::new(
                Exit::Interrupted,
                "interrupted; the partial result is saved",
            )
        }
    })
}

/// Returns an [`Ending`] with a one-line message if the server caused the run to fail.
pub fn server_fault(run: &Run) -> Option<Ending> {
    let target = &run.plan.target;
    let fault = |message: String| Some(Ending::server(format!("{}: {message}", place(target))));
    if let Some(reason) = floodmark_diagnose::tls::handshake_failure(run) {
        return fault(reason);
    }
    let responses: u64 = run.requests.statuses.values().sum();
    let location = match target.address {
        Address::Ip(_) => "host and port",
        Address::Unix(_) => "the path",
    };
    match run.ended.reason {
        EndReason::ServerGone if is_unreachable(run) && refused(run) => fault(format!(
            "connection refused; start the server, or check {location}"
        )),
        EndReason::ServerGone if run.server_gone_since_s.is_some_and(|since| since > 0.0) => {
            let detail = run.ended.detail.as_deref().unwrap_or_default();
            fault(format!("{detail}; {FIX_STOPPED}"))
        }
        EndReason::ServerGone => {
            let detail = run.ended.detail.as_deref();
            let detail = detail.unwrap_or("the server stopped responding");
            fault(format!("{detail}; start the server, or check {location}"))
        }
        EndReason::NotHttp => match response_fault(run) {
            Some(why) => fault(why.to_string()),
            None => fault(format!(
                "the response is not {}; check {location}",
                run.plan.http.name()
            )),
        },
        EndReason::Completed | EndReason::RowsUsedUp
            if responses == 0 && (run.requests.intended > 0 || !run.errors.is_empty()) =>
        {
            if let Some(why) = response_fault(run) {
                return fault(format!("no complete response: {why}"));
            }
            let most_frequent = run.errors.iter().max_by_key(|(_, n)| **n);
            let error = match most_frequent {
                Some((name, _)) => name.replace('_', " "),
                None if run.requests.timed_out > 0 => {
                    format!("timeout after {} s", run.plan.timeout.as_secs_f64())
                }
                None => "requests were still in flight at the end".to_owned(),
            };
            fault(format!(
                "no complete response ({error}); check the server's log"
            ))
        }
        // An experiment reports failed external clients separately.
        EndReason::Completed
        | EndReason::Interrupted
        | EndReason::Aborted
        | EndReason::RowsUsedUp
        | EndReason::ClientFailed => None,
    }
}

/// Returns the server failure of a run for JUnit.
pub fn run_server_fault(run: &Run) -> Option<(CaseOutcome, String)> {
    // An experiment reports failed external clients separately.
    let is_own = run.client.tool.is_none();
    let ending = server_fault(run).filter(|_| is_own)?;
    Some((CaseOutcome::Error, ending.message))
}

/// Returns an [`Ending`] if an `--abort-if` condition ended the run.
pub fn aborted(run: &Run) -> Option<Ending> {
    let abort = run.ended.abort.as_ref()?;
    let after = show_s(abort.at_ns as f64 / 1e9);
    Some(Ending::new(Exit::Check, format!("{abort} after {after}")))
}

/// Returns the fault of a run for JUnit: a server failure, an aborted run, or an invalid result.
pub fn run_fault(run: &Run) -> Option<(CaseOutcome, String)> {
    let aborted = || Some((CaseOutcome::Failed, aborted(run)?.message));
    run_server_fault(run).or_else(aborted).or_else(|| {
        let ending = invalid(run, || joined(&run.validity.reasons))?;
        let outcome = match ending.exit {
            Exit::Check => CaseOutcome::Failed,
            _ => CaseOutcome::Error,
        };
        Some((outcome, ending.message))
    })
}

/// Returns the fault of a run for JUnit under `--strict`.
pub fn strict_run_fault(run: &Run) -> Option<(CaseOutcome, String)> {
    let bound = || bound(run, || joined(&run.validity.reasons));
    run_fault(run).or_else(|| Some((CaseOutcome::Error, bound()?.message)))
}

/// Returns an [`Ending`] if the client was the bottleneck or the run was unsteady, both of which
/// `--strict` forbids. The message of the [`Ending`] includes `what`. For an aborted run,
/// [`aborted`] returns the ending instead.
pub fn bound(run: &Run, what: impl FnOnce() -> String) -> Option<Ending> {
    if run.ended.abort.is_some() {
        return None;
    }
    let problem = match (run.validity.status, run.validity.is_lower_bound()) {
        (Status::Unsteady, true) => "the run was unsteady and the client was the bottleneck",
        (Status::Unsteady, false) => "the run was unsteady",
        (Status::Bound, _) => "the client was the bottleneck",
        (Status::Valid | Status::Invalid, _) => return None,
    };
    let message = format!("{problem}, which --strict forbids: {}", what());
    Some(Ending::new(Exit::Invalid, message))
}

/// Returns whether the server failed before it received a request.
pub fn is_unreachable(run: &Run) -> bool {
    run.requests.sent == 0 && run.ended.reason == EndReason::ServerGone
}

fn refused(run: &Run) -> bool {
    run.errors.keys().all(|name| name == "connect_refused") && !run.errors.is_empty()
}

/// Returns the host and port, followed by the resolved addresses if they differ.
fn place(target: &Target) -> String {
    let addresses = target.show_addresses();
    if addresses == target.authority {
        addresses
    } else {
        format!("{} ({addresses})", target.authority)
    }
}

/// Returns an [`Ending`] for the first violated check, or else for the first check that was not
/// evaluated. With `expects_violation`, a violated check is no failure.
pub fn failed_check(runs: &[Run], expects_violation: bool) -> Option<Ending> {
    let first = |held: Option<bool>| {
        let mut checks = runs.iter().flat_map(|run| &run.checks);
        checks.find(|check| check.held == held)
    };
    let violated = first(Some(false)).filter(|_| !expects_violation);
    let check = violated.or_else(|| first(None))?;
    let result = match check.held {
        Some(_) => "failed",
        None => "not evaluated",
    };
    let message = format!("check {} {result}: {}", check.name, check.detail);
    Some(Ending::new(Exit::Check, message))
}

/// Returns an [`Ending`] for the first `--fail-if` condition that was met, or else for the first
/// condition that was not evaluated.
pub fn failed_threshold(thresholds: &[Threshold]) -> Option<Ending> {
    let first = |met: Option<bool>| thresholds.iter().find(|threshold| threshold.met == met);
    let (threshold, result) = first(Some(true))
        .map(|threshold| (threshold, "failed"))
        .or_else(|| Some((first(None)?, "not evaluated")))?;
    let Threshold {
        condition, figure, ..
    } = threshold;
    let message = format!("--fail-if '{condition}' {result}: {figure}");
    Some(Ending::new(Exit::Check, message))
}

/// Returns an [`Ending`] if the run is invalid. Its message includes `what`. If only the responses
/// make the run invalid, the exit code is that of a failed check. For an aborted run, [`aborted`]
/// returns the ending instead.
pub fn invalid(run: &Run, what: impl FnOnce() -> String) -> Option<Ending> {
    let exit = if is_only_not_ok(run) {
        Exit::Check
    } else {
        Exit::Invalid
    };
    let is_invalid = run.validity.status == Status::Invalid && run.ended.abort.is_none();
    is_invalid.then(|| Ending::new(exit, format!("the result is invalid: {}", what())))
}
