//! Entry point: parses flags, runs a subcommand and returns its exit code.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, Parser, Subcommand};
use floodmark_plan::values::count_within;

mod capacity;
mod compare;
mod disk;
mod doctor;
mod endings;
mod exit;
mod export;
mod files;
mod generated;
mod helper;
mod init;
mod load;
mod observe;
mod out;
mod progress;
mod report;
mod results;
mod run;
mod serve;
mod session;
mod trend;
mod tune;
mod why;
mod worker;

use exit::{Ending, Exit};

/// Performance lab for web servers: loads a server, checks the result, and reports what limited it.
#[derive(Debug, Parser)]
#[command(name = "floodmark", version, max_term_width = 100, help_expected = true, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Load(Box<load::args::LoadArgs>),
    Capacity(Box<capacity::CapacityArgs>),
    Run(run::RunArgs),
    Tune(tune::TuneArgs),
    Init(init::InitArgs),
    Serve(serve::ServeArgs),
    Disk(disk::DiskArgs),
    Doctor(doctor::DoctorArgs),
    Observe(observe::ObserveArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Trend(trend::TrendArgs),
    Why(why::WhyArgs),
    Completions(generated::CompletionsArgs),
    Man(generated::ManArgs),
    Worker(worker::WorkerArgs),
    #[command(hide = true)]
    Delay(helper::DelayArgs),
    #[command(hide = true)]
    Slow(helper::SlowArgs),
}

/// Maximum process ID: PID_MAX_LIMIT of 64-bit Linux.
const MAX_PROCESS_ID: u64 = 1 << 22;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(attach_negative_numbers(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return usage(error),
    };
    ended(match &cli.command {
        Command::Load(args) => load::run(args),
        Command::Capacity(args) => capacity::run(args),
        Command::Run(args) => run::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Disk(args) => disk::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Observe(args) => observe::run(args),
        Command::Report(args) => report::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Trend(args) => trend::run(args),
        Command::Why(args) => why::run(args),
        Command::Completions(args) => generated::completions(args, &mut Cli::command()),
        Command::Man(args) => generated::man(args, Cli::command()),
        Command::Worker(args) => worker::run(args),
        Command::Delay(args) => helper::delay(args),
        Command::Slow(args) => helper::slow(args),
    })
}

/// Attaches each negative number to the flag before it (`-c=-1`). Otherwise, clap would report the
/// number as an unknown flag.
fn attach_negative_numbers(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut attached: Vec<OsString> = Vec::new();
    for word in words {
        let is_negative = matches!(word.as_encoded_bytes(), [b'-', b'0'..=b'9', ..]);
        let flags_ended = attached.iter().any(|word| word == "--");
        match attached.last_mut() {
            Some(flag) if is_negative && !flags_ended && takes_value(flag) => {
                flag.push("=");
                flag.push(word);
            }
            _ => attached.push(word),
        }
    }
    attached
}

/// Returns whether a word is a flag that takes a value in at least one command.
fn takes_value(word: &OsStr) -> bool {
    let is_named = |arg: &Arg| {
        let long = arg
            .get_long()
            .is_some_and(|name| word == &*format!("--{name}"));
        long || arg
            .get_short()
            .is_some_and(|name| word == &*format!("-{name}"))
    };
    let command = Cli::command();
    let mut all = command
        .get_subcommands()
        .flat_map(clap::Command::get_arguments);
    all.any(|arg| arg.get_action().takes_values() && is_named(arg))
}

/// Parses a process ID.
fn process_id(text: &str) -> Result<u32, String> {
    count_within(text, 1..=MAX_PROCESS_ID).map(|n| n as u32)
}

/// Prints the error message, if any. Returns the exit code.
fn ended(ended: Result<(), Ending>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::from(Exit::Success.code()),
        Err(Ending { exit, message }) => {
            if !message.is_empty() {
                out::complain(&message);
            }
            ExitCode::from(exit.code())
        }
    }
}

