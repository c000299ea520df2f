//! Mixes, and the syntax of headers and expectations in flags and mix files.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Expect, RequestPlan};

/// Maximum number of requests in a mix.
/// The histograms of each request take about 2 MiB per load thread.
pub const MAX_REQUESTS: usize = 64;

/// Several requests to one server, sent in turn (`--mix`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mix {
    /// File name without its folder.
    pub file: String,
    /// Requests of the mix, at most [`MAX_REQUESTS`]. Each request is a group with its own figures.
    pub requests: Vec<MixRequest>,
}

/// A request of a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixRequest {
    /// Name of the request. The request's group has the same name.
    pub name: String,
    /// Number of times the request is sent per cycle.
    /// The weights of a mix have no common divisor greater than 1.
    pub weight: u32,
    /// Path and query.
    pub path: String,
    /// Method, headers and body.
    pub request: RequestPlan,
    /// Conditions for an ok response. If there are none, any response with status 2xx or 3xx is ok.
    pub expect: Vec<Expect>,
    /// Whether `{seq}`, `{rand:a-b}` and `{uuid}` are replaced in the path, header values and body.
    pub templates: bool,
}

impl FromStr for Expect {
    type Err = String;

    /// Reads `status=200`, `body=TEXT` or `json=VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = "write status=200, body=TEXT or json=VALUE";
        let (kind, value) = text
            .split_once('=')
            .ok_or_else(|| format!("\"{text}\" has no \"=\"; {kinds}"))?;
        match kind {
            "status" => match value.parse() {
                Ok(status @ 100..=999) => Ok(Expect::Status(status)),
                _ => Err(format!("\"{value}\" is not a three-digit status code")),
            },
            "body" => Ok(Expect::Body(value.to_owned())),
            "json" => serde_json::from_str(value)
                .map(Expect::Json)
                .map_err(|e| format!("\"{value}\" is not valid JSON: {e}")),
            other => Err(format!("unknown expectation \"{other}\"; {kinds}")),
        }
    }
}

/// Reads `Name: value`.
///
/// # Errors
/// Returns an error if the text has no colon.
pub fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("\"{text}\" has no colon; write 'Name: value'"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
