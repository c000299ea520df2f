//! Tests a server on the disk states that a power loss can leave, and on failing disks.
//!
//! The server runs once under the tracer of `floodmark-disk` while clients send requests. It then
//! starts on disk states derived from this trace. The test then repeats both steps with injected
//! disk errors.

mod checks;
mod client;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use floodmark_disk::{
    DiskFault, FaultKind, FaultyCall, ImageTest, RecoveryProbe, Trace, TraceError, TraceOptions,
    Tracer, check_space,
};
use floodmark_record::SCHEMA_VERSION;
use floodmark_record::disk::{DiskFailure, DiskResult, DiskRow};
use floodmark_record::operation::KeptOperation;
use floodmark_wire::RequestError;

use crate::server_log::quote_failure;
use checks::{
    NextNumber, SetItems, TestRequests, acknowledged_inserts, read_items, unreadable_items,
};
use client::{DiskClient, SentRequests, TracedRun};

pub use checks::{DiskCheck, NumberCheck};
pub use floodmark_disk::{Persistence, ServerCommand, TestError};

/// Maximum time until the traced server accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Time after SIGTERM until a traced server is killed.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Maximum time to wait for an unresponsive server to exit.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause between attempts to connect, and between checks for the server's exit.
const PAUSE: Duration = Duration::from_millis(1);

/// Number of consecutive requests without a response after which a client stops.
const MAX_UNANSWERED: usize = 3;

/// Maximum number of failures that each row of the result lists.
const MAX_FAILURES: usize = 3;

/// A disk test that could not run. A failure of the server is part of the result.
#[derive(Debug, thiserror::Error)]
pub enum DiskTestError {
    /// The server cannot be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A disk state cannot be written, the server cannot be started, or it fails a control.
    #[error(transparent)]
    Image(#[from] TestError),
    /// The path of the requests is invalid.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A check file has an invalid request, or a wrong pointer to an item's value.
    #[error("{0}")]
    CheckFile(String),
    /// The directory for disk states is not writable.
    #[error(
        "cannot write to the directory for disk states: {0}; choose another directory with --scratch"
    )]
    Scratch(#[from] io::Error),
    /// The traced server's output file cannot be written.
    #[error("cannot write {}: {source}; choose another directory with TMPDIR", .log.display())]
    Log {
        /// The file.
        log: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The traced server did not accept connections.
    #[error("the server {what}; check its command, and its output in {}", .log.display())]
    NotStarted {
        /// What the server did, and a line of its output.
        what: String,
        /// File with the server's output.
        log: PathBuf,
    },
    /// The traced server exited although no error was injected.
    #[error("the server exited {what}; see its output in {}", .log.display())]
    Exited {
        /// Exit status, number of responses, and a line of the server's output.
        what: String,
        /// File with the server's output.
        log: PathBuf,
    },
    /// The server acknowledged no request.
    #[error("{0}")]
    NothingAcknowledged(String),
    /// The server changed nothing in its directory, so a power loss cannot affect its data.
    #[error(
        "the server wrote no file in {{run}}; in its command, use {{run}} as the data directory"
    )]
    NothingWritten,
    /// The traced server failed the check even without a power loss.
    #[error("without a power loss, the check fails: {0}; correct the check file or the server")]
    Violated(String),
}

/// A disk test.
#[derive(Debug)]
pub struct DiskTest<'a> {
    /// Starts the server.
    pub server: &'a ServerCommand,
    /// Requests that clients send, and data that the server must keep.
    pub check: &'a DiskCheck,
    /// Number of requests to send while the server is traced.
    pub requests: u64,
    /// Number of connections while the server is traced.
    pub connections: u64,
    /// Number of disk states without injected errors.
    pub images: u64,
    /// Number of disk states per injected error. 0: no errors are injected.
    pub images_per_fault: u64,
    /// Which directory entries a sync makes durable.
    pub persistence: Persistence,
    /// Seed of the crash points and the disk states.
    pub seed: u64,
    /// Empty directory for disk states.
    pub scratch: &'a Path,
    /// File for the traced server's output. Errors name this file.
    pub log: &'a Path,
    /// Number of servers that run at the same time.
    pub threads: usize,
}

