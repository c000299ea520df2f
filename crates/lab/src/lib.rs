//! Runs experiments and attempts: starts workers and servers, records events, and folds them into
//! the record.
//!
//! Invariant: this crate renders nothing. Callers receive the same events that are recorded.

mod abort;
mod agents;
pub mod attempt;
mod attempt_monitor;
mod bundle;
pub mod capacity;
pub mod directory;
pub mod disk_test;
pub mod experiment;
pub mod fold;
pub mod manifest;
pub mod perturbation;
mod preflight;
mod probe;
pub mod read;
mod readback;
pub mod remote;
mod response_checks;
mod result_events;
mod run_events;
mod run_figures;
mod series;
pub mod server_log;
mod sizing;

pub use attempt::{Attempts, Listener, RequestLogSetting, finish};
pub use attempt_monitor::{ExitMonitor, Monitoring};
pub use directory::{Directory, EVENTS, RECORD};
pub use fold::fold;
pub use preflight::preflight;
pub use read::{FoundResult, read, read_all, read_each};
pub use readback::{SetFault, check_set};
pub use remote::RemoteObserver;
