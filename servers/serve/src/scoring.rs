//! The workload `scoring`: `POST /scoring` adds a score.

use bytes::Bytes;
use floodmark_journal::{AppendError, Journal};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::commits::CommitFault;
use crate::response::{HttpResponse, ok, refusal};
use crate::scores::{ScoreRefusal, ScoreTotals, SharedScores};
use crate::worker_state::Worker;

/// Body of a request. Other fields are ignored.
#[derive(Deserialize)]
struct ScoreRequest<'a> {
    // The text of the number, because serde_json can round it to a neighbor of the closest double.
    #[serde(borrow)]
    score: &'a RawValue,
}

/// Returns whether a request has a JSON body.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let media_type = value.and_then(|value| value.split(|byte| *byte == b';').next());
    media_type.is_some_and(|it| it.trim_ascii().eq_ignore_ascii_case(b"application/json"))
}

/// Adds the score in a request body, waits until it is durable, and returns the response.
pub(crate) async fn score(worker: &Worker, scores: &SharedScores, body: Bytes) -> HttpResponse {
    let score = match parse(&body) {
        Ok(score) => score,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason, None),
    };
    drop(body);
    match scores.journal() {
        None => match scores.add(score) {
            Ok(totals) => answer(&totals),
            Err(fault) => refused(None, fault),
        },
        Some(journal) => durable(worker, scores, journal, score).await,
    }
}

async fn durable(
    worker: &Worker,
    scores: &SharedScores,
    journal: &Journal,
    score: f64,
) -> HttpResponse {
    let commits = &worker.commits;
    let now = worker.register.now.get();
    if let Err(fault) = commits.begin(journal, now) {
        return unavailable(journal, fault);
    }
    let totals = match scores.add(score) {
        Ok(totals) => totals,
        Err(fault) => return refused(Some(journal), fault),
    };
    match commits.wait(journal, totals.number(), now).await {
        Ok(()) => answer(&totals),
        Err(fault) => unavailable(journal, fault),
    }
}

fn parse(body: &[u8]) -> Result<f64, &'static str> {
    // serde would also accept an array of fields.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(r#"the body is not a JSON object; send {"score": 10}"#);
    }
    let request: ScoreRequest<'_> = serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            r#"the body has no field "score", or several; send {"score": 10}"#
        } else {
            r#"the body is not JSON; send {"score": 10}"#
        }
    })?;
    // JSON has no text for a number that is not finite, but "1e999" exceeds the largest double.
    let score = request.score.get().parse();
    let finite = score.ok().filter(|score: &f64| score.is_finite());
    finite.ok_or(r#""score" is not a number, or is too large; send {"score": 10}"#)
}

fn answer(totals: &ScoreTotals) -> HttpResponse {
    // The figures are finite, so they can be written as JSON.
    let body = serde_json::to_vec(&totals.answer()).unwrap_or_default();
    ok("application/json", Bytes::from(body))
}

fn refused(journal: Option<&Journal>, cause: ScoreRefusal) -> HttpResponse {
    match (cause, journal) {
        (ScoreRefusal::Journal(AppendError::Failed), Some(journal)) => {
            unavailable(journal, CommitFault::Failed)
        }
        (ScoreRefusal::Journal(_), _) => retry_later("the journal's queue is full; retry later"),
        (ScoreRefusal::Overflow, _) => {
            let reason = "the total would exceed the largest double; send a smaller score";
            refusal(StatusCode::BAD_REQUEST, reason, None)
        }
    }
}

fn unavailable(journal: &Journal, fault: CommitFault) -> HttpResponse {
    match (fault, journal.progress().failure) {
        (CommitFault::Failed, Some(cause)) => retry_later(&format!(
            "the journal has failed: {cause}; then restart the server"
        )),
        (CommitFault::Overloaded, _) => retry_later("the journal is overloaded; retry later"),
        _ => retry_later("the journal does not respond; retry later"),
    }
}

fn retry_later(reason: &str) -> HttpResponse {
    let header = Some((RETRY_AFTER, "1"));
    refusal(StatusCode::SERVICE_UNAVAILABLE, reason, header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn reads_one_finite_number() {
        for (body, score) in [
            (r#"{"score":10}"#, 10.0),
            (" {\"by\": [1], \"score\" :\r\n -2.5e-3 }\t", -0.0025),
            (
                r#"{"score": 123456789012345678901234567890}"#,
                123_456_789_012_345_678_901_234_567_890.0,
            ),
        ] {
            assert_eq!(parse(body.as_bytes()), Ok(score), "{body}");
        }
        for body in [
            "",
            "10",
            "[10]",
            "{}",
            r#"{"score": "10"}"#,
            r#"{"score": null}"#,
            r#"{"score": true}"#,
            r#"{"score": {"score": 1}}"#,
            r#"{"score": NaN}"#,
            r#"{"score": Infinity}"#,
            r#"{"score": 1e999}"#,
            r#"{"score": 1, "score": 2}"#,
            r#"{"score": 1} {"score": 1}"#,
            r#"{"score": 1"#,
            "\u{c}{\"score\": 1}",
            "{\"score\": 1}\0",
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn reads_the_closest_double() {
        for score in [31.245_270_191_439_438, 121.487_919_511_619_45, 0.1 + 0.2] {
            let body = format!("{{\"score\": {score}}}");
            assert_eq!(parse(body.as_bytes()), Ok(score));
        }
    }

    #[test]
    fn recognizes_json_media_types() {
        let is_json = |value: &'static str| {
            is_json(&HeaderMap::from_iter([(
                CONTENT_TYPE,
                HeaderValue::from_static(value),
            )]))
        };
        for json in ["application/json", "Application/JSON ; charset=utf-8"] {
            assert!(is_json(json), "{json}");
        }
        for other in ["", "text/plain", "application/jsonx", "text/json"] {
            assert!(!is_json(other), "{other}");
        }
        assert!(!super::is_json(&HeaderMap::new()));
    }
}
