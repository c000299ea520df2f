//! `floodmark why`: what limited the runs of a record, judged anew.

use std::path::{Path, PathBuf};

use clap::Args;
use floodmark_host::{Side, Stop};
use floodmark_lab::proving::{Proved, Proving};
use floodmark_lab::{Folder, fold};
use floodmark_observe::{Root, family};
use floodmark_record::Record;
use floodmark_record::run::Run;

use crate::exit::{Ending, HELP};
use crate::load::tls;
use crate::out;

/// Say what limited each run of a record, by what evidence, and what to do next.
///
/// It reads the record and nothing else, so it can be done on another machine and at any later time. Where the evidence does not
/// suffice it says so. With --prove the last run's server, which still has to be there, is loaded again in short windows with one part
/// changed at a time, to see whether throughput moves as the cause predicts.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct WhyArgs {
    /// A result folder (load --out, run --out), or a file with a record (--json)
    pub record: PathBuf,

    /// Change parts of the last run's setup in turn: twice the connections, the load process stopped for a fifth of the time, and with
    /// --server-pid the server; a minute or more of its load. What comes of it is kept in the result folder
    #[arg(long)]
    pub prove: bool,

    /// The server's process, which --prove may then stop for 1 ms of each 5 ms, its descendants included
    /// [default: the server is left alone]
    #[arg(long, value_name = "PID", requires = "prove", value_parser = clap::value_parser!(u32).range(1..))]
    pub server_pid: Option<u32>,

    /// File of the certificate authorities that the run trusted, where it had one [default: none]
    #[arg(long, value_name = "FILE", requires = "prove")]
    pub cacert: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &WhyArgs) -> Result<(), Ending> {
    let record = match args.prove {
        true => prove(args)?,
        false => floodmark_lab::read(&args.record).map_err(Ending::usage)?,
    };
    let judged = record.runs.iter().map(|run| {
        (
            run,
            floodmark_diagnose::why::verdict(run, &record.environment),
        )
    });
    let style = out::style(&std::io::stdout());
    out::print(&floodmark_report::why::of_runs(judged, style));
    Ok(())
}

/// Changes parts of the last run's setup; the record with what came of it.
fn prove(args: &WhyArgs) -> Result<Record, Ending> {
    let path: &Path = &args.record;
    let mut folder = Folder::reopen(path, "why --prove").map_err(Ending::usage)?;
    let failed = |error: &dyn std::fmt::Display| Ending::failed(format!("why --prove: {error}"));
    let record = fold(path).map_err(Ending::usage)?;
    let run = provable(&record)
        .map_err(|what| Ending::usage(format!("why --prove: {}: {what}", path.display())))?;
    if let Some(pid) = args.server_pid
        && family(&Root::host(), pid).is_empty()
    {
        return Err(Ending::usage(format!(
            "--server-pid {pid}: no process has this id, or it may not be looked at; see what listens with: ss -ltnp"
        )));
    }
    let anchors = match &run.plan.tls {
        Some(plan) => tls::anchors(plan, args.cacert.as_deref())?,
        None => Vec::new(),
    };
    let stop = Stop::on_signals().map_err(|error| failed(&error))?;
    let floodmark = std::env::current_exe().map_err(|error| failed(&error))?;
    let proving = Proving {
        floodmark: &floodmark,
        plan: &run.plan,
        anchors: &anchors,
        side: &Side::default(),
        server: args.server_pid,
        store: None,
        beside: None,
        stop: &stop,
    };
    let proved = proving
        .prove(run, &mut folder)
        .map_err(|error| failed(&error))?;
    let record = fold(path).map_err(|error| failed(&error))?;
    folder
        .write_record(&record)
        .map_err(|error| failed(&error))?;
    match proved {
        Proved::Changed => Ok(record),
        Proved::NothingToChange => {
            out::note("nothing that can be changed here tells this cause from others\n");
            Ok(record)
        }
        Proved::Failed(_) if stop.is_set() => Err(Ending {
            exit: crate::exit::Exit::Interrupted,
            message: "interrupted; the verdict is what it was".to_owned(),
        }),
        Proved::Failed(what) => Err(Ending::server(format!("why --prove: {what}"))),
    }
}

/// The run that can be loaded again as it was: the last one, where nothing was started for it that is gone now.
fn provable(record: &Record) -> Result<&Run, &'static str> {
    let Some(run) = record.runs.last() else {
        return Err("it has no run");
    };
    if record.experiment.is_some() {
        return Err(
            "it is of an experiment, whose servers are gone; run it again with: floodmark run EXPERIMENT --prove",
        );
    }
    if run.elsewhere.is_some() {
        return Err("its server was observed on another machine, where floodmark cannot slow it");
    }
    Ok(run)
}
