//! The coordinator's view of one agent, and the local process behind it: the agent itself, or the
//! ssh, srun or kubectl process that connects to it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use floodmark_host::{Child, ChildError};
use floodmark_record::agent_lines::{AgentCommand, AgentHello, AgentLine};
use floodmark_record::events::{Connecting, WorkerReady};
use floodmark_record::kept::TotalLine;

use crate::agent_clock::{AgentClock, SteadyClock};
use crate::command::{read_line, start_piped};
use crate::kept::KeptPart;
use crate::single::EVENT_LIMIT;

/// Time to wait for an agent's remaining stderr messages after its stdout has ended.
const MESSAGE_TIME: Duration = Duration::from_millis(100);

/// Maximum time for an agent to exit after its last event.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of stderr lines that a failure message quotes.
const QUOTED: usize = 3;

/// How to start one agent.
#[derive(Debug)]
pub struct AgentLaunch {
    /// Name of the agent, unique in the load.
    pub name: String,
    /// The command that runs `floodmark worker --agent`, here or on another host, or why the agent
    /// cannot be started.
    pub command: Result<Command, String>,
    /// Maximum time from the start of the command to the agent's first line.
    pub start_timeout: Duration,
}

/// State of an agent in the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentState {
    /// Its command was started.
    Starting,
    /// It has greeted and has no input yet.
    Greeted,
    /// It has received its input and opens its connections.
    Preparing,
    /// It waits for the start of a phase.
    Waiting,
    /// It sends load.
    Running,
    /// It has sent its last event.
    Ended,
    /// It failed. Contains the time and the reason.
    Lost(String),
}

/// An agent and what it has reported.
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) state: AgentState,
    /// `None` after the agent was lost.
    pub(crate) process: Option<AgentProcess>,
    pub(crate) start_timeout: Duration,
    pub(crate) hello: Option<AgentHello>,
    pub(crate) ready: Option<WorkerReady>,
    pub(crate) clock: AgentClock,
    /// When the agent last sent something, or got its input.
    pub(crate) heard: Instant,
    /// When the agent was last pinged.
    pub(crate) pinged: Instant,
    pub(crate) connecting: Connecting,
    /// Agreed start of the latest phase on the agent's clock, in ns since 1970.
    pub(crate) start_ns: i64,
    /// Start of the latest phase on the agent's clock and on the clock of its events, in ns.
    pub(crate) began_ns: Option<(i64, u64)>,
    /// Whether the agent has closed its stdout after its last event.
    pub(crate) is_closed: bool,
    /// When the output ended, and the protocol error that ended it, if any. `None` while the output
    /// is open.
    failing: Option<(Instant, Option<String>)>,
    /// The line that gives the agent's expected totals (`--check scoring`).
    pub(crate) line: Option<TotalLine>,
    messages: Vec<String>,
    kept: Option<(PathBuf, File)>,
}

