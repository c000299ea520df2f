//! Reasons why a run's figures do not describe the server, and the text of these reasons.

use std::fmt::{self, Display};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::grouped::{merged, show_agents};
use crate::grpc::{GrpcStatus, ResponseStatus};
use crate::units::{percent, plural, show_count, show_s};

/// Fix for a server that stopped responding.
pub const FIX_STOPPED: &str = "check the server's log, restart the server and repeat";

/// States that a load needed more rows than a feed with unique rows has.
pub const TOO_FEW_ROWS: &str = "a feed with take = \"unique\" has too few rows";

/// Error name for a compressed response body whose content an expectation or a check needs.
pub const COMPRESSED_BODY: &str = "compressed_body";

/// Error name for a request that the server did not process before it sent GOAWAY (HTTP/2).
pub const GO_AWAY: &str = "go_away";

/// Error name for a request whose stream the server refused (HTTP/2).
pub const STREAM_REFUSED: &str = "stream_refused";

/// Error name for a connection on which the server allowed no stream for the duration of the
/// timeout (HTTP/2).
pub const NO_STREAMS: &str = "no_streams_allowed";

/// Error name for a connection whose output the server did not read for the duration of the timeout
/// (HTTP/2).
pub const NOT_READ: &str = "not_read_by_server";

/// Prefix of the error names for streams that the server reset (HTTP/2). The code in lower case
/// follows, unless it is unknown or rare.
pub const STREAM_RESET: &str = "stream_reset";

/// Fix for a client stall.
const FIX_STALL: &str = "stop other programs on this host (see floodmark doctor) and repeat";

/// Fix for a lost agent.
pub const FIX_LOST: &str = "check the agent's host and repeat";

/// An error caused by the client or its host, as a tuple: the name in `errors`, the problem (where
/// `{}` stands for the affected items), the noun for these items, and the fix.
type ClientError = (&'static str, &'static str, &'static str, &'static str);

/// The errors caused by the client or its host.
pub const CLIENT_ERRORS: [ClientError; 4] = [
    (
        "ports_exhausted",
        "no local port was left for {}",
        "connection",
        "add source addresses (--sources 127.0.0.2-127.0.0.20 on loopback), reuse connections, or \
         reduce the load; a closed connection holds its port for up to 60 s",
    ),
    (
        "fds_exhausted",
        "the client had no file descriptor for {}",
        "connection",
        "raise the limit on open files (ulimit -n 65536) or use fewer connections (-c)",
    ),
    (
        "no_memory_for_socket",
        "the kernel had no memory for {}",
        "socket",
        "use fewer connections (-c) or free memory",
    ),
    (
        "connect_not_permitted",
        "a firewall or security rule blocked {}",
        "connection",
        "check the firewall and security rules of this host",
    ),
];

