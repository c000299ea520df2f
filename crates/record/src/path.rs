//! Paths: what requests wait for, step by step, from the requests in flight to the resource that
//! limits the run.

use std::fmt::{self, Display};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::names::named! {
    /// Part of the system to which a step belongs.
    Actor {
        /// The load generator.
        Client = "client",
        /// The server under test.
        Server = "server",
        /// The store behind the server.
        Store = "store",
        /// Another service that the server sends requests to.
        Upstream = "upstream",
        /// Programs outside the experiment.
        Others = "others",
        /// The client and the server together.
        Shared = "shared",
        /// The network between client and server.
        Network = "network",
        /// The host, including its hypervisor.
        Host = "host",
    }

    /// Kind of a step on a path.
    StepKind {
        /// The requests in flight. Each path starts here.
        Requests = "requests",
        /// Connections that the server has not accepted yet.
        AcceptQueue = "accept-queue",
        /// A thread, or a thread pool whose threads are all in use.
        Threads = "threads",
        /// A limit on the number of requests that a process works on at once, such as a semaphore.
        Permits = "permits",
        /// A lock, or anything else that only one request can hold at a time.
        Lock = "lock",
        /// Outgoing connections of a process.
        Connections = "connections",
        /// CPU time.
        Cpu = "cpu",
        /// A pause, or a timer.
        Timer = "timer",
        /// A file, and the disk that contains it.
        Disk = "disk",
        /// A pipe, and the process that reads from it.
        Pipe = "pipe",
        /// A child process.
        Child = "child",
        /// A row lock or table lock of a database.
        RowLock = "row-lock",
        /// Commits of a database.
        Commit = "commit",
        /// A garbage collector.
        Gc = "gc",
        /// A JIT compiler.
        Jit = "jit",
        /// TLS handshakes.
        Tls = "tls",
        /// Compression of responses.
        Compression = "compression",
        /// Connection set-up.
        Connecting = "connecting",
        /// A limit on the request rate.
        RateLimit = "rate-limit",
        /// A limit on the requests per connection.
        KeepAlive = "keep-alive",
        /// A limit on the streams of an HTTP/2 connection.
        StreamLimit = "stream-limit",
        /// A flow-control window of HTTP/2.
        Window = "window",
        /// A limit on open files.
        Files = "files",
        /// The maximum length of an accept queue.
        Backlog = "backlog",
        /// Local ports.
        Ports = "ports",
        /// A CPU quota.
        Quota = "quota",
        /// CPU time taken by the hypervisor.
        Steal = "steal",
        /// Delayed acknowledgments.
        DelayedAck = "delayed-ack",
        /// A network link.
        Link = "link",
        /// Failed requests.
        Errors = "errors",
        /// A stalled load generator.
        Stall = "stall",
        /// The offered rate of an open-model load.
        OfferedRate = "offered-rate",
        /// The number of connections of a closed-model load.
        Concurrency = "concurrency",
    }
}

impl Actor {
    /// Returns one of the actor's resources as a place.
    #[must_use]
    pub fn with(self, resource: ActorResource) -> Place {
        Place {
            actor: self,
            resource: Some(resource),
        }
    }
}

/// A resource of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActorResource {
    /// A thread group.
    ThreadGroup(String),
    /// A file that is only appended to; the path is empty if unknown.
    Log(String),
    /// Memory that the kernel reads from a file on a page fault.
    Memory,
    /// A network address, or the path of a socket or file.
    Address(String),
}

impl Display for ActorResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThreadGroup(group) => write!(f, "\"{group}\""),
            Self::Log(path) if path.is_empty() => f.write_str("log"),
            Self::Log(path) => write!(f, "log {path}"),
            Self::Memory => f.write_str("memory"),
            Self::Address(address) => f.write_str(address),
        }
    }
}

impl From<&str> for ActorResource {
    fn from(text: &str) -> Self {
        let quoted = || text.strip_prefix('"')?.strip_suffix('"');
        match text {
            "memory" => Self::Memory,
            "log" => Self::Log(String::new()),
            _ => match (text.strip_prefix("log "), quoted()) {
                (Some(path), _) => Self::Log(path.to_owned()),
                (_, Some(group)) => Self::ThreadGroup(group.to_owned()),
                _ => Self::Address(text.to_owned()),
            },
        }
    }
}

/// An actor, or one of its resources. In JSON, a string that contains the actor, followed by a
/// space and the resource if the resource is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place {
    /// The actor.
    pub actor: Actor,
    /// The resource, if known.
    pub resource: Option<ActorResource>,
}

