//! `floodmark load`: loads one URL.

use std::path::Path;
use std::sync::mpsc::channel;

use floodmark_diagnose::unexpected_response;
use floodmark_host::{ProcessPlacement, Stop, open_files};
use floodmark_lab::{Attempts, Directory, RemoteObserver, SetFault, check_set};
use floodmark_load::request_log;
use floodmark_plan::target::{self, ResolveError};
use floodmark_plan::{Planned, did_you_mean};
use floodmark_record::Record;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{Http, Mix};
use floodmark_record::run::Run;
use floodmark_record::units::{plural, show_s};
use floodmark_report::Style;
use floodmark_report::junit::RunFault;
use floodmark_report::terminal::{self, Extent};

use crate::endings::{self, is_unreachable, server_fault};
use crate::exit::{Ending, Exit, stop_on_signals};
use crate::files;
use crate::out;
use crate::progress::LineKind;
use crate::session::{Measured, Measurement, Session, empty_record};
use args::LoadArgs;
use shared::first_run;

pub mod args;
mod demo;
pub mod shared;

/// The flag for a log of individual requests.
const REQUEST_LOG: &str = "--request-log";

/// Runs the command.
pub fn run(args: &LoadArgs) -> Result<(), Ending> {
    // Use the hard limit, because the load process raises its own soft limit.
    let open_files = Some(open_files().hard);
    let stop = stop_on_signals()?;
    let Some(url) = &args.url else {
        return demo::run(args, open_files, &stop);
    };
    if let Some(path) = &args.request_log {
        args.shared
            .output
            .files
            .check_appendable(REQUEST_LOG, path)?;
    }
    if let Some(manifest) = args.shared.check()? {
        return out::print(&manifest);
    }
    let spec = args.spec();
    let resolved = match target::resolve(url, &spec) {
        Ok(resolved) => resolved,
        Err(error @ ResolveError::Invalid(_)) => return Err(error.into()),
        Err(error) => {
            let ending = Ending::from(error);
            return Err(unmeasured(args, ending));
        }
    };
    let planned = floodmark_plan::plan(&spec, resolved, open_files).map_err(Ending::usage)?;
    let groups = args.fail_if.iter().map(|c| (c.group.as_deref(), &*c.text));
    check_groups("--fail-if", groups, planned.plan.mix.as_ref())?;
    let conditions = args.abort_if.iter().map(|of| &of.condition);
    let groups = conditions.map(|c| (c.group.as_deref(), &*c.text));
    check_groups("--abort-if", groups, planned.plan.mix.as_ref())?;
    match check_set(&ProcessPlacement::default(), &planned, &stop) {
        Ok(()) => {}
        Err(SetFault::NotEmpty(what)) => return Err(Ending::usage(format!("--check: {what}"))),
        Err(SetFault::Unreadable(what)) => {
            return Err(unmeasured(args, Ending::server(format!("--check: {what}"))));
        }
        Err(SetFault::Interrupted) => {
            let ending = Ending::before_result("the load, while --check was reading the set");
            return Err(unmeasured(args, ending));
        }
    }
    preflight(args, &planned, &stop)?;
    measure(args, &planned, &stop)
}

/// Maximum number of requests before a load. A server that answers one in a hundred requests with an
/// error then stops one load in a million.
const PREFLIGHT_REQUESTS: u32 = 3;

/// Sends requests before a load until one is answered as expected. These requests are not counted.
/// If none of them is answered as expected, returns an [`Ending`].
///
/// An exact number of requests is not exceeded. Agents may have another path to the server than
/// this host. A server that is unreachable, or that does not speak HTTP at all, ends the load early.
fn preflight(args: &LoadArgs, planned: &Planned, stop: &Stop) -> Result<(), Ending> {
    let shared = &args.shared;
    let plan = &planned.plan;
    let is_exact = plan.request_limit().is_some() || plan.unique_rows().is_some();
    if is_exact || shared.safety.anyway || shared.agents.place.is_some() {
        return Ok(());
    }
    let note = |text: &str| {
        if args.verbose {
            out::note(&format!("request before the load: {text}\n"));
        }
    };
    let side = ProcessPlacement::default();
    let mut fault = None;
    for _ in 0..PREFLIGHT_REQUESTS {
        let Ok(sent) = floodmark_lab::preflight(planned, &side, first_run(planned), stop) else {
            note("not sent");
            return Ok(());
        };
        let Some(run) = sent else {
            note(
                "skipped, because a check counts all requests, or none is safe (GET, HEAD or OPTIONS)",
            );
            return Ok(());
        };
        let time_us = run.service_time_us.max.or(run.error_time_us.max);
        match (run.requests.statuses.keys().next(), time_us) {
            (Some(status), Some(us)) => {
                note(&format!("status {status} after {}", show_s(us / 1e6)));
            }
            _ => note("no response"),
        }
        fault = preflight_fault(&run);
        if fault.is_none() {
            break;
        }
    }
    let Some(mut ending) = fault else {
        return Ok(());
    };
    ending
        .message
        .push_str("; to send the load anyway, add --anyway");
    Err(unmeasured(args, ending))
}

/// Returns an [`Ending`] if the response to a preflight request is unexpected.
fn preflight_fault(run: &Run) -> Option<Ending> {
    let is_invalid = run.requests.malformed + run.requests.reset > 0;
    let lacks_http2 = run.ended.reason == EndReason::NotHttp && run.plan.http != Http::V1;
    if is_invalid && run.ended.reason == EndReason::Completed || lacks_http2 {
        return server_fault(run);
    }
    let place = &run.plan.target.authority;
    unexpected_response(run).map(|what| Ending::new(Exit::Check, format!("{place}: {what}")))
}