/// Flags of other load generators and of curl, with a hint.
const OTHER_FLAGS: [(&str, &str); 24] = [
    ("--vus", "use --connections (-c)"),
    ("--users", "use --connections (-c)"),
    ("--concurrency", "use --connections (-c)"),
    ("--workers", "use --connections (-c)"),
    ("--rps", "use --rate (-r)"),
    ("--qps", "use --rate (-r)"),
    ("-z", "use --duration (-d)"),
    ("--data", "use --body (-b) or --body-file"),
    ("--data-raw", "use --body (-b)"),
    ("--data-binary", "use --body (-b) or --body-file"),
    ("--request", "use --method (-X)"),
    ("-m", "use --method (-X)"),
    ("-k", "use --insecure"),
    ("-E", "use --cert"),
    (
        "-u",
        "write the credentials in the URL: http://user:password@host/",
    ),
    (
        "--user",
        "write the credentials in the URL: http://user:password@host/",
    ),
    ("--http2", USE_HTTP2),
    ("--h2", USE_HTTP2),
    (
        "--http3",
        "floodmark supports only HTTP/1.1 and HTTP/2; remove the flag",
    ),
    ("--max-concurrent-streams", "use --streams"),
    ("--follow", NO_REDIRECTS),
    ("--location", NO_REDIRECTS),
    ("-L", NO_REDIRECTS),
    (
        "--latency",
        "latencies are always reported; remove the flag",
    ),
];

const USE_HTTP2: &str = "use --http 2";
const NO_REDIRECTS: &str = "redirects are not followed; request the target URL";

/// Replaces the suggestion for an unknown flag if another program has this flag.
fn explain_other_flag(error: &mut clap::Error) {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let is_same =
        |(other, _): &&(&str, &str)| error.kind() == ErrorKind::UnknownArgument && other == flag;
    if let Some((_, hint)) = OTHER_FLAGS.iter().find(is_same) {
        error.remove(ContextKind::SuggestedArg);
        let hints = ContextValue::StyledStrs(vec![(*hint).into()]);
        error.insert(ContextKind::Suggested, hints);
    }
}

/// Describes in one line a value that an argument does not accept. Returns `None` for other errors.
fn invalid_value(error: &clap::Error) -> Option<Ending> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let (argument, value) = (
        text(ContextKind::InvalidArg)?,
        text(ContextKind::InvalidValue)?,
    );
    let why = match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::ValueValidation, _) => error.source()?.to_string(),
        // The value is empty if it is missing.
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(valid))) if !value.is_empty() => {
            let fix = match text(ContextKind::SuggestedValue) {
                Some(nearest) => format!("did you mean \"{nearest}\"?"),
                None => format!("use one of: {}", valid.join(", ")),
            };
            format!("unknown value; {fix}")
        }
        _ => return None,
    };
    // Remove the placeholder from `--streams <N>`.
    let place = argument.split(" <").next().unwrap_or(argument);
    let value = if value.is_empty() { "\"\"" } else { value };
    Some(Ending::usage(format!("{place} {value}: {why}")))
}

/// Prints help and version to stdout and usage errors to stderr.
fn usage(mut error: clap::Error) -> ExitCode {
    if let Some(ending) = invalid_value(&error) {
        return ended(Err(ending));
    }
    suggest_no_hidden_command(&mut error);
    explain_other_flag(&mut error);
    if error.use_stderr() {
        out::note(&error.render().to_string());
        ExitCode::from(Exit::Usage.code())
    } else {
        ended(out::print(&error.render().to_string()))
    }
}

fn suggest_no_hidden_command(error: &mut clap::Error) {
    let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) else {
        return;
    };
    let command = Cli::command();
    let is_shown = |name: &String| {
        command
            .find_subcommand(name)
            .is_some_and(|command| !command.is_hide_set())
    };
    let names: Vec<String> = names.into_iter().filter(is_shown).collect();
    if !names.is_empty() {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(names),
        );
    }
}
