//! The checks of a disk test: requests to the traced server, and the data that must survive.
//!
//! A check of the numbers in responses determines whether a restarted server has lost requests that
//! it had acknowledged. The set check determines whether the server has each acknowledged item
//! exactly once, and no item that was refused or never sent.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use floodmark_check::{FoundItems, check_api};
use floodmark_disk::RecoveryProbe;
use floodmark_host::ProcessPlacement;
use floodmark_plan::CheckFile;
use floodmark_record::api_check::{ApiCheck, OperationRule, Readback};
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::plan::Target;
use floodmark_wire::{RequestError, RequestSpec, request_bytes};
use serde_json::Value;

use super::DiskTestError;
use super::client::{
    ConnectionRequests, DiskClient, LIMITS, SentRequests, TracedRun, ends_at_close, responses,
};
use crate::readback::SetReader;

/// Requests that clients send to a server, and data that the server must keep.
#[derive(Debug)]
pub enum DiskCheck {
    /// Each response contains a number.
    Numbers {
        /// How to read the responses.
        check: NumberCheck,
        /// Request path.
        path: String,
    },
    /// Each request inserts an item into a set.
    Set {
        /// The check file, of kind `set`.
        file: Box<CheckFile>,
        /// How to read back the items.
        readback: Readback,
    },
}

impl DiskCheck {
    /// Returns the check that a file describes, or `None` if the file's kind is not `set`.
    #[must_use]
    pub fn of_file(file: CheckFile) -> Option<Self> {
        let readback = file.check.readback.clone()?;
        let file = Box::new(file);
        Some(DiskCheck::Set { file, readback })
    }

    /// Returns the name of the check or of the check file.
    pub(super) fn name(&self) -> String {
        match self {
            DiskCheck::Numbers { check, .. } => check.to_string(),
            DiskCheck::Set { file, .. } => file.mix.file.clone(),
        }
    }

    /// Returns a function that creates the requests to a server. In a set check, each request
    /// inserts an item with the request's number.
    pub(super) fn requests(&self, server: SocketAddr) -> Result<TestRequests, DiskTestError> {
        Ok(match self {
            DiskCheck::Numbers { check, path } => {
                let bytes = check.request(path, server)?;
                Box::new(move |_| bytes.clone())
            }
            DiskCheck::Set { file, .. } => {
                let target = Target::from(server);
                let write = file.write_request(&target);
                let write = write.map_err(DiskTestError::CheckFile)?;
                file.check_readback(&target)
                    .map_err(DiskTestError::CheckFile)?;
                Box::new(move |number| write.bytes(number))
            }
        })
    }

    /// Returns the error for a server that acknowledged nothing.
    pub(super) fn nothing_acknowledged(&self, run: &TracedRun) -> DiskTestError {
        let mut sent = run.trace.sent(|_| true);
        sent.retain(|socket, _| run.requests(*socket).is_some());
        let (what, fix) = match self {
            DiskCheck::Numbers { path, .. } => (
                format!("no response to {path} contained a number"),
                "correct --check or --path".to_owned(),
            ),
            DiskCheck::Set { file, .. } => {
                let write = &file.mix.requests[0];
                let (method, path) = (&write.request.method, &write.path);
                (
                    format!("the server acknowledged no {method} {path} request"),
                    format!("correct `write` in {}", file.mix.file),
                )
            }
        };
        let status = sent.values().flat_map(|bytes| responses(bytes)).next();
        DiskTestError::NothingAcknowledged(match status {
            Some((status, _)) => {
                format!("{what} (the first response has status {status}); {fix}")
            }
            None if sent.values().any(|bytes| ends_at_close(bytes)) => format!(
                "{what}: the response has no Content-Length, so floodmark cannot detect its end; \
                 make the server send Content-Length"
            ),
            None => format!("{what} (there is no complete HTTP/1.1 response); {fix}"),
        })
    }
}

/// A function that returns the bytes of the request with a given number.
pub(super) type TestRequests = Box<dyn Fn(u64) -> Vec<u8> + Sync>;

/// Check of the numbers in responses. It defines the content of a response, and the part of this
/// content that must survive a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum NumberCheck {
    /// Each response to a GET request contains a number. The server never repeats a number.
    Sequence,
    /// Each response to a POST request contains the number of scores so far and their total. The
    /// server loses no score.
    Scoring,
}

