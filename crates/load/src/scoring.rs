//! Parses the data that `--check scoring` needs: the score in a request, and three figures in each
//! response.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// The largest value up to which a double can represent every integer.
const LAST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Relative tolerance for an average. Servers that keep a running average round it in each
/// response.
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

    /// Returns whether the average is the total divided by the number of scores.
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

/// Reads an integer in any notation: 10, 10.0, 1.0E1.
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
