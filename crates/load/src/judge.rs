//! Classifies responses against the plan's expectations.

use std::fmt;

use floodmark_record::Outcome;
use floodmark_record::api_check::OperationRule;
use floodmark_record::grpc::{GrpcStatus, ResponseStatus};
use floodmark_record::operation::OperationKind;
use floodmark_record::plan::{Check, Expect, Plan};
use floodmark_record::pointer::JsonPointer;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::request;

/// Maximum size in bytes of a body kept for comparison. A longer body never matches.
pub const LONGEST_BODY: usize = 1 << 20;

/// Error name for a response with status 2xx or 3xx whose body is not a number.
pub const NOT_A_NUMBER: &str = "not_a_number";

/// Error name for a response with status 2xx or 3xx whose body is not a valid response to a score.
pub const NOT_A_SCORE: &str = "not_a_score";

/// Error name for a response with status 2xx or 3xx that lacks the value that a check needs.
pub const NO_VALUE: &str = "no_value";

/// The content that a check needs from the responses to one request.
#[derive(Debug, Clone)]
enum ContentRule {
    Number,
    Score(f64),
    Operation(OperationRule),
}

/// The expectations for the responses to one request of the plan, by kind.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    statuses: Vec<u16>,
    /// The gRPC statuses of ok responses; empty if the requests are not gRPC calls.
    grpc_statuses: Vec<GrpcStatus>,
    bodies: Vec<Vec<u8>>,
    values: Vec<serde_json::Value>,
    /// Locations in a JSON body, each with the values that it may have.
    located: Vec<(JsonPointer, Vec<Option<serde_json::Value>>)>,
    contained: Vec<Finder<'static>>,
    patterns: Vec<Regex>,
    content: Option<ContentRule>,
    /// Whether the requests are HEAD requests, whose responses have no body.
    pub to_head: bool,
    /// Whether the method is idempotent.
    pub is_idempotent: bool,
}

/// The content of a response that a check needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CheckedContent {
    /// The number in the body.
    Number(u64),
    /// The request's score, and the response to this score.
    Score(f64, ScoreResponse),
    /// The kind of an operation on an API, and the value in the response, if any.
    Operation(OperationKind, Option<u64>),
}