/// Runs the planned attempts and reports their result.
fn measure(args: &LoadArgs, planned: &Planned, stop: &Stop) -> Result<(), Ending> {
    if !args.shared.output.quiet {
        out::remarks(&planned.remarks);
    }
    let load = UrlLoad {
        args,
        planned,
        with: args.shared.monitoring.open_file(&planned.plan)?,
    };
    Session::run(&args.shared.output, None, stop, load)
}

/// Writes a record without runs to the output files. Returns `ending`. If a file cannot be written,
/// prints the message of `ending` and returns the write error.
fn unmeasured(args: &LoadArgs, ending: Ending) -> Ending {
    let record = empty_record(ending.message.clone());
    let files = &args.shared.output.files;
    match files.write_result(&record, None, fault(args)) {
        Ok(()) => ending,
        Err(unwritten) => {
            out::complain(&ending.message);
            unwritten
        }
    }
}

/// Returns the function that finds the fault of a run for JUnit.
fn fault(args: &LoadArgs) -> &'static RunFault<'static> {
    if args.strict {
        &endings::strict_run_fault
    } else {
        &endings::run_fault
    }
}

/// Checks that every request named in a condition exists in the mix. Each item of `conditions`
/// contains the name of the request, if any, and the text of the condition, which was passed with
/// `flag`.
pub fn check_groups<'a>(
    flag: &str,
    conditions: impl Iterator<Item = (Option<&'a str>, &'a str)>,
    mix: Option<&Mix>,
) -> Result<(), Ending> {
    for (group, text) in conditions {
        let Some(group) = group else {
            continue;
        };
        let Some(mix) = mix else {
            return Err(Ending::usage(format!(
                "{flag} '{text}': only requests in a --mix have names; remove the part before the colon"
            )));
        };
        let names = mix.requests.iter().map(|request| request.name.as_str());
        if !names.clone().any(|name| name == group) {
            return Err(Ending::usage(format!(
                "{flag} '{text}': the mix has no request \"{group}\"; {}",
                did_you_mean(group, names)
            )));
        }
    }
    Ok(())
}

/// Returns an [`Ending`] if requests could not be written to the log.
fn unwritten_log(run: &Run) -> Option<Ending> {
    let log = run.request_log.as_ref()?;
    let error = log.error.as_ref()?;
    Some(Ending::internal(format!(
        "{REQUEST_LOG} {}: {error}; {} not logged; free up disk space or choose another file",
        log.file,
        plural(log.dropped, "request")
    )))
}

/// The attempts of a load.
struct UrlLoad<'a> {
    args: &'a LoadArgs,
    planned: &'a Planned,
    with: Option<RemoteObserver>,
}

impl Measurement for UrlLoad<'_> {
    const SHOWS_INTERRUPTION: bool = true;

    fn measure(
        &mut self,
        session: &Session<'_>,
        directory: &mut Directory,
    ) -> Result<Measured, Ending> {
        let shared = &self.args.shared;
        let (count, with) = (self.args.attempts, self.with.as_ref());
        if let Some(path) = &self.args.request_log {
            files::write(REQUEST_LOG, path, request_log::HEADER)?;
        }
        let ran = shared.with_attempts(
            self.planned,
            count,
            with,
            directory,
            session.stop,
            |attempts, directory| {
                let (sender, rates) = channel();
                // Several attempts, and all agents, send the same schedule.
                let has_keys = count == 1 && attempts.agents.is_none();
                let attempts = Attempts {
                    rates: Some(&rates),
                    abort_if: &self.args.abort_if,
                    request_log: self.args.request_log(),
                    ..attempts
                };
                let sender = has_keys.then_some(sender);
                let mut progress = session.progress_with_keys(LineKind::Seconds, sender);
                attempts.run(session.tool(), directory, &mut |event| progress.on(event))
            },
        )?;
        Ok(Measured::judged(ran, directory, |record| {
            let conditions = self.args.fail_if.iter();
            conditions.map(|of| of.judge(record)).collect()
        }))
    }

    // If the server is unreachable, the error message is sufficient.
    fn has_result(&self, record: &Record) -> bool {
        !record.runs.iter().all(is_unreachable)
    }

    fn render(&self, record: &Record, _directory: &Path, style: Style) -> String {
        let next = files::next_step(record);
        let extent = if self.args.verbose {
            Extent::Full
        } else {
            Extent::Short
        };
        terminal::summary(record, next.as_deref(), extent, style)
    }

    fn fault(&self) -> &RunFault<'_> {
        fault(self.args)
    }

    fn endings(&self, record: &Record) -> Vec<Ending> {
        let runs = &record.runs;
        // Unless --quiet is set, the summary has already listed the reasons.
        let reason = |run: &Run| match run.validity.reasons.first() {
            Some(reason) if self.args.shared.output.quiet => reason.to_string(),
            _ => "see the reasons above".to_owned(),
        };
        let mut all = Vec::from_iter(runs.iter().find_map(server_fault));
        let invalid = |run| endings::invalid(run, || reason(run));
        all.extend(runs.iter().filter_map(invalid));
        let bound = |run| endings::bound(run, || reason(run));
        let strict = runs.iter().filter(|_| self.args.strict);
        all.extend(strict.filter_map(bound));
        all.extend(runs.iter().find_map(unwritten_log));
        all.extend(runs.iter().find_map(endings::aborted));
        all.extend(endings::failed_check(runs, false));
        all.extend(endings::failed_threshold(&record.thresholds));
        all
    }
}
