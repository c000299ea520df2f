//! What a server is asked to be, and the bounds it keeps.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use crate::workload::Workload;

/// What a server is asked to be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it answers.
    pub workload: Workload,
    /// Where it listens; port 0 lets the kernel choose one.
    pub listen: SocketAddr,
    /// Whether other processes of the same user may listen there too, each with connections of its own (`SO_REUSEPORT`). Not for a
    /// workload whose answers depend on one another.
    pub share_port: bool,
    /// Threads that answer; `None`: half the CPUs, at least 1 (why: `docs/decisions/0002-native-servers.md`).
    pub threads: Option<NonZeroUsize>,
    /// File that keeps the dispatcher's numbers over a crash; `None`: they begin at 1 with every start.
    pub state: Option<PathBuf>,
    /// The bounds it keeps.
    pub limits: Limits,
}

/// Bounds of a server. What goes beyond one is refused or closed, never queued without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest request head, bytes; beyond it 431 and close. Default 16 KiB.
    pub head_bytes: usize,
    /// Most header lines of a request; beyond it 431 and close. Default 100.
    pub headers: usize,
    /// Longest request body, bytes; beyond it 413 and close. Default 64 KiB.
    pub body_bytes: u64,
    /// Most connections open at once; beyond it 503 with `Retry-After`, and close. Default: as many as the limit of open
    /// files allows after it was raised as far as it goes, less a reserve of 320 for the server itself.
    pub connections: Option<NonZeroUsize>,
    /// A connection on which no byte has moved for so long is closed. Default 60 s. Kept to within 1.2 s.
    pub idle: Duration,
    /// From the first byte of a request to its last; a slower one is cut off. Default 10 s. Kept to within 1.2 s.
    pub request: Duration,
    /// How long answers in flight are awaited when the server stops. Default 5 s.
    pub grace: Duration,
    /// Numbers that the durable dispatcher reserves ahead in one write: the largest gap after a crash is this and a half.
    /// Default 1,048,576: at 200,000 numbers a second the disk has 2.6 s for each reservation before anyone waits for it.
    pub reserve: NonZeroU64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes: 16 * 1024,
            headers: 100,
            body_bytes: 64 * 1024,
            connections: None,
            idle: Duration::from_secs(60),
            request: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            reserve: NonZeroU64::new(1 << 20).expect("a positive constant"),
        }
    }
}