impl Judge {
    /// Creates a judge for each request of the plan.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Vec<Self> {
        request::of_plan(plan)
            .iter()
            .enumerate()
            .map(|(index, of)| Judge {
                content: plan.check.as_ref().and_then(|check| rule(check, index)),
                to_head: of.request.method == "HEAD",
                is_idempotent: of.request.is_idempotent(),
                ..Judge::new(&of.expect, of.request.is_grpc)
            })
            .collect()
    }

    fn new(expect: &[Expect], is_grpc: bool) -> Self {
        let mut judge = Judge::default();
        for expect in expect {
            match expect {
                Expect::Status(status) => judge.statuses.push(*status),
                Expect::GrpcStatus(_) => {}
                Expect::Body(body) => judge.bodies.push(body.clone().into_bytes()),
                Expect::Json(value) => judge.values.push(value.clone()),
                Expect::JsonAt { at, value } => judge.expect_at(at, Some(value)),
                Expect::JsonAbsent(at) => judge.expect_at(at, None),
                Expect::Contains(text) => {
                    judge
                        .contained
                        .push(Finder::new(text.as_bytes()).into_owned());
                }
                // Each clone has its own cache, so threads do not contend for a shared one.
                Expect::Regex(pattern) => judge.patterns.push(pattern.regex().clone()),
            }
        }
        if is_grpc {
            judge.grpc_statuses = Expect::grpc_statuses(expect);
        }
        judge
    }

    fn expect_at(&mut self, at: &JsonPointer, value: Option<&serde_json::Value>) {
        match self.located.iter_mut().find(|(other, _)| other == at) {
            Some((_, values)) => values.push(value.cloned()),
            None => self.located.push((at.clone(), vec![value.cloned()])),
        }
    }

    /// Returns whether [`Judge::outcome`] needs the body of a response.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        let content_in_body = match &self.content {
            Some(ContentRule::Operation(rule)) => rule.value.is_some(),
            content => content.is_some(),
        };
        content_in_body
            || !self.bodies.is_empty()
            || !self.values.is_empty()
            || !self.located.is_empty()
            || !self.contained.is_empty()
            || !self.patterns.is_empty()
    }

    /// Returns the error name for a response with status 2xx or 3xx that lacks the required
    /// content.
    /// Returns `None` if no content is required.
    #[must_use]
    pub fn wants(&self) -> Option<&'static str> {
        self.content.as_ref().map(|content| match content {
            ContentRule::Number => NOT_A_NUMBER,
            ContentRule::Score(_) => NOT_A_SCORE,
            ContentRule::Operation(_) => NO_VALUE,
        })
    }

    /// Returns whether a body is compressed with gzip or zstd and its content is needed.
    #[must_use]
    pub fn is_compressed(&self, body: &[u8]) -> bool {
        // Magic numbers of gzip (RFC 1952) and zstd (RFC 8878).
        let is_compressed =
            body.starts_with(&[0x1f, 0x8b]) || body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        is_compressed && self.needs_body()
    }

    /// Returns whether the requests write to an API that a check covers.
    /// Such a request must not be sent twice, and its outcome is kept even without a response.
    #[inline]
    #[must_use]
    pub fn is_checked_write(&self) -> bool {
        matches!(&self.content, Some(ContentRule::Operation(rule)) if rule.is_write)
    }

    /// Returns whether the requests are gRPC calls.
    #[inline]
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        !self.grpc_statuses.is_empty()
    }

    /// Returns whether a response with this HTTP status is ok if its gRPC status is also ok. The
    /// result is meaningful only if [`Judge::needs_body`] returns `false`.
    #[must_use]
    pub fn is_ok_status(&self, http: u16) -> bool {
        let grpc = self.grpc_statuses.first().copied();
        self.outcome(ResponseStatus { http, grpc }, &[]).0 == Outcome::Ok
    }

    /// Classifies a complete response, and returns its checked content, if any.
    /// If several statuses, bodies, values, or values at the same location are expected, the response
    /// must match one of each kind. It must contain all texts and match all patterns.
    #[inline]
    #[must_use]
    pub fn outcome(
        &self,
        status: impl Into<ResponseStatus>,
        body: &[u8],
    ) -> (Outcome, Option<CheckedContent>) {
        let response = status.into();
        let ResponseStatus { http: status, grpc } = response;
        let is_expected_http = if self.statuses.is_empty() {
            (200..400).contains(&status)
        } else {
            self.statuses.contains(&status)
        };
        let expected = is_expected_http
            && match grpc {
                Some(grpc) => self.grpc_statuses.contains(&grpc),
                None => !self.is_grpc(),
            };
        let content = match &self.content {
            Some(ContentRule::Operation(rule)) => return operation(rule, status, body),
            Some(ContentRule::Number) if expected => number(body).map(CheckedContent::Number),
            Some(ContentRule::Score(score)) if expected => {
                ScoreResponse::read(body).map(|response| CheckedContent::Score(*score, response))
            }
            _ => None,
        };
        let has_content = content.is_some() || self.content.is_none();
        if expected && has_content && (!self.needs_body() || self.body_fits(body)) {
            (Outcome::Ok, content)
        } else if response.is_rejection() && !expected {
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
            && self.located.iter().all(|(at, values)| {
                let mut values = values.iter();
                values.any(|value| at.fits(body, value.as_ref()))
            })
            && self.contained.iter().all(|text| text.find(body).is_some())
            && self.patterns.iter().all(|pattern| pattern.is_match(body))
    }
}

/// Returns the rule for the responses to the request at an index of the mix.
fn rule(check: &Check, index: usize) -> Option<ContentRule> {
    match check {
        Check::Sequence => Some(ContentRule::Number),
        Check::Scoring { score } => Some(ContentRule::Score(*score)),
        Check::Api(api) => api.rules().get(index).cloned().map(ContentRule::Operation),
    }
}

/// Classifies a response to an operation. The status decides the outcome, except that the response
/// must have the required value.
fn operation(rule: &OperationRule, status: u16, body: &[u8]) -> (Outcome, Option<CheckedContent>) {
    let body = body.get(..LONGEST_BODY).unwrap_or(body);
    let operation = rule.classify(status, body);
    let outcome = match operation.map(|(kind, _)| kind) {
        Some(OperationKind::Acknowledged | OperationKind::Read | OperationKind::ReadNothing) => {
            Outcome::Ok
        }
        _ if matches!(status, 429 | 503) => Outcome::Rejected,
        _ => Outcome::Wrong,
    };
    let content = operation.map(|(kind, value)| CheckedContent::Operation(kind, value));
    (outcome, content)
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

/// The largest value up to which a double can represent every integer.
const LAST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Relative tolerance for an average. A server that keeps a running average rounds it after each
/// score.
const AVERAGE_ROUNDING: f64 = 1e-9;

/// The response to a score.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScoreResponse {
    /// Mean of all scores so far, including this one.
    pub average_score: f64,
    /// Sum of all scores so far.
    pub total_score: f64,
    /// Number of scores.
    #[serde(deserialize_with = "whole")]
    pub number_of_trials: u64,
}