/// A reason why a run is invalid or its throughput is a lower bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// floodmark or its worker died.
    CutShort {
        /// Time for which requests were sent, in seconds.
        sent_s: f64,
    },
    /// No response was ok.
    NothingOk {
        /// The most frequent kind of failure, and the number of requests that failed this way.
        mostly: Option<(FailureKind, u64)>,
    },
    /// All ok responses arrived after the end of the sending window.
    NothingInTime {
        /// Length of the sending window, in seconds.
        sending_s: f64,
    },
    /// The interval of the throughput is too wide.
    Unsteady {
        /// Half-width of the interval, as a share of the throughput.
        half_width: f64,
        /// Likely cause.
        disturbance: Disturbance,
    },
    /// The server stopped responding.
    StoppedResponding {
        /// Time of the last response, in seconds since the start of the measurement.
        since_s: f64,
        /// Time without responses, in seconds.
        silence_s: f64,
        /// End of the run, in seconds since the start of the measurement; null unless the run ended
        /// because no connection could be opened.
        ended_s: Option<f64>,
    },
    /// An external client failed.
    ClientFailed {
        /// The client's error.
        detail: String,
    },
    /// An agent was lost.
    Lost {
        /// Error of the agent or its host.
        error: String,
    },
    /// An agent was lost while other agents were sending load.
    LostAmongOthers {
        /// Error of the agent or its host.
        error: String,
        /// Whether the load follows a schedule.
        is_open: bool,
    },
    /// The client's threads were saturated, and the verdict names no other limit.
    ClientSaturated {
        /// CPU use of the threads.
        threads: ThreadUse,
        /// Fix for the saturation.
        fix: ThreadFix,
    },
    /// The client's threads were saturated, but the verdict names another limit.
    NoSpareCpu {
        /// CPU use of the threads; null for agents, whose CPU use may differ.
        threads: Option<ThreadUse>,
        /// The verdict's cause.
        cause: Cause,
        /// The verdict's next step.
        next: String,
    },
    /// The client did not send some requests.
    Unsent {
        /// Number of requests that were not sent.
        unsent: u64,
        /// Number of intended requests.
        intended: u64,
        /// Why they were not sent.
        why: UnsentReason,
    },
    /// Requests were sent late.
    Late {
        /// p99 of the lateness, in seconds.
        late_s: f64,
        /// p99 of the response times, in seconds.
        response_s: f64,
        /// Whether `response_s` is only a lower bound.
        is_lower_bound: bool,
        /// Why the client was late.
        why: LateReason,
        /// Larger number of load threads to try; null if more threads would not help.
        more_threads: Option<usize>,
    },
    /// The client stalled in the closed model.
    Stalled {
        /// Length of the stall, in seconds.
        stall_s: f64,
        /// Time for which requests were sent, in seconds.
        sending_s: f64,
    },
    /// The client could not hold all connections.
    NotHeld {
        /// Number of failed connections.
        failed: u64,
        /// Number of planned connections.
        connections: u32,
        /// Names of the errors.
        errors: Vec<String>,
    },
    /// Similar reasons of several agents.
    OfAgents {
        /// Names of the agents.
        agents: Vec<String>,
        /// Total number of agents.
        of: usize,
        /// The reasons, one for each agent in `agents`.
        reasons: Vec<Worded>,
    },
}

/// The way in which requests failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A status code.
    Status(u16),
    /// A gRPC status.
    GrpcStatus(GrpcStatus),
    /// Name in `errors`.
    Error(String),
}

/// Why the client did not send requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnsentReason {
    /// An error of the client or its host.
    Error {
        /// Name in `errors`.
        name: String,
        /// Number of failed connections.
        affected: u64,
    },
    /// A stall of the client.
    Stall {
        /// Length of the stall, in seconds.
        stall_s: f64,
    },
    /// Saturated threads.
    Saturated {
        /// CPU use of the threads.
        threads: ThreadUse,
        /// Fix for the saturation.
        fix: ThreadFix,
    },
}

/// Why the client sent requests late.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LateReason {
    /// The client stalled.
    Stalled {
        /// Length of the stall, in seconds.
        stall_s: f64,
    },
    /// The client did not stall. The value is the CPU use of its threads.
    Threads(ThreadUse),
    /// The CPU use is unknown.
    Unknown,
}

/// Shares of the sending time during which the load threads were running or runnable, averaged over
/// the threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUse {
    /// Number of threads.
    pub threads: usize,
    /// Share of the time on a CPU.
    pub on_cpu: f64,
    /// Share of the time during which threads were runnable but had no CPU; null if unknown.
    pub runnable: Option<f64>,
}

/// Fix for saturated load threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThreadFix {
    /// Use this number of threads.
    MoreThreads(usize),
    /// Give the client and the server separate CPUs.
    OwnCpus,
    /// Run the client on another host.
    OtherHost,
}

impl ThreadUse {
    /// Returns whether the threads spent more time waiting for a CPU than on a CPU.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.runnable.is_some_and(|runnable| runnable > self.on_cpu)
    }
}

impl Display for ThreadUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = plural(self.threads as u64, "thread");
        write!(f, "{threads}, {} on a CPU, ", percent(self.on_cpu))?;
        match self.runnable {
            Some(runnable) => write!(f, "{} runnable", percent(runnable)),
            None => f.write_str("run delay unknown"),
        }
    }
}

impl Display for ThreadFix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MoreThreads(more) => write!(f, "use more client threads: -t {more}"),
            Self::OwnCpus => f.write_str(
                "client and server compete for the same CPUs: give each its own CPUs (taskset -c), or \
                 run the client on another host",
            ),
            Self::OtherHost => f.write_str(
                "each CPU of the client already has a thread: run the client on another host, or on \
                 several (--agents)",
            ),
        }
    }
}

