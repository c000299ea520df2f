//! `floodmark load`: one load on one URL.

use std::collections::BTreeMap;
use std::path::Path;

use floodmark_host::{Side, Stop, open_files};
use floodmark_lab::{Attempts, Elsewhere, Folder, LabError, Watching};
use floodmark_observe::{Root, environment::environment};
use floodmark_record::events::{EndReason, RunId};
use floodmark_record::plan::{Address, Plan};
use floodmark_record::run::{Run, Status, ToolInfo};
use floodmark_record::{Event, Record};

use crate::exit::{Ending, Exit};
use crate::files::{self, Files};
use crate::out;
use args::LoadArgs;
use live::Live;

pub mod args;
mod demo;
pub mod live;
mod mix;
pub mod plan;
mod resolve;
mod schedule;
mod sockets;
pub mod target;
pub mod tls;

/// Runs the command.
pub fn run(args: &LoadArgs) -> Result<(), Ending> {
    // The load process raises its own limit, to what it needs.
    let open_files = open_files().ok().map(|files| files.hard);
    let stop = Stop::on_signals()
        .map_err(|e| Ending::failed(format!("signals cannot be handled: {e}")))?;
    let Some(url) = &args.url else {
        return demo::run(args, open_files, &stop);
    };
    files(args).writable()?;
    lives(args.server_pid)?;
    let resolved = match target::resolve(url, args) {
        Ok(resolved) => resolved,
        Err(ending) if ending.exit == Exit::Usage => return Err(ending),
        Err(ending) => {
            files(args).write(&nothing_taken(&ending), |e| Ending::failed(e))?;
            return Err(ending);
        }
    };
    let planned = plan::plan(args, resolved, open_files)?;
    let measured = measure(args, &planned, &stop)?;
    files(args).write(&measured.record, |e| Ending::failed(e))?;
    show(args, &measured.record);
    ending(args, measured, &stop)
}

/// What attempts came to.
struct Measured {
    /// With the thresholds judged.
    record: Record,
    /// Where floodmark itself failed.
    failure: Option<Ending>,
}

/// The record of a run that could not begin, or left nothing behind.
fn nothing_taken(ending: &Ending) -> Record {
    let mut record = Record::new(tool(), environment(&Root::host()));
    record.skipped.push(ending.message.clone());
    record
}

/// Makes the attempts.
fn measure(args: &LoadArgs, planned: &plan::Planned, stop: &Stop) -> Result<Measured, Ending> {
    if !args.quiet {
        for remark in &planned.remarks {
            out::note(&format!("{remark}\n"));
        }
    }
    let elsewhere = elsewhere(args, planned)?;
    let folder = match &args.out {
        Some(path) => Folder::create(path),
        None => Folder::create_temporary(),
    };
    let mut folder = folder.map_err(Ending::usage)?;
    let plan = &planned.plan;
    let workload = plan
        .mix
        .as_ref()
        .map_or(&plan.target.path, |mix| &mix.file)
        .clone();
    let attempts = Attempts {
        driver: None,
        plan,
        anchors: &planned.anchors,
        attempts: args.attempts,
        of: RunId {
            system: plan.target.authority.clone(),
            workload,
            trial: None,
            setting: BTreeMap::new(),
            process: 1,
            attempt: 1,
        },
        notices: &planned.notices,
        side: &Side::default(),
        place: None,
        proxy: None,
        watching: match &elsewhere {
            Some(elsewhere) => Watching::Elsewhere(elsewhere),
            None if args.no_watch => Watching::Off,
            None => Watching::On {
                server_pid: args.server_pid,
                store: None,
            },
        },
        log: None,
        alive: None,
        stop,
    };
    let mut live = Live::new(args.quiet);
    let mut listener = |event: &Event| live.on(event);
    let ran = attempts.run(tool(), &mut folder, &mut listener);
    live.clear();
    let failure = ran.as_ref().err().map(Ending::failed);
    let mut record = match ran {
        Ok(record) => record,
        Err(LabError::Worker { record, .. }) => *record,
        Err(error) => nothing_taken(&Ending::failed(error)),
    };
    record.thresholds = args
        .fail_if
        .iter()
        .map(|condition| condition.of_record(&record))
        .collect();
    let kept = match &failure {
        None if !record.thresholds.is_empty() => folder.write_record(&record).err(),
        _ => None,
    };
    Ok(Measured {
        record,
        failure: failure.or_else(|| kept.map(Ending::failed)),
    })
}

pub fn tool() -> ToolInfo {
    ToolInfo {
        name: "floodmark".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect(),
    }
}

/// Where the record goes.
fn files(args: &LoadArgs) -> Files<'_> {
    Files {
        html: args.html.as_deref(),
        json: args.json.as_deref(),
        csv: args.csv.as_deref(),
        hdr: args.hdr.as_deref(),
    }
}

/// Finds out before the run that there is nothing to watch under an id.
pub fn lives(server_pid: Option<u32>) -> Result<(), Ending> {
    match server_pid {
        Some(pid) if floodmark_observe::process::read(&Root::host(), pid).is_err() => {
            Err(Ending::usage(format!(
                "--server-pid {pid}: there is no such process here; check its id, or leave the flag out: a server on this \
                 machine is found by its port"
            )))
        }
        _ => Ok(()),
    }
}

