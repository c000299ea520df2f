//! The flags of `floodmark tune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use floodmark_plan::values::positive_duration;
use floodmark_record::tuning::TuningGoal;

use crate::session::OutputArgs;

/// Find the smallest setting of a server's knobs that is within 2 % of the best.
///
/// Starts with the default setting of one trial. If a full pool of threads or connections limits
/// the server, raises the knob that sizes the pool; otherwise, tries a few values of each knob. Then
/// looks for smaller values, and confirms the result. Each measurement starts a fresh server process.
#[derive(Debug, Clone, Args)]
#[command(after_help = crate::exit::HELP)]
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

    /// Time limit, with a unit. The result is then the best setting so far
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = positive_duration)]
    pub budget: Duration,

    /// Duration of the load in each measurement, with a unit; conflicts with --for capacity [default:
    /// set by the experiment]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Result.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Resume the interrupted tuning in this result folder, with a new time limit; completely
    /// measured server processes are not repeated [default: none]
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
}

fn goal() -> impl TypedValueParser<Value = TuningGoal> {
    PossibleValuesParser::new(TuningGoal::ALL.map(TuningGoal::name)).try_map(|name| {
        TuningGoal::from_name(&name).ok_or_else(|| format!("unknown figure \"{name}\""))
    })
}
