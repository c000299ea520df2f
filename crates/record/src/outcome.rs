//! What became of each request. Every request has exactly one outcome, and the counts add up on every record.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of a request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An answer with status 2xx or 3xx, or one that meets every `--expect`.
    Ok,
    /// The server declined: 429 or 503.
    Rejected,
    /// Any other whole answer.
    Wrong,
    /// Bytes that are not a valid HTTP/1.1 answer, or a connection closed within one.
    Malformed,
    /// The connection was reset or closed before the first byte of an answer.
    Reset,
    /// No whole answer within the timeout, counted from the moment it was sent.
    TimedOut,
}

/// How many requests had which outcome.
///
/// `intended = sent + unsent + connect_failed` and
/// `sent = ok + rejected + wrong + malformed + reset + timed_out + failed + in_flight_at_end`, always.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Requests whose intended time came.
    pub intended: u64,
    /// Requests handed to the kernel, each counted once however often it was retried.
    pub sent: u64,
    /// Requests whose time came but which were never sent (no connection until the end).
    pub unsent: u64,
    /// Requests given up because no connection could be opened for them.
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
    /// Without a whole answer, as another load generator counted them: it does not say what became of each.
    #[serde(default, skip_serializing_if = "crate::times::is_zero")]
    pub failed: u64,
    /// Sent and without an answer when the run was ended early.
    pub in_flight_at_end: u64,
    /// Requests sent a second time because the server had closed the kept connection between requests.
    pub reconnects: u64,
    /// Whole answers by status code.
    #[serde(with = "statuses")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub statuses: BTreeMap<u16, u64>,
}

impl Counts {
    /// Counts one outcome of a request that was sent.
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

    /// Adds another set of counts to this one.
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
    }

    /// Requests that were sent and have an outcome.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ok
            + self.rejected
            + self.wrong
            + self.malformed
            + self.reset
            + self.timed_out
            + self.failed
    }

    /// Requests whose fate at the server is not known: they may have been carried out without the client
    /// having a usable answer.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.malformed + self.reset + self.timed_out + self.failed + self.in_flight_at_end
    }

    /// The two outcome equations, as the text of the first one that does not hold.
    ///
    /// # Errors
    /// The equation with its figures.
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
                "sent {} ≠ {right}, the sum of its outcomes",
                self.sent
            ));
        }
        Ok(())
    }
}

/// JSON has text for keys, and serde does not turn it back into numbers within a tagged enum such as `Event`.
mod statuses {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(
        statuses: &BTreeMap<u16, u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(statuses.iter().map(|(status, n)| (status.to_string(), n)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u16, u64>, D::Error> {
        BTreeMap::<String, u64>::deserialize(deserializer)?
            .into_iter()
            .map(|(status, n)| Ok((status.parse().map_err(D::Error::custom)?, n)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_counts_towards_the_balance() {
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
}
