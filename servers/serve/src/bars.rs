//! The workload `bars`: `GET /bars` lists the bars in a database, and `POST /bars` adds one.

use bytes::Bytes;
use hyper::header::{HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Method, StatusCode};
use serde::Deserialize;

use crate::bar_store::{BarStore, StoreFault, StoredBar};
use crate::response::{HttpResponse, ok, refusal};

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 255;

/// Body of a request. Other fields are ignored.
#[derive(Deserialize)]
struct BarBody {
    name: String,
}

/// Lists the bars, or adds the bar in the request body.
pub(crate) async fn bars(store: &BarStore, method: &Method, body: Bytes) -> HttpResponse {
    if method != Method::POST {
        return match store.list().await {
            Ok(bars) => ok("application/json", bars),
            Err(fault) => unavailable(&fault),
        };
    }
    let name = match parse(&body) {
        Ok(name) => name,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason, None),
    };
    drop(body);
    match store.insert(name.clone()).await {
        Ok(id) => created(&StoredBar { id, name: &name }),
        Err(fault) => unavailable(&fault),
    }
}

fn parse(body: &[u8]) -> Result<String, &'static str> {
    // serde would also accept an array of fields.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(r#"the body is not a JSON object; send {"name": "Corner"}"#);
    }
    let body: BarBody = serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            r#"the body has no string "name", or several; send {"name": "Corner"}"#
        } else {
            r#"the body is not JSON; send {"name": "Corner"}"#
        }
    })?;
    let name = body.name;
    if name.is_empty() {
        return Err("the name is empty; send 1 to 255 characters");
    }
    if name.chars().count() > MAX_NAME {
        return Err("the name is too long; send 1 to 255 characters");
    }
    if name.contains('\0') {
        return Err(
            "the name contains the character U+0000, which some databases cannot store; remove it",
        );
    }
    Ok(name)
}

fn created(bar: &StoredBar<'_>) -> HttpResponse {
    // A number and a string can always be written as JSON.
    let body = serde_json::to_vec(bar).unwrap_or_default();
    let mut response = ok("application/json", Bytes::from(body));
    *response.status_mut() = StatusCode::CREATED;
    if let Ok(location) = HeaderValue::try_from(format!("/bars/{}", bar.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn unavailable(fault: &StoreFault) -> HttpResponse {
    let header = Some((RETRY_AFTER, "1"));
    refusal(StatusCode::SERVICE_UNAVAILABLE, &fault.0, header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_of_1_to_255_characters() {
        let longest = "é".repeat(255);
        for (body, name) in [
            (r#"{"name": "Corner"}"#, "Corner"),
            (" {\"at\": 1, \"name\": \"\\u2615 \\\"\"} ", "☕ \""),
            (&format!("{{\"name\": \"{longest}\"}}"), &longest),
        ] {
            assert_eq!(parse(body.as_bytes()).as_deref(), Ok(name), "{body}");
        }
        for body in [
            "",
            r#"["Corner"]"#,
            r#""Corner""#,
            r#"{"title": "Corner"}"#,
            r#"{"name": ""}"#,
            r#"{"name": 7}"#,
            r#"{"name": null}"#,
            r#"{"name": "a", "name": "b"}"#,
            r#"{"name": "\u0000"}"#,
            r#"{"name": "\ud800"}"#,
            &format!("{{\"name\": \"{longest}x\"}}"),
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
        assert!(parse(b"{\"name\": \"\xff\"}").is_err(), "not UTF-8");
    }
}
