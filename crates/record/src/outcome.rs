//! Outcomes of requests.
//!
//! Each request has exactly one outcome, and the counts in every record add up.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::grpc::{GrpcStatus, ResponseStatus};

/// Outcome of a request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A response that matches `--expect`; without `--expect`, a response with status 2xx or 3xx,
    /// and for a gRPC call also gRPC status OK.
    Ok,
    /// The server declined the request with status 429 or 503, or with gRPC status
    /// RESOURCE_EXHAUSTED or UNAVAILABLE.
    Rejected,
    /// Any other complete response.
    Wrong,
    /// The response is not valid HTTP or gRPC, or the connection closed before the response was
    /// complete.
    Malformed,
    /// The connection was reset or closed before the first byte of the response.
    Reset,
    /// No complete response arrived within the timeout. The timeout starts when the request is
    /// sent.
    TimedOut,
}

/// Number of requests by outcome.
///
/// Two equations always hold: `intended = sent + unsent + connect_failed` and
/// `sent = ok + rejected + wrong + malformed + reset + timed_out + failed + in_flight_at_end`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Requests that were due.
    pub intended: u64,
    /// Requests handed to the kernel; a retried request is counted once.
    pub sent: u64,
    /// Requests that were due but not sent because no connection was available.
    pub unsent: u64,
    /// Requests that failed because no connection could be opened.
    pub connect_failed: u64,
    /// See [`Outcome::Ok`].
    pub ok: u64,
    /// See [`Outcome::Rejected`].
    pub rejected: u64,
    /// See [`Outcome::Wrong`].
    pub wrong: u64,
    /// See [`Outcome::Malformed`].
    pub malformed: u64,
    /// See [`Outcome::Reset`].
    pub reset: u64,
    /// See [`Outcome::TimedOut`].
    pub timed_out: u64,
    /// Requests that an external client reported as failed without a more specific outcome.
    #[serde(default, skip_serializing_if = "crate::times::is_zero")]
    pub failed: u64,
    /// Requests in flight when the run ended without waiting for them.
    pub in_flight_at_end: u64,
    /// Requests sent again because the server had closed the kept connection between requests.
    pub reconnects: u64,
    /// Complete responses by status code.
    #[serde(deserialize_with = "statuses")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub statuses: BTreeMap<u16, u64>,
    /// Complete responses to gRPC calls by gRPC status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub grpc_statuses: BTreeMap<GrpcStatus, u64>,
}

impl Counts {
    /// Counts one outcome.
    pub fn add(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::Rejected => &mut self.rejected,
            Outcome::Wrong => &mut self.wrong,
            Outcome::Malformed => &mut self.malformed,
            Outcome::Reset => &mut self.reset,
            Outcome::TimedOut => &mut self.timed_out,
        } += 1;
    }

    /// Adds other counts.
    pub fn merge(&mut self, other: &Counts) {
        self.intended += other.intended;
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.connect_failed += other.connect_failed;
        self.ok += other.ok;
        self.rejected += other.rejected;
        self.wrong += other.wrong;
        self.malformed += other.malformed;
        self.reset += other.reset;
        self.timed_out += other.timed_out;
        self.failed += other.failed;
        self.in_flight_at_end += other.in_flight_at_end;
        self.reconnects += other.reconnects;
        for (status, n) in &other.statuses {
            *self.statuses.entry(*status).or_default() += n;
        }
        for (status, n) in &other.grpc_statuses {
            *self.grpc_statuses.entry(*status).or_default() += n;
        }
    }

    /// Completes the counts of a worker that died: requests without an outcome count as in flight,
    /// and due requests that were not sent count as unsent.
    pub fn complete(&mut self) {
        let without_outcome = self
            .sent
            .saturating_sub(self.ended() + self.in_flight_at_end);
        self.in_flight_at_end += without_outcome;
        let not_sent = self
            .intended
            .saturating_sub(self.sent + self.unsent + self.connect_failed);
        self.unsent += not_sent;
    }

    /// Returns the statuses of complete responses, and the number of responses with each. A gRPC
    /// status replaces HTTP status 200.
    pub fn by_status(&self) -> impl Iterator<Item = (ResponseStatus, u64)> + '_ {
        let calls: u64 = self.grpc_statuses.values().sum();
        let http = self.statuses.iter().map(move |(&http, &n)| {
            let n = if http == 200 {
                n.saturating_sub(calls)
            } else {
                n
            };
            (ResponseStatus::from(http), n)
        });
        let grpc = self.grpc_statuses.iter().map(|(&grpc, &n)| {
            let grpc = Some(grpc);
            (ResponseStatus { http: 200, grpc }, n)
        });
        http.chain(grpc).filter(|(_, n)| *n > 0)
    }

    /// Returns the number of sent requests that have an outcome.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ok + self.rejected + self.wrong + self.unanswered()
    }

    /// Returns the number of requests that ended without a usable response.
    fn unanswered(&self) -> u64 {
        self.malformed + self.reset + self.timed_out + self.failed
    }

    /// Returns the number of requests that the server may have executed although no usable response
    /// arrived.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unanswered() + self.in_flight_at_end
    }

    /// Checks the two outcome equations.
    ///
    /// # Errors
    /// Returns a description of the first equation that does not hold.
    pub fn balance(&self) -> Result<(), String> {
        let left = self.sent + self.unsent + self.connect_failed;
        if self.intended != left {
            return Err(format!(
                "intended {} ≠ sent {} + unsent {} + connect_failed {}",
                self.intended, self.sent, self.unsent, self.connect_failed
            ));
        }
        let right = self.ended() + self.in_flight_at_end;
        if self.sent != right {
            return Err(format!(
                "sent is {}, but its outcomes add up to {right}",
                self.sent
            ));
        }
        Ok(())
    }
}

