//! The contract of `scoring`.

use serde_json::Value;

use super::client::{Answer, Request};
use super::contract::{Asking, LONGEST_BODY, Workload, closes, is_right};

/// Scores that are sent one after the other.
const SCORES: [f64; 6] = [10.0, 2.5, -4.0, 0.0, 1e6, 0.125];

/// Bodies that are no score.
const BAD: [(&str, &str); 10] = [
    ("an empty body", ""),
    ("a body that is no JSON", "{\"score\": "),
    ("an array", "[10]"),
    ("a bare number", "10"),
    ("a body without score", "{\"points\": 10}"),
    ("a score in quotes", "{\"score\": \"10\"}"),
    ("a score that is null", "{\"score\": null}"),
    ("a score beyond all doubles", "{\"score\": 1e999}"),
    ("a score that is NaN", "{\"score\": NaN}"),
    ("two values", "{\"score\": 10} {\"score\": 10}"),
];

/// What an answer says.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    average: f64,
    total: f64,
    number: f64,
}

/// Asks one score after the other: whether concurrent ones get lost is the published servers' own matter.
pub fn contract(asking: &mut Asking) {
    let path = Workload::Scoring.path();
    let Some(mut before) = scored(
        asking,
        "POST a first score",
        Request::post(path, r#"{"score": 10}"#),
    ) else {
        return;
    };
    for score in SCORES {
        let body = format!("{{\"score\": {score}}}");
        before = adds(asking, before, score, Request::post(path, &body));
    }
    for (why, body) in BAD {
        asking.refused(why, Request::post(path, body), 400);
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let request = Request {
            content: Some((kind, r#"{"score": 10}"#)),
            ..Request::post(path, "")
        };
        asking.refused(&format!("a score as {kind}"), request, 415);
    }
    asking.refused("GET /scoring", Request::get(path), 405);
    // Were one of those counted, this would not be the next number.
    let mut spaced = r#" { "by" : "me", "score" : 1.5e1 }"#.to_owned();
    spaced.extend(std::iter::repeat_n(' ', LONGEST_BODY - spaced.len()));
    before = adds(asking, before, 15.0, Request::post(path, &spaced));
    let request = Request {
        content: Some(("application/json; charset=utf-8", r#"{"score":3}"#)),
        ..Request::post(path, "")
    };
    before = adds(asking, before, 3.0, request);
    let next = before.number + 1.0;
    closes(asking, Request::post(path, r#"{"score": 10}"#), &|answer| {
        figures(&answer.body).is_some_and(|of| of.number == next)
    });
}

/// Sends a score and holds the answer against the one before; the new figures.
pub fn adds(asking: &mut Asking, before: Figures, score: f64, request: Request<'_>) -> Figures {
    let what = format!("POST the score {score}");
    let Some(after) = scored(asking, &what, request) else {
        return before;
    };
    asking.hold(after.number == before.number + 1.0, || {
        format!(
            "{what}: numberOfTrials {} follows {}",
            after.number, before.number
        )
    });
    let total = before.total + score;
    asking.hold(near(after.total, total), || {
        format!("{what}: totalScore {} in place of {total}", after.total)
    });
    let average = after.total / after.number;
    asking.hold(near(after.average, average), || {
        format!(
            "{what}: averageScore {} in place of {average}",
            after.average
        )
    });
    after
}

/// Sends a score; what is answered.
pub fn scored(asking: &mut Asking, what: &str, request: Request<'_>) -> Option<Figures> {
    let answer: Answer = asking.once(request)?;
    is_right(asking, what, &answer, "application/json", &|body| {
        figures(body).is_some()
    });
    figures(&answer.body)
}

/// The three figures, and nothing beside them.
fn figures(body: &str) -> Option<Figures> {
    let value: Value = serde_json::from_str(body).ok()?;
    let object = value.as_object().filter(|object| object.len() == 3)?;
    let figure = |name| object.get(name).and_then(Value::as_f64);
    Some(Figures {
        average: figure("averageScore")?,
        total: figure("totalScore")?,
        number: figure("numberOfTrials").filter(|number| number.fract() == 0.0)?,
    })
}

/// But for rounding.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