impl NumberCheck {
    /// Returns the path that the check requests by default.
    #[must_use]
    pub fn default_path(self) -> &'static str {
        match self {
            NumberCheck::Sequence => "/dispatcher",
            NumberCheck::Scoring => "/scoring",
        }
    }

    /// Returns the bytes of the check's request.
    pub(super) fn request(self, path: &str, server: SocketAddr) -> Result<Vec<u8>, RequestError> {
        let json = [("Content-Type".to_owned(), "application/json".to_owned())];
        let authority = server.to_string();
        let (method, headers, body) = match self {
            NumberCheck::Sequence => ("GET", &[][..], &b""[..]),
            NumberCheck::Scoring => ("POST", &json[..], &br#"{"score":1}"#[..]),
        };
        request_bytes(&RequestSpec {
            method,
            path,
            authority: &authority,
            headers,
            body,
            close: false,
        })
    }

    /// Returns the state that a response acknowledges, or `None` if the response acknowledges
    /// nothing.
    pub(super) fn state(self, status: u16, body: &[u8]) -> Option<NumberedState> {
        if !(200..300).contains(&status) {
            return None;
        }
        match self {
            NumberCheck::Sequence => {
                let number = str::from_utf8(body).ok()?.trim().parse().ok()?;
                let total = None;
                Some(NumberedState { number, total })
            }
            NumberCheck::Scoring => {
                let body: Value = serde_json::from_slice(body).ok()?;
                Some(NumberedState {
                    number: body.get("numberOfTrials")?.as_u64()?,
                    total: Some(body.get("totalScore")?.as_f64()?),
                })
            }
        }
    }

    /// Counts the responses that acknowledge a request, and finds the highest number in them.
    fn acknowledged(self, sent: &BTreeMap<u64, Vec<u8>>) -> Acknowledged {
        let responses = sent.values().flat_map(|bytes| responses(bytes));
        let states = responses.filter_map(|(status, body)| self.state(status, &body));
        states.fold(Acknowledged::default(), |all, state| Acknowledged {
            count: all.count + 1,
            highest: all.highest.max(state.number),
        })
    }
}

/// State of the server, as reported in a response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NumberedState {
    pub number: u64,
    pub total: Option<f64>,
}

/// The requests that a server had acknowledged before the crash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Acknowledged {
    pub count: u64,
    /// The highest number, or 0.
    pub highest: u64,
}

/// Sends one request to the restarted server, and judges the number in the response.
pub(super) struct NextNumber<'a> {
    pub check: NumberCheck,
    pub path: &'a str,
    /// Number of requests before the crash.
    pub requests: u64,
}

impl NextNumber<'_> {
    fn judge(&self, state: NumberedState, acknowledged: &Acknowledged) -> Option<String> {
        let NumberedState { number, total } = state;
        let is_none = acknowledged.count == 0;
        let acknowledged = acknowledged.highest;
        match self.check {
            // The first number may be 0.
            NumberCheck::Sequence if is_none => None,
            NumberCheck::Sequence => (number <= acknowledged).then(|| {
                format!("number {number} repeated; numbers up to {acknowledged} were already acknowledged")
            }),
            NumberCheck::Scoring if number <= acknowledged => Some(format!(
                "lost {} of {acknowledged} acknowledged scores",
                acknowledged + 1 - number
            )),
            NumberCheck::Scoring if number > self.requests + 1 => Some(format!(
                "{} scores after {} requests",
                number - 1,
                self.requests
            )),
            NumberCheck::Scoring => total
                .filter(|total| *total != number as f64)
                .map(|total| format!("the total of {number} scores of 1 is {total}")),
        }
    }
}

impl RecoveryProbe for NextNumber<'_> {
    type Acknowledged = Acknowledged;

    fn acknowledged(&self, sent: &BTreeMap<u64, Vec<u8>>) -> Acknowledged {
        self.check.acknowledged(sent)
    }

    fn check(&self, server: SocketAddr, acknowledged: &Acknowledged) -> io::Result<Option<String>> {
        let request = self.check.request(self.path, server);
        let request = request.map_err(io::Error::other)?;
        let sent = SentRequests::default();
        let response = DiskClient::new(server, &sent).send(1, &request)?;
        Ok(match self.check.state(response.status, &response.body) {
            Some(state) => self.judge(state, acknowledged),
            None => Some(format!(
                "the server started, but responded with status {} and no number",
                response.status
            )),
        })
    }
}

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

    /// Describes how the traced server violates the check. Returns `None` if there is no violation,
    /// or if nothing was read back or acknowledged.
    pub(super) fn violation(&self) -> Option<String> {
        let sent = self.run.trace.sent(|_| true);
        if acknowledged_inserts(&self.acknowledged(&sent)) == 0 {
            return None;
        }
        // Ignore responses that arrived after the client's timeout, because the items may have been
        // read back before the server executed such an insert.
        let inserts = self.inserts(&sent, |requests| requests.received);
        match self.run.found.as_ref()? {
            Ok(found) => self.judge(&inserts, found.clone()),
            Err(why) => Some(why.clone()),
        }
    }

    /// Returns the inserts with their outcomes. `known` returns how many responses on a connection
    /// are evaluated. Later requests on the connection have an unknown outcome.
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
        // `held` is `None` if nothing was evaluated, for example if an injected error stopped the
        // server before the first request.
        (result.held == Some(false)).then_some(result.detail)
    }
}

/// Reads back all items of the set on a server. `sent` is an upper bound on the number of items
/// sent to the server.
pub(super) fn read_items(
    server: SocketAddr,
    readback: &Readback,
    sent: u64,
    stop: Option<&AtomicBool>,
) -> Result<FoundItems, String> {
    let from = ProcessPlacement::default();
    SetReader::new(&from, server, readback.clone(), LIMITS.timeout, stop).items(sent)
}

