//! The set check: the server has each acknowledged item exactly once, and no item that was refused
//! or never sent.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use floodmark_check::{FoundItems, check_api};
use floodmark_disk::{RecoveryProbe, TcpPorts, Trace};
use floodmark_host::ProcessPlacement;
use floodmark_record::api_check::{ApiCheck, OperationRule, Readback};
use floodmark_record::operation::{KeptOperation, OperationKind};

use super::client::{LIMITS, responses};
use crate::readback::SetReader;

/// Reads back the items of a set from the restarted server.
///
/// A trace contains responses but no requests. A client sends one request at a time on a
/// connection, so the nth response belongs to the nth request. The client port identifies the
/// connection.
pub(super) struct SetItems<'a> {
    check: &'a ApiCheck,
    readback: &'a Readback,
    insert: OperationRule,
    /// Ports of the server's sockets.
    ports: &'a BTreeMap<u64, TcpPorts>,
    /// Port on which the traced server listened.
    port: u16,
    /// Numbers of the items sent on each connection, by client port.
    sent: &'a BTreeMap<u16, Vec<u64>>,
}

impl<'a> SetItems<'a> {
    /// Returns the probe for a trace. `port` is the port on which the traced server listened.
    /// `sent` contains the numbers of the items sent to the server, by client port.
    pub(super) fn new(
        check: &'a ApiCheck,
        readback: &'a Readback,
        trace: &'a Trace,
        port: u16,
        sent: &'a BTreeMap<u16, Vec<u64>>,
    ) -> Self {
        SetItems {
            check,
            readback,
            insert: OperationRule {
                is_write: true,
                value: check.write_value.clone(),
            },
            ports: &trace.ports,
            port,
            sent,
        }
    }

    /// Returns the numbers of the items sent to the server on a socket.
    fn numbers(&self, socket: u64) -> &[u64] {
        let ports = self.ports.get(&socket);
        let ports = ports.filter(|ports| ports.local == self.port);
        let numbers = ports.and_then(|ports| self.sent.get(&ports.peer));
        numbers.map_or(&[], Vec::as_slice)
    }

    /// Returns the traced server's violations, if any. `found` contains the items that were read
    /// back after the last response. Returns `None` if nothing was read back or acknowledged.
    pub(super) fn violation(
        &self,
        trace: &Trace,
        found: Option<&Result<FoundItems, String>>,
    ) -> Option<String> {
        let inserts = self.acknowledged(&trace.sent(|_| true));
        match found? {
            _ if acknowledged(&inserts) == 0 => None,
            Ok(found) => self.judge(&inserts, found.clone()),
            Err(why) => Some(why.clone()),
        }
    }

    /// Returns the violations that the found items prove, if any.
    fn judge(&self, inserts: &[KeptOperation], mut found: FoundItems) -> Option<String> {
        if inserts.is_empty() && found.count() == 0 {
            // An injected error stopped the server before the first request.
            return None;
        }
        let result = check_api(self.check, &mut inserts.to_vec(), &mut found, 0);
        (!result.held).then_some(result.detail)
    }
}

/// Reads back all items of the set on a server, to which at most `sent` items were sent.
pub(super) fn items(
    server: SocketAddr,
    readback: &Readback,
    sent: u64,
    stop: Option<&AtomicBool>,
) -> Result<FoundItems, String> {
    let from = ProcessPlacement::default();
    SetReader::new(&from, server, readback.clone(), LIMITS.timeout, stop).items(sent)
}

/// Returns the number of acknowledged inserts.
pub(super) fn acknowledged(inserts: &[KeptOperation]) -> u64 {
    let is_acknowledged = |insert: &&KeptOperation| insert.kind() == OperationKind::Acknowledged;
    inserts.iter().filter(is_acknowledged).count() as u64
}

