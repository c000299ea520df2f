//! `floodmark run`: runs an experiment.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use floodmark_lab::Directory;
use floodmark_lab::experiment::{
    EarlierResult, ExperimentRunner, PlacementError, TrialHosts, TrialSchedule, plan_offline,
    with_crash_load,
};
use floodmark_lab::manifest::{Changes, Experiment, Trial};
use floodmark_plan::values::{attempts, count_within, positive_duration};
use floodmark_record::comparison::{ClaimResult, Holds};
use floodmark_record::crash::CrashResult;
use floodmark_record::experiment::ExpectedCheck;
use floodmark_record::gate::{GateDecision, GateEnd, GateResult};
use floodmark_record::reason::joined;
use floodmark_record::run::Run;
use floodmark_record::units::show_rough_duration;
use floodmark_record::{Plan, Record};

use crate::endings;
use crate::exit::{Ending, Exit, HELP, own_program, stop_on_signals};
use crate::progress::LineKind;
use crate::session::{Measured, Measurement, OutputArgs, Session};

/// Run an experiment: build, start, load and stop its servers in turn, and print one table.
///
/// An experiment is a TOML file; `floodmark init experiment` writes one to start from. Servers run
/// one at a time on 127.0.0.1, and each round restarts them all (A B A B). If a trial fails, the
/// others continue.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct RunArgs {
    /// Experiment file, or the name of an experiment (in ./experiments, or embedded)
    pub experiment: String,

    /// Run only trials with this trial name or system name; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Number of consecutive measurements of each server process, at most 10k [default: set by the
    /// experiment]
    #[arg(long, value_name = "N", value_parser = attempts)]
    pub attempts: Option<u32>,

    /// Number of processes per server, started one after another, at most 1k [default: set by the
    /// experiment]
    #[arg(long, value_name = "N", value_parser = processes)]
    pub processes: Option<u32>,

    /// Number of crash rounds per trial, at most 10k [default: set by the experiment]
    #[arg(long, value_name = "N", value_parser = attempts)]
    pub rounds: Option<u32>,

    /// Duration of the load in each measurement, with a unit [default: set by the experiment]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Time limit of the gate, or of each search for a capacity, with a unit [default: set by the
    /// experiment]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub budget: Option<Duration>,

    /// Prove each cause after the measurement by making one change at a time: doubling the
    /// connections, or stopping the client, server or store for 1 ms of every 5 ms. Takes a minute
    /// or more per process
    #[arg(long)]
    pub prove: bool,

    /// Exit with 1 if a published claim does not hold; inconclusive claims are ignored
    #[arg(long)]
    pub fail_on_claims: bool,

    /// Result.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Resume the interrupted experiment in this result directory; fully measured server processes
    /// and complete crash rounds are not repeated [default: none]
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
}

