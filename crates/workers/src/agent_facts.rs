//! What a coordinator learns about an agent during a run.

/// What a coordinator knows about one agent at the end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentFacts {
    /// Name of the agent, unique in the run.
    pub name: String,
    /// Name of the agent's host; empty if the agent never started.
    pub host: String,
    /// Boot ID of the host, if known.
    pub boot_id: Option<String>,
    /// Number of CPUs that the agent may use; 0 if the agent never started.
    pub cpus: u32,
    /// Skew at the start of the measurement, and its maximum error including the drift until the end
    /// of the load, both in ns. `None` if the agent was lost before its clock was read.
    pub skew_ns: Option<(i64, u64)>,
    /// Delay of the agent's start of the measurement, in ns.
    pub late_start_ns: u64,
    /// When and why the agent was lost; `None` if it completed its part.
    pub lost: Option<String>,
}