impl DiskTest<'_> {
    /// Runs the test. Returns an incomplete result if `stop` becomes true.
    ///
    /// # Errors
    /// Fails in any of these cases:
    /// - The server cannot be traced, exits, acknowledges nothing, or writes nothing.
    /// - The server violates the check without a power loss, does not start with its complete
    ///   directory, or passes the check with a directory that does not contain its writes.
    /// - A request or the readback in the check is invalid.
    /// - A disk state or the server's output cannot be written.
    pub fn run(&self, stop: &AtomicBool) -> Result<DiskResult, DiskTestError> {
        let run = self.trace(None, stop)?;
        let mut result = DiskResult {
            schema: SCHEMA_VERSION,
            command: self.server.words.clone(),
            check: self.check.name(),
            file_system: match self.persistence {
                Persistence::Strict => "strict",
                Persistence::Journaled => "journaled",
            }
            .to_owned(),
            seed: self.seed,
            requests: run.count(),
            is_complete: true,
            rows: Vec::new(),
        };
        let is_stopped = || stop.load(Ordering::Relaxed);
        if !is_stopped() {
            let row = self.row(None, &run, self.images, stop)?;
            result.rows.push(row);
        }
        if self.images_per_fault > 0 {
            for (name, fault) in faults(&run.trace) {
                if is_stopped() {
                    break;
                }
                let run = self.trace(Some(fault), stop)?;
                if !is_stopped() {
                    let row = self.row(Some(name), &run, self.images_per_fault, stop)?;
                    result.rows.push(row);
                }
            }
        }
        result.is_complete = !is_stopped();
        Ok(result)
    }

    /// Traces the server while clients send requests. With a fault, the server may exit early. If
    /// `stop` becomes true, the run is incomplete.
    fn trace(
        &self,
        fault: Option<DiskFault>,
        stop: &AtomicBool,
    ) -> Result<TracedRun, DiskTestError> {
        let directory = self.scratch.join("traced");
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir(&directory)?,
        }
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log = File::create(self.log).map_err(|source| DiskTestError::Log {
            log: self.log.to_owned(),
            source,
        })?;
        let mut command = self.server.command(&directory, address);
        command.stdout(log.try_clone()?).stderr(log);
        let requests = self.check.requests(address)?;
        let options = TraceOptions {
            fault,
            ..TraceOptions::default()
        };
        let tracer = Tracer::start(command, &directory, options)?;
        let is_started = wait_until_started(&tracer, address, stop);
        let (sent, numbers) = (SentRequests::default(), AtomicU64::new(1));
        let mut found = None;
        if is_started {
            thread::scope(|scope| {
                for _ in 0..self.connections {
                    scope.spawn(|| self.send(address, &requests, &numbers, &sent, stop));
                }
            });
            if let DiskCheck::Set { readback, .. } = self.check
                && fault.is_none()
            {
                found = Some(read_items(address, readback, self.requests, Some(stop)));
            }
            let is_responding = match &found {
                Some(found) => found.is_ok(),
                None => sent.is_answered(),
            };
            if !is_responding && fault.is_none() {
                wait_until_ended(&tracer);
            }
        }
        let trace = tracer.stop(STOP_GRACE)?;
        // Otherwise, a server that is started on a disk state could find the data of this run
        // through an absolute path.
        fs::remove_dir_all(&directory)?;
        let run = TracedRun {
            trace,
            port: address.port(),
            sent: sent.into_connections(),
            found,
        };
        if fault.is_none() && !stop.load(Ordering::Relaxed) {
            self.check_running(is_started, address, &run)?;
        }
        Ok(run)
    }

    /// Checks that a server without an injected error accepted connections and did not exit.
    fn check_running(
        &self,
        is_started: bool,
        address: SocketAddr,
        run: &TracedRun,
    ) -> Result<(), DiskTestError> {
        if is_started && run.trace.own_exit.is_none() {
            return Ok(());
        }
        check_space(&self.scratch.join("space"))?;
        let log = self.log.to_owned();
        let line = quote_failure(&log, 0);
        let what = match run.trace.own_exit {
            Some(status) if is_started => {
                let (received, requests) = (run.received(), self.requests);
                let what = format!("({status}) after {received} of {requests} requests{line}");
                return Err(DiskTestError::Exited { what, log });
            }
            Some(status) => format!("exited during startup ({status}){line}"),
            None => format!("accepted no connection on {address} within 30 s{line}"),
        };
        Err(DiskTestError::NotStarted { what, log })
    }

    /// Sends requests until all are sent, the server stops responding or `stop` becomes true.
    ///
    /// Some servers close a kept connection without notice. A single request without a response
    /// therefore does not end the loop.
    fn send(
        &self,
        address: SocketAddr,
        requests: &TestRequests,
        numbers: &AtomicU64,
        sent: &SentRequests,
        stop: &AtomicBool,
    ) {
        let mut client = DiskClient::new(address, sent);
        let mut unanswered = 0;
        while unanswered < MAX_UNANSWERED && !stop.load(Ordering::Relaxed) {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            if number > self.requests {
                return;
            }
            match client.send(number, &requests(number)) {
                Ok(_) => unanswered = 0,
                Err(_) => unanswered += 1,
            }
        }
    }

    /// Starts the server on disk states of a trace, and returns a row of the result.
    fn row(
        &self,
        fault: Option<String>,
        run: &TracedRun,
        images: u64,
        stop: &AtomicBool,
    ) -> Result<DiskRow, DiskTestError> {
        match self.check {
            DiskCheck::Numbers { check, path } => {
                let probe = NextNumber {
                    check: *check,
                    path,
                    requests: run.count(),
                };
                self.row_of(&probe, |numbers| numbers.count, fault, run, images, stop)
            }
            DiskCheck::Set { file, readback } => {
                if let Some(what) = unreadable_items(readback, run) {
                    let what = format!("{}: {what}", file.mix.file);
                    return Err(DiskTestError::CheckFile(what));
                }
                let probe = SetItems::new(&file.check, readback, run);
                if let Some(violation) = probe.violation() {
                    return Err(DiskTestError::Violated(violation));
                }
                let count = |inserts: &Vec<KeptOperation>| acknowledged_inserts(inserts);
                self.row_of(&probe, count, fault, run, images, stop)
            }
        }
    }

    /// Starts the server on disk states of a trace, and returns a row of the result. `count`
    /// returns the number of acknowledged requests.
    fn row_of<P: RecoveryProbe>(
        &self,
        probe: &P,
        count: impl Fn(&P::Acknowledged) -> u64,
        fault: Option<String>,
        run: &TracedRun,
        images: u64,
        stop: &AtomicBool,
    ) -> Result<DiskRow, DiskTestError> {
        let trace = &run.trace;
        let count = |sent| count(&probe.acknowledged(&sent));
        let acknowledged = count(trace.sent(|_| true));
        if acknowledged == 0 && fault.is_none() {
            return Err(self.check.nothing_acknowledged(run));
        }
        if !trace.changes_directory() && fault.is_none() {
            return Err(DiskTestError::NothingWritten);
        }
        let after = |error| acknowledged - count(trace.sent(|call| call.began < error));
        let after_error = trace.first_error.map(after);
        let test = ImageTest {
            trace,
            server: self.server,
            probe,
            persistence: self.persistence,
            scratch: self.scratch,
            images,
            seed: self.seed,
            threads: self.threads,
            has_controls: fault.is_none(),
        };
        let report = test.run(stop)?;
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let (distinct, mean_ms) = (report.distinct() as u64, milliseconds(report.mean()));
        let failures = report.failures.into_iter().take(MAX_FAILURES);
        let failures = failures.map(|failure| DiskFailure {
            at: failure.at,
            reason: failure.reason,
            missing: failure.missing,
        });
        Ok(DiskRow {
            fault,
            acknowledged,
            acknowledged_after_error: after_error,
            images: report.images,
            distinct,
            recovered: report.recovered,
            refused: report.refused,
            failed: report.failed,
            crashed: report.crashed,
            mean_ms,
            longest_ms: milliseconds(report.longest),
            elapsed_s: report.elapsed.as_secs_f64(),
            refusals: report.refusals,
            failures: failures.collect(),
        })
    }
}