impl From<ResponseStatus> for FailureKind {
    fn from(status: ResponseStatus) -> Self {
        match status.grpc {
            Some(grpc) => FailureKind::GrpcStatus(grpc),
            None => FailureKind::Status(status.http),
        }
    }
}

impl Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::GrpcStatus(status) => write!(f, "status {status}"),
            Self::Error(name) => f.write_str(&name.replace('_', " ")),
        }
    }
}

/// Formats the time after which a server stopped responding.
#[must_use]
pub fn show_stopped(since_s: f64) -> String {
    format!("the server stopped responding after {}", show_s(since_s))
}

/// Likely cause of an unsteady throughput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// The client stalled.
    ClientStall {
        /// Length of the longest stall in seconds.
        stall_s: f64,
    },
    /// The hypervisor gave CPU time to other virtual machines.
    Steal {
        /// Mean number of CPUs.
        cpus: f64,
    },
    /// Other programs on the client's or the server's host used CPU time.
    OtherPrograms {
        /// Mean number of CPUs.
        cpus: f64,
    },
    /// The server sent no response for one or more periods.
    ServerStall {
        /// Total length of the periods in seconds.
        stall_s: f64,
    },
    /// No disturbance of the client or its host was observed, so the cause is probably the server.
    Server,
}

impl Disturbance {
    /// Returns the disturbance and its fix.
    fn parts(&self) -> (String, &'static str) {
        match self {
            Self::ClientStall { stall_s } => (
                format!("the client stalled for {}", show_s(*stall_s)),
                FIX_STALL,
            ),
            Self::Steal { cpus } => (
                format!("the hypervisor took {cpus:.2} CPUs from this host"),
                "repeat on a dedicated host, or run longer (-d)",
            ),
            Self::OtherPrograms { cpus } => {
                (format!("other programs used {cpus:.2} CPUs"), FIX_STALL)
            }
            Self::ServerStall { stall_s } => (
                format!(
                    "the server sent no response for {} in total",
                    show_s(*stall_s)
                ),
                "check the server's log",
            ),
            Self::Server => (
                "no disturbance of the client or its host was observed".to_owned(),
                "run longer (-d), and look for changes over time in the HTML report (--html FILE)",
            ),
        }
    }
}

