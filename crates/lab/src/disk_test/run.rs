//! A traced run of the server.

use std::collections::BTreeMap;

use floodmark_check::FoundItems;
use floodmark_disk::Trace;

use super::client::ConnectionRequests;

/// A traced run of the server.
///
/// A trace contains responses but no requests. A client sends one request at a time on a
/// connection, so the nth response on a connection belongs to the nth request. The client's port
/// identifies the connection.
#[derive(Debug, Default)]
pub(super) struct TracedRun {
    pub trace: Trace,
    /// Port on which the server listened.
    pub port: u16,
    /// Requests sent on each connection, by the client's port.
    pub sent: BTreeMap<u16, ConnectionRequests>,
    /// Items of a set, read back after the clients stopped. `None` for other checks, and with an
    /// injected fault.
    pub found: Option<Result<FoundItems, String>>,
}

impl TracedRun {
    /// Returns the requests that a client sent to a socket of the server. Returns `None` for
    /// sockets without a client.
    pub(super) fn requests(&self, socket: u64) -> Option<&ConnectionRequests> {
        let ports = self.trace.ports.get(&socket)?;
        let ports = (ports.local == self.port).then_some(ports)?;
        self.sent.get(&ports.peer)
    }

    /// Returns the number of requests that clients sent.
    pub(super) fn count(&self) -> u64 {
        let counts = self.sent.values().map(|requests| requests.numbers.len());
        counts.sum::<usize>() as u64
    }

    /// Returns the number of responses that clients received.
    pub(super) fn received(&self) -> u64 {
        let counts = self.sent.values().map(|requests| requests.received);
        counts.sum::<usize>() as u64
    }
}

#[cfg(test)]
impl TracedRun {
    /// Returns a run with connections from ports 5000 and 5001 to port 80, and with other sockets
    /// of the server. The client received one response on each connection.
    pub(super) fn of_sends(sent: &[(u64, Vec<u8>)]) -> Self {
        use std::sync::Arc;

        use floodmark_disk::{Operation, TcpPorts, TracedCall};

        let calls = sent.iter().map(|(socket, bytes)| TracedCall {
            began: 1,
            ended: 2,
            operation: Operation::Send {
                socket: *socket,
                bytes: Arc::from(&bytes[..]),
            },
        });
        let sockets = [
            (1, (80, 5001)),
            (2, (80, 5000)),
            (3, (81, 5000)),
            (4, (80, 6000)),
        ];
        let sockets = sockets.map(|(socket, (local, peer))| (socket, TcpPorts { local, peer }));
        let requests = |numbers| ConnectionRequests {
            numbers,
            received: 1,
        };
        let trace = Trace {
            calls: calls.collect(),
            ports: BTreeMap::from(sockets),
            ..Trace::default()
        };
        TracedRun {
            trace,
            port: 80,
            sent: BTreeMap::from([
                (5000, requests(vec![1, 3, 5])),
                (5001, requests(vec![2, 4])),
            ]),
            found: None,
        }
    }
}