fn processes(text: &str) -> Result<u32, String> {
    count_within(text, 1..=1_000).map(|n| n as u32)
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Ending> {
    let experiment = read(args)?;
    // Reject all invalid input before starting any process.
    let crash = experiment.description.crash.as_ref();
    if crash.is_some() {
        args.output.files.check_crash_formats()?;
    }
    for trial in &experiment.trials {
        match crash {
            Some(_) => checked_plan(&with_crash_load(trial))?,
            None => checked_plan(trial)?,
        };
    }
    args.output.files.check_writable()?;
    let stop = stop_on_signals()?;
    let resume = args.resume.as_deref();
    let trials = ExperimentTrials {
        has_all_trials: args.only.is_empty(),
        fail_on_claims: args.fail_on_claims,
        ..ExperimentTrials::new(experiment)?
    };
    Session::run(&args.output, resume, &stop, trials)
}

/// Plans the load of a trial, to find errors before any process starts. Returns `None` if this host
/// does not support the trial's placement; the command reports this later.
pub fn checked_plan(trial: &Trial) -> Result<Option<Plan>, Ending> {
    let invalid = |what: String| Ending::usage(format!("{}: {what}", trial.place));
    let hosts = match TrialHosts::create(&trial.at) {
        Ok(hosts) => hosts,
        Err(PlacementError::Unsupported(_)) => return Ok(None),
        Err(PlacementError::Invalid(what)) => return Err(invalid(what)),
    };
    let port = trial.port.unwrap_or(1);
    let server = format!("{}:{port}", hosts.address);
    let planned = plan_offline(trial, &hosts, server).map_err(invalid)?;
    Ok(Some(planned.plan))
}

/// The trials of an experiment.
pub struct ExperimentTrials {
    experiment: Experiment,
    floodmark: PathBuf,
    /// Whether the experiment has all trials of its file. --only may exclude the trial whose check
    /// is expected to fail.
    has_all_trials: bool,
    fail_on_claims: bool,
    /// Number of trials that failed.
    failed: usize,
}

impl ExperimentTrials {
    /// Prepares an experiment with all of its trials.
    ///
    /// # Errors
    /// Fails if the path of this program is unknown.
    pub fn new(experiment: Experiment) -> Result<Self, Ending> {
        Ok(ExperimentTrials {
            experiment,
            floodmark: own_program()?,
            has_all_trials: true,
            fail_on_claims: false,
            failed: 0,
        })
    }

    /// Describes the experiment and its length.
    fn heading(&self, schedule: &TrialSchedule) -> String {
        let description = &self.experiment.description;
        let length = match (&description.crash, &description.gate) {
            (Some(crash), _) => format!(" – {} crash rounds per trial", crash.rounds),
            (None, Some(rules)) => {
                let budget = show_rough_duration(Duration::from_secs_f64(rules.budget_s));
                let end = if rules.is_two_sided {
                    "the comparison is decided"
                } else {
                    "the gate decides"
                };
                format!(" – pairs of servers until {end}, at most {budget}")
            }
            (None, None) => schedule.length().map_or_else(String::new, |length| {
                format!(" – {} of load", show_rough_duration(length))
            }),
        };
        let question = floodmark_report::plain::line(&description.question);
        format!("{question}{length}")
    }

    /// Returns whether an earlier result contains all measurements.
    fn is_complete(&self, earlier: &EarlierResult, directory: &Directory) -> Result<bool, Ending> {
        if self.experiment.description.gate.is_none() {
            return Ok(earlier.is_complete(&self.experiment));
        }
        let record = floodmark_lab::fold(directory.path()).map_err(Ending::usage)?;
        let ended = record.gate.map(|gate| gate.ended);
        Ok(ended.is_some_and(|ended| ended != GateEnd::Interrupted))
    }
}

impl Measurement for ExperimentTrials {
    fn measure(
        &mut self,
        session: &Session<'_>,
        directory: &mut Directory,
    ) -> Result<Measured, Ending> {
        let experiment = &self.experiment;
        let mut schedule = TrialSchedule::of(experiment);
        let earlier = session
            .resume
            .map(|path| EarlierResult::read(path, experiment))
            .transpose()
            .map_err(Ending::usage)?;
        if let Some(earlier) = &earlier {
            if self.is_complete(earlier, directory)? {
                let record = floodmark_lab::read(directory.path()).map_err(Ending::usage)?;
                return Ok(session.complete(directory, record));
            }
            schedule = schedule.after(earlier);
        }
        session.note(&self.heading(&schedule));
        let mut progress = session.progress(LineKind::Attempts);
        progress.set_schedule(schedule, experiment.capacity.is_some());
        let runner = ExperimentRunner {
            experiment,
            tool: session.tool(),
            floodmark: self.floodmark.clone(),
            earlier: earlier.as_ref(),
            budget: None,
            stop: session.stop,
        };
        let outcome = runner
            .run(directory, &mut progress)
            .map_err(Ending::internal)?;
        self.failed = outcome.failures.len();
        Ok(Measured {
            record: outcome.record,
            failure: outcome.worker_failure,
        })
    }

    fn has_result(&self, record: &Record) -> bool {
        !record.has_no_measurement() || !record.skipped.is_empty()
    }

    fn endings(&self, record: &Record) -> Vec<Ending> {
        let runs = &record.runs;
        let named = |run: &Run, what: String| {
            let trial = run.trial.as_deref().unwrap_or(&run.system);
            format!(
                "{trial}, process {}, attempt {}: {what}",
                run.process, run.attempt
            )
        };
        let mut all = Vec::new();
        match self.failed {
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
        all.extend(runs.iter().find_map(|run| {
            let aborted = endings::aborted(run)?;
            Some(Ending::new(aborted.exit, named(run, aborted.message)))
        }));
        let gate = record.gate.as_ref();
        // A gate excludes pairs with invalid runs, but unexpected responses are still a failure.
        let is_tolerant = gate.is_some_and(GateResult::tolerates_invalid_runs);
        all.extend(runs.iter().find_map(|run| {
            let invalid = endings::invalid(run, || joined(&run.validity.reasons))?;
            if is_tolerant && invalid.exit == Exit::Invalid {
                return None;
            }
            Some(Ending::new(invalid.exit, named(run, invalid.message)))
        }));
        all.extend(gate.and_then(failed_gate));
        all.extend(failed_check(&self.experiment, runs, self.has_all_trials));
        all.extend(crash_loss(&self.experiment, &record.crash));
        if self.fail_on_claims {
            all.extend(refuted(&record.claims));
        }
        all
    }
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

/// Returns an [`Ending`] if a check has an unexpected outcome.
fn failed_check(experiment: &Experiment, runs: &[Run], has_all_trials: bool) -> Option<Ending> {
    let expects_violation = experiment.description.expected_check == Some(ExpectedCheck::Violated);
    endings::failed_check(runs, expects_violation).or_else(|| {
        let mut checks = runs.iter().flat_map(|run| &run.checks).peekable();
        let unexpected = expects_violation && has_all_trials && checks.peek().is_some();
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
