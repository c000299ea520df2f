//! Contract of the `scoring` workload.

use floodmark_lab::manifest::Workload;
use serde_json::Value;

use super::client::ContractRequest;
use super::contract::{ContractCheck, MAX_BODY};

/// Scores sent in sequence.
const SCORES: [f64; 6] = [10.0, 2.5, -4.0, 0.0, 1e6, 0.125];

/// Invalid request bodies, each with a description.
const INVALID: [(&str, &str); 10] = [
    ("an empty body", ""),
    ("a body that is not JSON", "{\"score\": "),
    ("an array", "[10]"),
    ("a bare number", "10"),
    ("a body without score", "{\"points\": 10}"),
    ("a score in quotes", "{\"score\": \"10\"}"),
    ("a null score", "{\"score\": null}"),
    ("a score too large for a double", "{\"score\": 1e999}"),
    ("a NaN score", "{\"score\": NaN}"),
    ("two values", "{\"score\": 10} {\"score\": 10}"),
];

/// Figures in a response.
#[derive(Debug, Clone, Copy)]
pub struct ScoringTotals {
    average: f64,
    total: f64,
    number: f64,
}

/// Checks the responses to scores sent in sequence. The contract does not cover concurrent scores.
pub fn contract(check: &mut ContractCheck) {
    let path = Workload::Scoring.path();
    let first = ContractRequest::post(path, r#"{"score": 10}"#);
    let Some(mut before) = post(check, "POST a first score", first) else {
        return;
    };
    for score in SCORES {
        let body = format!("{{\"score\": {score}}}");
        before = adds(check, before, score, ContractRequest::post(path, &body));
    }
    for (what, body) in INVALID {
        check.refused(what, ContractRequest::post(path, body), 400);
    }
    let typed = |kind, body| ContractRequest {
        content: Some((kind, body)),
        ..ContractRequest::post(path, "")
    };
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let request = typed(kind, r#"{"score": 10}"#);
        check.refused(&format!("a score as {kind}"), request, 415);
    }
    check.refused("GET /scoring", ContractRequest::get(path), 405);
    // If the server counted a refused score, the next `numberOfTrials` is too high.
    let mut spaced = r#" { "by" : "me", "score" : 1.5e1 }"#.to_owned();
    spaced.push_str(&" ".repeat(MAX_BODY - spaced.len()));
    before = adds(check, before, 15.0, ContractRequest::post(path, &spaced));
    let request = typed("application/json; charset=utf-8", r#"{"score":3}"#);
    before = adds(check, before, 3.0, request);
    if let Some((what, response)) = check.closing(first) {
        let number = totals(&response.body).map(|totals| totals.number);
        let is_next = number == Some(before.number + 1.0);
        check.ok(&what, &response, "application/json", is_next);
    }
}

/// Sends a score, compares the response with the previous totals, and returns the new totals.
pub fn adds(
    check: &mut ContractCheck,
    before: ScoringTotals,
    score: f64,
    request: ContractRequest<'_>,
) -> ScoringTotals {
    let what = format!("POST the score {score}");
    let Some(after) = post(check, &what, request) else {
        return before;
    };
    for (name, got, expected) in [
        ("numberOfTrials", after.number, before.number + 1.0),
        ("totalScore", after.total, before.total + score),
        ("averageScore", after.average, after.total / after.number),
    ] {
        // The figures may differ by rounding.
        let is_near = (got - expected).abs() <= 1e-9 * got.abs().max(expected.abs());
        check.that(
            is_near,
            format!("{what}: {name} {got}, expected {expected}"),
        );
    }
    after
}

/// Sends a score and returns the totals in the response.
pub fn post(
    check: &mut ContractCheck,
    what: &str,
    request: ContractRequest<'_>,
) -> Option<ScoringTotals> {
    let response = check.once(request)?;
    let totals = totals(&response.body);
    check.ok(what, &response, "application/json", totals.is_some());
    totals
}

/// Parses a response body, which must contain exactly three figures.
fn totals(body: &str) -> Option<ScoringTotals> {
    let value: Value = serde_json::from_str(body).ok()?;
    let object = value.as_object().filter(|object| object.len() == 3)?;
    let figure = |name| object.get(name).and_then(Value::as_f64);
    Some(ScoringTotals {
        average: figure("averageScore")?,
        total: figure("totalScore")?,
        number: figure("numberOfTrials").filter(|number| number.fract() == 0.0)?,
    })
}