fn wait_until_started(tracer: &Tracer, address: SocketAddr, stop: &AtomicBool) -> bool {
    let begin = Instant::now();
    while !tracer.has_ended() && begin.elapsed() < START_TIMEOUT && !stop.load(Ordering::Relaxed) {
        if TcpStream::connect(address).is_ok() {
            return true;
        }
        thread::sleep(PAUSE);
    }
    false
}

/// Waits until a server that does not respond has exited. The kernel closes the sockets of an
/// exiting server before the exit is reported.
fn wait_until_ended(tracer: &Tracer) {
    let begin = Instant::now();
    while !tracer.has_ended() && begin.elapsed() < END_TIMEOUT {
        thread::sleep(PAUSE);
    }
}

/// Returns the faults to inject, with their names. Some faults affect early calls, usually while
/// the server starts. Others affect later calls, usually under load.
pub(super) fn faults(trace: &Trace) -> Vec<(String, DiskFault)> {
    let (syncs, writes) = (trace.syncs(), trace.writes());
    let (sync, write) = (FaultyCall::Sync, FaultyCall::Write);
    let (error, space) = (FaultKind::InputOutput, FaultKind::NoSpace);
    let mut faults = Vec::new();
    let mut add = |call, first: u64, total: u64, is_lasting, kind| {
        let fault = DiskFault {
            call,
            first,
            is_lasting,
            kind,
        };
        if (1..=total).contains(&first) && faults.iter().all(|(_, other)| *other != fault) {
            faults.push((name(&fault), fault));
        }
    };
    add(sync, 1, syncs, false, error);
    add(sync, syncs / 4, syncs, false, error);
    add(sync, syncs / 2, syncs, false, error);
    add(sync, syncs / 2 + 1, syncs, false, error);
    add(sync, syncs / 2, syncs, true, error);
    add(sync, syncs / 2, syncs, true, space);
    add(write, writes / 2, writes, false, error);
    add(write, writes / 2, writes, true, space);
    add(write, writes / 2, writes, false, FaultKind::Short);
    faults
}

