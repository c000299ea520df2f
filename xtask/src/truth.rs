//! `cargo xtask truth`: floodmark's record against the log of a server whose misdeeds are known.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command;
use crate::error::Error;
use crate::release;
use crate::workspace::Workspace;

/// The backends that must give the same results.
const BACKENDS: [&str; 2] = ["uring", "epoll"];

/// How Rust shows EPERM, EACCES and ENOSYS: io_uring is forbidden, or the kernel has none.
const FORBIDDEN_OR_LACKING: [&str; 3] = ["(os error 1)", "(os error 13)", "(os error 38)"];

/// Cases that are about schedules and judgements, which both backends share: the suite has no time for them twice.
const ONCE: [&str; 2] = ["T8", "T9"];

/// Which cases are run.
#[derive(Debug, Clone, Copy)]
pub enum Cases<'a> {
    /// All of them on each backend.
    All,
    /// One.
    Only(&'a str),
    /// All of them on the first backend, and on the others those whose outcome a backend decides.
    Suite,
}

/// Runs cases on each backend, with the release build of both sides; what was left out, and why.
pub fn run(workspace: &Workspace, which: Cases<'_>) -> Result<Option<String>, Error> {
    let binaries = [release::floodmark(workspace)?, release::truth(workspace)?];
    let [floodmark, _] = &binaries;
    let mut left_out = None;
    let results = BACKENDS.map(|backend| match refusal(floodmark, backend)? {
        // A container may forbid io_uring; then nobody here can use it, and epoll is what is tested.
        Some(why) => {
            left_out = Some(format!("without {backend}: {why}"));
            Ok(())
        }
        None => on_backend(workspace, &binaries, backend, which),
    });
    // Last, where it is seen.
    if let Some(left_out) = &left_out {
        println!("{left_out}");
    }
    Error::of_all(results)?;
    Ok(left_out)
}

/// Why a backend cannot be used here whatever floodmark does; none where it can, or where floodmark is to blame.
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
    Ok(is_the_kernels(output.status.code(), &said).then_some(said))
}

/// Whether what floodmark said when it ended with `code` is a refusal of the kernel.
fn is_the_kernels(code: Option<i32>, said: &str) -> bool {
    // A backend that works says that nobody listens there; one that is refused names the other.
    let refused = code == Some(2) && said.contains("or use --backend");
    refused && FORBIDDEN_OR_LACKING.iter().any(|why| said.contains(why))
}

fn on_backend(
    workspace: &Workspace,
    [floodmark, truth]: &[PathBuf; 2],
    backend: &str,
    which: Cases<'_>,
) -> Result<(), Error> {
    let mut cases = Command::new(truth);
    cases.args(["cases", "--floodmark"]).arg(floodmark);
    cases.args(["--backend", backend]);
    match which {
        Cases::Only(case) => drop(cases.args(["--only", case])),
        Cases::Suite if backend != BACKENDS[0] => {
            cases.args(ONCE.iter().flat_map(|case| ["--skip", case]));
        }
        Cases::All | Cases::Suite => {}
    }
    command::run(cases.current_dir(&workspace.root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernel_excuses_a_backend() {
        let said = |error: i32| {
            let error = std::io::Error::from_raw_os_error(error);
            format!("floodmark: --backend uring: words ({error}); a mend, or use --backend epoll")
        };
        for error in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
            assert!(is_the_kernels(Some(2), &said(error)), "{}", said(error));
        }
        for error in [libc::EINVAL, libc::ENOMEM, libc::EMFILE] {
            assert!(!is_the_kernels(Some(2), &said(error)), "{}", said(error));
        }
        assert!(!is_the_kernels(
            Some(3),
            "connection refused (os error 111)"
        ));
        assert!(!is_the_kernels(Some(3), &said(libc::EPERM)));
    }
}
