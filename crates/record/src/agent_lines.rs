//! The lines that a coordinator and its agents exchange over the agents' stdin and stdout.
//!
//! ```text
//! agent                  coordinator
//!                    ←   hello                    the first line, answered at once
//! hello {…}          →
//!                    ←   ping T                   any number of times, answered at once
//! pong T A           →
//!                    ←   checkup                  to check the host instead of loading a server
//! checkup {…}        →
//!                    ←   the worker input (JSON), and a replay's timetable
//! refused …          →                            instead of the rest, if the agent cannot run it
//! {"event":"ready"…} →
//! waiting            →                            before each phase
//!                    ←   start A                  on the agent's clock
//! began A C          →
//! {"event":…}        →
//! responses BASE64   →                            kept responses, after the load
//! {"event":"end"…}   →
//! ```
//!
//! The agent ends when its stdin is closed. It sends nothing before it receives `hello`, because
//! `kubectl attach` misses output written before it connects.

use std::fmt::Display;

use base64::display::Base64Display;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::host::Checkup;
use crate::stream::Event;

/// An agent's description of itself, sent when it is greeted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// Version of floodmark.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// Boot ID of the host, the same in all its containers. `None` if it cannot be read.
    pub boot_id: Option<String>,
    /// Number of CPUs that the agent may use.
    pub cpus: u32,
    /// Process id of the agent on its host.
    pub pid: u32,
    /// Why io_uring cannot be used; `None` if it can.
    pub no_uring: Option<String>,
}

/// A line from an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentLine {
    /// The response to a greeting.
    Hello(AgentHello),
    /// The reason why the agent's host cannot run its part of the load.
    Refused(String),
    /// The response to a ping.
    Pong {
        /// The coordinator's time in the ping.
        sent_ns: i64,
        /// The agent's wall-clock time in ns since 1970.
        agent_ns: i64,
    },
    /// Facts and findings about the agent's host.
    Checkup(Box<Checkup>),
    /// The agent is waiting for the start of the next phase.
    Waiting,
    /// A phase has started.
    Began {
        /// Time of the start in ns since 1970, on the agent's wall clock.
        agent_ns: i64,
        /// The same time on the clock of the agent's events.
        clock_ns: u64,
    },
    /// Kept responses, as in a file of kept responses.
    Responses(Vec<u8>),
    /// An event of the load.
    Event(Box<Event>),
}

/// A line for an agent, other than its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentCommand {
    /// Asks for the agent's description of itself. Valid only before the input.
    Hello,
    /// Asks for the agent's time. The line contains the coordinator's time in ns.
    Ping(i64),
    /// Asks for a check of the agent's host. Valid only before the input.
    Checkup,
    /// Starts the next phase at this wall-clock time of the agent, in ns since 1970.
    Start(i64),
    /// Ends the load immediately.
    Stop,
}

/// The line does not follow the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {excerpt}")]
pub struct LineFault {
    /// The reason.
    pub reason: String,
    /// The start of the line.
    pub excerpt: String,
}

impl AgentLine {
    /// Returns the line, with its line feed.
    ///
    /// # Errors
    /// An event cannot be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let line = match self {
            AgentLine::Hello(hello) => format!("hello {}", serde_json::to_string(hello)?),
            AgentLine::Refused(reason) => format!("refused {}", reason.replace('\n', " ")),
            AgentLine::Pong { sent_ns, agent_ns } => format!("pong {sent_ns} {agent_ns}"),
            AgentLine::Checkup(checkup) => format!("checkup {}", serde_json::to_string(checkup)?),
            AgentLine::Waiting => "waiting".to_owned(),
            AgentLine::Began { agent_ns, clock_ns } => format!("began {agent_ns} {clock_ns}"),
            AgentLine::Responses(bytes) => {
                format!("responses {}", Base64Display::new(bytes, &STANDARD))
            }
            AgentLine::Event(event) => return event.to_line(),
        };
        Ok((line + "\n").into_bytes())
    }

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// The line does not follow the protocol.
    pub fn parse(line: &[u8]) -> Result<Self, LineFault> {
        let fault = |reason: &dyn Display| LineFault {
            reason: reason.to_string(),
            excerpt: String::from_utf8_lossy(line).chars().take(80).collect(),
        };
        let invalid = |error: serde_json::Error| fault(&error);
        let unknown = || fault(&"unexpected text on stdout; only the agent may write there");
        if line.first() == Some(&b'{') {
            return Event::from_line(line)
                .map(|event| AgentLine::Event(Box::new(event)))
                .map_err(invalid);
        }
        let text = std::str::from_utf8(line).map_err(|_| unknown())?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        Ok(match word {
            "hello" => AgentLine::Hello(serde_json::from_slice(rest.as_bytes()).map_err(invalid)?),
            "refused" => AgentLine::Refused(rest.to_owned()),
            "pong" => AgentLine::Pong {
                sent_ns: first.parse().map_err(|_| unknown())?,
                agent_ns: second.parse().map_err(|_| unknown())?,
            },
            "checkup" => {
                AgentLine::Checkup(serde_json::from_slice(rest.as_bytes()).map_err(invalid)?)
            }
            "waiting" => AgentLine::Waiting,
            "began" => AgentLine::Began {
                agent_ns: first.parse().map_err(|_| unknown())?,
                clock_ns: second.parse().map_err(|_| unknown())?,
            },
            "responses" => {
                AgentLine::Responses(STANDARD.decode(rest).map_err(|error| fault(&error))?)
            }
            _ => return Err(unknown()),
        })
    }
}