/// Returns an error message if items exist, but the check file's JSON pointer finds no number in
/// them.
pub(super) fn unreadable_items(readback: &Readback, run: &TracedRun) -> Option<String> {
    let found = run.found.as_ref()?.as_ref().ok()?;
    let is_unreadable = found.numbers.is_empty() && found.unreadable > 0;
    is_unreadable.then(|| {
        format!(
            "readback.value \"{}\": no item in the response to GET {} has an integer at this JSON \
             pointer; correct the pointer",
            readback.value, readback.path
        )
    })
}

/// Returns the number of acknowledged inserts.
pub(super) fn acknowledged_inserts(inserts: &[KeptOperation]) -> u64 {
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
        let found = read_items(server, self.readback, inserts.len() as u64, None);
        let found = found.map_err(io::Error::other)?;
        Ok(self.judge(inserts, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_why_nothing_is_acknowledged() {
        let check = DiskCheck::Numbers {
            check: NumberCheck::Sequence,
            path: "/next".to_owned(),
        };
        let foreign = b"HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n";
        let explain = |response: &[u8]| {
            let run = TracedRun::of_sends(&[(2, response.to_vec()), (3, foreign.to_vec())]);
            check.nothing_acknowledged(&run).to_string()
        };
        for (response, expected) in [
            (
                &b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..],
                " (the first response has status 404); correct --check or --path",
            ),
            (
                b"HTTP/1.0 200 OK\r\n\r\n7",
                ": the response has no Content-Length, so floodmark cannot detect its end; make \
                 the server send Content-Length",
            ),
            (
                b"OK",
                " (there is no complete HTTP/1.1 response); correct --check or --path",
            ),
        ] {
            let expected = format!("no response to /next contained a number{expected}");
            assert_eq!(explain(response), expected);
        }
    }
}

#[cfg(test)]
mod numbers_tests {
    use super::*;

    fn judge(check: NumberCheck, body: &str, acknowledged: u64) -> Option<String> {
        let probe = NextNumber {
            check,
            path: "/",
            requests: 20,
        };
        let state = check.state(200, body.as_bytes()).unwrap();
        let acknowledged = Acknowledged {
            count: acknowledged,
            highest: acknowledged,
        };
        probe.judge(state, &acknowledged)
    }

    #[test]
    fn a_number_may_be_skipped_but_not_repeated() {
        assert_eq!(judge(NumberCheck::Sequence, "11\n", 10), None);
        assert_eq!(judge(NumberCheck::Sequence, "500", 10), None);
        assert_eq!(judge(NumberCheck::Sequence, "0", 0), None);
        let reason = judge(NumberCheck::Sequence, "10", 10).unwrap();
        assert!(reason.starts_with("number 10 repeated"), "{reason}");
    }

    #[test]
    fn a_score_is_neither_lost_nor_invented() {
        let body = |number: u64, total: u64| {
            format!(r#"{{"averageScore":1,"totalScore":{total},"numberOfTrials":{number}}}"#)
        };
        let judge = |body: &str| judge(NumberCheck::Scoring, body, 10);
        assert_eq!(judge(&body(11, 11)), None);
        assert_eq!(judge(&body(21, 21)), None);
        let reason = judge(&body(9, 9)).unwrap();
        assert_eq!(reason, "lost 2 of 10 acknowledged scores");
        assert_eq!(judge(&body(22, 22)).unwrap(), "21 scores after 20 requests");
        assert_eq!(
            judge(&body(12, 11)).unwrap(),
            "the total of 12 scores of 1 is 11"
        );
    }

    #[test]
    fn an_error_response_acknowledges_nothing() {
        assert_eq!(NumberCheck::Sequence.state(503, b"7"), None);
        assert_eq!(NumberCheck::Sequence.state(200, b"seven"), None);
        assert_eq!(NumberCheck::Scoring.state(200, b"{}"), None);
        let sent = BTreeMap::from([
            (1, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n7".to_vec()),
            (2, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n9".to_vec()),
            (3, b"\x01".to_vec()),
        ]);
        let expected = Acknowledged {
            count: 2,
            highest: 9,
        };
        assert_eq!(NumberCheck::Sequence.acknowledged(&sent), expected);
    }
}

#[cfg(test)]
mod set_tests {
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
            (&[1][..], "1 of 2 acknowledged items lost (item 2)"),
            (&[2, 4, 5], "1 of 2 acknowledged items lost (item 1)"),
            (
                &[1, 2, 3],
                "1 item found although the server had refused the insert (item 3)",
            ),
            (&[1, 1, 2], "1 item found more than once (item 1)"),
            (
                &[1, 2, 6],
                "1 item that this run never sent was found (item 6)",
            ),
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
        let expected = "1 item that this run never sent was found (item 1)";
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
        let lost = "1 of 2 acknowledged items lost (item 2)";
        assert_eq!(violation(&[1, 3]).as_deref(), Some(lost));
    }
}
