//! The set check: the server has each acknowledged item exactly once, and no item that was refused
//! or never sent.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use floodmark_check::{FoundItems, check_api};
use floodmark_disk::RecoveryProbe;
use floodmark_host::ProcessPlacement;
use floodmark_record::api_check::{ApiCheck, OperationRule, Readback};
use floodmark_record::operation::{KeptOperation, OperationKind};

use super::client::{ConnectionRequests, LIMITS, responses};
use super::run::TracedRun;
use crate::readback::SetReader;

/// Reads back the items of a set from the restarted server.
pub(super) struct SetItems<'a> {
    check: &'a ApiCheck,
    readback: &'a Readback,
    insert: OperationRule,
    run: &'a TracedRun,
}

impl<'a> SetItems<'a> {
    /// Returns the probe for a traced run.
    pub(super) fn new(check: &'a ApiCheck, readback: &'a Readback, run: &'a TracedRun) -> Self {
        SetItems {
            check,
            readback,
            insert: OperationRule {
                is_write: true,
                value: check.write_value.clone(),
            },
            run,
        }
    }

    /// Returns the traced server's violations, if any. Returns `None` if nothing was read back or
    /// acknowledged.
    pub(super) fn violation(&self) -> Option<String> {
        let sent = self.run.trace.sent(|_| true);
        if acknowledged(&self.acknowledged(&sent)) == 0 {
            return None;
        }
        // A response after the client's timeout is ignored, because the items may have been read
        // back before the insert.
        let inserts = self.inserts(&sent, |requests| requests.received);
        match self.run.found.as_ref()? {
            Ok(found) => self.judge(&inserts, found.clone()),
            Err(why) => Some(why.clone()),
        }
    }

    /// Returns the inserts with their outcomes. `known` returns how many responses on a connection
    /// determine outcomes. Later requests on this connection have an unknown outcome.
    fn inserts(
        &self,
        sent: &BTreeMap<u64, Vec<u8>>,
        known: impl Fn(&ConnectionRequests) -> usize,
    ) -> Vec<KeptOperation> {
        let numbers = self.run.sent.values().flat_map(|of| &of.numbers);
        let mut outcomes: BTreeMap<u64, OperationKind> = numbers
            .map(|number| (*number, OperationKind::Unknown))
            .collect();
        for (socket, bytes) in sent {
            let Some(requests) = self.run.requests(*socket) else {
                continue;
            };
            let numbers = requests.numbers.iter().take(known(requests));
            for (number, (status, body)) in numbers.zip(responses(bytes)) {
                if let Some((kind, _)) = self.insert.classify(status, &body) {
                    outcomes.insert(*number, kind);
                }
            }
        }
        let inserts = outcomes.into_iter();
        let inserts = inserts.map(|(number, kind)| KeptOperation::new(kind, 1, number, 0, 0));
        inserts.collect()
    }

    /// Returns the violations that the found items prove, if any.
    fn judge(&self, inserts: &[KeptOperation], mut found: FoundItems) -> Option<String> {
        let result = check_api(self.check, &mut inserts.to_vec(), &mut found, 0);
        // If an injected error stopped the server before the first request, nothing is evaluated.
        (result.held == Some(false)).then_some(result.detail)
    }
}

/// Reads back all items of the set on a server. `sent` is the maximum number of items sent to the
/// server.
pub(super) fn items(
    server: SocketAddr,
    readback: &Readback,
    sent: u64,
    stop: Option<&AtomicBool>,
) -> Result<FoundItems, String> {
    let from = ProcessPlacement::default();
    SetReader::new(&from, server, readback.clone(), LIMITS.timeout, stop).items(sent)
}

/// Returns an error message if items exist, but the check file's pointer finds no number in them.
pub(super) fn unreadable(readback: &Readback, run: &TracedRun) -> Option<String> {
    let found = run.found.as_ref()?.as_ref().ok()?;
    let is_unreadable = found.numbers.is_empty() && found.unreadable > 0;
    is_unreadable.then(|| {
        format!(
            "readback.value \"{}\": no item in the response to GET {} has an integer there; \
             correct the pointer",
            readback.value, readback.path
        )
    })
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
        self.inserts(sent, |requests| requests.numbers.len())
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
    use std::net::TcpListener;

    use super::*;
    use floodmark_record::api_check::ApiCheckKind;
    use floodmark_record::pointer::JsonPointer;

    const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n9";
    const REFUSED: &[u8] = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n";
    const FAILED: &[u8] = b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n";

    fn found(numbers: &[u64]) -> FoundItems {
        FoundItems {
            numbers: numbers.to_vec(),
            unreadable: 0,
        }
    }

    fn judge(sent: &[(u64, Vec<u8>)], numbers: &[u64]) -> Option<String> {
        let run = TracedRun::of_sends(sent);
        with_probe(&run, |probe| {
            let inserts = probe.acknowledged(&run.trace.sent(|_| true));
            probe.judge(&inserts, found(numbers))
        })
    }

    fn with_probe<T>(run: &TracedRun, then: impl FnOnce(&SetItems<'_>) -> T) -> T {
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
            value_places: Vec::new(),
        };
        then(&SetItems::new(&check, &readback, run))
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
        let run = TracedRun::default();
        let judge = |numbers: &[u64]| with_probe(&run, |probe| probe.judge(&[], found(numbers)));
        assert_eq!(judge(&[]), None);
        let expected = "1 item found that this run never sent (1)";
        assert_eq!(judge(&[1]).as_deref(), Some(expected));
    }

    #[test]
    fn a_silent_server_does_not_delay_the_test() {
        // The kernel accepts the connection, but no response is sent.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let error = with_probe(&TracedRun::default(), |probe| {
            probe.check(address, &Vec::new()).unwrap_err()
        });
        assert_eq!(error.to_string(), "GET /: no response within 5 s");
    }

    #[test]
    fn the_traced_server_may_lack_what_it_acknowledged_after_the_timeout() {
        // The clients received one response on each connection, for items 1 and 2.
        let mut run =
            TracedRun::of_sends(&[(1, CREATED.to_vec()), (2, [CREATED, CREATED].concat())]);
        let mut violation = |numbers: &[u64]| {
            run.found = Some(Ok(found(numbers)));
            with_probe(&run, |probe| probe.violation())
        };
        assert_eq!(violation(&[1, 2]), None);
        assert_eq!(violation(&[1, 2, 3]), None);
        let lost = "1 of 2 acknowledged items lost (2)";
        assert_eq!(violation(&[1, 3]).as_deref(), Some(lost));
    }
}