impl From<Actor> for Place {
    fn from(actor: Actor) -> Self {
        let resource = None;
        Self { actor, resource }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.resource {
            None => write!(f, "{}", self.actor),
            Some(resource) => write!(f, "{} {resource}", self.actor),
        }
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (actor, resource) = text.split_once(' ').unwrap_or((&text, ""));
        Ok(Self {
            actor: Actor::from_name(actor).ok_or_else(|| format!("unknown actor \"{actor}\""))?,
            resource: (!resource.is_empty()).then(|| resource.into()),
        })
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

/// One step on a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathStep {
    /// Kind of the step.
    pub kind: StepKind,
    /// Part of the system to which the step belongs: `client`, `server`, `store`, `upstream`,
    /// `others` for programs outside the experiment, `shared` for the client and the server
    /// together, `network` or `host`. A space and the name or address of a resource may follow.
    #[schemars(with = "String")]
    pub who: Place,
    /// Mean number of requests at this step; null if unknown.
    pub waiting: Option<f64>,
    /// Source of the step.
    pub basis: String,
}

impl PathStep {
    /// Returns a step at which the number of requests is unknown.
    #[must_use]
    pub fn new(kind: StepKind, who: impl Into<Place>, basis: impl Into<String>) -> Self {
        Self {
            kind,
            who: who.into(),
            waiting: None,
            basis: basis.into(),
        }
    }

    /// Sets the mean number of requests at the step.
    #[must_use]
    pub fn with_waiting(mut self, waiting: f64) -> Self {
        self.waiting = Some(waiting);
        self
    }

    /// Returns the kind and the actor, such as `threads server`. Expected paths consist of these
    /// keys.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{} {}", self.kind, self.who.actor)
    }
}

impl Display for PathStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = &self.who;
        let counted = |noun: &str| match self.waiting.map_or(0.0, f64::round) {
            0.0 => format!("{noun}s"),
            1.0 => format!("1 {noun}"),
            n => format!("{n:.0} {noun}s"),
        };
        match self.kind {
            StepKind::Requests => f.write_str(&counted("request")),
            StepKind::Threads => write!(f, "{} of the {who}", counted("thread")),
            StepKind::Permits => write!(f, "{} in the {who}", counted("permit")),
            StepKind::Connections => write!(f, "{} to the {who}", counted("connection")),
            StepKind::Cpu => match who.actor {
                Actor::Shared => f.write_str("CPUs shared by client and server"),
                Actor::Others => f.write_str("CPU of other programs"),
                _ => write!(f, "CPU of the {who}"),
            },
            kind => write!(f, "{} ({who})", kind.name().replace('-', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<Place, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn shows_and_identifies_steps() {
        let step = |kind, who| PathStep::new(kind, place(who).unwrap(), "");
        let path = [
            step(StepKind::Requests, "client").with_waiting(64.0),
            step(StepKind::Threads, "server \"pool\"").with_waiting(8.2),
            step(StepKind::Connections, "store 127.0.0.1:5432").with_waiting(1.0),
            step(StepKind::RowLock, "store"),
        ];
        let shown: Vec<String> = path.iter().map(PathStep::to_string).collect();
        assert_eq!(
            shown,
            [
                "64 requests",
                "8 threads of the server \"pool\"",
                "1 connection to the store 127.0.0.1:5432",
                "row lock (store)"
            ]
        );
        let keys: Vec<String> = path[1..].iter().map(PathStep::key).collect();
        assert_eq!(
            keys,
            ["threads server", "connections store", "row-lock store"]
        );
    }

    #[test]
    fn stores_a_place_as_a_string() {
        let group = ActorResource::ThreadGroup("pool".to_owned());
        let address = ActorResource::Address("127.0.0.1:80".to_owned());
        let log = |path: &str| Actor::Server.with(ActorResource::Log(path.to_owned()));
        let places = [
            (Place::from(Actor::Shared), "shared"),
            (Actor::Server.with(group), "server \"pool\""),
            (Actor::Upstream.with(address), "upstream 127.0.0.1:80"),
            (Actor::Server.with(ActorResource::Memory), "server memory"),
            (log("/var/log/a b"), "server log /var/log/a b"),
            (log(""), "server log"),
        ];
        for (expected, text) in places {
            assert_eq!(serde_json::to_value(&expected).unwrap(), text);
            assert_eq!(place(text), Ok(expected));
        }
        assert_eq!(place("server "), Ok(Place::from(Actor::Server)));
        assert!(place("nobody").is_err());
    }
}
