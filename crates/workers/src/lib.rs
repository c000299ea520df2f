//! Runs load processes: one on this host, or agents on several hosts whose events are merged into
//! one stream.
//!
//! Invariant: this crate neither records nor judges. Callers receive the events.

mod agent_facts;
mod kept;
mod lines;
mod merged_end;
mod merger;
mod single;
mod steady_clock;
#[cfg(test)]
mod testing;

pub use agent_facts::AgentFacts;
pub use kept::{KeptPart, join_kept};
pub use lines::read_line;
pub use merger::Merger;
pub use single::{EVENT_LIMIT, WorkerFailure, run};
pub use steady_clock::SteadyClock;
