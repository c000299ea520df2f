//! Runtime of the server and errors in its log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Runtime of the server and errors in its log, as configured in the server's manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Logged {
    /// Runtime of the server, such as `jvm`; null if not stated in the manifest.
    pub runtime: Option<String>,
    /// Number of log lines in this attempt that contain each configured text.
    /// Empty if no texts are configured or the log could not be read.
    pub errors: Vec<LogErrors>,
}

/// Number of log lines that contain a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogErrors {
    /// Text to search for.
    pub text: String,
    /// Number of lines with the text since the end of the previous attempt.
    /// The first attempt counts from its start.
    pub lines: u64,
}
