//! Runs load processes: one on this host, or agents on several hosts whose events are merged into
//! one stream.
//!
//! Invariant: this crate neither records nor judges. Callers receive the events.

mod agent;
mod agent_check;
mod agent_clock;
mod command;
mod coordinator;
mod kept;
mod kubernetes;
mod merger;
mod observer;
mod place;
mod single;
mod ssh;
#[cfg(test)]
mod testing;

pub use agent::{AgentFacts, AgentLaunch};
pub use agent_check::{AgentCheck, CheckedAgent, checked_agents};
pub use agent_clock::{SteadyClock, monotonic_ns};
pub use command::read_line;
pub use coordinator::{AgentsEnd, AgentsEvent, AgentsLoad, run_agents};
pub use kubernetes::JobSource;
pub use observer::{ObserverLink, ObserverPlace};
pub use place::{AgentsLauncher, AgentsPlace, AgentsSetting, PreparedAgents};
pub use single::{EVENT_LIMIT, WorkerFailure, run, run_adjustable};
