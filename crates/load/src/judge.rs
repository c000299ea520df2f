//! Whether an answer is what the plan asked for.

use floodmark_record::Outcome;
use floodmark_record::plan::{Check, Expect, Plan};

use crate::request;
use crate::scoring::ScoreAnswer;

/// Bodies up to this size are kept for comparison; a longer one cannot be as expected.
pub const LONGEST_BODY: usize = 1 << 20;

/// The error of an ok answer that is no number.
pub const NOT_A_NUMBER: &str = "not_a_number";

/// The error of an ok answer that is none to a score.
pub const NOT_A_SCORE: &str = "not_a_score";

/// The expectations of one of the plan's requests, sorted by kind.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    statuses: Vec<u16>,
    bodies: Vec<Vec<u8>>,
    values: Vec<serde_json::Value>,
    check: Option<Check>,
    to_head: bool,
}

/// What an ok answer says, where a check needs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figures {
    /// The number that is its body.
    Number(u64),
    /// The score of its request, and what came of it.
    Score(f64, ScoreAnswer),
}

impl Judge {
    /// The judges of the answers to each of a plan's requests.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Vec<Self> {
        request::expectations(plan)
            .map(|(expect, to_head)| Judge {
                check: plan.check,
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
        self.check.is_some() || !self.bodies.is_empty() || !self.values.is_empty()
    }

    /// What each ok answer has to say, by the name of the error where one does not.
    #[must_use]
    pub fn wants(&self) -> Option<&'static str> {
        self.check.map(|check| match check {
            Check::Sequence => NOT_A_NUMBER,
            Check::Scoring { .. } => NOT_A_SCORE,
        })
    }

    /// What a whole answer counts as, and what it says where it is ok. Several expected statuses, bodies or values are alternatives.
    #[inline]
    #[must_use]
    pub fn outcome(&self, status: u16, body: &[u8]) -> (Outcome, Option<Figures>) {
        let expected = if self.statuses.is_empty() {
            (200..400).contains(&status)
        } else {
            self.statuses.contains(&status)
        };
        let figures = match self.check {
            Some(check) if expected => figures(check, body),
            _ => None,
        };
        let says = figures.is_some() || self.check.is_none();
        if expected && says && (!self.needs_body() || self.body_fits(body)) {
            (Outcome::Ok, figures)
        } else if matches!(status, 429 | 503) && !expected {
            (Outcome::Rejected, None)
        } else {
            (Outcome::Wrong, None)
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
        true
    }
}

/// What a body says.
fn figures(check: Check, body: &[u8]) -> Option<Figures> {
    match check {
        Check::Sequence => number(body).map(Figures::Number),
        Check::Scoring { score } => {
            ScoreAnswer::read(body).map(|answer| Figures::Score(score, answer))
        }
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
            assert_eq!(judge.outcome(status, b""), (outcome, None), "{status}");
        }
    }

    #[test]
    fn expectations_of_one_kind_are_alternatives_of_different_kinds_all_hold() {
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
    fn with_a_check_an_ok_answer_says_something() {
        let of = |check| Judge {
            check: Some(check),
            ..Judge::default()
        };
        let body = br#"{"averageScore":2,"totalScore":2,"numberOfTrials":1}"#;
        let scoring = of(Check::Scoring { score: 2.0 });
        let (outcome, figures) = scoring.outcome(200, body);
        assert_eq!(outcome, Outcome::Ok);
        assert!(
            matches!(figures, Some(Figures::Score(2.0, answer)) if answer.number_of_trials == 1)
        );
        assert_eq!(scoring.outcome(500, body), (Outcome::Wrong, None));
        assert_eq!(scoring.outcome(503, body), (Outcome::Rejected, None));
        assert_eq!(scoring.outcome(200, b"17"), (Outcome::Wrong, None));
        let sequence = of(Check::Sequence);
        let seventeen = (Outcome::Ok, Some(Figures::Number(17)));
        assert_eq!(sequence.outcome(200, b"17"), seventeen);
        assert_eq!(sequence.outcome(200, body), (Outcome::Wrong, None));
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
