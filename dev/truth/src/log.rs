//! The server's request log. All times are CLOCK_MONOTONIC in ns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scenario::{ResponseFault, Setting};

/// The log of a server from start to stop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// Time when listening began.
    pub started_ns: u64,
    /// Time when the server stopped.
    pub stopped_ns: u64,
    /// Time for which the server's thread waited for a CPU (`/proc/thread-self/schedstat`).
    pub run_delay_ns: u64,
    /// Requests in order of arrival.
    pub requests: Vec<RequestEntry>,
    /// Connections in order of acceptance.
    pub connections: Vec<ConnectionEntry>,
    /// Stalls in order.
    pub stalls: Vec<StallEntry>,
    /// HTTP/2 settings that the clients have acknowledged.
    pub settings: Vec<SettingsEntry>,
    /// Totals of the server.
    pub totals: LogTotals,
}

/// One request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEntry {
    /// Fault that was injected into the response, if any.
    pub fault: Option<ResponseFault>,
    /// Index of the connection, in order of acceptance.
    pub connection: u64,
    /// Number after the last `/` of the request's path, if any.
    pub number: Option<u64>,
    /// HTTP/2: time when the HEADERS frame was read; 0 over HTTP/1.1.
    pub head_ns: u64,
    /// Time when the request's last byte arrived in the kernel. Without a kernel timestamp, the
    /// time when epoll reported the byte.
    pub readable_ns: u64,
    /// Time when the request's last byte was read.
    pub arrival_ns: u64,
    /// Time just before the call that sent the first byte of the response; 0 without a response.
    pub first_byte_ns: u64,
    /// Time just before the call that sent the last byte; 0 without a response. The clock is read
    /// before the call, so that no client receives a response before the logged departure.
    pub departure_ns: u64,
    /// Bytes of the request.
    pub bytes_in: u32,
    /// Response bytes that the kernel accepted; 0 over HTTP/2, where only the total is counted.
    pub bytes_out: u32,
}

impl RequestEntry {
    /// Returns departure − arrival in ns, or `None` without a response.
    #[must_use]
    pub fn service_ns(&self) -> Option<u64> {
        (self.departure_ns != 0).then(|| self.departure_ns - self.arrival_ns)
    }
}

/// One connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionEntry {
    /// Time of acceptance.
    pub accepted_ns: u64,
    /// Number of complete requests.
    pub requests: u32,
}

/// A stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallEntry {
    /// Start of the stall.
    pub begin_ns: u64,
    /// Time when the server resumed. The server may resume later than planned.
    pub end_ns: u64,
}

/// A setting of an HTTP/2 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsEntry {
    /// Index of the connection, in order of acceptance.
    pub connection: u64,
    /// The setting and its value.
    pub setting: Setting,
    /// Time just before the setting was sent.
    pub sent_ns: u64,
    /// Time when the client's acknowledgement was read. The client applied the setting before it
    /// sent any later frames.
    pub acknowledged_ns: u64,
}

/// The side that closed a connection first, with FIN or RST.
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
    /// The server, because it was stopped.
    Stop,
}

/// Totals of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTotals {
    /// Number of complete requests.
    pub requests: u64,
    /// Number of accepted connections.
    pub accepted: u64,
    /// Number of closed connections, by the side that closed first.
    pub closed: BTreeMap<ClosedBy, u64>,
    /// Number of bytes read, including those of incomplete requests.
    pub bytes_in: u64,
    /// Number of bytes that the kernel accepted for sending.
    pub bytes_out: u64,
    /// Number of connections closed because of an invalid request or an overlong head.
    pub bad_requests: u64,
    /// HTTP/2: number of streams that the server left unprocessed after a GOAWAY.
    pub ignored_streams: u64,
}

impl Log {
    /// Returns the number of responses with the given fault. `None` counts normal responses.
    #[must_use]
    pub fn count(&self, fault: Option<ResponseFault>) -> u64 {
        let requests = self.requests.iter();
        requests.filter(|request| request.fault == fault).count() as u64
    }

    /// Returns the number of connections closed in the given way.
    #[must_use]
    pub fn closed(&self, by: ClosedBy) -> u64 {
        self.totals.closed.get(&by).copied().unwrap_or(0)
    }
}