impl RecoveryProbe for SetItems<'_> {
    /// All inserts, with their outcomes before the crash.
    type Acknowledged = Vec<KeptOperation>;

    fn acknowledged(&self, sent: &BTreeMap<u64, Vec<u8>>) -> Vec<KeptOperation> {
        let numbers = self.sent.values().flatten();
        let mut outcomes: BTreeMap<u64, OperationKind> = numbers
            .map(|number| (*number, OperationKind::Unknown))
            .collect();
        for (socket, bytes) in sent {
            let numbers = self.numbers(*socket);
            for (number, (status, body)) in numbers.iter().zip(responses(bytes)) {
                if let Some((kind, _)) = self.insert.classify(status, &body) {
                    outcomes.insert(*number, kind);
                }
            }
        }
        let inserts = outcomes.into_iter();
        let inserts = inserts.map(|(number, kind)| KeptOperation::new(kind, 1, number, 0, 0));
        inserts.collect()
    }

    fn check(
        &self,
        server: SocketAddr,
        inserts: &Vec<KeptOperation>,
    ) -> io::Result<Option<String>> {
        let found = items(server, self.readback, inserts.len() as u64, None);
        let found = found.map_err(io::Error::other)?;
        Ok(self.judge(inserts, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::api_check::ApiCheckKind;
    use floodmark_record::pointer::JsonPointer;

    const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n9";
    const REFUSED: &[u8] = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n";
    const FAILED: &[u8] = b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n";

    fn ports(local: u16, peer: u16) -> TcpPorts {
        TcpPorts { local, peer }
    }

    /// Judges two connections from ports 5000 and 5001 to port 80, and the server's other sockets.
    fn judge(sent: &[(u64, Vec<u8>)], found: &[u64]) -> Option<String> {
        let numbers = BTreeMap::from([(5000, vec![1, 3, 5]), (5001, vec![2, 4])]);
        judge_numbers(&numbers, sent, found)
    }

    fn judge_numbers(
        numbers: &BTreeMap<u16, Vec<u64>>,
        sent: &[(u64, Vec<u8>)],
        found: &[u64],
    ) -> Option<String> {
        let readback = Readback {
            path: "/".to_owned(),
            headers: Vec::new(),
            items: JsonPointer::default(),
            value: JsonPointer::default(),
        };
        let check = ApiCheck {
            kind: ApiCheckKind::Set,
            keys: 1,
            write_value: None,
            read_value: None,
            readback: None,
        };
        let sockets = [
            (1, (80, 5001)),
            (2, (80, 5000)),
            (3, (81, 5000)),
            (4, (80, 6000)),
        ];
        let sockets = sockets.map(|(socket, (local, peer))| (socket, ports(local, peer)));
        let trace = Trace {
            ports: BTreeMap::from(sockets),
            ..Trace::default()
        };
        let probe = SetItems::new(&check, &readback, &trace, 80, numbers);
        let inserts = probe.acknowledged(&sent.iter().cloned().collect());
        let found = FoundItems {
            numbers: found.to_vec(),
            unreadable: 0,
        };
        probe.judge(&inserts, found)
    }

    #[test]
    fn responses_belong_to_the_requests_of_their_connection() {
        let sent = [
            (1, CREATED.to_vec()),
            (2, [CREATED, REFUSED, FAILED].concat()),
        ];
        for found in [&[1, 2][..], &[1, 2, 4, 5]] {
            assert_eq!(judge(&sent, found), None, "{found:?}");
        }
        for (found, expected) in [
            (&[1][..], "1 of 2 acknowledged items lost (2)"),
            (&[2, 4, 5], "1 of 2 acknowledged items lost (1)"),
            (
                &[1, 2, 3],
                "1 item found although the server had refused the insert (3)",
            ),
            (&[1, 1, 2], "1 item found more than once (1)"),
            (&[1, 2, 6], "1 item found that this run never sent (6)"),
        ] {
            assert_eq!(judge(&sent, found).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_sockets_and_incomplete_responses_acknowledge_nothing() {
        let sent = [
            (2, CREATED[..30].to_vec()),
            (3, CREATED.to_vec()),
            (4, CREATED.to_vec()),
        ];
        assert_eq!(judge(&sent, &[]), None);
        assert_eq!(judge(&sent, &[1, 2, 3, 4, 5]), None);
    }

    #[test]
    fn a_server_without_requests_has_no_items() {
        let none = BTreeMap::new();
        assert_eq!(judge_numbers(&none, &[], &[]), None);
        let foreign = judge_numbers(&none, &[], &[1]);
        let expected = "1 item found that this run never sent (1)";
        assert_eq!(foreign.as_deref(), Some(expected));
    }
}
