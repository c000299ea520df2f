//! `floodmark why`: explains what limited the runs of a result.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use floodmark_host::ProcessPlacement;
use floodmark_lab::perturbation::{PerturbationTest, ProofOutcome};
use floodmark_lab::{Directory, fold};
use floodmark_observe::{Root, family};
use floodmark_plan::trust;
use floodmark_record::Record;
use floodmark_record::run::Run;
use floodmark_record::tls::TlsCredentials;

use crate::exit::{Ending, Exit, HELP, own_program, stop_on_signals};
use crate::files;
use crate::out;

/// Report what limited each run of a result, with the evidence and the next step.
///
/// Reads only the result, so it also works on another host. With --prove, loads the server of the
/// last run again in short windows, makes one change per window, and checks whether throughput
/// changes as the cause predicts.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct WhyArgs {
    /// Result directory (load --out, run --out), or record file (--json)
    pub record: PathBuf,

    /// Load the server again with one change at a time: doubling the connections, stopping the
    /// client for 1 ms of every 5 ms, and, with --server-pid, stopping the server likewise. Takes a
    /// minute or more, and adds the outcome to the result directory
    #[arg(long)]
    pub prove: bool,

    /// Server process that --prove may stop, including its descendants, for 1 ms of every 5 ms
    /// [default: never stop the server]
    #[arg(long, value_name = "PID", requires = "prove", value_parser = crate::process_id)]
    pub server_pid: Option<u32>,

    /// PEM file of the certificate authorities that the run trusted (its --cacert) [default: none]
    #[arg(long, value_name = "FILE", requires = "prove")]
    pub cacert: Option<PathBuf>,

    /// PEM file of the client's certificate that the run used (its --cert) [default: none]
    #[arg(long, value_name = "FILE", requires = "prove")]
    pub cert: Option<PathBuf>,

    /// PEM file of the private key for --cert [default: the key in the --cert file]
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

/// Error message for a result without runs.
const NO_RUN: &str = "the result has no runs; measure again with floodmark load or floodmark run";

/// Runs the command.
pub fn run(args: &WhyArgs) -> Result<(), Ending> {
    let record = if args.prove {
        prove(args)?
    } else {
        floodmark_lab::read(&args.record).map_err(Ending::usage)?
    };
    if files::has_only_crash_rounds(&record) {
        let path = args.record.display();
        return Err(Ending::usage(format!(
            "{path}: the result has crash rounds but no runs; show it with floodmark report {path}"
        )));
    }
    if record.runs.is_empty() {
        return Err(Ending::usage(format!(
            "{}: {NO_RUN}",
            args.record.display()
        )));
    }
    let judged: Vec<Run> = record.runs.iter().map(|run| judged(&record, run)).collect();
    let judged = judged.iter().map(|run| (run, run.verdict.clone()));
    out::show(false, |style| {
        floodmark_report::terminal::why(judged, style)
    })
}

/// Returns a run with its verdict. Outside an experiment, the verdict and the summary have the same
/// next step.
fn judged(record: &Record, run: &Run) -> Run {
    let verdict = floodmark_diagnose::why::verdict(run, &record.environment);
    let mut run = Run {
        verdict,
        ..run.clone()
    };
    if record.experiment.is_none() {
        let next = floodmark_diagnose::next_step(&run, run.client_cpus(record.environment.cpus));
        run.verdict
            .iter_mut()
            .for_each(|verdict| verdict.next.clone_from(&next));
    }
    run
}

/// Tries to prove what limited the last run. Returns the updated record.
fn prove(args: &WhyArgs) -> Result<Record, Ending> {
    let path: &Path = &args.record;
    let mut directory = Directory::reopen(path, "why --prove").map_err(Ending::usage)?;
    let record = fold(path).map_err(Ending::usage)?;
    let run = provable(&record)
        .map_err(|what| Ending::usage(format!("why --prove: {}: {what}", path.display())))?;
    if let Some(pid) = args.server_pid
        && family(&Root::host(), pid).is_empty()
    {
        return Err(Ending::usage(format!(
            "--server-pid {pid}: no such process, or no permission to inspect it; find the server with: ss -ltnp"
        )));
    }
    let credentials = match &run.plan.tls {
        Some(plan) => {
            let [cacert, cert, key] = [&args.cacert, &args.cert, &args.key].map(Option::as_deref);
            trust::credentials(plan, cacert, cert, key).map_err(Ending::usage)?
        }
        None => TlsCredentials::default(),
    };
    let stop = stop_on_signals()?;
    let floodmark = own_program()?;
    let proving = PerturbationTest {
        floodmark: &floodmark,
        plan: &run.plan,
        credentials: &credentials,
        side: &ProcessPlacement::default(),
        server: args.server_pid,
        store: None,
        doubled: None,
        stop: &stop,
    };
    let mut announce = |progress: &str| out::note(&format!("{progress}\n"));
    let proved = proving.run(run, &mut directory, &mut announce);
    let (record, failure) = floodmark_lab::finish(&mut directory, None).map_err(failed)?;
    if let Some(failure) = failure {
        return Err(failed(failure));
    }
    match proved {
        _ if stop.is_set() => Err(Ending::new(
            Exit::Interrupted,
            "interrupted; the verdict is unchanged",
        )),
        ProofOutcome::Measured => Ok(record),
        ProofOutcome::NothingToChange => {
            out::note("no available perturbation can distinguish this cause from others\n");
            Ok(record)
        }
        ProofOutcome::Failed(what) => Err(Ending::server(format!("why --prove: {what}"))),
    }
}

fn failed(error: impl Display) -> Ending {
    Ending::internal(format!("why --prove: {error}"))
}

/// Returns the last run if it can be repeated. Runs of experiments and runs with a remote server
/// cannot be repeated.
fn provable(record: &Record) -> Result<&Run, &'static str> {
    if record.experiment.is_some() {
        return Err(
            "the servers of an experiment are stopped when it ends; repeat the experiment with: floodmark run EXPERIMENT --prove",
        );
    }
    let Some(run) = record.runs.last() else {
        return Err(NO_RUN);
    };
    if run.remote.is_some() {
        return Err(
            "the server was observed on a remote host, where floodmark cannot slow it down; repeat the run on that host",
        );
    }
    Ok(run)
}
