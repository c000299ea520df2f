//! Whether an answer is what the plan asked for.

use floodmark_record::Outcome;
use floodmark_record::plan::{Check, Expect, Plan};

use crate::request;

/// Bodies up to this size are kept for comparison; a longer one cannot be as expected.
pub const LONGEST_BODY: usize = 1 << 20;

/// The expectations of one of the plan's requests, sorted by kind.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    statuses: Vec<u16>,
    bodies: Vec<Vec<u8>>,
    values: Vec<serde_json::Value>,
    numbers: bool,
    to_head: bool,
}

impl Judge {
    /// The judges of the answers to each of a plan's requests.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Vec<Self> {
        request::expectations(plan)
            .map(|(expect, to_head)| Judge {
                numbers: plan.check == Some(Check::Sequence),
                to_head,
                ..Judge::new(expect)
            })
            .collect()
    }

    fn new(expect: &[Expect]) -> Self {
        let mut judge = Judge::default();
        for expect in expect {
            match expect {
                Expect::Status(status) => judge.statuses.push(*status),
                Expect::Body(body) => judge.bodies.push(body.clone().into_bytes()),
                Expect::Json(value) => judge.values.push(value.clone()),
            }
        }
        judge
    }

    /// Whether the answers are to HEAD requests, and so have no bodies.
    #[must_use]
    pub fn to_head(&self) -> bool {
        self.to_head
    }

    /// Whether bodies must be kept for [`Judge::outcome`].
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.numbers || !self.bodies.is_empty() || !self.values.is_empty()
    }

    /// Whether each ok answer has to be a number.
    #[must_use]
    pub fn wants_numbers(&self) -> bool {
        self.numbers
    }

    /// What a whole answer counts as. Several expected statuses, bodies or values are alternatives.
    #[inline]
    #[must_use]
    pub fn outcome(&self, status: u16, body: &[u8]) -> Outcome {
        let expected = if self.statuses.is_empty() {
            (200..400).contains(&status)
        } else {
            self.statuses.contains(&status)
        };
        if expected && (!self.needs_body() || self.body_fits(body)) {
            Outcome::Ok
        } else if matches!(status, 429 | 503) && !expected {
            Outcome::Rejected
        } else {
            Outcome::Wrong
        }
    }

    fn body_fits(&self, body: &[u8]) -> bool {
        if body.len() > LONGEST_BODY {
            return false;
        }
        if !self.bodies.is_empty() && !self.bodies.iter().any(|b| b == body) {
            return false;
        }
        if !self.values.is_empty() {
            let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else {
                return false;
            };
            if !self.values.contains(&value) {
                return false;
            }
        }
        !self.numbers || number(body).is_some()
    }
}

/// The decimal number that a body is, white space around it allowed.
#[must_use]
pub fn number(body: &[u8]) -> Option<u64> {
    let digits = body.trim_ascii();
    if digits.is_empty() || digits.len() > 20 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_expectations_the_status_decides() {
        let judge = Judge::new(&[]);
        for (status, outcome) in [
            (200, Outcome::Ok),
            (302, Outcome::Ok),
            (404, Outcome::Wrong),
            (429, Outcome::Rejected),
            (500, Outcome::Wrong),
            (503, Outcome::Rejected),
        ] {
            assert_eq!(judge.outcome(status, b""), outcome, "{status}");
        }
    }

    #[test]
    fn expectations_of_one_kind_are_alternatives_of_different_kinds_all_hold() {
        let judge = Judge::new(&[
            Expect::Status(200),
            Expect::Status(503),
            Expect::Json(serde_json::json!({"a": 1})),
        ]);
        assert_eq!(judge.outcome(503, b" {\"a\":1}"), Outcome::Ok);
        assert_eq!(judge.outcome(503, b"{}"), Outcome::Wrong);
        assert_eq!(judge.outcome(429, b"{\"a\":1}"), Outcome::Rejected);
        assert_eq!(judge.outcome(404, b"{\"a\":1}"), Outcome::Wrong);
        assert_eq!(
            judge.outcome(200, &[b' '; LONGEST_BODY + 1]),
            Outcome::Wrong
        );
    }

    #[test]
    fn a_number_is_decimal_and_fits() {
        assert_eq!(number(b"42\n"), Some(42));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"18446744073709551616",
            b"+1",
            b"1.0",
            b"-1",
            b"one",
            b"1 2",
        ] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }
}
