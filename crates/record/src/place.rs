//! Where client, server and store of a run were.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the sides of a run were, where it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// What stood between them.
    pub hosts: Hosts,
    /// The load process.
    pub client: Side,
    /// The server.
    pub server: Side,
    /// By how many seconds each byte between them came later, either way, through a proxy of floodmark's; null for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
    /// The database behind the server; null for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
}

/// The database behind a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Store {
    /// Its name, or host and port of one that was there already.
    pub name: String,
    /// Whether it was started for the server's process, empty, or was there already.
    pub started: bool,
    /// What was set of it; the rest were its defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub setting: BTreeMap<String, String>,
    /// By how many seconds a round trip to it took longer, through a proxy of floodmark's; null for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
}

/// What stood between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hosts {
    /// Nothing: both on this machine, over its loopback.
    Shared,
    /// As between two machines: each in a network namespace of its own, joined by a pair of virtual interfaces.
    Separate,
}

/// Where one side was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// CPUs that it was kept to, as the kernel lists them (`0,2-3`); null for all that floodmark might use.
    pub cpus: Option<String>,
    /// How many CPUs it might use.
    pub cpu_count: u32,
    /// Its address, where it had a network of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Kernel settings that were set for its network, by their names; the others were the kernel's defaults where it had one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
}
