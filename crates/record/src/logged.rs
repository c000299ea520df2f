//! Runtime of the server and errors in its log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Runtime of the server and errors in its log, as configured in its manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Logged {
    /// Runtime of the server, such as `jvm`; null if its manifest does not state it.
    pub runtime: Option<String>,
    /// Number of log lines per configured text in this attempt; empty if no texts are configured or
    /// the log could not be read.
    pub errors: Vec<LogErrors>,
}

/// Number of log lines that contain a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogErrors {
    /// Text to search for.
    pub text: String,
    /// Number of lines with the text since the end of the previous attempt, or since the start of
    /// the first attempt.
    pub lines: u64,
}
