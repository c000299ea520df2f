//! Paths: what requests wait for, step by step, from the requests in flight to the resource that
//! limits the run.

use std::fmt::{self, Display};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::names::named! {
    /// Kind of a step on a path.
    StepKind {
        /// The requests in flight. Each path starts here.
        Requests = "requests",
        /// Connections that the server has not accepted yet.
        AcceptQueue = "accept-queue",
        /// A thread, or a thread pool whose threads are all in use.
        Threads = "threads",
        /// A limit on the requests that a process works on at once, such as a semaphore.
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
        /// A pipe, and the process that reads it.
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

/// One step on a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathStep {
    /// Kind of the step.
    pub kind: StepKind,
    /// Process to which the step belongs: `client`, `server`, `store`, `upstream`, `others` for
    /// programs outside the experiment, or `shared` for client and server together. A space and the
    /// name or address of a resource may follow.
    pub who: String,
    /// Mean number of requests at this step; null if unknown.
    pub waiting: Option<f64>,
    /// Source of the step.
    pub basis: String,
}

impl PathStep {
    /// Returns a step at which the number of requests is unknown.
    #[must_use]
    pub fn new(kind: StepKind, who: impl Into<String>, basis: impl Into<String>) -> Self {
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

    /// Returns the kind and the process, such as `threads server`. Expected paths consist of these
    /// keys.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{} {}", self.kind, self.process())
    }

    fn process(&self) -> &str {
        self.who.split(' ').next().unwrap_or_default()
    }
}

impl Display for PathStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.who.trim_end();
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
            StepKind::Cpu => match self.process() {
                "shared" => f.write_str("CPUs shared by client and server"),
                "others" => f.write_str("CPU of other programs"),
                _ => write!(f, "CPU of the {who}"),
            },
            kind => write!(f, "{} ({who})", kind.name().replace('-', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_and_identifies_steps() {
        let step = |kind, who| PathStep::new(kind, who, "");
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
}
