//! `floodmark tune`: finds the smallest good setting of a server's knobs.

use std::path::Path;

use floodmark_host::Stop;
use floodmark_lab::Folder;
use floodmark_lab::experiment::{
    EarlierResult, ExperimentOutcome, PlacementError, TrialHosts, TuningRunner, default_threads,
    plan_trial,
};
use floodmark_lab::manifest::{Changes, Experiment, Trial, TuningRequest};
use floodmark_record::Record;
use floodmark_record::tuning::{Tuning, TuningEnd};
use floodmark_record::worded::joined;
use floodmark_report::tuning_scope;

use crate::endings;
use crate::exit::{self, Ending, own_program, report_all, stop_on_signals};
use crate::export::ExportingListener;
use crate::load::tool;
use crate::out;
use args::TuneArgs;
use progress::TuningProgress;

pub mod args;
mod progress;

/// Runs the command.
pub fn run(args: &TuneArgs) -> Result<(), Ending> {
    let experiment = read(args)?;
    // Reject all invalid input before starting any process.
    check_load(&experiment.trials[0]).map_err(Ending::usage)?;
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
    let earlier = args.resume.as_deref();
    let earlier = earlier
        .map(|path| EarlierResult::read_tuning(path, &experiment))
        .transpose()
        .map_err(Ending::usage)?;
    if earlier.is_some() {
        let record = floodmark_lab::fold(folder.path()).map_err(Ending::usage)?;
        if is_complete(&record) {
            if !args.quiet {
                let path = folder.path().display();
                out::note(&format!(
                    "--resume {path}: the result is already complete; nothing was measured\n"
                ));
            }
            let outcome = ExperimentOutcome {
                record,
                worker_failure: None,
                failures: Vec::new(),
            };
            return finish(args, &outcome, folder.path(), &stop);
        }
    }
    let asked = &experiment.description;
    if let Some(tuning) = asked.tuning.as_ref().filter(|_| !args.quiet) {
        out::note(&format!(
            "{} – {}\n",
            floodmark_report::plain::line(&asked.question),
            tuning_scope(tuning, asked.capacity.as_ref())
        ));
    }
    let mut progress = TuningProgress::new(args.quiet, &stop);
    let runner = TuningRunner {
        experiment: &experiment,
        tool: tool(),
        floodmark,
        earlier: earlier.as_ref(),
        budget: args.budget,
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
    finish(args, &outcome, folder.path(), &stop)
}

/// Reads the experiment, and chooses the trial and its knobs.
fn read(args: &TuneArgs) -> Result<Experiment, Ending> {
    let path = Experiment::find(&args.experiment).map_err(Ending::usage)?;
    let changes = Changes {
        duration: args.duration,
        ..Changes::default()
    };
    let request = TuningRequest {
        only: args.only.clone(),
        knobs: args.knobs.clone(),
        goal: args.goal,
    };
    let threads = |trial: &Trial| match TrialHosts::create(&trial.at) {
        Ok(hosts) => Ok(u64::from(default_threads(&hosts))),
        Err(error) => Err(error.to_string()),
    };
    let experiment = Experiment::read(&path).map_err(Ending::usage)?;
    let experiment = experiment
        .tuned(&request, threads)
        .map_err(|what| Ending::usage(format!("tune {}: {what}", args.experiment)))?;
    experiment.changed(&changes).map_err(Ending::usage)
}

/// Checks that the trial can be planned, and that its load has no fixed rate.
fn check_load(trial: &Trial) -> Result<(), String> {
    let at = |what: String| format!("{}: {what}", trial.place);
    let hosts = match TrialHosts::create(&trial.at) {
        Ok(hosts) => hosts,
        // The tuning ends when it starts the server.
        Err(PlacementError::Unsupported(_)) => return Ok(()),
        Err(PlacementError::Invalid(what)) => return Err(at(what)),
    };
    let port = trial.port.unwrap_or(1);
    let url = format!("http://{}:{port}{}", hosts.address, trial.sent_to());
    let planned = plan_trial(trial, &hosts, &url).map_err(at)?;
    match planned.plan.is_open() {
        true => Err(at(
            "the load has a fixed rate, so its throughput shows no difference between settings; remove `rate` or the \
             other keys of the schedule"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

fn is_complete(record: &Record) -> bool {
    let tuning = record.tuning.as_ref();
    tuning.is_some_and(|tuning| tuning.ended == TuningEnd::Complete)
}

/// Prints the result, writes the output files, and returns the command's ending.
fn finish(
    args: &TuneArgs,
    outcome: &ExperimentOutcome,
    folder: &Path,
    stop: &Stop,
) -> Result<(), Ending> {
    let record = &outcome.record;
    let shown = match args.quiet || record.has_no_measurement() {
        true => Ok(()),
        false => out::show(args.files.use_stdout(), |style| {
            let result = floodmark_report::terminal::experiment(record, style);
            format!("{result}\nresult: {}\n", folder.display())
        }),
    };
    let saved = outcome.worker_failure.is_none().then_some(folder);
    let written = args.files.write_result(record, saved, &endings::run_fault);
    let failures = outcome.worker_failure.as_ref().map(Ending::internal);
    let failures = failures.into_iter().chain(shown.err()).chain(written.err());
    let failures: Vec<Ending> = failures.collect();
    let interrupted = endings::interrupted(record, stop, !failures.is_empty(), false);
    let mut all = report_all(failures);
    all.extend(interrupted);
    all.extend(
        record
            .tuning
            .as_ref()
            .and_then(|tuning| no_result(record, tuning)),
    );
    exit::worst(all)
}

/// Returns an [`Ending`] if no setting has a figure.
fn no_result(record: &Record, tuning: &Tuning) -> Option<Ending> {
    if tuning.chosen.is_some() {
        return None;
    }
    let mut runs = record.runs.iter();
    let invalid = runs.find_map(|run| endings::invalid(run, || joined(&run.validity.reasons)));
    let fault = record.runs.iter().find_map(endings::server_fault);
    let has_reason = tuning.steps.iter().any(|step| step.note.is_some());
    let failed = || match has_reason {
        true => Ending::server(tuning.why_ended.clone()),
        false => Ending::server(format!("{}; see the output above", tuning.why_ended)),
    };
    Some(fault.or(invalid).unwrap_or_else(failed))
}
