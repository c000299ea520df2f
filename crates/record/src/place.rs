//! Where client and server of a run were.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the two sides of a run were, where it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// What stood between them.
    pub hosts: Hosts,
    /// The load process.
    pub client: Side,
    /// The server.
    pub server: Side,
}

/// What stood between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hosts {
    /// Nothing: both on this machine, over its loopback.
    Shared,
}

/// Where one side was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// CPUs that it was kept to, as the kernel lists them (`0,2-3`); null for all that floodmark might use.
    pub cpus: Option<String>,
    /// How many CPUs it might use.
    pub cpu_count: u32,
}