/// Opens what the server's machine observes, and refuses before the run what could not be put beside it.
fn elsewhere(args: &LoadArgs, planned: &plan::Planned) -> Result<Option<Elsewhere>, Ending> {
    let Some(path) = &args.with else {
        return Ok(None);
    };
    let Address::Ip(address) = planned.plan.target.address else {
        return Err(Ending::usage(
            "--with: a unix socket is on this machine, where the server is watched without it",
        ));
    };
    let opened = Elsewhere::open(path, address.port());
    opened
        .map(Some)
        .map_err(|e| Ending::usage(format!("--with {e}")))
}

/// Prints the summary: on stdout, or on stderr where stdout carries the JSON.
fn show(args: &LoadArgs, record: &Record) {
    if args.quiet {
        return;
    }
    let next = files::next_step(record);
    let summary = |style| floodmark_report::summary::of_record(record, next.as_deref(), style);
    if args.json.as_deref() == Some(Path::new("-")) {
        out::note(&summary(out::style(&std::io::stderr())));
    } else {
        out::print(&summary(out::style(&std::io::stdout())));
    }
}

fn ending(args: &LoadArgs, measured: Measured, stop: &Stop) -> Result<(), Ending> {
    let Measured { record, failure } = measured;
    // A load process that failed is without its last word too, but nobody interrupted it.
    let cut_short = |run: &Run| run.ended.reason == EndReason::Interrupted;
    let interrupted = failure.is_none() && record.runs.iter().any(cut_short);
    let mut endings = Vec::from_iter(failure);
    if stop.is_set() || interrupted {
        endings.push(Ending {
            exit: Exit::Interrupted,
            message: "interrupted; the figures are of what was taken until then".to_owned(),
        });
    }
    endings.extend(record.runs.iter().find_map(server_fault));
    let worst = record.runs.iter().max_by_key(|run| run.validity.status);
    // The summary has the reasons; without one they stand here.
    let why = |run: &Run| match run.validity.reasons.first() {
        Some(reason) if args.quiet => reason.clone(),
        _ => "for the reasons above".to_owned(),
    };
    match worst {
        Some(run) if run.validity.status == Status::Invalid => endings.push(Ending {
            exit: Exit::Invalid,
            message: format!("the result is invalid: {}", why(run)),
        }),
        Some(run) if run.validity.status == Status::Bound && args.strict => endings.push(Ending {
            exit: Exit::Invalid,
            message: format!("the result is bound (--strict): {}", why(run)),
        }),
        _ => {}
    }
    let broken = record
        .runs
        .iter()
        .flat_map(|run| &run.checks)
        .find(|check| !check.held);
    if let Some(check) = broken {
        endings.push(Ending {
            exit: Exit::Check,
            message: format!("the check {} does not hold: {}", check.name, check.detail),
        });
    }
    if let Some(threshold) = record
        .thresholds
        .iter()
        .find(|threshold| threshold.met != Some(false))
    {
        let why = match threshold.met {
            Some(_) => format!("it was {}", threshold.figure),
            None => format!("it was not measured ({})", threshold.figure),
        };
        endings.push(Ending {
            exit: Exit::Check,
            message: format!("--fail-if '{}': {why}", threshold.condition),
        });
    }
    match endings.into_iter().min_by_key(|ending| ending.exit) {
        Some(ending) => Err(ending),
        None => Ok(()),
    }
}

/// What was the server's fault, in one line.
pub fn server_fault(run: &Run) -> Option<Ending> {
    let Plan { target, .. } = &run.plan;
    if let Some(why) = floodmark_diagnose::tls::never_stood(run) {
        let (authority, address) = (&target.authority, target.show_addresses());
        return Some(Ending::server(format!("{authority} ({address}): {why}")));
    }
    let answers: u64 = run.requests.statuses.values().sum();
    match run.ended.reason {
        EndReason::ServerGone => {
            let detail = run
                .ended
                .detail
                .as_deref()
                .unwrap_or("the server went away");
            Some(Ending::server(format!(
                "{} ({}): {detail}; start it, or check {}",
                target.authority,
                target.show_addresses(),
                match target.address {
                    Address::Ip(_) => "host and port",
                    Address::Unix(_) => "the path",
                }
            )))
        }
        EndReason::NotHttp => Some(Ending::server(format!(
            "{} ({}) answers with something that is not HTTP/1.1; check {}",
            target.authority,
            target.show_addresses(),
            match target.address {
                Address::Ip(_) => "the port",
                Address::Unix(_) => "the path",
            }
        ))),
        EndReason::Completed
            if answers == 0 && (run.requests.intended > 0 || !run.errors.is_empty()) =>
        {
            let most = run
                .errors
                .iter()
                .max_by_key(|(_, n)| **n)
                .map(|(name, _)| name.replace('_', " "));
            let why = match most {
                Some(name) => name,
                None => format!("none came within {} s", run.plan.timeout_s),
            };
            Some(Ending::server(format!(
                "{} ({}): not one whole answer ({why})",
                target.authority,
                target.show_addresses()
            )))
        }
        // A client that failed is a failure of the experiment, which says it.
        EndReason::Completed | EndReason::Interrupted | EndReason::ClientFailed => None,
    }
}
