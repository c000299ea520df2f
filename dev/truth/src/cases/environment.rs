//! Starts floodmark for a case and reads the record.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::Child;
use floodmark_record::{Record, Run};

use super::CaseError;
use crate::sys;

/// Maximum time to wait for floodmark. The longest load takes 20 s.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Programs and settings that the cases use.
#[derive(Debug)]
pub struct CaseEnvironment {
    pub floodmark: PathBuf,
    /// Backend that floodmark uses.
    pub backend: Option<String>,
    /// Value of `--agents` for each load; `None` for a single process.
    pub agents: Option<String>,
    /// Path of this binary, which can also run as a separate server process.
    pub truth: PathBuf,
}

/// A running `floodmark load`. Dropping the value kills the process, and the kernel then kills the
/// load process.
#[derive(Debug)]
pub struct RunningClient {
    child: Child,
    stdout: File,
    stderr: File,
}

impl CaseEnvironment {
    /// Starts a load. There is no warm-up unless `flags` contains `--warmup`.
    /// Flags are separated by spaces. `confined` contains a CPU and a nice value.
    pub fn start(
        &self,
        to: SocketAddr,
        flags: &str,
        confined: Option<(usize, i32)>,
    ) -> Result<RunningClient, CaseError> {
        let mut command = Command::new(&self.floodmark);
        command.arg("load").arg(format!("http://{to}/"));
        command.args(flags.split_whitespace());
        if !flags.contains("--warmup") {
            command.args(["--warmup", "0s"]);
        }
        if let Some(backend) = &self.backend {
            command.args(["--backend", backend]);
        }
        if let Some(agents) = &self.agents {
            // Each agent needs a connection.
            let has_one_connection = flags
                .split(" -")
                .any(|flag| flag.trim_matches('-') == "c 1");
            let agents = if has_one_connection {
                "local:1"
            } else {
                agents
            };
            command.args(["--agents", agents]);
        }
        command.args(["--quiet", "--json", "-"]);
        if let Some((cpu, nice)) = confined {
            // SAFETY: between fork and exec, `confine` only makes system calls and does not
            // allocate.
            unsafe { command.pre_exec(move || sys::confine(cpu, nice)) };
        }
        let mut redirect = || -> std::io::Result<(File, File)> {
            let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
            command.stdin(Stdio::null()).stdout(stdout.try_clone()?);
            command.stderr(stderr.try_clone()?);
            Ok((stdout, stderr))
        };
        let what = self.floodmark.display();
        let (stdout, stderr) = redirect().map_err(CaseError::run(what))?;
        Ok(RunningClient {
            child: Child::start(command)?,
            stdout,
            stderr,
        })
    }
}

impl RunningClient {
    /// Returns the process ids of the load processes that have started (floodmark's child processes
    /// `worker`).
    pub fn workers(&self) -> Vec<u32> {
        let parent = self.child.pid();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let pids = children.split_whitespace();
        let workers = pids.filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).any(|word| word == b"worker")
        });
        workers.filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Waits until floodmark ends. Returns the run, and the exit code if there is one.
    pub fn finish(mut self) -> Result<(Run, Option<i32>), CaseError> {
        let status = self.child.wait(TIMEOUT)?;
        let status = status.ok_or(CaseError::TooSlow(TIMEOUT.as_secs()))?;
        let (stdout, stderr) = (text(&mut self.stdout), text(&mut self.stderr));
        let no_record = |reason: String| CaseError::NoRecord {
            exit: status
                .code()
                .map_or(status.to_string(), |code| code.to_string()),
            reason,
        };
        let record: Record = serde_json::from_str(&stdout)
            .map_err(|error| no_record(format!("{error}; {}", stderr.trim())))?;
        let run = record.runs.into_iter().next();
        let run = run.ok_or_else(|| no_record("the record contains no run".to_owned()))?;
        Ok((run, status.code()))
    }
}

/// Returns the text of a file. After a read error, the text is incomplete and contains no valid
/// record.
fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    if file.rewind().is_ok() {
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
