//! `floodmark run`: runs an experiment.

use std::path::Path;
use std::time::Duration;

use floodmark_host::Stop;
use floodmark_lab::Folder;
use floodmark_lab::experiment::{
    EarlierResult, ExperimentOutcome, ExperimentRunner, PlacementError, TrialHosts, TrialSchedule,
    plan_trial, with_crash_load,
};
use floodmark_lab::manifest::{Changes, Experiment};
use floodmark_record::Record;
use floodmark_record::comparison::{ClaimResult, Holds};
use floodmark_record::crash::CrashResult;
use floodmark_record::experiment::ExpectedCheck;
use floodmark_record::gate::{GateDecision, GateEnd, GateResult};
use floodmark_record::run::Run;
use floodmark_record::worded::joined;

use crate::endings;
use crate::exit::{self, Ending, Exit, own_program, report_all, stop_on_signals};
use crate::export::ExportingListener;
use crate::load::tool;
use crate::out;
use args::RunArgs;
use progress::{ExperimentProgress, about};

pub mod args;
mod progress;

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Ending> {
    let experiment = read(args)?;
    // Reject all invalid input before starting any process.
    let crash = experiment.description.crash.as_ref();
    if crash.is_some() {
        args.files.check_crash_formats()?;
    }
    for trial in &experiment.trials {
        let trial = &match crash {
            None => trial.clone(),
            Some(_) => with_crash_load(trial),
        };
        let port = trial.port.unwrap_or(1);
        let planned = match TrialHosts::create(&trial.at) {
            Ok(hosts) => {
                let url = format!("http://{}:{port}{}", hosts.address, trial.sent_to());
                plan_trial(trial, &hosts, &url).map(|_| ())
            }
            // This trial is skipped later, when its turn comes.
            Err(PlacementError::Unsupported(_)) => Ok(()),
            Err(PlacementError::Invalid(what)) => Err(what),
        };
        planned.map_err(|what| Ending::usage(format!("{}: {what}", trial.place)))?;
    }
    args.files.check_writable()?;
    let stop = stop_on_signals()?;
    let floodmark = own_program()?;
    let export = args.export.start(args.quiet)?;
    let folder = match (&args.out, &args.resume) {
        (Some(path), _) => Folder::create(path),
        (None, Some(path)) => Folder::reopen(path, "--resume"),
        (None, None) => Folder::create_temporary(),
    };
    let mut folder = folder.map_err(Ending::usage)?;
    let earlier = args
        .resume
        .as_deref()
        .map(|path| EarlierResult::read(path, &experiment))
        .transpose()
        .map_err(Ending::usage)?;
    let is_complete = match (&earlier, &experiment.description.gate) {
        (None, _) => false,
        (Some(earlier), None) => earlier.is_complete(&experiment),
        (Some(_), Some(_)) => {
            let record = floodmark_lab::fold(folder.path()).map_err(Ending::usage)?;
            let ended = record.gate.map(|gate| gate.ended);
            ended.is_some_and(|ended| ended != GateEnd::Interrupted)
        }
    };
    if is_complete {
        if !args.quiet {
            let path = folder.path().display();
            out::note(&format!(
                "--resume {path}: the result is already complete; nothing was measured\n"
            ));
        }
        let outcome = ExperimentOutcome {
            record: floodmark_lab::read(folder.path()).map_err(Ending::usage)?,
            worker_failure: None,
            failures: Vec::new(),
        };
        return finish(args, &experiment, &outcome, folder.path(), &stop);
    }
    let mut schedule = TrialSchedule::of(&experiment);
    if let Some(earlier) = &earlier {
        schedule = schedule.after(earlier);
    }
    if !args.quiet {
        let gate = experiment.description.gate.as_ref();
        let length = match (crash, gate) {
            (Some(crash), _) => format!(" – {} crash rounds per trial", crash.rounds),
            (None, Some(rules)) => {
                let budget = Duration::from_secs_f64(rules.budget_s);
                format!(
                    " – pairs of servers until the gate decides, up to {}",
                    about(budget)
                )
            }
            (None, None) => schedule.length().map_or_else(String::new, |length| {
                format!(" – {} of load", about(length))
            }),
        };
        out::note(&format!(
            "{}{length}\n",
            floodmark_report::plain::line(&experiment.description.question)
        ));
    }
    let are_searches = experiment.capacity.is_some();
    let mut progress = ExperimentProgress::new(schedule, are_searches, args.quiet, &stop);
    let runner = ExperimentRunner {
        experiment: &experiment,
        tool: tool(),
        floodmark,
        earlier: earlier.as_ref(),
        stop: &stop,
    };
    let mut listener = ExportingListener {
        listener: &mut progress,
        export: &export,
    };
    let ran = runner.run(&mut folder, &mut listener);
    drop(progress);
    export.finish();
    let outcome = ran.map_err(Ending::internal)?;
    finish(args, &experiment, &outcome, folder.path(), &stop)
}

/// Prints the result, writes the output files, and returns the command's ending.
fn finish(
    args: &RunArgs,
    experiment: &Experiment,
    outcome: &ExperimentOutcome,
    folder: &Path,
    stop: &Stop,
) -> Result<(), Ending> {
    let shown = show(args, &outcome.record, folder);
    let saved = outcome.worker_failure.is_none().then_some(folder);
    let written = args
        .files
        .write_result(&outcome.record, saved, &endings::run_fault);
    let failures = outcome.worker_failure.as_ref().map(Ending::internal);
    let failures = failures.into_iter().chain(shown.err()).chain(written.err());
    ending(args, experiment, outcome, failures.collect(), stop)
}

