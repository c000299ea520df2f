//! Runs the tasks of `floodmark-bench`, and the steps of the suite that use it. Tasks use release
//! builds of `floodmark-bench` and floodmark, which are built together. Steps use the dev build.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use crate::command;
use crate::error::TaskError;
use crate::tools;
use crate::workspace::Workspace;

/// Flags passed to `floodmark-bench`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct BenchArguments {
    /// Flags of the task; run the task with --help to list them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    flags: Vec<OsString>,
}

/// Returns the Debian packages that a task uses. If a package is missing, the generated page is
/// incomplete.
fn packages(task: &str) -> &'static [&'static str] {
    match task {
        "peers" => &[
            "nginx-light",
            "openssl",
            "wrk",
            "apache2-utils",
            "hey",
            "nghttp2-client",
            "httperf",
        ],
        "http2-servers" => &[
            "caddy",
            "default-jdk-headless",
            "golang-go",
            "h2o",
            "haproxy",
            "maven",
            "nginx-light",
            "nodejs",
            "openssl",
            "python3-venv",
        ],
        "performance" => &["nginx-light", "openssl", "linux-perf", "valgrind"],
        _ => &[],
    }
}

/// Runs a task with inherited output and returns whether the task succeeds.
pub fn run(
    workspace: &Workspace,
    task: &str,
    arguments: &BenchArguments,
) -> Result<bool, TaskError> {
    let packages = packages(task);
    let asks_for_help = arguments
        .flags
        .iter()
        .any(|flag| flag == "--help" || flag == "-h");
    if !packages.is_empty()
        && !asks_for_help
        && let Err(error) = tools::install(packages)
    {
        println!("{error}");
    }
    let mut bench = Command::new(workspace.build_release("floodmark-bench")?);
    bench.arg(task).args(&arguments.flags);
    let status = bench.current_dir(&workspace.root).status();
    let status = status.map_err(TaskError::start(&bench))?;
    if status.code().is_none() {
        println!("floodmark-bench {task}: {status}");
    }
    Ok(status.success())
}

/// Runs a step of the suite with the program `bench`, and returns notes about ignored parts.
pub fn step<S: AsRef<OsStr>>(
    workspace: &Workspace,
    bench: &Path,
    arguments: &[S],
) -> Result<Vec<String>, TaskError> {
    let mut step = Command::new(bench);
    let lines = command::run(step.args(arguments).current_dir(&workspace.root))?;
    Ok(command::ignored(&lines))
}
