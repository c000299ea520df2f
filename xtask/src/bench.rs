//! Chores that measure. They run `floodmark-bench`, which is built together with the release build
//! of floodmark.

use std::ffi::OsString;
use std::process::Command;

use crate::command;
use crate::error::ChoreError;
use crate::release;
use crate::tools;
use crate::workspace::Workspace;

/// Flags that are passed to `floodmark-bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    /// Flags of the chore; see its --help
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    flags: Vec<OsString>,
}

/// Debian packages that a chore uses. If one is missing, part of the page is missing too.
fn packages(chore: &str) -> &'static [&'static str] {
    match chore {
        "peers" => &[
            "nginx-light",
            "openssl",
            "wrk",
            "apache2-utils",
            "hey",
            "nghttp2-client",
            "httperf",
        ],
        "performance" => &["nginx-light", "openssl", "linux-perf", "valgrind"],
        _ => &[],
    }
}

/// Runs a chore with inherited output; returns whether it succeeds.
pub fn run(
    workspace: &Workspace,
    chore: &str,
    arguments: &BenchArguments,
) -> Result<bool, ChoreError> {
    let packages = packages(chore);
    if !packages.is_empty()
        && let Err(error) = tools::install(packages)
    {
        println!("{error}");
    }
    let mut bench = Command::new(release::build(workspace, "floodmark-bench")?);
    bench.arg(chore).args(&arguments.flags);
    let status = bench.current_dir(&workspace.root).status();
    Ok(status.map_err(ChoreError::start(&bench))?.success())
}

/// Runs a step of the suite; returns the ignored parts with reasons.
pub fn step(workspace: &Workspace, chore: &str) -> Result<Vec<String>, ChoreError> {
    let mut bench = Command::new(release::build(workspace, "floodmark-bench")?);
    let lines = command::run(bench.arg(chore).current_dir(&workspace.root))?;
    Ok(command::ignored(&lines))
}
