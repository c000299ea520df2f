//! `floodmark run`: an experiment.

use std::path::Path;

use clap::Parser;
use floodmark_host::{Stop, open_files};
use floodmark_lab::Folder;
use floodmark_lab::LabError;
use floodmark_lab::experiment::{Earlier, Hosts, Outcome, Planned, Refused, Runner, Schedule};
use floodmark_lab::manifest::{Changes, Experiment, Trial};
use floodmark_record::Record;
use floodmark_record::comparison::{Claim, Holds};
use floodmark_record::events::EndReason;
use floodmark_record::experiment::ExpectedCheck;
use floodmark_record::run::{Run, Status};
use floodmark_report::sentences;

use crate::exit::{Ending, Exit};
use crate::files::Files;
use crate::load::args::LoadArgs;
use crate::load::{plan, server_fault, target, tool};
use crate::out;
use args::RunArgs;
use progress::{Progress, about};

pub mod args;
mod progress;

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Ending> {
    let experiment = read(args)?;
    let open_files = open_files().ok().map(|files| files.hard);
    let planner = |trial: &Trial, hosts: &Hosts, url: &str| plan_of(trial, hosts, url, open_files);
    // Everything that can be refused is refused before anything is started.
    for trial in &experiment.trials {
        let port = trial.server.port().unwrap_or(1);
        let planned = match Hosts::of(&trial.at) {
            Ok(hosts) => {
                let url = format!("http://{}:{port}{}", hosts.address, trial.sent_to());
                planner(trial, &hosts, &url).map(|_| ())
            }
            // It is left out when its turn comes.
            Err(Refused::Machine(_)) => Ok(()),
            Err(Refused::Wrong(what)) => Err(what),
        };
        planned.map_err(|what| Ending::usage(format!("{}: {what}", trial.place)))?;
    }
    files(args).writable()?;
    let stop = Stop::on_signals()
        .map_err(|e| Ending::failed(format!("signals cannot be handled: {e}")))?;
    let floodmark = std::env::current_exe()
        .map_err(|e| Ending::failed(format!("floodmark cannot find itself: {e}")))?;
    let folder = match (&args.out, &args.resume) {
        (Some(path), _) => Folder::create(path),
        (None, Some(path)) => Folder::reopen(path, "--resume"),
        (None, None) => Folder::create_temporary(),
    };
    let mut folder = folder.map_err(Ending::usage)?;
    let earlier = args
        .resume
        .as_deref()
        .map(|path| Earlier::read(path, &experiment, &planner))
        .transpose()
        .map_err(Ending::usage)?;
    let mut schedule = Schedule::of(&experiment);
    if let Some(earlier) = &earlier {
        schedule = schedule.after(earlier);
    }
    if !args.quiet {
        let length = schedule
            .length()
            .map(|length| format!(" – {} of load", about(length)));
        let length = length.unwrap_or_default();
        out::note(&format!(
            "{}{length}\n",
            floodmark_report::plain::line(&experiment.question)
        ));
    }
    let mut progress = Progress::new(schedule, args.quiet);
    let runner = Runner {
        experiment: &experiment,
        planner: &planner,
        tool: tool(),
        floodmark,
        earlier: earlier.as_ref(),
        stop: &stop,
    };
    let ran = runner.run(&mut folder, &mut progress);
    progress.clear();
    let (outcome, failure) = match ran {
        Ok(outcome) => (outcome, None),
        Err(LabError::Worker {
            record,
            failure,
            folder,
        }) => {
            let what = format!("{failure}; what was taken is in {}", folder.display());
            let outcome = Outcome {
                record: *record,
                failures: Vec::new(),
            };
            (outcome, Some(Ending::failed(what)))
        }
        Err(error) => return Err(Ending::failed(error)),
    };
    files(args).write(&outcome.record, |e| Ending::failed(e))?;
    show(args, &outcome.record, folder.path());
    ending(args, &experiment, &outcome, failure, &stop)
}

/// Reads the experiment, with what the flags change of it.
fn read(args: &RunArgs) -> Result<Experiment, Ending> {
    let path = Experiment::find(&args.experiment).map_err(Ending::usage)?;
    let changes = Changes {
        only: args.only.clone(),
        attempts: args.attempts,
        processes: args.processes,
        duration: args.duration,
        prove: args.prove,
    };
    Experiment::read(&path)
        .map_err(Ending::usage)?
        .changed(&changes)
        .map_err(Ending::usage)
}

/// The flags of `floodmark load`, as an experiment gives them.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct LoadFlags {
    #[command(flatten)]
    load: LoadArgs,
}

