//! Placement of client, server and store.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Placement of the roles of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// Whether client and server share a host.
    pub hosts: HostLayout,
    /// Placement of the client.
    pub client: RolePlacement,
    /// Placement of the server.
    pub server: RolePlacement,
    /// One-way network delay in seconds that floodmark's proxy adds; null without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
    /// Placement of the server's database; null without a database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StorePlacement>,
}

/// Placement of the server's database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorePlacement {
    /// Name of the store, or host and port of a store that was already running.
    pub name: String,
    /// Whether floodmark started an empty store for the server process.
    pub started: bool,
    /// Settings that differ from the store's defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub setting: BTreeMap<String, String>,
    /// Round-trip delay in seconds that floodmark's proxy adds; null without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
}

/// Whether client and server share a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostLayout {
    /// Client and server on one host, over loopback.
    Shared,
    /// Client and server in two network namespaces, connected by a pair of virtual interfaces.
    Separate,
}

/// Placement of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolePlacement {
    /// CPUs to which the role is restricted, in the kernel's format (`0,2-3`).
    /// Null if the role is not restricted.
    pub cpus: Option<String>,
    /// Number of CPUs that the role may use.
    pub cpu_count: u32,
    /// Address in the role's own network namespace; null without such a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Kernel settings of the role's network namespace, by name.
    /// All other settings have the kernel's defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
}
