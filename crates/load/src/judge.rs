//! Classifies responses against the plan's expectations.

use floodmark_record::Outcome;
use floodmark_record::plan::{Check, Expect, Plan};

use crate::request;
use crate::scoring::ScoreResponse;

/// Maximum size in bytes of a body kept for comparison. A longer body never matches.
pub const LONGEST_BODY: usize = 1 << 20;

/// Error name for an ok response whose body is not a number.
pub const NOT_A_NUMBER: &str = "not_a_number";

/// Error name for an ok response whose body is not a valid response to a score.
pub const NOT_A_SCORE: &str = "not_a_score";

/// The expectations for the responses to one request of the plan, by kind.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    statuses: Vec<u16>,
    bodies: Vec<Vec<u8>>,
    values: Vec<serde_json::Value>,
    check: Option<Check>,
    /// Whether the requests are HEAD requests, whose responses have no body.
    pub to_head: bool,
}

/// The content that a check needs from an ok response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CheckedContent {
    /// The number in the body.
    Number(u64),
    /// The request's score, and the response to this score.
    Score(f64, ScoreResponse),
}

impl Judge {
    /// Creates a judge for each request of the plan.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Vec<Self> {
        request::of_plan(plan)
            .iter()
            .map(|of| Judge {
                check: plan.check,
                to_head: of.request.method == "HEAD",
                ..Judge::new(&of.expect)
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

    /// Returns whether [`Judge::outcome`] needs the body of a response.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.check.is_some() || !self.bodies.is_empty() || !self.values.is_empty()
    }

    /// Returns the error name for an ok response that lacks the required content.
    /// Returns `None` if no content is required.
    #[must_use]
    pub fn wants(&self) -> Option<&'static str> {
        self.check.map(|check| match check {
            Check::Sequence => NOT_A_NUMBER,
            Check::Scoring { .. } => NOT_A_SCORE,
        })
    }

    /// Classifies a complete response, and returns the checked content of an ok response.
    /// If several statuses, bodies or values are expected, the response must match one of each
    /// kind.
    #[inline]
    #[must_use]
    pub fn outcome(&self, status: u16, body: &[u8]) -> (Outcome, Option<CheckedContent>) {
        let expected = if self.statuses.is_empty() {
            (200..400).contains(&status)
        } else {
            self.statuses.contains(&status)
        };
        let figures = match self.check {
            Some(check) if expected => figures(check, body),
            _ => None,
        };
        let has_content = figures.is_some() || self.check.is_none();
        if expected && has_content && (!self.needs_body() || self.body_fits(body)) {
            (Outcome::Ok, figures)
        } else if matches!(status, 429 | 503) && !expected {
            (Outcome::Rejected, None)
        } else {
            (Outcome::Wrong, None)
        }
    }

    fn body_fits(&self, body: &[u8]) -> bool {
        let value_fits =
            || serde_json::from_slice(body).is_ok_and(|value| self.values.contains(&value));
        body.len() <= LONGEST_BODY
            && (self.bodies.is_empty() || self.bodies.iter().any(|b| b == body))
            && (self.values.is_empty() || value_fits())
    }
}

/// Parses a body as required by a check.
fn figures(check: Check, body: &[u8]) -> Option<CheckedContent> {
    match check {
        Check::Sequence => number(body).map(CheckedContent::Number),
        Check::Scoring { score } => {
            ScoreResponse::read(body).map(|response| CheckedContent::Score(score, response))
        }
    }
}

/// Parses a body as a decimal number, which may be surrounded by white space.
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
            assert_eq!(judge.outcome(status, b""), (outcome, None), "{status}");
        }
    }

    #[test]
    fn requires_one_expectation_of_each_kind() {
        let judge = Judge::new(&[
            Expect::Status(200),
            Expect::Status(503),
            Expect::Json(serde_json::json!({"a": 1})),
        ]);
        let outcome = |status, body| judge.outcome(status, body).0;
        assert_eq!(outcome(503, b" {\"a\":1}"), Outcome::Ok);
        assert_eq!(outcome(503, b"{}"), Outcome::Wrong);
        assert_eq!(outcome(429, b"{\"a\":1}"), Outcome::Rejected);
        assert_eq!(outcome(404, b"{\"a\":1}"), Outcome::Wrong);
        assert_eq!(outcome(200, &[b' '; LONGEST_BODY + 1]), Outcome::Wrong);
    }

    #[test]
    fn a_check_requires_content_in_an_ok_response() {
        let of = |check| Judge {
            check: Some(check),
            ..Judge::default()
        };
        let body = br#"{"averageScore":2,"totalScore":2,"numberOfTrials":1}"#;
        let scoring = of(Check::Scoring { score: 2.0 });
        let (outcome, figures) = scoring.outcome(200, body);
        assert_eq!(outcome, Outcome::Ok);
        assert!(
            matches!(figures, Some(CheckedContent::Score(2.0, response)) if response.number_of_trials == 1)
        );
        assert_eq!(scoring.outcome(500, body), (Outcome::Wrong, None));
        assert_eq!(scoring.outcome(503, body), (Outcome::Rejected, None));
        assert_eq!(scoring.outcome(200, b"17"), (Outcome::Wrong, None));
        let sequence = of(Check::Sequence);
        let seventeen = (Outcome::Ok, Some(CheckedContent::Number(17)));
        assert_eq!(sequence.outcome(200, b"17"), seventeen);
        assert_eq!(sequence.outcome(200, body), (Outcome::Wrong, None));
    }

    #[test]
    fn reads_decimal_numbers_that_fit() {
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
