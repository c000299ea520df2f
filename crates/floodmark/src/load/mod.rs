//! `floodmark load`: one load on one URL.

use std::fs;
use std::path::Path;

use floodmark_host::{Stop, raise_open_files};
use floodmark_lab::{Attempts, Folder};
use floodmark_observe::{Root, environment::environment};
use floodmark_record::events::EndReason;
use floodmark_record::plan::Plan;
use floodmark_record::run::{Run, Status, ToolInfo};
use floodmark_record::{Event, Record};

use crate::exit::{Ending, Exit};
use crate::out;
use args::LoadArgs;
use live::Live;

pub mod args;
mod demo;
mod live;
mod plan;
mod target;

/// Runs the command.
pub fn run(args: &LoadArgs) -> Result<(), Ending> {
    // Children keep what is raised here: a worker may have as many connections as the machine allows.
    let open_files = raise_open_files().map_or(1024, |files| files.soft);
    let stop = Stop::on_signals()
        .map_err(|e| Ending::failed(format!("signals cannot be handled: {e}")))?;
    let Some(url) = &args.url else {
        return demo::run(args, open_files, &stop);
    };
    let target = match target::resolve(url) {
        Ok(target) => target,
        Err(ending) if ending.exit == Exit::Usage => return Err(ending),
        Err(ending) => {
            let mut record = Record::new(tool(), environment(&Root::host()));
            record.skipped.push(ending.message.clone());
            write_files(args, &record)?;
            return Err(ending);
        }
    };
    let planned = plan::plan(args, target, open_files)?;
    let record = measure(args, &planned, &stop)?;
    write_files(args, &record)?;
    show(args, &record);
    ending(args, &record, &stop)
}

/// Makes the attempts; the record that comes back is judged by the thresholds too.
fn measure(args: &LoadArgs, planned: &plan::Planned, stop: &Stop) -> Result<Record, Ending> {
    writable(args)?;
    if !args.quiet {
        for remark in &planned.remarks {
            out::note(&format!("{remark}\n"));
        }
    }
    let folder = match &args.out {
        Some(path) => Folder::create(path),
        None => Folder::create_temporary(),
    };
    let mut folder = folder.map_err(Ending::usage)?;
    let plan = &planned.plan;
    let attempts = Attempts {
        plan,
        attempts: u32::try_from(args.attempts).unwrap_or(u32::MAX),
        names: (plan.target.authority.clone(), plan.target.path.clone()),
        tool: tool(),
        stop,
    };
    let mut live = Live::new(args.quiet);
    let mut listener = |event: &Event| live.on(event);
    let record = attempts.run(&mut folder, &mut listener);
    live.clear();
    let mut record = record.map_err(Ending::failed)?;
    record.thresholds = args
        .fail_if
        .iter()
        .map(|condition| condition.of_record(&record))
        .collect();
    if !record.thresholds.is_empty() {
        folder.write_record(&record).map_err(Ending::failed)?;
    }
    Ok(record)
}

fn tool() -> ToolInfo {
    ToolInfo {
        name: "floodmark".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
    }
}

/// Finds out before the run that a file cannot be written after it.
fn writable(args: &LoadArgs) -> Result<(), Ending> {
    for (flag, path) in [
        ("--json", &args.json),
        ("--csv", &args.csv),
        ("--hdr", &args.hdr),
    ] {
        let Some(path) = path
            .as_deref()
            .filter(|path| *path != Path::new("-") || flag != "--json")
        else {
            continue;
        };
        fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|e| Ending::usage(format!("{flag} {}: {e}", path.display())))?;
    }
    Ok(())
}

fn write_files(args: &LoadArgs, record: &Record) -> Result<(), Ending> {
    let write = |path: &Path, text: String| {
        fs::write(path, text).map_err(|e| Ending::failed(format!("{}: {e}", path.display())))
    };
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(record).map_err(Ending::failed)? + "\n";
        if path == Path::new("-") {
            out::print(&text);
        } else {
            write(path, text)?;
        }
    }
    if let Some(path) = &args.csv {
        write(path, floodmark_report::csv::of_record(record))?;
    }
    if let Some(path) = &args.hdr {
        write(
            path,
            floodmark_report::hdr::of_record(record).map_err(Ending::failed)?,
        )?;
    }
    Ok(())
}

/// Prints the summary: on stdout, or on stderr where stdout carries the JSON.
fn show(args: &LoadArgs, record: &Record) {
    if args.quiet {
        return;
    }
    let next = record
        .runs
        .last()
        .map(|run| floodmark_diagnose::next_step(run, record.environment.cpus));
    let summary = |style| floodmark_report::summary::of_record(record, next.as_deref(), style);
    if args.json.as_deref() == Some(Path::new("-")) {
        out::note(&summary(out::style(&std::io::stderr())));
    } else {
        out::print(&summary(out::style(&std::io::stdout())));
    }
}

fn ending(args: &LoadArgs, record: &Record, stop: &Stop) -> Result<(), Ending> {
    let mut endings = Vec::new();
    if stop.is_set()
        || record
            .runs
            .iter()
            .any(|run| run.ended.reason == EndReason::Interrupted)
    {
        endings.push(Ending {
            exit: Exit::Interrupted,
            message: "interrupted; the figures are of what was taken until then".to_owned(),
        });
    }
    endings.extend(record.runs.iter().find_map(server_fault));
    let worst = record.runs.iter().map(|run| run.validity.status).max();
    match worst {
        Some(Status::Invalid) => endings.push(Ending {
            exit: Exit::Invalid,
            message: "the result is invalid, for the reasons above".to_owned(),
        }),
        Some(Status::Bound) if args.strict => {
            endings.push(Ending {
                exit: Exit::Invalid,
                message: "floodmark was the limit (--strict), for the reasons above".to_owned(),
            });
        }
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
fn server_fault(run: &Run) -> Option<Ending> {
    let Plan { target, .. } = &run.plan;
    let answers: u64 = run.requests.statuses.values().sum();
    match run.ended.reason {
        EndReason::ServerGone => {
            let detail = run
                .ended
                .detail
                .as_deref()
                .unwrap_or("the server went away");
            Some(Ending::server(format!(
                "{} ({}): {detail}; start it, or check host and port",
                target.authority, target.address
            )))
        }
        EndReason::NotHttp => Some(Ending::server(format!(
            "{} ({}) answers with something that is not HTTP/1.1; check the port",
            target.authority, target.address
        ))),
        EndReason::Completed if answers == 0 && run.requests.intended > 0 => {
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
                target.authority, target.address
            )))
        }
        EndReason::Completed | EndReason::Interrupted => None,
    }
}
