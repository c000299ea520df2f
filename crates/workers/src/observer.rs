//! Runs `floodmark observe` on the server's host, through ssh, in a pod or with the user's command,
//! and keeps its output in a local file.
//!
//! The observer answers pings, so its clock can be compared with this host's over the same
//! connection. The hosts' clocks therefore need not be synchronized.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::str::FromStr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodmark_host::{Child, Stop};
use floodmark_record::agent_lines::AgentCommand;
use floodmark_record::watch::{MeasuredOffset, ObserverLine};

use crate::agent_clock::{AgentClock, monotonic_ns};
use crate::command::{command_of, joined, read_line, start_piped, words_of};
use crate::kubernetes::{default_image, is_image, kubectl, kubectl_output};
use crate::ssh;

/// Hint in the error message for an invalid pod or image.
const POD_FORM: &str = "expected kubernetes:pod/NAME, optionally with /CONTAINER and :IMAGE";

/// Where to observe the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObserverPlace {
    /// A host, reached through ssh.
    Ssh(String),
    /// A pod in the Kubernetes cluster of the current context. The observer runs in a new ephemeral
    /// container, which stays in the pod's status after it has ended.
    Pod {
        /// Name of the pod.
        pod: String,
        /// Container whose processes are visible to the observer; `None` for the pod's first
        /// container.
        container: Option<String>,
        /// Image of the ephemeral container.
        image: String,
    },
    /// The words of a command that runs `floodmark observe --out - --pings`. `{port}` is replaced
    /// with the server's port.
    Command(Vec<String>),
}

impl FromStr for ObserverPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms = "expected ssh:HOST, kubernetes:pod/NAME, or command:TEMPLATE";
        match text.split_once(':') {
            Some(("ssh", host)) if ssh::is_host(host) => Ok(ObserverPlace::Ssh(host.to_owned())),
            Some(("ssh", host)) => Err(format!(
                "invalid host \"{host}\"; a host must not be empty, start with \"-\" or contain spaces"
            )),
            Some(("kubernetes", pod)) => {
                let (pod, image) = match pod.split_once(':') {
                    Some((pod, image)) => (pod, image.to_owned()),
                    None => (pod, default_image()),
                };
                let names = pod.strip_prefix("pod/").unwrap_or_default();
                let (pod, container) = match names.split_once('/') {
                    Some((pod, container)) => (pod, Some(container)),
                    None => (names, None),
                };
                let is_named = [Some(pod), container].into_iter().flatten().all(is_object);
                if is_named && is_image(&image) {
                    Ok(ObserverPlace::Pod {
                        pod: pod.to_owned(),
                        container: container.map(str::to_owned),
                        image,
                    })
                } else {
                    Err(format!("invalid pod or image in \"{text}\"; {POD_FORM}"))
                }
            }
            Some(("command", template)) => Ok(ObserverPlace::Command(words_of(template)?)),
            _ => Err(format!("unknown place \"{text}\"; {forms}")),
        }
    }
}

impl fmt::Display for ObserverPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObserverPlace::Ssh(host) => write!(f, "ssh:{host}"),
            ObserverPlace::Pod {
                pod,
                container,
                image,
            } => {
                write!(f, "kubernetes:pod/{pod}")?;
                if let Some(container) = container {
                    write!(f, "/{container}")?;
                }
                write!(f, ":{image}")
            }
            ObserverPlace::Command(words) => write!(f, "command:{}", joined(words)),
        }
    }
}

/// Returns whether `text` can be the name of a pod or container.
fn is_object(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_allowed)
}

/// Part of the ephemeral container's specification. The observer must be root and have this
/// capability to list the open files of other users' processes.
const DEBUG_PROFILE: &str = r#"{"securityContext": {
  "runAsUser": 0, "runAsNonRoot": false, "capabilities": {"add": ["SYS_PTRACE"]}}}"#;

/// A file that is removed when this value is dropped.
pub(crate) struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