impl ScoreResponse {
    /// Parses a response body. Returns `None` if the body is not a valid response to a score.
    /// The call allocates memory only for invalid bodies and for bodies with additional fields.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        object(body)?;
        serde_json::from_slice(body).ok()
    }

    /// Returns whether the average equals the total divided by the number of scores, within the
    /// tolerance.
    #[must_use]
    pub fn averages(&self) -> bool {
        let exact = self.total_score / self.number_of_trials as f64;
        let room = AVERAGE_ROUNDING * exact.abs().max(self.average_score.abs());
        self.number_of_trials > 0 && (self.average_score - exact).abs() <= room
    }
}

/// Checks that a body starts like an object, because the deserializer would also accept an array.
fn object(body: &[u8]) -> Option<()> {
    body.trim_ascii_start().starts_with(b"{").then_some(())
}

/// Reads an integer in any JSON notation: 10, 10.0, 1.0E1.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Whole;
    impl Visitor<'_> for Whole {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an integer")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
            if number.fract() == 0.0 && (0.0..=LAST_EXACT).contains(&number) {
                Ok(number as u64)
            } else {
                Err(E::custom("not an integer"))
            }
        }
    }
    deserializer.deserialize_f64(Whole)
}

/// The reason why a request body contains no valid score.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; the check needs a score in each request, such as -b '{{\"score\": 10}}'")]
pub struct NoScore(&'static str);

/// Returns the score in a request's body.
///
/// # Errors
/// Fails if the score is missing, not finite or 0. A score of 0 cannot reveal a lost update.
pub fn score(body: &[u8]) -> Result<f64, NoScore> {
    #[derive(Deserialize)]
    struct Scored {
        score: f64,
    }
    if body.is_empty() {
        return Err(NoScore("the request has no body"));
    }
    let scored = object(body).and_then(|()| serde_json::from_slice(body).ok());
    match scored {
        Some(Scored { score }) if score.is_finite() && score != 0.0 => Ok(score),
        Some(_) => Err(NoScore("a score of 0 does not change the totals")),
        None => Err(NoScore(
            "the body is not a JSON object with a numeric \"score\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_expectations_the_status_decides() {
        let judge = Judge::new(&[], false);
        for (status, outcome) in [
            (200, Outcome::Ok),
            (302, Outcome::Ok),
            (404, Outcome::Wrong),
            (429, Outcome::Rejected),
            (500, Outcome::Wrong),
            (503, Outcome::Rejected),
        ] {
            let judged = judge.outcome(status as u16, b"");
            assert_eq!(judged, (outcome, None), "{status}");
        }
    }

    #[test]
    fn grpc_calls_need_their_own_status() {
        let ok = Judge::new(&[], true);
        let missing = Judge::new(
            &[
                Expect::GrpcStatus(GrpcStatus::NotFound),
                Expect::GrpcStatus(GrpcStatus::Unavailable),
            ],
            true,
        );
        for (http, grpc, by_default, by_expectation) in [
            (200, Some(GrpcStatus::Ok), Outcome::Ok, Outcome::Wrong),
            (200, Some(GrpcStatus::NotFound), Outcome::Wrong, Outcome::Ok),
            (
                200,
                Some(GrpcStatus::Unavailable),
                Outcome::Rejected,
                Outcome::Ok,
            ),
            (
                200,
                Some(GrpcStatus::ResourceExhausted),
                Outcome::Rejected,
                Outcome::Rejected,
            ),
            (204, None, Outcome::Wrong, Outcome::Wrong),
            (404, None, Outcome::Wrong, Outcome::Wrong),
            (503, None, Outcome::Rejected, Outcome::Rejected),
        ] {
            let status = ResponseStatus { http, grpc };
            assert_eq!(ok.outcome(status, b"").0, by_default, "{status:?}");
            assert_eq!(missing.outcome(status, b"").0, by_expectation, "{status:?}");
        }
        assert!(ok.is_ok_status(200) && !ok.is_ok_status(502));
    }

    #[test]
    fn requires_one_expectation_of_each_kind() {
        let expect = [
            Expect::Status(200),
            Expect::Status(503),
            Expect::Json(serde_json::json!({"a": 1})),
        ];
        let judge = Judge::new(&expect, false);
        let outcome = |status: u16, body| judge.outcome(status, body).0;
        assert_eq!(outcome(503, b" {\"a\":1}"), Outcome::Ok);
        assert_eq!(outcome(503, b"{}"), Outcome::Wrong);
        assert_eq!(outcome(429, b"{\"a\":1}"), Outcome::Rejected);
        assert_eq!(outcome(404, b"{\"a\":1}"), Outcome::Wrong);
        assert_eq!(outcome(200, &[b' '; LONGEST_BODY + 1]), Outcome::Wrong);
    }

    #[test]
    fn judges_parts_of_bodies() {
        let judge = |all: &[&str]| {
            let all: Vec<Expect> = all.iter().map(|text| text.parse().unwrap()).collect();
            Judge::new(&all, false)
        };
        let body = br#"{"id": 5, "state": "paid", "items": [{"n": 1}]}"#;
        for (expect, outcome) in [
            (&["json:$.id=5", "json:$.state=paid"][..], Outcome::Ok),
            (&["json:$.id=5", "json:$.state=open"], Outcome::Wrong),
            (&["json:$.state=open", "json:$.state=paid"], Outcome::Ok),
            (&["json:$.items[0]={\"n\":1}"], Outcome::Ok),
            (
                &["json:$.errors=absent", "json:$.items[1]=absent"],
                Outcome::Ok,
            ),
            (&["json:$.id=absent"], Outcome::Wrong),
            (&["contains:paid", "contains:items"], Outcome::Ok),
            (&["contains:paid", "contains:open"], Outcome::Wrong),
            (&["regex:\"id\": \\d+,", "regex:paid|open"], Outcome::Ok),
            (&["regex:(?i)PAID"], Outcome::Ok),
            (&["regex:^paid$", "contains:paid"], Outcome::Wrong),
        ] {
            let judge = judge(expect);
            assert!(judge.needs_body() && judge.is_compressed(&[0x1f, 0x8b]));
            assert_eq!(judge.outcome(200, body).0, outcome, "{expect:?}");
            assert_eq!(judge.outcome(200, b"").0, Outcome::Wrong, "{expect:?}");
        }
        let not_utf8 = |expect| judge(&[expect]).outcome(200, b"\xff paid \xff").0;
        assert_eq!(not_utf8("contains:paid"), Outcome::Ok);
        assert_eq!(not_utf8("regex:paid .$"), Outcome::Wrong);
        assert_eq!(not_utf8("regex:(?-u)paid .$"), Outcome::Ok);
        let long = [&b"paid"[..], &[b' '; LONGEST_BODY]].concat();
        assert_eq!(
            judge(&["contains:paid"]).outcome(200, &long).0,
            Outcome::Wrong
        );
    }

    #[test]
    fn a_check_requires_content_in_an_ok_response() {
        let of = |check| Judge {
            content: rule(&check, 0),
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
    fn operations_have_content_whatever_their_outcome() {
        use OperationKind::{Acknowledged, Read, ReadNothing, Refused, Unknown};
        let judge = |is_write, value: Option<JsonPointer>| Judge {
            content: Some(ContentRule::Operation(OperationRule { is_write, value })),
            ..Judge::default()
        };
        let write = judge(true, None);
        assert!(write.is_checked_write() && !write.needs_body());
        let operation = |kind, value| Some(CheckedContent::Operation(kind, value));
        assert_eq!(
            write.outcome(201, b""),
            (Outcome::Ok, operation(Acknowledged, None))
        );
        assert_eq!(
            write.outcome(409, b""),
            (Outcome::Wrong, operation(Refused, None))
        );
        assert_eq!(
            write.outcome(429, b""),
            (Outcome::Rejected, operation(Refused, None))
        );
        assert_eq!(
            write.outcome(503, b""),
            (Outcome::Rejected, operation(Unknown, None))
        );
        let read = judge(false, Some(JsonPointer::default()));
        assert!(!read.is_checked_write() && read.needs_body());
        assert_eq!(
            read.outcome(200, b"17"),
            (Outcome::Ok, operation(Read, Some(17)))
        );
        assert_eq!(
            read.outcome(404, b"17"),
            (Outcome::Ok, operation(ReadNothing, None))
        );
        assert_eq!(read.outcome(200, b"seventeen"), (Outcome::Wrong, None));
        assert_eq!(read.outcome(503, b"17"), (Outcome::Rejected, None));
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

    #[test]
    fn parses_responses_in_any_notation() {
        let response = ScoreResponse {
            average_score: 10.0,
            total_score: 1e7,
            number_of_trials: 1_000_000,
        };
        for body in [
            r#"{"averageScore":10.0,"totalScore":1.0E7,"numberOfTrials":1000000}"#,
            r#"{"numberOfTrials":1.0E6,"averageScore":10,"totalScore":10000000}"#,
            "\n { \"totalScore\" : 1e+7 , \"numberOfTrials\":1000000.0,\r\n\t\"averageScore\":1.0E1 } \n",
            r#"{"averageScore":10,"by":{"a":[1]},"totalScore":1E7,"numberOfTrials":1000000}"#,
        ] {
            assert_eq!(
                ScoreResponse::read(body.as_bytes()),
                Some(response),
                "{body}"
            );
        }
    }

    #[test]
    fn rejects_other_bodies() {
        for body in [
            "",
            "17",
            "[10,10,1]",
            r#"{"averageScore":10,"totalScore":10}"#,
            r#"{"averageScore":10,"totalScore":10,"numberOfTrials":1.5}"#,
            r#"{"averageScore":10,"totalScore":10,"numberOfTrials":-1}"#,
            r#"{"averageScore":10,"totalScore":10,"numberOfTrials":"1"}"#,
            r#"{"averageScore":null,"totalScore":10,"numberOfTrials":1}"#,
            r#"{"averageScore":NaN,"totalScore":10,"numberOfTrials":1}"#,
            r#"{"averageScore":10,"totalScore":1e999,"numberOfTrials":1}"#,
            r#"{"averageScore":10,"totalScore":10,"numberOfTrials":1,"numberOfTrials":2}"#,
            r#"{"averageScore":10,"totalScore":10,"numberOfTrials":1}{}"#,
        ] {
            assert_eq!(ScoreResponse::read(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn an_average_is_the_total_divided_by_the_number() {
        let averages = |average_score, total_score, number_of_trials| {
            ScoreResponse {
                average_score,
                total_score,
                number_of_trials,
            }
            .averages()
        };
        assert!(averages(10.0, 30.0, 3) && averages(1.0 / 3.0, 1.0, 3) && averages(0.0, 0.0, 7));
        assert!(!averages(10.0, 40.0, 3) && !averages(-10.0, 30.0, 3) && !averages(0.0, 30.0, 3));
        assert!(!averages(10.0, 10.0, 0) && !averages(0.0, 0.0, 0));
    }

    #[test]
    fn the_score_is_what_each_request_adds() {
        assert_eq!(score(br#"{"score": 10}"#), Ok(10.0));
        assert_eq!(score(br#"{"by":"me","score":-2.5e1}"#), Ok(-25.0));
        for (body, words) in [
            ("", "no body"),
            ("[10]", "not a JSON object"),
            ("10", "not a JSON object"),
            (r#"{"score": "10"}"#, "not a JSON object"),
            (r#"{"score": {rand:1-9}}"#, "not a JSON object"),
            (r#"{"score": 0}"#, "score of 0"),
        ] {
            let error = score(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (ScoreResponse::read(&body), score(&body));
        }

        #[test]
        fn parses_correct_responses(
            score in -1e6f64..1e6, n in 1u64..1_000_000, order in Just([0, 1, 2]).prop_shuffle(), space in "[ \t\r\n]{0,3}",
        ) {
            let total = score * n as f64;
            let fields = [
                format!("\"averageScore\"{space}:{space}{}", total / n as f64),
                format!("\"totalScore\":{total:e}"),
                format!("\"numberOfTrials\":{n}"),
            ];
            let fields: Vec<_> = order.iter().map(|i| fields[*i].as_str()).collect();
            let body = format!("{space}{{{space}{}{space}}}", fields.join(&format!("{space},{space}")));
            let response = ScoreResponse::read(body.as_bytes());
            prop_assert!(response.is_some_and(|response| response.number_of_trials == n && response.averages()), "{body}");
        }
    }
}
