//! Contract of the `bars` workload.

use floodmark_lab::manifest::Workload;
use serde_json::{Value, json};

use super::client::ContractRequest;
use super::contract::ContractCheck;

/// Invalid request bodies, each with a description.
const INVALID: [(&str, &str); 7] = [
    ("an empty body", ""),
    ("a body that is not JSON", "{\"name\": "),
    ("an array", "[\"Corner\"]"),
    ("a body without name", "{\"title\": \"Corner\"}"),
    ("an empty name", "{\"name\": \"\"}"),
    ("a name that is a number", "{\"name\": 7}"),
    ("a name that is null", "{\"name\": null}"),
];

/// Checks that the server lists bars, adds bars and refuses invalid bars.
pub fn contract(check: &mut ContractCheck) {
    let path = Workload::Bars.path();
    let Some(mut bars) = list(check) else { return };
    let longest = "é".repeat(255);
    for name in ["Corner", "\"Quoted\\\" \u{1F37A} ☕", "x", &longest] {
        let body = json!({ "name": name }).to_string();
        let what = format!("POST the bar {name:?}");
        let Some(response) = check.once(ContractRequest::post(path, &body)) else {
            return;
        };
        let bar: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let is_right = response.status == 201 && bar["name"] == name && bar["id"].is_i64();
        check.success(&what, &response, "application/json", is_right);
        let location = response.header("location").unwrap_or_default();
        check.that(
            location.ends_with(&format!("/bars/{}", bar["id"])),
            format!("{what}: unexpected Location {location:?}"),
        );
        bars.push(bar);
        // The server must store the bar before it sends the response.
        check_stored(check, &what, &bars);
    }
    for (why, body) in INVALID {
        check.refused(why, ContractRequest::post(path, body), 400);
    }
    let too_long = json!({ "name": "x".repeat(256) }).to_string();
    let request = ContractRequest::post(path, &too_long);
    check.refused("a name of 256 characters", request, 400);
    let request = ContractRequest {
        content: Some(("text/plain", r#"{"name": "Corner"}"#)),
        ..ContractRequest::post(path, "")
    };
    check.refused("a bar as text/plain", request, 415);
    check_stored(check, "after invalid requests", &bars);
    if let Some((what, response)) = check.closing(ContractRequest::get(path)) {
        check.ok(&what, &response, "application/json", true);
    }
}

/// Checks that `GET /bars` lists exactly these bars.
pub fn check_stored(check: &mut ContractCheck, when: &str, bars: &[Value]) {
    if let Some(listed) = list(check) {
        let (n, stored) = (listed.len(), bars.len());
        check.that(
            listed == bars,
            format!("{when}: GET /bars lists {n} bars, but {stored} are stored"),
        );
    }
}

/// Returns the bars in the response to `GET /bars`.
pub fn list(check: &mut ContractCheck) -> Option<Vec<Value>> {
    let response = check.once(ContractRequest::get(Workload::Bars.path()))?;
    let bars = bars(&response.body);
    check.ok("GET /bars", &response, "application/json", bars.is_some());
    bars
}

/// Parses a list of bars and checks that their ids are in ascending order.
fn bars(body: &str) -> Option<Vec<Value>> {
    let bars: Vec<Value> = serde_json::from_str(body).ok()?;
    let id = |bar: &Value| {
        let is_whole = bar.as_object()?.len() == 2 && bar["name"].is_string();
        bar["id"].as_i64().filter(|_| is_whole)
    };
    let ids: Option<Vec<i64>> = bars.iter().map(id).collect();
    ids.is_some_and(|ids| ids.is_sorted()).then_some(bars)
}
