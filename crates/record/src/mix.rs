//! Several requests in turn, and the ways of writing headers and expectations that flags and mix files share.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Expect, RequestPlan};

/// Requests of a mix at most: each costs about 2 MiB for each load thread (its histograms), and a table with more is not read.
pub const MOST_REQUESTS: usize = 64;

/// Several requests to one server, in turn (`--mix`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mix {
    /// Name of the file they were read from, without its folder.
    pub file: String,
    /// The requests, at most [`MOST_REQUESTS`]; each is a group of the figures.
    pub requests: Vec<MixRequest>,
}

/// A request of a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixRequest {
    /// Its name, and that of its group.
    pub name: String,
    /// How often it is sent within one cycle of the mix; weights have no common divisor.
    pub weight: u32,
    /// Path and query.
    pub path: String,
    /// What else is sent.
    pub request: RequestPlan,
    /// What an answer must be to count as ok; empty: status 2xx or 3xx.
    pub expect: Vec<Expect>,
    /// Whether `{seq}`, `{rand:a-b}` and `{uuid}` in path, header values and body stand for what is new in each request.
    pub templates: bool,
}

impl FromStr for Expect {
    type Err = String;

    /// Reads `status=200`, `body=TEXT` or `json=VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = "write status=200, body=TEXT or json=VALUE";
        let (kind, value) = text
            .split_once('=')
            .ok_or_else(|| format!("\"{text}\" has no =; {kinds}"))?;
        match kind {
            "status" => match value.parse() {
                Ok(status @ 100..=999) => Ok(Expect::Status(status)),
                _ => Err(format!("\"{value}\" is no status code of three digits")),
            },
            "body" => Ok(Expect::Body(value.to_owned())),
            "json" => serde_json::from_str(value)
                .map(Expect::Json)
                .map_err(|e| format!("\"{value}\" is no JSON: {e}")),
            other => Err(format!("unknown expectation \"{other}\"; {kinds}")),
        }
    }
}

/// Reads `Name: value`.
///
/// # Errors
/// A text without a colon, in words.
pub fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("\"{text}\" has no colon; write 'Name: value'"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
