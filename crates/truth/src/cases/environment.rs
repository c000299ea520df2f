//! Starting floodmark and reading its record.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use floodmark_record::Record;

use super::Failure;
use super::loaded::Loaded;
use crate::sys;

/// How long a floodmark may take beyond what its load takes.
const GRACE: Duration = Duration::from_secs(20);

/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(10);

/// Where things are.
#[derive(Debug)]
pub struct Environment {
    pub floodmark: PathBuf,
    /// The backend it is told to use.
    pub backend: Option<String>,
    /// This binary, which is also the server as a process of its own.
    pub truth: PathBuf,
}

/// A `floodmark load` under way. Killed when it is dropped before it ended.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: File,
    complaints: File,
    give_up: Instant,
    allowed: Duration,
}

/// One CPU and a lower priority for a process.
#[derive(Debug, Clone, Copy)]
pub struct Confined {
    pub cpu: usize,
    pub nice: i32,
}

impl Environment {
    pub fn new(floodmark: &Path, backend: Option<String>) -> Environment {
        Environment {
            floodmark: floodmark.to_owned(),
            backend,
            truth: std::env::current_exe().unwrap_or_default(),
        }
    }

    /// Runs a load of about `seconds` to its end.
    pub fn load(&self, to: SocketAddr, flags: &str, seconds: u64) -> Result<Loaded, Failure> {
        self.start(to, flags, seconds, None)?.finish()
    }

    /// Starts a load of about `seconds`. Figures are asked for over the whole run unless `flags` say
    /// otherwise. Flags are parted by blanks.
    pub fn start(
        &self,
        to: SocketAddr,
        flags: &str,
        seconds: u64,
        confined: Option<Confined>,
    ) -> Result<Running, Failure> {
        let mut command = Command::new(&self.floodmark);
        command.arg("load").arg(format!("http://{to}/"));
        command.args(flags.split_whitespace());
        if !flags.contains("--warmup") {
            command.args(["--warmup", "0s"]);
        }
        if let Some(backend) = &self.backend {
            command.args(["--backend", backend]);
        }
        command.args(["--quiet", "--json", "-"]);
        if let Some(Confined { cpu, nice }) = confined {
            // SAFETY: between fork and exec, `confine` makes two system calls and does not allocate.
            unsafe { command.pre_exec(move || sys::confine(cpu, nice)) };
        }
        let failed = |error| Failure::Run {
            what: self.floodmark.display().to_string(),
            error,
        };
        let output = tempfile::tempfile().map_err(failed)?;
        let complaints = tempfile::tempfile().map_err(failed)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(complaints.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let allowed = Duration::from_secs(seconds) + GRACE;
        Ok(Running {
            child,
            output,
            complaints,
            give_up: Instant::now() + allowed,
            allowed,
        })
    }
}

impl Running {
    /// The process that makes the load: a child of floodmark called `worker`; none while there is none yet.
    pub fn worker(&self) -> Option<u32> {
        let parent = self.child.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(children).ok()?;
        children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .find(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|b| *b == 0)
                    .any(|argument| argument == b"worker")
            })
    }

    /// Waits until it is done and reads its record.
    pub fn finish(mut self) -> Result<Loaded, Failure> {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < self.give_up => std::thread::sleep(POLL),
                _ => return Err(Failure::Hung(self.allowed.as_secs())),
            }
        };
        let complaints = whole(&mut self.complaints);
        let output = whole(&mut self.output);
        let none = |why: String| Failure::NoRecord {
            exit: exit(status),
            why,
        };
        let record: Record = serde_json::from_str(&output)
            .map_err(|error| none(format!("{error}; {}", complaints.trim())))?;
        let run = record.runs.into_iter().next();
        Ok(Loaded {
            run: run.ok_or_else(|| none("it holds no run".to_owned()))?,
            exit: status.code(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let worker = self.worker();
            // Both fail only on a process that has just ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
            if let Some(worker) = worker {
                let _ = sys::signal(worker, libc::SIGKILL);
            }
        }
    }
}

fn exit(status: ExitStatus) -> String {
    status
        .code()
        .map_or_else(|| status.to_string(), |code| code.to_string())
}

fn whole(file: &mut File) -> String {
    let mut bytes = Vec::new();
    if file.rewind().is_ok() {
        // What cannot be read back is missing from the record, which is then reported.
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
