//! What a server did, request by request. All times are CLOCK_MONOTONIC in ns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scenario::Fault;

/// Everything that a server did from its start until it was stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// When the server began to listen.
    pub started_ns: u64,
    /// When it was stopped.
    pub stopped_ns: u64,
    /// How long its thread was ready to run and waited for a CPU (`/proc/thread-self/schedstat`).
    pub run_delay_ns: u64,
    /// Requests in the order in which they were whole, up to the cap.
    pub requests: Vec<RequestEntry>,
    /// Connections in the order in which they were accepted, up to the cap.
    pub connections: Vec<ConnectionEntry>,
    /// The times in which the server did nothing, in order.
    pub stalls: Vec<StallEntry>,
    /// Totals, whatever the cap.
    pub totals: Totals,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEntry {
    /// Number of its connection, in order of acceptance.
    pub connection: u32,
    /// What was injected.
    pub kind: Kind,
    /// When the kernel got the input that made it whole; where it did not stamp it, when epoll reported it.
    pub readable_ns: u64,
    /// When its last byte had been read.
    pub arrival_ns: u64,
    /// Just before the call that handed over the first byte of its answer; 0 when there was none.
    pub first_byte_ns: u64,
    /// Just before the call that handed over the last byte; 0 when there was none. Read before the call and
    /// not after, so that no client can have an answer before its departure, however the two are scheduled.
    pub departure_ns: u64,
    /// Bytes of the request.
    pub bytes_in: u32,
    /// Bytes of the answer that the kernel took.
    pub bytes_out: u32,
}

impl RequestEntry {
    /// departure − arrival, ns; none where nothing was answered.
    #[must_use]
    pub fn service_ns(&self) -> Option<u64> {
        (self.departure_ns != 0).then(|| self.departure_ns - self.arrival_ns)
    }
}

/// One connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionEntry {
    /// When it was accepted.
    pub accepted_ns: u64,
    /// When it was closed; 0 while open.
    pub closed_ns: u64,
    /// By whom; none while open.
    pub closed_by: Option<ClosedBy>,
    /// Requests that were whole on it.
    pub requests: u32,
}

/// A time in which the server did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallEntry {
    /// From when on nothing was read, answered or accepted.
    pub begin_ns: u64,
    /// When the server went on, however late it woke up.
    pub end_ns: u64,
}

/// Who ended a connection first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// The server, with FIN.
    Server,
    /// The server, with RST.
    ServerReset,
    /// The client, with FIN.
    Client,
    /// The client, with RST.
    ClientReset,
    /// The server was stopped.
    Stop,
}

/// What was injected into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nothing: the answer.
    Answer,
    /// See [`Fault::Status`].
    Status,
    /// See [`Fault::WrongBody`].
    WrongBody,
    /// See [`Fault::TruncatedBody`].
    TruncatedBody,
    /// See [`Fault::NoAnswer`].
    NoAnswer,
    /// See [`Fault::Drip`].
    Drip,
    /// See [`Fault::ResetBefore`].
    ResetBefore,
    /// See [`Fault::ResetWithin`].
    ResetWithin,
    /// See [`Fault::CloseBefore`].
    CloseBefore,
    /// See [`Fault::Continue`].
    Continue,
    /// See [`Fault::Garbage`].
    Garbage,
}

impl From<Option<Fault>> for Kind {
    fn from(fault: Option<Fault>) -> Kind {
        match fault {
            None => Kind::Answer,
            Some(Fault::Status { .. }) => Kind::Status,
            Some(Fault::WrongBody) => Kind::WrongBody,
            Some(Fault::TruncatedBody) => Kind::TruncatedBody,
            Some(Fault::NoAnswer) => Kind::NoAnswer,
            Some(Fault::Drip { .. }) => Kind::Drip,
            Some(Fault::ResetBefore) => Kind::ResetBefore,
            Some(Fault::ResetWithin) => Kind::ResetWithin,
            Some(Fault::CloseBefore) => Kind::CloseBefore,
            Some(Fault::Continue { .. }) => Kind::Continue,
            Some(Fault::Garbage) => Kind::Garbage,
        }
    }
}

/// Totals of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that were whole.
    pub requests: u64,
    /// Of them, how many of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections ended, by whom.
    pub closed: BTreeMap<ClosedBy, u64>,
    /// Bytes read, those of unfinished requests included.
    pub bytes_in: u64,
    /// Bytes that the kernel took.
    pub bytes_out: u64,
    /// Connections that were closed because what came was no HTTP/1.1 request, or its head was too long.
    pub bad_requests: u64,
}

impl Log {
    /// Requests of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.totals.kinds.get(&kind).copied().unwrap_or(0)
    }

    /// Connections that ended this way.
    #[must_use]
    pub fn closed(&self, by: ClosedBy) -> u64 {
        self.totals.closed.get(&by).copied().unwrap_or(0)
    }
}