impl Agent {
    /// Starts an agent, whose messages go to `out`. An agent that cannot be started counts as lost.
    pub(crate) fn start(
        launch: AgentLaunch,
        number: usize,
        clock: SteadyClock,
        out: &SyncSender<(usize, FromAgent)>,
    ) -> Self {
        let started =
            (launch.command).and_then(|command| AgentProcess::start(command, number, clock, out));
        let (state, process) = match started {
            Ok(process) => (AgentState::Starting, Some(process)),
            Err(why) => (AgentState::Lost(why), None),
        };
        Agent {
            name: launch.name,
            state,
            process,
            start_timeout: launch.start_timeout,
            hello: None,
            ready: None,
            clock: AgentClock::default(),
            heard: Instant::now(),
            pinged: Instant::now(),
            connecting: Connecting::default(),
            start_ns: 0,
            began_ns: None,
            is_closed: false,
            failing: None,
            line: None,
            messages: Vec::new(),
            kept: None,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Returns when and why the agent was lost.
    pub(crate) fn loss(&self) -> Option<&String> {
        match &self.state {
            AgentState::Lost(why) => Some(why),
            _ => None,
        }
    }

    /// Returns whether the agent has its input and has neither ended nor failed.
    pub(crate) fn is_active(&self) -> bool {
        use AgentState::{Preparing, Running, Waiting};
        matches!(self.state, Preparing | Waiting | Running)
    }

    /// Handles a message from the agent's process. If it is a line of the protocol, returns the
    /// line and the time at which it arrived.
    pub(crate) fn take(&mut self, from: FromAgent) -> Option<(AgentLine, i64)> {
        match from {
            FromAgent::Line(line, at_ns) => {
                self.heard = Instant::now();
                return Some((line, at_ns));
            }
            FromAgent::Message(message) => {
                if self.messages.len() == QUOTED {
                    self.messages.remove(0);
                }
                self.messages.push(message);
            }
            FromAgent::Ended(None) if self.state == AgentState::Ended => self.is_closed = true,
            FromAgent::Ended(fault) => drop(self.failing.get_or_insert((Instant::now(), fault))),
        }
        None
    }

    /// Returns a failure followed by the agent's latest messages.
    pub(crate) fn explain(&self, failure: &str) -> String {
        if self.messages.is_empty() {
            failure.to_owned()
        } else {
            format!("{failure}: {}", self.messages.join("; "))
        }
    }

    /// Returns the failure of an agent whose output has ended. Returns `None` until its last
    /// messages have had time to arrive.
    pub(crate) fn failure(&mut self) -> Option<String> {
        let (since, fault) = self.failing.as_ref()?;
        if since.elapsed() < MESSAGE_TIME {
            return None;
        }
        if let Some(fault) = fault {
            return Some(self.explain(fault));
        }
        let process = self.process.as_mut();
        let failure = match process.map(|process| process.end(EXIT_TIMEOUT)) {
            Some(Ok(status)) => format!("ended early ({status})"),
            _ => "ended early".to_owned(),
        };
        Some(self.explain(&failure))
    }

    pub(crate) fn ping(&mut self) {
        self.pinged = Instant::now();
        if let Some(process) = &self.process {
            process.ping();
        }
    }

    /// Appends kept responses to the agent's own file, next to `file`.
    pub(crate) fn keep(&mut self, number: usize, bytes: &[u8], file: &Path) -> io::Result<()> {
        if self.kept.is_none() {
            let mut name = file.as_os_str().to_owned();
            name.push(format!(".agent-{number}"));
            let path = PathBuf::from(name);
            self.kept = Some((path.clone(), File::create(path)?));
        }
        match &mut self.kept {
            Some((_, file)) => file.write_all(bytes),
            None => Ok(()),
        }
    }

    /// Returns the agent's kept responses. `origin_ns` is the origin of the coordinator's event
    /// clock, in ns since 1970.
    pub(crate) fn kept(&self, origin_ns: i64) -> Option<KeptPart<'_>> {
        let (path, _) = self.kept.as_ref()?;
        let (agent_ns, clock_ns) = self.began_ns?;
        Some(KeptPart {
            path,
            shift_ns: agent_ns - clock_ns as i64 - self.clock.offset_ns() - origin_ns,
            bound_ns: self.clock.bound_ns(),
            line: self.line,
        })
    }

    pub(crate) fn facts(&self) -> AgentFacts {
        let late_ns = self.began_ns.map_or(0, |(at_ns, _)| at_ns - self.start_ns);
        let hello = self.hello.as_ref();
        AgentFacts {
            name: self.name.clone(),
            host: hello.map_or_else(String::new, |hello| hello.host.clone()),
            boot_id: hello.and_then(|hello| hello.boot_id.clone()),
            cpus: hello.map_or(0, |hello| hello.cpus),
            skew_ns: (self.clock.first).map(|first| (first.offset_ns, self.clock.bound_ns())),
            late_start_ns: u64::try_from(late_ns).unwrap_or(0),
            lost: self.loss().cloned(),
        }
    }
}

/// What a coordinator knows about one agent at the end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentFacts {
    /// Name of the agent, unique in the run.
    pub name: String,
    /// Name of the agent's host; empty if the agent never started.
    pub host: String,
    /// Boot ID of the host, if known.
    pub boot_id: Option<String>,
    /// Number of CPUs that the agent may use; 0 if the agent never started.
    pub cpus: u32,
    /// Skew at the start of the measurement, and its maximum error including the drift until the
    /// end of the load, both in ns. `None` if the agent was lost before its clock was read.
    pub skew_ns: Option<(i64, u64)>,
    /// Delay with which the agent started the measurement, in ns.
    pub late_start_ns: u64,
    /// When and why the agent was lost; `None` if it completed its part.
    pub lost: Option<String>,
}

/// Maximum length of a line on an agent's stderr in bytes. Longer lines are split.
const MESSAGE_LIMIT: u64 = 1000;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// A message from an agent's process.
#[derive(Debug)]
pub(crate) enum FromAgent {
    /// A line of the protocol, and the coordinator's time in ns at which it arrived.
    Line(AgentLine, i64),
    /// A line on stderr.
    Message(String),
    /// The agent's stdout was closed, or its output was invalid. Contains the error, if any. No
    /// more lines follow.
    Ended(Option<String>),
}

