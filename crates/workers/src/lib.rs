//! Runs load processes: one on this host, or agents on several hosts whose events are merged into
//! one stream.
//!
//! Invariant: this crate neither records nor judges. Callers receive the events.

mod agent;
mod agent_check;
mod agent_clock;
mod agent_job;
mod agent_pods;
mod agent_process;
mod coordinator;
mod kept;
mod launch;
mod merged_end;
mod merger;
mod observer_link;
mod observer_place;
mod pipes;
mod place;
mod single;
mod ssh;
#[cfg(test)]
mod testing;
mod user_command;

pub use agent::{AgentFacts, AgentLaunch};
pub use agent_check::{AgentCheck, CheckedAgent, checked_agents};
pub use agent_clock::{SteadyClock, monotonic_ns};
pub use coordinator::{AgentsEnd, AgentsEvent, AgentsLoad, run_agents};
pub use kept::{KeptPart, join_kept};
pub use launch::{AgentsSetting, PreparedAgents};
pub use merger::Merger;
pub use observer_link::ObserverLink;
pub use observer_place::ObserverPlace;
pub use pipes::read_line;
pub use place::{AgentsPlace, JobSource, MAX_AGENTS};
pub use single::{EVENT_LIMIT, WorkerFailure, run};
