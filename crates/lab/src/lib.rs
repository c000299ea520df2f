//! Runs experiments and attempts: starts workers and servers, records events, and folds them into
//! the record.
//!
//! Invariant: this crate renders nothing. Callers receive the same events that are recorded.

mod agent_load;
mod agent_runs;
pub mod attempt;
mod attempt_monitor;
mod bundle;
pub mod capacity;
mod crash_results;
pub mod disk_test;
pub mod exit_monitor;
pub mod experiment;
mod external_client;
pub mod fold;
pub mod folder;
mod log_tail;
pub mod manifest;
pub mod perturbation;
mod probe;
mod process_cpu;
pub mod read;
mod readback;
pub mod remote;
mod response_checks;
mod result_events;
mod run_end;
mod run_events;
mod run_figures;
pub mod server_log;

pub use attempt::{Attempts, Listener, Monitoring, finish};
pub use fold::fold;
pub use folder::{EVENTS, Folder, RECORD};
pub use read::{FoundResult, read, read_all, read_each};
pub use readback::{SetFault, check_set};
pub use remote::RemoteObserver;