/// A message for an agent.
enum ToAgent {
    Bytes(Vec<u8>),
    /// A ping. Its timestamp is taken just before it is written.
    Ping,
}

/// A running agent.
#[derive(Debug)]
pub(crate) struct AgentProcess {
    child: Child,
    /// Dropping the sender closes the agent's stdin.
    input: Option<Sender<ToAgent>>,
}

impl AgentProcess {
    /// Starts a command as the agent with index `agent`, and greets it. Its messages go to `out`.
    ///
    /// # Errors
    /// The program or a thread cannot be started.
    pub(crate) fn start(
        command: Command,
        agent: usize,
        clock: SteadyClock,
        out: &SyncSender<(usize, FromAgent)>,
    ) -> Result<Self, String> {
        let (child, stdin, stdout, stderr) = start_piped(command)?;
        let (input, received) = channel();
        let (lines, messages) = (out.clone(), out.clone());
        let threads: [Box<dyn FnOnce() + Send>; 3] = [
            Box::new(move || write_all(stdin, &received, clock)),
            Box::new(move || read_lines(stdout, agent, clock, &lines)),
            Box::new(move || read_messages(stderr, agent, &messages)),
        ];
        for thread in threads {
            let started = Builder::new().spawn(thread);
            started.map_err(|error| format!("cannot start a thread: {error}"))?;
        }
        let process = AgentProcess {
            child,
            input: Some(input),
        };
        process.command(AgentCommand::Hello);
        Ok(process)
    }

    /// Sends bytes. If the agent has exited, this is reported separately.
    pub(crate) fn send(&self, bytes: Vec<u8>) {
        self.pass_on(ToAgent::Bytes(bytes));
    }

    pub(crate) fn command(&self, command: AgentCommand) {
        self.send(command.encode().into_bytes());
    }

    pub(crate) fn ping(&self) {
        self.pass_on(ToAgent::Ping);
    }

    fn pass_on(&self, to: ToAgent) {
        if let Some(input) = &self.input {
            // This fails if the agent has closed its stdin, because the thread has then ended.
            let _ = input.send(to);
        }
    }

    /// Closes the agent's stdin, so that the agent exits.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// Waits for the process to exit, and kills it after `timeout`. Returns how it ended.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub(crate) fn end(&mut self, timeout: Duration) -> Result<String, ChildError> {
        self.close();
        let status = match self.child.wait(timeout)? {
            Some(status) => status,
            None => self.child.stop(GRACE)?,
        };
        Ok(status.to_string())
    }
}

/// Writes everything to the agent's stdin until the channel or the pipe is closed.
fn write_all(mut stdin: ChildStdin, received: &Receiver<ToAgent>, clock: SteadyClock) {
    for to in received {
        let bytes = match to {
            ToAgent::Bytes(bytes) => bytes,
            ToAgent::Ping => AgentCommand::Ping(clock.now_ns()).encode().into_bytes(),
        };
        if stdin.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Reads lines of the protocol until the pipe is closed or a line is invalid.
fn read_lines(
    stdout: impl Read,
    agent: usize,
    clock: SteadyClock,
    out: &SyncSender<(usize, FromAgent)>,
) {
    let mut reader = BufReader::with_capacity(64 << 10, stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = read_line(&mut reader, &mut line, EVENT_LIMIT);
        let at_ns = clock.now_ns();
        let from = match read {
            Ok(true) => match AgentLine::parse(&line) {
                Ok(line) => FromAgent::Line(line, at_ns),
                Err(fault) => FromAgent::Ended(Some(fault.to_string())),
            },
            Ok(false) => FromAgent::Ended(
                (!line.is_empty()).then(|| "its output ended in the middle of a line".to_owned()),
            ),
            Err(error) => FromAgent::Ended(Some(error.to_string())),
        };
        let is_last = matches!(from, FromAgent::Ended(_));
        // Sending fails only after the coordinator has ended.
        if out.send((agent, from)).is_err() || is_last {
            return;
        }
    }
}

/// Reads messages from stderr until the pipe is closed.
fn read_messages(stderr: impl Read, agent: usize, out: &SyncSender<(usize, FromAgent)>) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader)
            .take(MESSAGE_LIMIT)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        if !text.is_empty() && out.send((agent, FromAgent::Message(text))).is_err() {
            return;
        }
    }
}
