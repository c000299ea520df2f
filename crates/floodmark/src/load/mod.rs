//! `floodmark load`: loads one URL.

use std::collections::BTreeMap;
use std::path::PathBuf;

use floodmark_host::{ProcessPlacement, Stop, open_files};
use floodmark_lab::{Attempts, Folder, SetFault, check_set};
use floodmark_observe::{Root, environment::environment};
use floodmark_plan::target::{self, ResolveError};
use floodmark_plan::{Planned, did_you_mean};
use floodmark_record::events::RunId;
use floodmark_record::mix::Mix;
use floodmark_record::run::{Run, ToolInfo};
use floodmark_record::{Event, Record};
use floodmark_report::junit::RunFault;

use crate::endings::{self, is_unreachable, server_fault};
use crate::exit::{self, Ending, report_all, stop_on_signals};
use crate::files;
use crate::out;
use args::LoadArgs;
use live::Live;
pub use monitoring_args::check_server_pid;

pub mod agents;
pub mod args;
pub mod connection_args;
mod demo;
pub mod live;
pub mod monitoring_args;
pub mod request_args;
pub mod spec;

/// Runs the command.
pub fn run(args: &LoadArgs) -> Result<(), Ending> {
    // Use the hard limit, because the load process raises its own soft limit.
    let open_files = Some(open_files().hard);
    let stop = stop_on_signals()?;
    let Some(url) = &args.url else {
        return demo::run(args, open_files, &stop);
    };
    args.files.check_writable()?;
    check_server_pid(args.monitoring.server_pid)?;
    let spec = args.spec();
    args.agents.check().map_err(Ending::usage)?;
    if let Some(manifest) = args.agents.printed_manifest() {
        return out::print(&manifest);
    }
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
    match check_set(&ProcessPlacement::default(), &planned.plan, &stop) {
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
    let MeasuredLoad {
        record,
        failure,
        folder,
    } = measure(args, &planned, &stop)?;
    let shown = show(args, &record);
    let saved = failure.is_none().then_some(&*folder);
    let written = args.files.write_result(&record, saved, fault(args));
    let failures = failure.into_iter().chain(written.err()).chain(shown.err());
    ending(args, &record, failures.collect(), &stop)
}

/// Writes a record without runs to the output files. Returns `ending`. If a file cannot be written,
/// prints the message of `ending` and returns the write error.
fn unmeasured(args: &LoadArgs, ending: Ending) -> Ending {
    let record = empty_record(ending.message.clone());
    match args.files.write_result(&record, None, fault(args)) {
        Ok(()) => ending,
        Err(unwritten) => {
            out::complain(&ending.message);
            unwritten
        }
    }
}

/// Returns the function that finds the fault of a run for JUnit.
fn fault(args: &LoadArgs) -> &'static RunFault<'static> {
    match args.strict {
        true => &endings::strict_run_fault,
        false => &endings::run_fault,
    }
}

/// Checks that every request named in a condition exists in the mix. Each entry contains the name of
/// the request, if any, and the text of the condition, which is a value of `flag`.
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

/// Returns a record without runs. The record lists `message` as the failure.
pub fn empty_record(message: String) -> Record {
    let mut record = Record::new(tool(), environment(&Root::host()));
    record.failures.push(message.clone());
    record.skipped.push(message);
    record
}

/// A completed or interrupted load.
struct MeasuredLoad {
    /// The record, with evaluated thresholds.
    record: Record,
    /// Internal error if an attempt failed or the record could not be saved.
    failure: Option<Ending>,
    /// Result folder.
    folder: PathBuf,
}

/// Runs the attempts.
fn measure(args: &LoadArgs, planned: &Planned, stop: &Stop) -> Result<MeasuredLoad, Ending> {
    if !args.quiet {
        for remark in &planned.remarks {
            out::note(&format!("{remark}\n"));
        }
    }
    let with = args.monitoring.open_file(&planned.plan)?;
    let export = args.export.start(args.quiet)?;
    let folder = match &args.out {
        Some(path) => Folder::create(path),
        None => Folder::create_temporary(),
    };
    let mut folder = folder.map_err(Ending::usage)?;
    let started = args.monitoring.start(&planned.plan, folder.path(), stop)?;
    let (link, observer) = started.unzip();
    let remote = with.or(observer);
    let plan = &planned.plan;
    let workload = plan
        .mix
        .as_ref()
        .map_or(&plan.target.path, |mix| &mix.file)
        .clone();
    let side = ProcessPlacement::default();
    let agents = args.agents.setting(args.safety.anyway, &side);
    let attempts = Attempts {
        client: None,
        agents: agents.as_ref(),
        expected: &[],
        planned,
        attempts: args.attempts,
        run: RunId {
            system: plan.target.authority.clone(),
            workload,
            trial: None,
            setting: BTreeMap::new(),
            process: 1,
            attempt: 1,
        },
        side: &side,
        place: None,
        proxy: None,
        monitoring: args.monitoring.monitoring(remote.as_ref()),
        log: None,
        exits: None,
        stop,
    };
    let mut live = Live::new(args.quiet, stop);
    let mut listener = |event: &Event| {
        if let Some(warning) = export.on(event) {
            live.clear();
            out::complain(&warning);
        }
        live.on(event);
    };
    let ran = attempts.run(tool(), &mut folder, &mut listener);
    drop(link);
    drop(live);
    export.finish();
    let (mut record, failure) = ran.unwrap_or_else(|error| {
        let message = error.to_string();
        (empty_record(message.clone()), Some(message))
    });
    let failure = failure.map(Ending::internal);
    record.thresholds = args
        .fail_if
        .iter()
        .map(|condition| condition.judge(&record))
        .collect();
    let kept = match &failure {
        None if !record.thresholds.is_empty() => folder.write_record(&record).err(),
        _ => None,
    };
    Ok(MeasuredLoad {
        record,
        failure: failure.or_else(|| kept.map(Ending::internal)),
        folder: folder.path().to_owned(),
    })
}

/// Describes this program and its command line for the record.
pub fn tool() -> ToolInfo {
    ToolInfo {
        name: "floodmark".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect(),
    }
}

/// Prints the summary if the server was reached. Otherwise, the error message suffices.
fn show(args: &LoadArgs, record: &Record) -> Result<(), Ending> {
    if args.quiet || record.runs.iter().all(is_unreachable) {
        return Ok(());
    }
    let next = files::next_step(record);
    out::show(args.files.use_stdout(), |style| {
        floodmark_report::terminal::summary(record, next.as_deref(), style)
    })
}

fn ending(
    args: &LoadArgs,
    record: &Record,
    failures: Vec<Ending>,
    stop: &Stop,
) -> Result<(), Ending> {
    let shown = !args.quiet && !record.runs.is_empty();
    let interrupted = endings::interrupted(record, stop, !failures.is_empty(), shown);
    let mut all = report_all(failures);
    all.extend(interrupted);
    all.extend(record.runs.iter().find_map(server_fault));
    // Unless --quiet is set, the summary has already listed the reasons.
    let reason = |run: &Run| match run.validity.reasons.first() {
        Some(reason) if args.quiet => reason.to_string(),
        _ => "see the reasons above".to_owned(),
    };
    let invalid = |run| endings::invalid(run, || reason(run));
    all.extend(record.runs.iter().filter_map(invalid));
    let bound = |run| endings::bound(run, || reason(run));
    let strict = record.runs.iter().filter(|_| args.strict);
    all.extend(strict.filter_map(bound));
    all.extend(endings::failed_check(&record.runs, false));
    let unmeasured = |figure: &str| format!("not measured ({figure})");
    all.extend(endings::failed_threshold(&record.thresholds, unmeasured));
    exit::worst(all)
}
