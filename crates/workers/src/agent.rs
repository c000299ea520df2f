//! The coordinator's view of one agent.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use floodmark_record::agent_lines::AgentHello;
use floodmark_record::events::{Connecting, WorkerReady};
use floodmark_record::kept::TotalLine;

use crate::agent_clock::AgentClock;
use crate::agent_process::AgentProcess;
use crate::kept::KeptPart;

/// Time to wait for an agent's remaining stderr messages after its stdout has ended.
const MESSAGE_TIME: Duration = Duration::from_millis(100);

/// Maximum time for an agent to exit after its last event.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of lines on stderr that a failure quotes.
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
    /// The line of its expected totals (`--check scoring`).
    pub(crate) line: Option<TotalLine>,
    messages: Vec<String>,
    kept: Option<(PathBuf, File)>,
}

impl Agent {
    pub(crate) fn new(launch: &AgentLaunch) -> Self {
        Agent {
            name: launch.name.clone(),
            state: AgentState::Starting,
            process: None,
            start_timeout: launch.start_timeout,
            hello: None,
            ready: None,
            clock: AgentClock::default(),
            heard: Instant::now(),
            pinged: Instant::now(),
            connecting: Connecting {
                standing: 0,
                failed: 0,
                of: 0,
            },
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
        matches!(self.state, AgentState::Lost(_))
    }

    /// Returns whether the agent has its input and has neither ended nor failed.
    pub(crate) fn is_active(&self) -> bool {
        use AgentState::{Preparing, Running, Waiting};
        matches!(self.state, Preparing | Waiting | Running)
    }

    /// Keeps a line from the agent's stderr for a later failure.
    pub(crate) fn keep_message(&mut self, message: String) {
        if self.messages.len() == QUOTED {
            self.messages.remove(0);
        }
        self.messages.push(message);
    }

    /// Returns a failure followed by the agent's latest messages.
    pub(crate) fn explain(&self, failure: &str) -> String {
        if self.messages.is_empty() {
            failure.to_owned()
        } else {
            format!("{failure}: {}", self.messages.join("; "))
        }
    }

    /// Records that the agent's output ended, because of `fault` or because it was closed.
    pub(crate) fn output_ended(&mut self, fault: Option<String>) {
        self.failing.get_or_insert((Instant::now(), fault));
    }

    /// Returns the failure of an agent whose output has ended. Returns `None` until its last messages
    /// have had time to arrive.
    pub(crate) fn failure(&mut self) -> Option<String> {
        let (since, fault) = self.failing.as_ref()?;
        if since.elapsed() < MESSAGE_TIME {
            return None;
        }
        if let Some(fault) = fault {
            return Some(self.explain(fault));
        }
        let ended = self
            .process
            .as_mut()
            .map(|process| process.end(EXIT_TIMEOUT));
        Some(match ended {
            Some(Ok(status)) => self.explain(&format!("ended early ({status})")),
            _ => self.explain("ended early"),
        })
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
        AgentFacts {
            name: self.name.clone(),
            host: (self.hello.as_ref()).map_or_else(String::new, |hello| hello.host.clone()),
            boot_id: (self.hello.as_ref()).and_then(|hello| hello.boot_id.clone()),
            cpus: self.hello.as_ref().map_or(0, |hello| hello.cpus),
            skew_ns: (self.clock.was_read())
                .then(|| (self.clock.offset_ns(), self.clock.bound_ns())),
            late_start_ns: u64::try_from(late_ns).unwrap_or(0),
            lost: match &self.state {
                AgentState::Lost(why) => Some(why.clone()),
                _ => None,
            },
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
    /// Skew at the start of the measurement, and its maximum error including the drift until the end
    /// of the load, both in ns. `None` if the agent was lost before its clock was read.
    pub skew_ns: Option<(i64, u64)>,
    /// Delay of the agent's start of the measurement, in ns.
    pub late_start_ns: u64,
    /// When and why the agent was lost; `None` if it completed its part.
    pub lost: Option<String>,
}