impl Reason {
    /// Returns the problem and the rest of the message, which may be empty.
    fn parts(&self) -> (String, String) {
        match self {
            Self::CutShort { sent_s } => (
                format!(
                    "cut short after {}: floodmark or its worker died",
                    show_s(*sent_s)
                ),
                "repeat the run".to_owned(),
            ),
            Self::NothingOk { mostly } => {
                let mostly = mostly.as_ref().map(|(kind, n)| {
                    format!("no response was ok (mostly {kind}: {})", show_count(*n))
                });
                let problem = mostly.unwrap_or_else(|| "no response was ok".to_owned());
                (problem, String::new())
            }
            Self::NothingInTime { sending_s } => (
                format!(
                    "no ok response arrived within the {} in which requests were sent",
                    show_s(*sending_s)
                ),
                "use a longer --duration".to_owned(),
            ),
            Self::Unsteady {
                half_width,
                disturbance,
            } => {
                let (cause, fix) = disturbance.parts();
                let width = percent(*half_width);
                let problem =
                    format!("the throughput is uncertain (95 % interval: ± {width}): {cause}");
                (problem, fix.to_owned())
            }
            Self::StoppedResponding {
                since_s,
                silence_s,
                ended_s,
            } => {
                let ended = ended_s.map(|ended_s| {
                    let sent = show_s(ended_s);
                    format!("; no new connection could be opened, so the run ended after {sent}")
                });
                let rest = format!(
                    "the figures include the {} without responses{}; {FIX_STOPPED}",
                    show_s(*silence_s),
                    ended.unwrap_or_default()
                );
                (show_stopped(*since_s), rest)
            }
            Self::ClientFailed { detail: error } | Self::Lost { error } => {
                (error.clone(), String::new())
            }
            Self::LostAmongOthers { error, is_open } => {
                let effect = if *is_open {
                    "the rest of its requests were not sent"
                } else {
                    "its connections were idle for the rest of the run, so throughput is a lower bound"
                };
                (format!("lost ({error}): {effect}"), FIX_LOST.to_owned())
            }
            Self::ClientSaturated { threads, fix } => (
                format!("the client was the limit ({threads})"),
                format!(
                    "the server may be faster, and latencies include waiting in the client; {fix}"
                ),
            ),
            Self::NoSpareCpu {
                threads,
                cause,
                next,
            } => {
                let client = match threads {
                    Some(threads) => format!("the client had no spare CPU time ({threads})"),
                    None => "no spare CPU time".to_owned(),
                };
                (
                    format!("{client}, so latencies include waiting in the client"),
                    format!("first remove the limit that the verdict names ({cause}): {next}"),
                )
            }
            Self::Unsent {
                unsent,
                intended,
                why,
            } => {
                let unsent = format!(
                    "{} of {} requests ({:.1} %) were never sent",
                    show_count(*unsent),
                    show_count(*intended),
                    100.0 * *unsent as f64 / *intended as f64
                );
                let (problem, rest) = why.parts();
                (format!("{unsent}: {problem}"), rest)
            }
            Self::Late {
                late_s,
                response_s,
                is_lower_bound,
                why,
                more_threads,
            } => {
                let at_least = if *is_lower_bound { "> " } else { "" };
                let problem = format!(
                    "the client ({why}) sent requests late: p99 lateness {} is more than a tenth of \
                     the response time (p99 {at_least}{})",
                    show_s(*late_s),
                    show_s(*response_s)
                );
                let fix = why.fix(*more_threads);
                (problem, format!("response times include this delay; {fix}"))
            }
            Self::Stalled { stall_s, sending_s } => (
                format!(
                    "the client stalled for {} of {}: throughput is too low, and the largest latencies \
                     were caused by the client",
                    show_s(*stall_s),
                    show_s(*sending_s)
                ),
                FIX_STALL.to_owned(),
            ),
            Self::NotHeld {
                failed,
                connections,
                errors,
            } => (
                format!(
                    "{} of {} could not be held ({})",
                    show_count(*failed),
                    plural((*connections).into(), "connection"),
                    errors.join(", ").replace('_', " ")
                ),
                "add source addresses (--sources), raise the limit on open files, or hold fewer \
                 connections"
                    .to_owned(),
            ),
            Self::OfAgents {
                agents,
                of,
                reasons,
            } => {
                let parts = reasons.iter().map(|reason| match reason {
                    Worded::Fact(reason) => reason.parts(),
                    Worded::Text(text) => (text.clone(), String::new()),
                });
                let (problems, rests): (Vec<String>, Vec<String>) = parts.unzip();
                let problem = format!("{}: {}", show_agents(agents, *of), merged(problems));
                (problem, merged(rests))
            }
        }
    }
}

impl UnsentReason {
    fn parts(&self) -> (String, String) {
        match self {
            Self::Error { name, affected } => {
                let mut errors = CLIENT_ERRORS.iter();
                match errors.find(|(error, ..)| error == name) {
                    Some((_, problem, noun, fix)) => (
                        problem.replace("{}", &plural(*affected, noun)),
                        (*fix).to_owned(),
                    ),
                    None => (name.replace('_', " "), String::new()),
                }
            }
            Self::Stall { stall_s } => (
                format!("the client stalled for {}", show_s(*stall_s)),
                format!("the server is not the cause; {FIX_STALL}"),
            ),
            Self::Saturated { threads, fix } => (
                format!("the client was the limit ({threads})"),
                format!("{fix}, or use a lower rate"),
            ),
        }
    }
}

impl LateReason {
    fn fix(&self, more_threads: Option<usize>) -> String {
        match (self, more_threads) {
            (Self::Stalled { .. }, _) => FIX_STALL.to_owned(),
            (Self::Threads(threads), _) if threads.is_starved() => {
                "give the client its own CPUs (taskset -c) or another host, or use a lower rate"
                    .to_owned()
            }
            (_, Some(more)) => format!("use -t {more} or a lower rate"),
            (_, None) => "use a lower rate or another host".to_owned(),
        }
    }
}

