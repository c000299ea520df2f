//! Agents: the workers, often on several hosts, that send one load together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::Counts;
use crate::run::{ClientUsage, Validity};

/// One agent's part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRun {
    /// Name of the agent: its place, and its number if the place has several agents.
    pub name: String,
    /// Name of the agent's host; empty if the agent never started.
    pub host: String,
    /// Boot ID of the host, the same in all its containers. Null if the agent never started or the ID
    /// cannot be read.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Whether the agent uses CPUs of the coordinator's host: their boot IDs are equal.
    pub shares_host: bool,
    /// Number of CPUs that the agent may use; 0 if it never started. The other agents then sent its
    /// share.
    pub cpus: u32,
    /// The agent's wall clock minus the coordinator's, in µs, at the start of the measurement.
    /// All times in the record are already corrected for this skew. Null if it was not measured.
    pub skew_us: Option<f64>,
    /// Maximum error of `skew_us` in µs, including the drift until the end of the load. Null if the
    /// skew was not measured.
    pub bound_us: Option<f64>,
    /// Delay of the agent's start of the measurement, in µs.
    pub late_start_us: f64,
    /// Ok responses per second over the agent's whole measurement; null if it was lost.
    pub throughput_per_s: Option<f64>,
    /// Counts of the agent's requests.
    pub requests: Counts,
    /// Longest stall of a load thread in ns; null if the agent was lost.
    pub longest_stall_ns: Option<u64>,
    /// Resources used by the agent.
    pub client: ClientUsage,
    /// Validity of the agent's part.
    pub validity: Validity,
    /// When and why the agent was lost; null if it sent all its requests.
    pub lost: Option<String>,
}

/// Returns the number of CPUs that agents may use. Agents on one host share its CPUs.
pub(crate) fn cpus(agents: &[AgentRun]) -> u32 {
    let mut hosts = BTreeMap::new();
    for agent in agents {
        let host = agent.boot_id.as_ref().unwrap_or(&agent.host);
        let cpus = hosts.entry(host).or_insert(0);
        *cpus = agent.cpus.max(*cpus);
    }
    hosts.values().sum()
}
