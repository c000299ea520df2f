//! The contract of `bars`.

use serde_json::{Value, json};

use super::client::Request;
use super::contract::{Asking, Workload, closes, is_right};

/// Bodies that are no bar.
const BAD: [(&str, &str); 7] = [
    ("an empty body", ""),
    ("a body that is no JSON", "{\"name\": "),
    ("an array", "[\"Corner\"]"),
    ("a body without name", "{\"title\": \"Corner\"}"),
    ("an empty name", "{\"name\": \"\"}"),
    ("a name that is a number", "{\"name\": 7}"),
    ("a name that is null", "{\"name\": null}"),
];

/// Asks for what is there, adds some, and refuses.
pub fn contract(asking: &mut Asking) {
    let path = Workload::Bars.path();
    let Some(mut bars) = list(asking) else { return };
    let longest = "é".repeat(255);
    for name in ["Corner", "\"Quoted\\\" \u{1F37A} ☕", "x", &longest] {
        let body = json!({ "name": name }).to_string();
        let what = format!("POST the bar {name:?}");
        let Some(answer) = asking.once(Request::post(path, &body)) else {
            return;
        };
        let (status, text) = (answer.status, &answer.body);
        let bar: Value = serde_json::from_str(text).unwrap_or_default();
        let right = status == 201 && bar["name"] == name && bar["id"].is_i64();
        asking.hold(right, || format!("{what}: {status} {text:?}"));
        let kind = answer.kind();
        asking.hold(kind == "application/json", || {
            format!("{what}: the Content-Type is {kind:?}")
        });
        let location = answer.header("location").unwrap_or_default();
        asking.hold(location.ends_with(&format!("/bars/{}", bar["id"])), || {
            format!("{what}: the Location is {location:?}")
        });
        bars.push(bar);
        // It is in the database before the answer.
        holds(asking, &what, &bars);
    }
    for (why, body) in BAD {
        asking.refused(why, Request::post(path, body), 400);
    }
    let too_long = json!({ "name": "x".repeat(256) }).to_string();
    asking.refused(
        "a name of 256 characters",
        Request::post(path, &too_long),
        400,
    );
    let request = Request {
        content: Some(("text/plain", r#"{"name": "Corner"}"#)),
        ..Request::post(path, "")
    };
    asking.refused("a bar as text/plain", request, 415);
    holds(asking, "after the refusals", &bars);
    closes(asking, Request::get(path), &|answer| answer.status == 200);
}

/// Holds that the database has these bars and no others.
pub fn holds(asking: &mut Asking, when: &str, bars: &[Value]) {
    if let Some(there) = list(asking) {
        asking.hold(there == bars, || {
            format!(
                "{when}: GET /bars is {} bars, not the {} that were stored",
                there.len(),
                bars.len()
            )
        });
    }
}

/// What `GET /bars` answers.
pub fn list(asking: &mut Asking) -> Option<Vec<Value>> {
    let answer = asking.once(Request::get(Workload::Bars.path()))?;
    is_right(asking, "GET /bars", &answer, "application/json", &|body| {
        bars(body).is_some()
    });
    bars(&answer.body)
}

/// Bars in the order of their ids.
fn bars(body: &str) -> Option<Vec<Value>> {
    let bars: Vec<Value> = serde_json::from_str(body).ok()?;
    let ids: Option<Vec<i64>> = bars
        .iter()
        .map(|bar| {
            let whole = bar.as_object()?.len() == 2 && bar["name"].is_string();
            bar["id"].as_i64().filter(|_| whole)
        })
        .collect();
    ids.is_some_and(|ids| ids.is_sorted()).then_some(bars)
}