/// Reads the experiment and applies the command-line flags.
fn read(args: &RunArgs) -> Result<Experiment, Ending> {
    let path = Experiment::find(&args.experiment).map_err(Ending::usage)?;
    let changes = Changes {
        only: args.only.clone(),
        attempts: args.attempts,
        processes: args.processes,
        duration: args.duration,
        prove: args.prove,
        rounds: args.rounds,
        budget: args.budget,
    };
    Experiment::read(&path)
        .map_err(Ending::usage)?
        .changed(&changes)
        .map_err(Ending::usage)
}

/// Prints the results table, unless it would be empty.
fn show(args: &RunArgs, record: &Record, folder: &Path) -> Result<(), Ending> {
    if args.quiet || (record.has_no_measurement() && record.skipped.is_empty()) {
        return Ok(());
    }
    out::show(args.files.use_stdout(), |style| {
        let table = floodmark_report::terminal::experiment(record, style);
        format!("{table}\nresult: {}\n", folder.display())
    })
}

fn ending(
    args: &RunArgs,
    experiment: &Experiment,
    outcome: &ExperimentOutcome,
    failures: Vec<Ending>,
    stop: &Stop,
) -> Result<(), Ending> {
    let runs = &outcome.record.runs;
    let named = |run: &Run, what: String| {
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        format!(
            "{trial}, process {}, attempt {}: {what}",
            run.process, run.attempt
        )
    };
    let interrupted = endings::interrupted(&outcome.record, stop, !failures.is_empty(), false);
    let mut all = report_all(failures);
    all.extend(interrupted);
    match outcome.failures.len() {
        0 => {}
        1 => all.push(Ending::server("one trial failed; see the reason above")),
        n => all.push(Ending::server(format!(
            "{n} trials failed; see the reasons above"
        ))),
    }
    // Skip runs of external clients, because their failures are reported separately.
    let mut own = runs.iter().filter(|run| run.client.tool.is_none());
    all.extend(own.find_map(|run| {
        let fault = endings::server_fault(run)?;
        Some(Ending::server(named(run, fault.message)))
    }));
    let gate = outcome.record.gate.as_ref();
    // A gate excludes pairs with invalid runs. Wrong responses are a failure nevertheless.
    let is_tolerant = gate.is_some_and(GateResult::tolerates_invalid_runs);
    all.extend(runs.iter().find_map(|run| {
        let invalid = endings::invalid(run, || joined(&run.validity.reasons))?;
        if is_tolerant && invalid.exit == Exit::Invalid {
            return None;
        }
        Some(Ending::new(invalid.exit, named(run, invalid.message)))
    }));
    all.extend(gate.and_then(failed_gate));
    all.extend(failed_check(experiment, runs, args.only.is_empty()));
    all.extend(crash_loss(experiment, &outcome.record.crash));
    if args.fail_on_claims {
        all.extend(refuted(&outcome.record.claims));
    }
    exit::worst(all)
}

/// Returns an [`Ending`] if the gate failed.
fn failed_gate(gate: &GateResult) -> Option<Ending> {
    let has_failed = gate.decision == GateDecision::Failed;
    has_failed.then(|| {
        let ratio = floodmark_report::gate_ratio(gate);
        Ending::new(Exit::Check, format!("gate failed: {ratio}"))
    })
}

/// Returns an [`Ending`] for the first published claim that does not hold.
fn refuted(claims: &[ClaimResult]) -> Option<Ending> {
    let claim = claims.iter().find(|claim| claim.holds == Holds::No)?;
    let message = format!(
        "claim \"{}\" does not hold (--fail-on-claims): published {}, measured {}",
        claim.text,
        floodmark_report::published(claim),
        floodmark_report::measured(claim)
    );
    Some(Ending::new(Exit::Check, message))
}

/// Returns an [`Ending`] if a check has an unexpected outcome. `all_trials` is false with --only,
/// which may exclude the trial that is expected to fail.
fn failed_check(experiment: &Experiment, runs: &[Run], all_trials: bool) -> Option<Ending> {
    let expects_violation = experiment.description.expected_check == Some(ExpectedCheck::Violated);
    endings::failed_check(runs, expects_violation).or_else(|| {
        let mut checks = runs.iter().flat_map(|run| &run.checks).peekable();
        let unexpected = expects_violation && all_trials && checks.peek().is_some();
        let passed = unexpected && checks.all(|check| check.held == Some(true));
        let message = "the check passed, but the experiment expects it to fail";
        passed.then(|| Ending::new(Exit::Check, message))
    })
}

/// Returns an [`Ending`] if crash rounds have an unexpected outcome.
fn crash_loss(experiment: &Experiment, trials: &[CrashResult]) -> Option<Ending> {
    let expects_loss = experiment.description.expected_check == Some(ExpectedCheck::Violated);
    let mut trials = trials.iter();
    let unexpected =
        trials.find_map(|trial| floodmark_report::unexpected_crash_outcome(trial, expects_loss));
    unexpected.map(|message| Ending::new(Exit::Check, message))
}
