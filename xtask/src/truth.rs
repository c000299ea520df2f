//! `cargo xtask truth`: floodmark's record against the log of a server whose misdeeds are known.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::command;
use crate::error::Error;
use crate::release;
use crate::workspace::Workspace;

/// The backends that must give the same results.
const BACKENDS: [&str; 2] = ["uring", "epoll"];

/// Runs all cases, or one, on each backend, with the release build of both sides.
pub fn run(workspace: &Workspace, only: Option<&str>) -> Result<(), Error> {
    let floodmark = release::floodmark(workspace)?;
    let results = BACKENDS.map(|backend| match refusal(&floodmark, backend)? {
        // A container may forbid io_uring; then nobody here can use it, and epoll is what is tested.
        Some(why) => {
            println!("left out: {why}");
            Ok(())
        }
        None => on_backend(workspace, &floodmark, backend, only),
    });
    Error::of_all(results)
}

/// Why floodmark refuses to use a backend here; none where it does not.
fn refusal(floodmark: &Path, backend: &str) -> Result<Option<String>, Error> {
    let folder = tempfile::tempdir().map_err(|e| Error::Found(vec![e.to_string()]))?;
    let mut probe = Command::new(floodmark);
    probe.args(["load", "http://127.0.0.1:1/", "-n", "1", "--quiet", "--out"]);
    probe.arg(folder.path().join("probe"));
    probe.args(["--backend", backend]).stdin(Stdio::null());
    let output = probe.output().map_err(|source| Error::Start {
        command: command::line(&probe),
        source,
    })?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // A backend that works says that nobody listens there; one that is refused names the other.
    let refused = output.status.code() == Some(2) && said.contains("or use --backend");
    Ok(refused.then_some(said))
}

fn on_backend(
    workspace: &Workspace,
    floodmark: &Path,
    backend: &str,
    only: Option<&str>,
) -> Result<(), Error> {
    let mut cases = command::cargo();
    cases.args([
        "run",
        "--release",
        "--package",
        "floodmark-truth",
        "--",
        "cases",
        "--floodmark",
    ]);
    cases.arg(floodmark).args(["--backend", backend]);
    if let Some(case) = only {
        cases.args(["--only", case]);
    }
    command::run(cases.current_dir(&workspace.root))
}
