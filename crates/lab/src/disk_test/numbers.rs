//! Checks of numbered responses: whether a restarted server has kept the requests that it
//! acknowledged.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use floodmark_disk::RecoveryProbe;
use floodmark_wire::{RequestError, RequestSpec, request_bytes};
use serde_json::Value;

use super::client::{DiskClient, SentRequests, responses};

/// Content of a response, and the part of it that must survive a power loss.
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
    /// Returns the path of the check's workload.
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

/// Sends one request to the restarted server.
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

#[cfg(test)]
mod tests {
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