impl AgentCommand {
    /// Returns the line, with its line feed.
    #[must_use]
    pub fn encode(self) -> String {
        match self {
            AgentCommand::Hello => "hello\n".to_owned(),
            AgentCommand::Ping(ns) => format!("ping {ns}\n"),
            AgentCommand::Checkup => "checkup\n".to_owned(),
            AgentCommand::Start(ns) => format!("start {ns}\n"),
            AgentCommand::Stop => "stop\n".to_owned(),
        }
    }

    /// Reads a line. Returns `None` if it is not a command.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match word {
            "hello" => Some(AgentCommand::Hello),
            "ping" => rest.parse().ok().map(AgentCommand::Ping),
            "checkup" => Some(AgentCommand::Checkup),
            "start" => rest.parse().ok().map(AgentCommand::Start),
            "stop" => Some(AgentCommand::Stop),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines() -> impl Strategy<Value = AgentLine> {
        let hello = AgentHello {
            version: "1.2.3".to_owned(),
            host: "host \"1\"".to_owned(),
            boot_id: Some("0c5d".to_owned()),
            cpus: 4,
            pid: 17,
            no_uring: Some("refused\nby the kernel".to_owned()),
        };
        prop_oneof![
            Just(AgentLine::Hello(hello)),
            "[ -~]{0,40}".prop_map(AgentLine::Refused),
            (any::<i64>(), any::<i64>())
                .prop_map(|(sent_ns, agent_ns)| AgentLine::Pong { sent_ns, agent_ns }),
            Just(AgentLine::Waiting),
            (any::<i64>(), any::<u64>())
                .prop_map(|(agent_ns, clock_ns)| AgentLine::Began { agent_ns, clock_ns }),
            proptest::collection::vec(any::<u8>(), 0..100).prop_map(AgentLine::Responses),
            Just(AgentLine::Event(Box::new(Event::Driven {
                by: "wrk".to_owned()
            }))),
        ]
    }

    proptest! {
        #[test]
        fn lines_survive_the_pipe(line in lines()) {
            let mut bytes = line.encode().unwrap();
            prop_assert_eq!(bytes.pop(), Some(b'\n'));
            prop_assert!(!bytes.contains(&b'\n'));
            prop_assert_eq!(AgentLine::parse(&bytes), Ok(line));
        }

        #[test]
        fn commands_survive_the_pipe(ns in any::<i64>()) {
            for command in [
                AgentCommand::Hello, AgentCommand::Ping(ns), AgentCommand::Checkup, AgentCommand::Start(ns), AgentCommand::Stop,
            ] {
                prop_assert_eq!(AgentCommand::parse(&command.encode()), Some(command));
            }
        }

        #[test]
        fn any_bytes_are_a_line_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = AgentLine::parse(&bytes);
            let _ = AgentCommand::parse(&String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_fault_quotes_the_line() {
        let fault = AgentLine::parse(b"Welcome to host 3!")
            .unwrap_err()
            .to_string();
        assert_eq!(
            fault,
            "unexpected text on stdout; only the agent may write there: Welcome to host 3!"
        );
    }
}
