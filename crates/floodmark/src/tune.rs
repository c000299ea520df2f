//! `floodmark tune`: finds the smallest knob values that perform within 2 % of the best.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use floodmark_lab::Directory;
use floodmark_lab::experiment::{EarlierResult, ExperimentRunner, TrialHosts, default_threads};
use floodmark_lab::manifest::{Changes, Experiment, Trial, TuningRequest};
use floodmark_plan::values::positive_duration;
use floodmark_record::Record;
use floodmark_record::reason::joined;
use floodmark_record::tuning::{Tuning, TuningEnd, TuningGoal};
use floodmark_report::tuning_scope;

use crate::endings;
use crate::exit::{Ending, HELP, own_program, stop_on_signals};
use crate::progress::LineKind;
use crate::run::checked_plan;
use crate::session::{Measured, Measurement, OutputArgs, Session};

/// Find the smallest values of a server's knobs that perform within 2 % of the best.
///
/// Starts with the default setting of one trial. If a full pool of threads or connections limits
/// the server, raises the knob that sizes the pool; otherwise, tries a few values of each knob.
/// Then looks for smaller values, and confirms the result. Each measurement starts a fresh server
/// process.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub struct TuneArgs {
    /// Experiment file, or the name of an experiment (in ./experiments, or embedded)
    pub experiment: String,

    /// Trial, sweep or system to tune [default: the only trial with knobs]
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,

    /// Knob to change; repeatable, at most two knobs [default: all knobs that size threads or
    /// connections]
    #[arg(long = "knob", value_name = "NAME")]
    pub knobs: Vec<String>,

    /// Figure to maximize; capacity requires [capacity] in the experiment
    #[arg(long = "for", value_name = "FIGURE", default_value = TuningGoal::Throughput.name(), value_parser = goal())]
    pub goal: TuningGoal,

    /// Time limit, with a unit; if the time runs out, the result is the best setting so far
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = positive_duration)]
    pub budget: Duration,

    /// Duration of the load in each measurement, with a unit; conflicts with --for capacity
    /// [default: set by the experiment]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Result.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Resume the interrupted tuning run in this result directory, with a new time limit;
    /// completely measured server processes are not repeated [default: none]
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
}

fn goal() -> impl TypedValueParser<Value = TuningGoal> {
    PossibleValuesParser::new(TuningGoal::ALL.map(TuningGoal::name)).try_map(|name| {
        TuningGoal::from_name(&name).ok_or_else(|| format!("unknown figure \"{name}\""))
    })
}

/// Runs the command.
pub fn run(args: &TuneArgs) -> Result<(), Ending> {
    let experiment = read(args)?;
    // Reject all invalid input before starting any process.
    let trial = &experiment.trials[0];
    if checked_plan(trial)?.is_some_and(|plan| plan.is_open()) {
        return Err(Ending::usage(format!(
            "{}: the load has a fixed rate, so its throughput shows no difference between settings; remove `rate` or the \
             other keys of the schedule",
            trial.place
        )));
    }
    args.output.files.check_writable()?;
    let stop = stop_on_signals()?;
    let tuning = KnobTuning {
        args,
        experiment,
        floodmark: own_program()?,
    };
    Session::run(&args.output, args.resume.as_deref(), &stop, tuning)
}

/// The tuning of a trial's knobs.
struct KnobTuning<'a> {
    args: &'a TuneArgs,
    experiment: Experiment,
    floodmark: PathBuf,
}

impl Measurement for KnobTuning<'_> {
    fn measure(
        &mut self,
        session: &Session<'_>,
        directory: &mut Directory,
    ) -> Result<Measured, Ending> {
        let experiment = &self.experiment;
        let earlier = session
            .resume
            .map(|path| EarlierResult::read_tuning(path, experiment))
            .transpose()
            .map_err(Ending::usage)?;
        if earlier.is_some() {
            let record = floodmark_lab::fold(directory.path()).map_err(Ending::usage)?;
            if is_complete(&record) {
                return Ok(session.complete(directory, record));
            }
        }
        let asked = &experiment.description;
        if let Some(tuning) = &asked.tuning {
            let question = floodmark_report::plain::line(&asked.question);
            let scope = tuning_scope(tuning, asked.capacity.as_ref());
            session.note(&format!("{question} – {scope}"));
        }
        let runner = ExperimentRunner {
            experiment,
            tool: session.tool(),
            floodmark: self.floodmark.clone(),
            earlier: earlier.as_ref(),
            budget: Some(self.args.budget),
            stop: session.stop,
        };
        let mut progress = session.progress(LineKind::Attempts);
        let outcome = runner
            .run(directory, &mut progress)
            .map_err(Ending::internal)?;
        Ok(Measured {
            record: outcome.record,
            failure: outcome.worker_failure,
        })
    }

    fn has_result(&self, record: &Record) -> bool {
        !record.has_no_measurement()
    }

    fn endings(&self, record: &Record) -> Vec<Ending> {
        let tuning = record.tuning.as_ref();
        Vec::from_iter(tuning.and_then(|tuning| no_result(record, tuning)))
    }
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

fn is_complete(record: &Record) -> bool {
    let tuning = record.tuning.as_ref();
    tuning.is_some_and(|tuning| tuning.ended == TuningEnd::Complete)
}

/// Returns an [`Ending`] if no setting was chosen, because no setting gave a valid figure.
fn no_result(record: &Record, tuning: &Tuning) -> Option<Ending> {
    if tuning.chosen.is_some() {
        return None;
    }
    let mut runs = record.runs.iter();
    let invalid = runs.find_map(|run| endings::invalid(run, || joined(&run.validity.reasons)));
    let fault = record.runs.iter().find_map(endings::server_fault);
    let has_reason = tuning.steps.iter().any(|step| step.note.is_some());
    let failed = || {
        let why = &tuning.why_ended;
        if has_reason {
            Ending::server(why)
        } else {
            Ending::server(format!("{why}; see the output above"))
        }
    };
    Some(fault.or(invalid).unwrap_or_else(failed))
}
