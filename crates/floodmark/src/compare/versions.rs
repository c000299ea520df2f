//! `floodmark compare --baseline COMMAND --candidate COMMAND`: measures and compares two versions of
//! a server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use floodmark_lab::manifest::{CommandWords, Experiment, VersionComparison, request_path};
use floodmark_plan::LoadSpec;
use floodmark_plan::spec::Warmup;
use floodmark_plan::values::{count_from_one, percentage, positive_duration, rate, warmup};
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::units::Rate;

use super::CompareArgs;
use crate::exit::{Ending, stop_on_signals};
use crate::export::ExportArgs;
use crate::files::Files;
use crate::run::{ExperimentTrials, checked_plan};
use crate::session::{OutputArgs, Session};

/// Default number of connections of the closed model.
const CONNECTIONS: u64 = 16;

/// Flags for two versions: their commands, load and decision rule.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Command that starts the old version, without a shell; {port} is replaced by the port to
    /// listen on
    #[arg(
        long,
        value_name = "COMMAND",
        value_parser = CommandWords::of_version,
        requires = "candidate",
        conflicts_with_all = ["a", "b", "fail_if", "strict", "format"]
    )]
    pub baseline: Option<CommandWords>,

    /// Command that starts the new version
    #[arg(long, value_name = "COMMAND", value_parser = CommandWords::of_version, requires = "baseline")]
    pub candidate: Option<CommandWords>,

    /// Path to request with GET
    #[arg(long, value_name = "PATH", value_parser = request_path, default_value = "/", requires = "baseline")]
    pub path: String,

    /// Smallest difference to detect, in percent of the baseline's figure
    #[arg(long, value_name = "PERCENT", value_parser = percentage, default_value = "5%", requires = "baseline")]
    pub margin: f64,

    /// Maximum time for the comparison, with a unit
    #[arg(long, value_name = "TIME", value_parser = positive_duration, default_value = "3m", requires = "baseline")]
    pub budget: Duration,

    /// Number of connections to each server; with --rate, the maximum number [default: 16; with
    /// --rate, as for `floodmark load`]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, requires = "baseline")]
    pub connections: Option<u64>,

    /// Number of load threads [default: half the CPUs, at least 1]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, requires = "baseline")]
    pub threads: Option<u64>,

    /// Duration of the load on each server process, with a unit
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration, default_value = "1s", requires = "baseline")]
    pub duration: Duration,

    /// Open model: total requests per second; requires a --metric other than throughput [default:
    /// none; closed model]
    #[arg(short, long, value_name = "PER_S", value_parser = rate, requires = "baseline")]
    pub rate: Option<Rate>,

    /// Use a fresh connection for each request
    #[arg(long, requires = "baseline")]
    pub fresh: bool,

    /// Warm-up before each measurement, with a unit; use a longer one for servers with a JIT
    /// compiler [default: a fifth of --duration]
    #[arg(long, value_name = "TIME", value_parser = warmup, requires = "baseline")]
    pub warmup: Option<Warmup>,

    /// New directory for the result [default: a new directory in the temporary directory; only the
    /// latest 20 are kept]
    #[arg(long, value_name = "DIRECTORY", requires = "baseline")]
    pub out: Option<PathBuf>,

    /// Print neither progress nor result
    #[arg(short, long, requires = "baseline")]
    pub quiet: bool,
}

/// Measures and compares two versions.
pub fn run(args: &CompareArgs) -> Result<(), Ending> {
    let versions = &args.versions;
    let (Some(baseline), Some(candidate)) = (&versions.baseline, &versions.candidate) else {
        let what = "pass two results, or two versions (--baseline COMMAND --candidate COMMAND)";
        return Err(Ending::usage(what));
    };
    let metric = match args.metric[..] {
        [] if versions.rate.is_some() => {
            let what = "--rate: at a fixed rate, throughput does not show a difference; set a different metric, such as --metric p99";
            return Err(Ending::usage(what));
        }
        [] => ComparedMetric::Throughput,
        [metric] => metric,
        _ => {
            let what = "--metric: only one metric can be used with --baseline; give --metric once";
            return Err(Ending::usage(what));
        }
    };
    let closed = versions.rate.is_none().then_some(CONNECTIONS);
    let load = LoadSpec {
        connections: versions.connections.or(closed),
        threads: versions.threads,
        duration: Some(versions.duration),
        rate: versions.rate,
        fresh: Some(versions.fresh),
        warmup: versions.warmup,
        ..LoadSpec::default()
    };
    let experiment = Experiment::of_versions(VersionComparison {
        baseline: baseline.clone(),
        candidate: candidate.clone(),
        path: versions.path.clone(),
        load,
        metric,
        margin: versions.margin,
        budget: versions.budget,
    });
    let experiment = experiment.map_err(Ending::usage)?;
    for trial in &experiment.trials {
        checked_plan(trial)?;
    }
    let output = OutputArgs {
        files: Files {
            html: args.html.clone(),
            json: args.json.clone(),
            ci: args.ci.clone(),
            ..Files::default()
        },
        export: ExportArgs::default(),
        out: versions.out.clone(),
        label: Vec::new(),
        quiet: versions.quiet,
    };
    output.files.check_writable()?;
    let stop = stop_on_signals()?;
    Session::run(&output, None, &stop, ExperimentTrials::new(experiment)?)
}
