//! The local process behind an agent: the agent itself, or the ssh, srun or kubectl process that
//! connects to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::Builder;
use std::time::Duration;

use floodmark_host::{Child, ChildError};
use floodmark_record::agent_lines::{AgentCommand, AgentLine};

use crate::agent_clock::SteadyClock;
use crate::pipes::{PipedChild, read_line};
use crate::single::EVENT_LIMIT;

/// Maximum length of a line on an agent's stderr in bytes. Longer lines are cut.
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
    /// A line that does not follow the protocol. No more lines follow.
    Fault(String),
    /// The agent has closed its stdout.
    Closed,
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
    /// Starts a command as agent number `agent`, and greets it. Its messages go to `out`.
    ///
    /// # Errors
    /// The program or a thread cannot be started.
    pub(crate) fn start(
        command: Command,
        agent: usize,
        clock: SteadyClock,
        out: &SyncSender<(usize, FromAgent)>,
    ) -> Result<Self, String> {
        let PipedChild {
            child,
            stdin,
            stdout,
            stderr,
        } = PipedChild::start(command)?;
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

    /// Sends bytes. If the agent has ended, its end is reported separately.
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
            // The thread has ended if the agent has closed its stdin.
            let _ = input.send(to);
        }
    }

    /// Closes the agent's stdin, which ends the agent.
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
        let parsed = match read {
            Ok(true) => AgentLine::parse(&line).map_err(|fault| fault.to_string()),
            Ok(false) if line.is_empty() => {
                let _ = out.send((agent, FromAgent::Closed));
                return;
            }
            Ok(false) => Err("its output ended in the middle of a line".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let (from, is_last) = match parsed {
            Ok(line) => (FromAgent::Line(line, at_ns), false),
            Err(fault) => (FromAgent::Fault(fault), true),
        };
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