/// The plan of a trial: what `floodmark load` would do with the same flags.
fn plan_of(
    trial: &Trial,
    hosts: &Hosts,
    url: &str,
    open_files: Option<u64>,
) -> Result<Planned, String> {
    let mut flags = vec![url.to_owned()];
    flags.extend(trial.load.flags());
    if let Some(cpus) = hosts.client_cpus.filter(|_| !trial.load.has_threads()) {
        flags.push(format!("--threads={cpus}"));
    }
    if trial.client.is_none() {
        flags.extend(trial.request_flags());
    }
    let args = LoadFlags::try_parse_from(&flags)
        .map_err(|error| first_line(&error.to_string()))?
        .load;
    let target = target::resolve(url, &args).map_err(|ending| ending.message)?;
    // Ports and kernel settings are those of the client's network.
    let planned = hosts
        .client
        .within(|| plan::plan(&args, target, open_files).map_err(|ending| ending.message))
        .map_err(|error| error.to_string())??;
    Ok(Planned {
        plan: planned.plan,
        anchors: planned.anchors,
        notices: planned.notices,
    })
}

/// What clap says of flags, in one line.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    format!("load: {}", line.trim_start_matches("error: "))
}

/// Where the record goes.
fn files(args: &RunArgs) -> Files<'_> {
    Files {
        html: args.html.as_deref(),
        json: args.json.as_deref(),
        csv: None,
        hdr: None,
    }
}

/// Prints the table: on stdout, or on stderr where stdout carries the JSON.
fn show(args: &RunArgs, record: &Record, folder: &Path) {
    if args.quiet {
        return;
    }
    let kept = format!("\nkept in {}\n", folder.display());
    if args.json.as_deref() == Some(Path::new("-")) {
        let style = out::style(&std::io::stderr());
        out::note(&(floodmark_report::experiment::of_record(record, style) + &kept));
    } else {
        let style = out::style(&std::io::stdout());
        out::print(&(floodmark_report::experiment::of_record(record, style) + &kept));
    }
}

fn ending(
    args: &RunArgs,
    experiment: &Experiment,
    outcome: &Outcome,
    failure: Option<Ending>,
    stop: &Stop,
) -> Result<(), Ending> {
    let runs = &outcome.record.runs;
    let named = |run: &Run, what: String| {
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        format!(
            "{trial}, process {} attempt {}: {what}",
            run.process, run.attempt
        )
    };
    let cut_short = |run: &Run| run.ended.reason == EndReason::Interrupted;
    let interrupted = stop.is_set() || (failure.is_none() && runs.iter().any(cut_short));
    let mut endings = Vec::from_iter(failure);
    if interrupted {
        endings.push(Ending {
            exit: Exit::Interrupted,
            message: "interrupted; the table is of what was taken until then".to_owned(),
        });
    }
    let failures = outcome.failures.len();
    if failures > 0 {
        endings.push(Ending::server(match failures {
            1 => "one trial failed, for the reason above".to_owned(),
            n => format!("{n} trials failed, for the reasons above"),
        }));
    }
    // What another client met is in what it says.
    let mut own = runs.iter().filter(|run| run.client.tool.is_none());
    endings.extend(own.find_map(|run| {
        let fault = server_fault(run)?;
        Some(Ending::server(named(run, fault.message)))
    }));
    let invalid = runs
        .iter()
        .find(|run| run.validity.status == Status::Invalid);
    endings.extend(invalid.map(|run| Ending {
        exit: Exit::Invalid,
        message: named(
            run,
            format!("the result is invalid: {}", run.validity.reasons.join("; ")),
        ),
    }));
    endings.extend(broken(experiment, runs, args.only.is_empty()));
    if args.fail_on_claims {
        endings.extend(refuted(&outcome.record.claims));
    }
    match endings.into_iter().min_by_key(|ending| ending.exit) {
        Some(ending) => Err(ending),
        None => Ok(()),
    }
}

/// A claim that does not hold.
fn refuted(claims: &[Claim]) -> Option<Ending> {
    let claim = claims.iter().find(|claim| claim.holds == Holds::No)?;
    Some(Ending {
        exit: Exit::Check,
        message: format!(
            "the claim \"{}\" does not hold (--fail-on-claims): published {}, measured {}",
            claim.text,
            sentences::published(claim),
            sentences::measured(claim)
        ),
    })
}

/// A check that came out otherwise than the experiment expects. Where only some trials were asked for, not the whole of it, the one whose
/// check is to be violated may be among the others.
fn broken(experiment: &Experiment, runs: &[Run], whole: bool) -> Option<Ending> {
    let mut checks = runs.iter().flat_map(|run| &run.checks);
    let fail = |message: String| {
        Some(Ending {
            exit: Exit::Check,
            message,
        })
    };
    if experiment.expected_check == Some(ExpectedCheck::Violated) {
        let held = checks.clone().next().is_some() && checks.all(|check| check.held);
        return match held && whole {
            true => fail("the check holds, and the experiment expects that it does not".to_owned()),
            false => None,
        };
    }
    let check = checks.find(|check| !check.held)?;
    fail(format!(
        "the check {} does not hold: {}",
        check.name, check.detail
    ))
}