impl Display for LateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled { stall_s } => write!(f, "stalled for {}", show_s(*stall_s)),
            Self::Threads(threads) => threads.fmt(f),
            Self::Unknown => f.write_str("CPU use unknown"),
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (problem, rest) = self.parts();
        f.write_str(&problem)?;
        if !rest.is_empty() {
            write!(f, "; {rest}")?;
        }
        Ok(())
    }
}

impl Reason {
    /// Recognizes [`Reason::NothingOk`], on which the exit code depends, by its text in records of
    /// schema version 1. Returns `None` for all other reasons, because no code depends on them.
    fn from_text(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("no response was ok")?;
        let mostly = rest.strip_prefix(" (mostly ").and_then(|rest| {
            let (kind, n) = rest.strip_suffix(')')?.rsplit_once(": ")?;
            let status = kind.strip_prefix("status ");
            let kind = match status.and_then(|status| status.parse().ok()) {
                Some(status) => FailureKind::Status(status),
                None => FailureKind::Error(kind.replace(' ', "_")),
            };
            Some((kind, n.replace(',', "").parse().ok()?))
        });
        Some(Self::NothingOk { mostly })
    }
}

/// A fact, or only its text.
///
/// In JSON, a fact is an object that also contains its text. The text is for people and `jq`; no
/// code reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "StoredWorded", into = "StoredWorded")]
pub enum Worded {
    /// The fact.
    Fact(Reason),
    /// Only the text, as in records of schema version 1.
    Text(String),
}

impl Worded {
    /// Returns the fact, if known.
    #[must_use]
    pub fn fact(&self) -> Option<&Reason> {
        match self {
            Self::Fact(reason) => Some(reason),
            Self::Text(_) => None,
        }
    }

    /// Describes the problem, excluding its effect on the figures and its fix. If only the reason's
    /// text is known, returns the whole text.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::Fact(reason) => reason.parts().0,
            Self::Text(text) => text.clone(),
        }
    }
}

impl From<Reason> for Worded {
    fn from(reason: Reason) -> Self {
        Self::Fact(reason)
    }
}

impl From<&str> for Worded {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Display for Worded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fact(reason) => reason.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The JSON forms of [`Worded`].
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum StoredWorded {
    Typed {
        /// The fact.
        fact: Reason,
        /// The fact in words.
        text: String,
    },
    /// The fact in words, as in schema version 1.
    Text(String),
}

impl From<StoredWorded> for Worded {
    fn from(stored: StoredWorded) -> Self {
        match stored {
            StoredWorded::Typed { fact, .. } => Self::Fact(fact),
            StoredWorded::Text(text) => {
                Reason::from_text(&text).map_or(Self::Text(text), Self::Fact)
            }
        }
    }
}

impl From<Worded> for StoredWorded {
    fn from(worded: Worded) -> Self {
        let text = worded.to_string();
        match worded {
            Worded::Fact(fact) => Self::Typed { fact, text },
            Worded::Text(_) => Self::Text(text),
        }
    }
}

/// Joins sentences with semicolons.
#[must_use]
pub fn joined(sentences: &[Worded]) -> String {
    let texts: Vec<String> = sentences.iter().map(Worded::to_string).collect();
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_a_reason_with_its_text() {
        let reason = Worded::Fact(Reason::CutShort { sent_s: 2.5 });
        let json = serde_json::json!({
            "fact": {"cut_short": {"sent_s": 2.5}},
            "text": "cut short after 2.50 s: floodmark or its worker died; repeat the run"
        });
        assert_eq!(serde_json::to_value(&reason).unwrap(), json);
        assert_eq!(serde_json::from_value::<Worded>(json).unwrap(), reason);
    }

    #[test]
    fn reads_the_texts_of_schema_version_1() {
        let read = |text: &str| serde_json::from_value::<Worded>(text.into()).unwrap();
        for text in [
            "no response was ok",
            "no response was ok (mostly status 404: 12,000)",
            "no response was ok (mostly connect refused: 7)",
        ] {
            let reason = read(text);
            assert!(matches!(reason.fact(), Some(Reason::NothingOk { .. })));
            assert_eq!(reason.to_string(), text);
        }
        assert_eq!(read("other"), Worded::Text("other".to_owned()));
    }
}
