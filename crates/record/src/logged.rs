//! What the server itself is, and what it said while it was loaded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server's own word, as far as its manifest says what to look for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Logged {
    /// What it runs on, such as `jvm`; null where its manifest does not say.
    pub runtime: Option<String>,
    /// Lines of its log in this attempt, by text; empty where there is nothing to look for, or the log could not be read.
    pub errors: Vec<LogErrors>,
}

/// How often the server's log has a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogErrors {
    /// The text.
    pub text: String,
    /// Lines with it that were written since the attempt before ended, of the first attempt since it began.
    pub lines: u64,
}