/// Reads counts by status code.
/// Serde doesn't parse numeric keys within a tagged enum such as `Event`, so this function parses
/// them.
fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    BTreeMap::<String, u64>::deserialize(deserializer)?
        .into_iter()
        .map(|(status, n)| Ok((status.parse().map_err(D::Error::custom)?, n)))
        .collect()
}

/// Maximum number of statuses for which a response is kept.
pub const MAX_STATUSES: usize = 5;

/// Maximum number of bytes kept from a response body.
pub const MAX_EXCERPT: usize = 200;

/// The first response with a given status among the responses that were not ok.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotOkResponse {
    /// Status.
    #[serde(flatten)]
    pub status: ResponseStatus,
    /// The first 200 bytes of the body; for a gRPC status, of `grpc-message`. Control characters are escaped, and bytes that are not
    /// UTF-8 are replaced. If the body is longer, the text ends with `…`.
    pub body: String,
}

impl NotOkResponse {
    /// Creates a response from its status and body. `body` may be truncated, but not to fewer than
    /// [`MAX_EXCERPT`] + 1 bytes.
    #[must_use]
    pub fn new(status: impl Into<ResponseStatus>, body: &[u8]) -> Self {
        let excerpt = body.get(..MAX_EXCERPT);
        let text = String::from_utf8_lossy(excerpt.unwrap_or(body));
        // The cut may have split a character.
        let text = match excerpt {
            Some(_) => text.trim_end_matches(char::REPLACEMENT_CHARACTER),
            None => &text,
        };
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars() {
            if character.is_control() {
                escaped.extend(character.escape_default())
            } else {
                escaped.push(character)
            }
        }
        if body.len() > MAX_EXCERPT {
            escaped.push('…');
        }
        NotOkResponse {
            status: status.into(),
            body: escaped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balances_with_every_outcome() {
        let mut counts = Counts {
            intended: 9,
            sent: 7,
            unsent: 1,
            connect_failed: 1,
            ..Counts::default()
        };
        counts.in_flight_at_end = 1;
        for outcome in [
            Outcome::Ok,
            Outcome::Rejected,
            Outcome::Wrong,
            Outcome::Malformed,
            Outcome::Reset,
            Outcome::TimedOut,
        ] {
            assert!(counts.balance().is_err());
            counts.add(outcome);
        }
        assert_eq!(counts.balance(), Ok(()));
        let mut twice = counts.clone();
        twice.merge(&counts);
        assert_eq!(twice.balance(), Ok(()));
        assert_eq!(twice.unknown(), 8);
    }

    #[test]
    fn a_grpc_status_replaces_status_200() {
        let counts = Counts {
            statuses: [(200, 10), (502, 1)].into(),
            grpc_statuses: [(GrpcStatus::Ok, 7), (GrpcStatus::NotFound, 3)].into(),
            ..Counts::default()
        };
        let shown: Vec<String> = (counts.by_status())
            .map(|(status, n)| format!("{status} {n}"))
            .collect();
        assert_eq!(shown, ["502 1", "OK 7", "NOT_FOUND 3"]);
    }

    #[test]
    fn completed_counts_balance() {
        let mut counts = Counts {
            intended: 9,
            sent: 6,
            unsent: 1,
            ok: 3,
            in_flight_at_end: 1,
            ..Counts::default()
        };
        counts.complete();
        assert_eq!((counts.in_flight_at_end, counts.unsent), (3, 3));
        assert_eq!(counts.balance(), Ok(()));
    }

    #[test]
    fn bodies_are_short_and_harmless() {
        let of = |body: &[u8]| NotOkResponse::new(500, body).body;
        assert_eq!(of(b"a\r\n\x1b[31m\xffb"), "a\\r\\n\\u{1b}[31m\u{fffd}b");
        assert_eq!(of("é".repeat(100).as_bytes()), "é".repeat(100));
        let cut = of(format!("x{}", "é".repeat(100)).as_bytes());
        assert_eq!(cut, format!("x{}…", "é".repeat(99)));
    }
}
