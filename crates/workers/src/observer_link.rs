//! Runs `floodmark observe` on the server's host and keeps its output in a local file.
//!
//! The observer answers pings, so its clock is compared with this host's over the same connection.
//! The hosts' clocks therefore need not be synchronized.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodmark_host::{Child, Stop};
use floodmark_record::agent_lines::AgentCommand;
use floodmark_record::watch::{MeasuredOffset, ObserverLine};

use crate::agent_clock::{AgentClock, monotonic_ns};
use crate::observer_place::ObserverPlace;
use crate::pipes::{PipedChild, read_line};

/// Maximum time for the observer to find the server.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for the observer to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of pings in a group, of which the best one counts. The first group is sent at once, and
/// later groups at one ping per second.
const PINGS: usize = 16;

/// Maximum length of a line in bytes.
const LINE_LIMIT: usize = 4 << 20;

/// Maximum length of the observer's messages in bytes.
const MESSAGE_LIMIT: u64 = 4000;

/// Interval between checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running observer. Dropping it ends the observer.
#[derive(Debug)]
pub struct ObserverLink {
    child: Child,
    /// Ends when the observer closes its stdout.
    reader: Option<JoinHandle<()>>,
    /// Dropping it closes the observer's stdin.
    stdin: Sender<()>,
}

impl ObserverLink {
    /// Starts an observer of the server on `port`, and writes its output to a new file. Returns
    /// when the observer has found the server. `stop` ends the wait.
    ///
    /// # Errors
    /// The observer does not start or does not find the server, or the file cannot be written.
    pub fn start(
        place: &ObserverPlace,
        port: u16,
        file: &Path,
        stop: &Stop,
    ) -> Result<Self, String> {
        let output =
            File::create_new(file).map_err(|error| format!("{}: {error}", file.display()))?;
        // The file is needed until the observer runs.
        let (command, _profile) = place.command(port, file)?;
        let PipedChild {
            child,
            stdin,
            stdout,
            stderr,
        } = PipedChild::start(command)?;
        let no_thread = |error| format!("cannot start a thread: {error}");
        let messages = thread::Builder::new().spawn(move || message(stderr));
        let messages = messages.map_err(no_thread)?;
        let (found, is_found) = channel();
        let (keep, kept) = channel::<()>();
        let copier = LineCopier {
            stdin: Some(stdin),
            output,
            clock: AgentClock::default(),
            offset: None,
            kept,
        };
        let reader = thread::Builder::new().spawn(move || copier.run(stdout, found));
        let mut link = ObserverLink {
            child,
            reader: Some(reader.map_err(no_thread)?),
            stdin: keep,
        };
        let begin = Instant::now();
        loop {
            match is_found.recv_timeout(POLL_INTERVAL) {
                Ok(()) => return Ok(link),
                Err(RecvTimeoutError::Timeout) if stop.is_set() => {
                    return Err("interrupted".to_owned());
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() < START_TIMEOUT => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!(
                        "did not start within {} s",
                        START_TIMEOUT.as_secs()
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = link.child.stop(EXIT_TIMEOUT);
                    let said = messages.join().unwrap_or_default();
                    return Err(match (said.is_empty(), ended) {
                        (false, _) => said,
                        (true, Ok(status)) => format!("ended early ({status})"),
                        (true, Err(error)) => error.to_string(),
                    });
                }
            }
        }
    }
}

impl Drop for ObserverLink {
    fn drop(&mut self) {
        let (closed, _) = channel();
        self.stdin = closed;
        // A process that does not exit is killed when the child is dropped.
        let _ = self.child.wait(EXIT_TIMEOUT);
        if let Some(reader) = self.reader.take().filter(JoinHandle::is_finished) {
            let _ = reader.join();
        }
    }
}

/// Returns everything that the observer writes to stderr, in one line.
fn message(stderr: ChildStderr) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is still useful.
    let _ = BufReader::new(stderr.take(MESSAGE_LIMIT)).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    Vec::from_iter(text.lines().map(str::trim).filter(|line| !line.is_empty())).join("; ")
}

/// Copies the observer's lines to the file, and measures its clock.
struct LineCopier {
    stdin: Option<ChildStdin>,
    output: File,
    clock: AgentClock,
    /// The latest offset in the file.
    offset: Option<MeasuredOffset>,
    /// Disconnected when the observer should end.
    kept: std::sync::mpsc::Receiver<()>,
}

impl LineCopier {
    /// Reads until the observer closes its stdout, or the file cannot be written. Sends to `found`
    /// once the file contains the first line and an offset.
    fn run(mut self, stdout: ChildStdout, found: Sender<()>) {
        let mut reader = BufReader::new(stdout);
        let mut found = Some(found);
        let mut line = Vec::new();
        self.ping();
        loop {
            line.clear();
            if !matches!(read_line(&mut reader, &mut line, LINE_LIMIT), Ok(true)) {
                return;
            }
            let now_ns = monotonic_ns();
            let copied = match serde_json::from_slice(&line) {
                Ok(ObserverLine::Pong {
                    sent_ns,
                    monotonic_ns,
                }) => {
                    self.clock.add(sent_ns, monotonic_ns, now_ns);
                    if self.offset.is_none() && self.clock.count() < PINGS {
                        self.ping();
                    }
                    self.write_offset()
                }
                parsed => {
                    if matches!(parsed, Ok(ObserverLine::Second(_))) {
                        self.ping();
                    }
                    line.push(b'\n');
                    self.output.write_all(&line)
                }
            };
            if copied.is_err() {
                return;
            }
            if let Some(found) = found.take_if(|_| self.offset.is_some()) {
                // Nobody waits after a timeout.
                let _ = found.send(());
            }
        }
    }

    /// Sends a ping, or closes the observer's stdin if it should end.
    fn ping(&mut self) {
        if self.kept.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
            self.stdin = None;
        }
        if let Some(stdin) = &mut self.stdin {
            // If the observer has ended, the read loop detects it.
            let _ = stdin.write_all(AgentCommand::Ping(monotonic_ns()).encode().as_bytes());
        }
    }

    /// Writes the offset of the observer's clock after each group of pings. Earlier groups do not
    /// count, because the clocks drift.
    fn write_offset(&mut self) -> io::Result<()> {
        if self.clock.count() < PINGS {
            return Ok(());
        }
        let clock = std::mem::take(&mut self.clock);
        let offset = MeasuredOffset {
            offset_ns: clock.offset_ns(),
            bound_ns: clock.bound_ns(),
        };
        self.offset = Some(offset);
        let mut line = serde_json::to_vec(&ObserverLine::Offset(offset))?;
        line.push(b'\n');
        self.output.write_all(&line)
    }
}