fn name(fault: &DiskFault) -> String {
    let call = match fault.call {
        FaultyCall::Sync => "sync",
        FaultyCall::Write => "write",
    };
    let kind = match fault.kind {
        FaultKind::InputOutput => "EIO",
        FaultKind::NoSpace => "ENOSPC",
        FaultKind::Short => "short",
    };
    let from = if fault.is_lasting { "from " } else { "" };
    format!("{kind} {from}{call} {}", fault.first)
}

#[cfg(test)]
mod tests {
    use floodmark_disk::{FileId, Operation, TracedCall};

    use super::*;

    fn names(syncs: usize) -> Vec<String> {
        let operation = Operation::Sync {
            file: FileId::ROOT,
            succeeded: true,
        };
        let call = TracedCall {
            began: 1,
            ended: 2,
            operation,
        };
        let trace = Trace {
            calls: vec![call; syncs],
            ..Trace::default()
        };
        faults(&trace).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn every_fault_hits_a_call_and_differs() {
        assert_eq!(names(0), [""; 0]);
        assert_eq!(names(1), ["EIO sync 1"]);
        let of_many = [
            "EIO sync 1",
            "EIO sync 10",
            "EIO sync 20",
            "EIO sync 21",
            "EIO from sync 20",
            "ENOSPC from sync 20",
        ];
        assert_eq!(names(40), of_many);
    }
}
