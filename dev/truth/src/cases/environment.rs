//! Runs a floodmark load against the truth server, and performs the checks that apply to every
//! case.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floodmark_host::Child;
use floodmark_record::{Record, Run};

use super::findings::{CaseRun, disturbance};
use super::overhead::{Awake, Overhead};
use super::reference::Sorted;
use super::{CaseError, CaseOptions};
use crate::log::Log;
use crate::scenario::Scenario;
use crate::server::TruthServer;
use crate::sys;

/// Maximum time to wait for floodmark. The longest load takes 20 s.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Programs and settings that the cases use.
#[derive(Debug)]
pub struct CaseEnvironment<'a> {
    pub options: &'a CaseOptions,
    /// Path of this binary, which can also run as a separate server process.
    pub truth: PathBuf,
}

/// A running `floodmark load`. Dropping the value kills floodmark, and the kernel then kills the
/// load processes that floodmark started.
#[derive(Debug)]
pub struct RunningClient {
    child: Child,
    stdout: File,
    stderr: File,
}

impl CaseEnvironment<'_> {
    /// Starts a load. There is no warm-up unless `flags` contains `--warmup`. Flags are separated
    /// by spaces. `confined` contains the CPU and the nice value for the load.
    pub fn start(
        &self,
        to: SocketAddr,
        flags: &str,
        confined: Option<(usize, i32)>,
    ) -> Result<RunningClient, CaseError> {
        let mut command = Command::new(&self.options.floodmark);
        command.arg("load").arg(format!("http://{to}/"));
        command.args(flags.split_whitespace());
        if !flags.contains("--warmup") {
            command.args(["--warmup", "0s"]);
        }
        if let Some(backend) = &self.options.backend {
            command.args(["--backend", backend]);
        }
        if let Some(agents) = &self.options.agents {
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
        // Without --anyway, floodmark sends one more request, which it does not count.
        command.args(["--quiet", "--json", "-", "--anyway"]);
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
        let what = self.options.floodmark.display();
        let (stdout, stderr) = redirect().map_err(CaseError::run(what))?;
        Ok(RunningClient {
            child: Child::start(command)?,
            stdout,
            stderr,
        })
    }

    /// Runs a load against a scenario.
    pub fn measure(&self, scenario: Scenario, flags: &str) -> Result<CaseMeasurement, CaseError> {
        let server = TruthServer::start(scenario)?;
        let client = self.start(server.address(), flags, None)?;
        Ok(CaseMeasurement::new(client.finish()?, server.stop()?))
    }

    /// Runs a load like `measure`, but keeps all CPUs awake and measures the overhead of a plain
    /// client before and after the load. `truth` reads the server's times from the log.
    pub fn measure_times(
        &self,
        truth: fn(&Log) -> Sorted,
        scenario: Scenario,
        flags: &str,
    ) -> Result<(CaseMeasurement, Overhead), CaseError> {
        let _awake = Awake::keep();
        let before = Overhead::measure(truth)?;
        let mut measured = self.measure(scenario, flags)?;
        let overhead = before.with(Overhead::measure(truth)?);
        let disturbance = &mut measured.findings.disturbance;
        *disturbance = disturbance.take().or_else(|| overhead.disturbance());
        Ok((measured, overhead))
    }
}

impl RunningClient {
    /// Waits until the first load process has started, and then lets floodmark itself run on all
    /// CPUs.
    ///
    /// If floodmark shared a CPU with the load process, some Linux kernels could take minutes to
    /// remove the load process from `/proc` after it has ended (seen with 6.18 and `PREEMPT_NONE`).
    pub fn confine_workers_only(&self) -> Result<(), CaseError> {
        let begin = Instant::now();
        while self.workers().is_empty() {
            if begin.elapsed() > TIMEOUT {
                return Err(CaseError::TooSlow(TIMEOUT.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        sys::release(self.child.pid()).map_err(CaseError::run("floodmark on all CPUs"))
    }

    /// Returns the PIDs of the load processes that have started. These are floodmark's child
    /// processes with the argument `worker`.
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

/// The client's record and the server's log for the same load.
#[derive(Debug)]
pub struct CaseMeasurement {
    pub run: Run,
    pub exit: Option<i32>,
    pub log: Log,
    pub findings: CaseRun,
}

impl CaseMeasurement {
    /// Checks that the outcomes add up to the number of requests, and that the server received each
    /// request once. A request that was resent after a reconnect may have reached the server twice.
    pub fn new((run, exit): (Run, Option<i32>), log: Log) -> Self {
        let mut findings = CaseRun {
            disturbance: disturbance(&run, &log),
            ..CaseRun::default()
        };
        let requests = &run.requests;
        let balance = requests.balance();
        let detail = balance.as_ref().err().map_or("yes", String::as_str);
        findings.must("outcomes add up", balance.is_ok(), detail);
        let received = log.totals.requests;
        let all_sent = requests.sent..=requests.sent + requests.reconnects;
        findings.must(
            "requests at the server",
            all_sent.contains(&received),
            format!("{received}, expected {all_sent:?}"),
        );
        CaseMeasurement {
            run,
            exit,
            log,
            findings,
        }
    }

    /// Checks the byte and connection counts against the server's log. They agree only if no
    /// connection ended with unread data.
    pub fn check_bytes(&mut self) {
        let (bytes, totals) = (&self.run.bytes, &self.log.totals);
        let (findings, opened) = (&mut self.findings, self.run.connections.opened);
        findings.exactly("bytes sent", totals.bytes_in, bytes.sent);
        findings.exactly("bytes received", totals.bytes_out, bytes.received);
        findings.exactly("connections", totals.accepted, opened);
    }

    /// Checks that every intended request was ok, and that the byte and connection counts agree
    /// with the server's log.
    pub fn check_all_counts(&mut self, intended: u64) {
        self.check_all_ok(intended);
        self.check_bytes();
    }

    /// Checks that every intended request was sent and got an ok response.
    pub fn check_all_ok(&mut self, intended: u64) {
        let (findings, requests) = (&mut self.findings, &self.run.requests);
        findings.exactly("requests.intended", intended, requests.intended);
        findings.exactly("requests.sent", intended, requests.sent);
        findings.exactly("requests.ok", intended, requests.ok);
    }
}