impl ObserverPlace {
    /// Returns the command that starts the observer, and the temporary file that the command reads,
    /// if any. The temporary file is created next to `file`.
    pub(crate) fn command(
        &self,
        port: u16,
        file: &Path,
    ) -> Result<(Command, Option<TemporaryFile>), String> {
        let port = port.to_string();
        let arguments = [
            "observe", "--port", &port, "--out", "-", "--pings", "--quiet",
        ];
        match self {
            ObserverPlace::Ssh(host) => {
                let script = ssh::on_path(&arguments.join(" "));
                Ok((ssh::command(host, &script), None))
            }
            ObserverPlace::Pod {
                pod,
                container,
                image,
            } => {
                let first = "--output=jsonpath={.spec.containers[0].name}";
                let container = match container {
                    Some(container) => container.clone(),
                    None => {
                        let name = kubectl_output(kubectl(&["get", "pod", pod, first]), b"")?;
                        String::from_utf8_lossy(&name).into_owned()
                    }
                };
                let profile = TemporaryFile(file.with_extension("profile.json"));
                fs::write(&profile.0, DEBUG_PROFILE)
                    .map_err(|error| format!("{}: {error}", profile.0.display()))?;
                let mut command =
                    kubectl(&["debug", pod, "--stdin", "--quiet", "--profile=general"]);
                command.arg("--custom").arg(&profile.0);
                command.args(["--image", image, "--target", &container]);
                command.args(["--image-pull-policy=IfNotPresent", "--arguments-only", "--"]);
                command.args(arguments);
                Ok((command, Some(profile)))
            }
            ObserverPlace::Command(words) => {
                let words = words.iter().map(|word| word.replace("{port}", &port));
                Ok((command_of(words), None))
            }
        }
    }
}

/// Maximum time for the observer to find the server.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for the observer to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of pings in a group, of which only the best one counts. The pings of the first group are
/// sent without pauses, and later ones once per second.
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
        // Keep the temporary file until the observer is running.
        let (command, _profile) = place.command(port, file)?;
        let (child, stdin, stdout, stderr) = start_piped(command)?;
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

/// Returns everything that the observer writes to stderr, as one line.
fn message(stderr: ChildStderr) -> String {
    let mut bytes = Vec::new();
    // Text that was read before an error is still useful.
    let _ = BufReader::new(stderr.take(MESSAGE_LIMIT)).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    Vec::from_iter(text.lines().map(str::trim).filter(|line| !line.is_empty())).join("; ")
}

/// Copies the observer's lines to the file, and measures the offset of the observer's clock.
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
    /// Reads until the observer closes its stdout, or the file cannot be written. Sends a message
    /// to `found` once the file contains the first line and an offset.
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
            let copied = match ObserverLine::from_line(&line) {
                Ok(ObserverLine::Pong {
                    sent_ns,
                    monotonic_ns,
                }) => {
                    self.clock.add(sent_ns, monotonic_ns, now_ns);
                    if self.offset.is_none() && self.clock.count < PINGS {
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
        let Some(offset) = self.clock.first.filter(|_| self.clock.count >= PINGS) else {
            return Ok(());
        };
        self.clock = AgentClock::default();
        self.offset = Some(offset);
        let line = ObserverLine::Offset(offset).to_line()?;
        self.output.write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows_each_place() {
        for text in [
            "ssh:root@a",
            "kubernetes:pod/web-0:floodmark:1",
            "kubernetes:pod/web-0/app:registry.example.com:5000/floodmark",
            "command:sh observe.sh '{port}'",
        ] {
            let place: ObserverPlace = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
        let place: ObserverPlace = "kubernetes:pod/web-0".parse().unwrap();
        let expected = format!("kubernetes:pod/web-0:{}", default_image());
        assert_eq!(place.to_string(), expected);
    }

    #[test]
    fn names_what_is_wrong() {
        for text in [
            "kubernetes:web-0",
            "kubernetes:pod/",
            "kubernetes:pod/-x",
            "kubernetes:pod/web-0/",
            "kubernetes:pod/web-0:a b",
        ] {
            let error = text.parse::<ObserverPlace>().unwrap_err();
            assert!(error.contains(POD_FORM), "{text}: {error}");
        }
        assert!("pod/web-0".parse::<ObserverPlace>().is_err());
    }
}
