//! The server's runtime, and the errors in the server's log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Runtime and logged errors of the server. Its manifest names the runtime and the error strings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Runtime of the server, such as `jvm`; null if not stated in the manifest.
    pub runtime: Option<String>,
    /// Number of log lines in this attempt for each configured error string.
    /// Empty if no strings are configured or the log could not be read.
    pub errors: Vec<LogErrors>,
}

/// Number of log lines that contain a given string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogErrors {
    /// String to search for.
    pub text: String,
    /// Number of lines with this string since the end of the previous attempt.
    /// For the first attempt, lines are counted from the start of that attempt.
    pub lines: u64,
}
