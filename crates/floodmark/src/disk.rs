//! `floodmark disk`: tests a server on post-crash disk states and on failing disks.

use std::path::{Path, PathBuf};
use std::{fs, process, thread};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use floodmark_host::{Scratch, sweep_directories};
use floodmark_lab::directory::{own_memory, own_temporary};
use floodmark_lab::disk_test::{
    DiskCheck, DiskTest, DiskTestError, NumberCheck, Persistence, ServerCommand, TestError,
};
use floodmark_plan::spec::CheckKind;
use floodmark_plan::values::{count, count_from_one, count_within, seed};
use floodmark_plan::{CheckFile, PlanSpec};
use floodmark_record::disk::DiskResult;
use floodmark_record::units::show_count;

use crate::exit::{Ending, Exit, HELP, stop_on_signals};
use crate::out;

/// Test whether a server loses acknowledged requests on a power loss or a disk error.
///
/// Traces the server's file calls while clients send requests, derives disk states that a power
/// loss can leave, and starts the server on each. Then repeats this with failing syncs and writes.
/// The server command must contain {run}, the directory for its data, and {address} or {port}, for
/// example: floodmark disk --check sequence -- ./server --listen {address} --data {run}
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct DiskArgs {
    /// Program and arguments of the server; {run}, {address}, {host} and {port} are replaced
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<String>,

    /// Check: sequence (GET, a number that is never repeated), scoring (POST, the number of scores
    /// so far), or a check file of kind "set", such as items.toml [required]
    #[arg(long, value_name = "CHECK")]
    pub check: CheckKind,

    /// Path of the requests; conflicts with a check file [default: /dispatcher for sequence,
    /// /scoring for scoring]
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,

    /// Number of requests while the server is traced
    #[arg(short = 'n', long, value_name = "N", default_value = "400", value_parser = count_from_one)]
    pub requests: u64,

    /// Number of connections while the server is traced
    #[arg(short, long, value_name = "N", default_value = "4", value_parser = connections)]
    pub connections: u64,

    /// Number of disk states without injected errors
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count_from_one)]
    pub images: u64,

    /// Number of disk states per injected error; 0 injects no errors
    #[arg(long, value_name = "N", default_value = "50", value_parser = count)]
    pub images_per_error: u64,

    /// Durability of file names: strict (after a sync of the directory, as in POSIX) or journaled
    /// (also after a sync of the new or renamed file, as on ext4 and XFS)
    #[arg(long, value_name = "RULES", default_value = "strict", hide_possible_values = true, value_parser = file_system())]
    pub file_system: Persistence,

    /// Seed of the crash points and the disk states
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed)]
    pub seed: u64,

    /// Directory for disk states [default: /dev/shm, or the temporary directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Print only the result, and errors on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

fn connections(text: &str) -> Result<u64, String> {
    count_within(text, 1..=1_000)
}

fn file_system() -> impl TypedValueParser<Value = Persistence> {
    PossibleValuesParser::new(["strict", "journaled"]).map(|name| match name.as_str() {
        "journaled" => Persistence::Journaled,
        _ => Persistence::Strict,
    })
}

/// Runs the command.
pub fn run(args: &DiskArgs) -> Result<(), Ending> {
    let server = ServerCommand {
        words: args.command.clone(),
    };
    server
        .check()
        .map_err(|what| Ending::usage(format!("server command: {what}")))?;
    let check = check(args).map_err(Ending::usage)?;
    let stop = stop_on_signals()?;
    let scratch = scratch(args.scratch.as_deref())?;
    let log = own_temporary().map_err(Ending::usage)?;
    let log = log.join(format!("disk-{}.log", process::id()));
    if !args.quiet {
        out::note(&format!(
            "testing {} disk states\n",
            show_count(args.images)
        ));
    }
    let test = DiskTest {
        server: &server,
        check: &check,
        requests: args.requests,
        connections: args.connections.min(args.requests),
        images: args.images,
        images_per_fault: args.images_per_error,
        persistence: args.file_system,
        seed: args.seed,
        scratch: scratch.path(),
        log: &log,
        threads: thread::available_parallelism().map_or(1, usize::from),
    };
    let result = test.run(&stop.flag());
    if !matches!(
        result,
        Err(DiskTestError::NotStarted { .. } | DiskTestError::Exited { .. })
    ) {
        // The file is missing if no server was started.
        let _ = fs::remove_file(&log);
    }
    let result = result.map_err(|error| ending(&error))?;
    if stop.is_set() && result.rows.is_empty() {
        return Err(Ending::before_result("the first disk state"));
    }
    show(args, &result)?;
    match result {
        _ if stop.is_set() => Err(Ending::new(Exit::Interrupted, "")),
        result if !result.is_passed() => Err(Ending::new(Exit::Check, "")),
        _ => Ok(()),
    }
}

/// Returns a built-in check with its path, or reads the check file.
fn check(args: &DiskArgs) -> Result<DiskCheck, String> {
    let numbers = |check: NumberCheck| DiskCheck::Numbers {
        check,
        path: args
            .path
            .as_deref()
            .unwrap_or(check.default_path())
            .to_owned(),
    };
    let path = match &args.check {
        CheckKind::Sequence => return Ok(numbers(NumberCheck::Sequence)),
        CheckKind::Scoring => return Ok(numbers(NumberCheck::Scoring)),
        CheckKind::File(path) => path,
    };
    let shown = path.display();
    if args.path.is_some() {
        return Err(format!(
            "--path conflicts with --check {shown}, which contains the paths; remove --path"
        ));
    }
    let file = CheckFile::read(path, &PlanSpec::default());
    let file = file.map_err(|error| format!("--check {error}"))?;
    let kind = file.check.kind.name();
    DiskCheck::of_file(file).ok_or_else(|| {
        format!(
            "--check {shown}: kind \"{kind}\" is not supported; use kind \"set\", --check sequence or --check scoring"
        )
    })
}

fn scratch(directory: Option<&Path>) -> Result<Scratch, Ending> {
    let directory = match directory {
        Some(directory) => directory.to_owned(),
        None => {
            let directory = own_memory().map_err(Ending::usage)?.join("disk");
            // Remove the directories that killed processes left behind. A directory that cannot be
            // removed does no harm.
            let _ = sweep_directories(&directory);
            directory
        }
    };
    Scratch::create(&directory, "states").map_err(|error| {
        let directory = directory.display();
        Ending::usage(format!(
            "--scratch {directory}: {error}; choose a directory that you can write to"
        ))
    })
}

fn ending(error: &DiskTestError) -> Ending {
    match error {
        DiskTestError::Request(_) => Ending::usage(format!("--path: {error}")),
        DiskTestError::CheckFile(_) => Ending::usage(format!("--check {error}")),
        DiskTestError::Scratch(_)
        | DiskTestError::Log { .. }
        | DiskTestError::Image(TestError::Directory { .. }) => Ending::internal(error),
        _ => Ending::server(error),
    }
}

fn show(args: &DiskArgs, result: &DiskResult) -> Result<(), Ending> {
    if args.json {
        return out::print(&out::json(result)?);
    }
    out::show(false, |style| {
        floodmark_report::terminal::disk(result, style)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_disk_state_is_not_a_failure_of_the_server() {
        let error = DiskTestError::Image(TestError::Directory {
            path: "states".into(),
            source: std::io::ErrorKind::StorageFull.into(),
        });
        assert_eq!(ending(&error).exit, Exit::Internal);
    }
}
