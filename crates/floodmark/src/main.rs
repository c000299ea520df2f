//! The command `floodmark`: flags in, exit code out.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod compare;
mod delay;
mod doctor;
mod exit;
mod files;
mod init;
mod load;
mod observe;
mod out;
mod report;
mod run;
mod serve;
mod slow;
mod why;
mod worker;

use exit::{Ending, Exit};

/// A performance lab for web servers: drives load truthfully and says what the figure means.
#[derive(Debug, Parser)]
#[command(name = "floodmark", version, max_term_width = 100, help_expected = true, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Load(Box<load::args::LoadArgs>),
    Run(run::args::RunArgs),
    Init(init::InitArgs),
    Serve(serve::ServeArgs),
    Doctor(doctor::DoctorArgs),
    Observe(observe::ObserveArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Why(why::WhyArgs),
    /// One load process: plan and start time on stdin, events on stdout; started by the other commands
    Worker,
    #[command(hide = true)]
    Delay(delay::DelayArgs),
    #[command(hide = true)]
    Slow(slow::SlowArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let ended = match &cli.command {
        Command::Load(args) => load::run(args),
        Command::Run(args) => run::run(args),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Observe(args) => observe::run(args),
        Command::Report(args) => report::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Why(args) => why::run(args),
        Command::Worker => worker::run(),
        Command::Delay(args) => delay::run(args),
        Command::Slow(args) => slow::run(args),
    };
    match ended {
        Ok(()) => ExitCode::from(Exit::Fine.code()),
        Err(Ending { exit, message }) => {
            out::note(&format!(
                "floodmark: {}\n",
                floodmark_report::plain::line(&message)
            ));
            ExitCode::from(exit.code())
        }
    }
}

/// Help and version go to stdout and are fine; the rest is wrong usage.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        out::note(&error.render().to_string());
        ExitCode::from(Exit::Usage.code())
    } else {
        out::print(&error.render().to_string());
        ExitCode::from(Exit::Fine.code())
    }
}
