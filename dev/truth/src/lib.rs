//! A reference for testing floodmark. [`TruthServer`] is an HTTP server that injects known
//! faults and logs each request. [`run_cases`] runs the cases T1 to T16, which compare the figures
//! of `floodmark` with the server's log and with formulas.
//!
//! Client and server read the same clock (CLOCK_MONOTONIC of one host), so the server's log is an
//! independent reference for the client's figures.
//!
//! [`capacity`] computes the capacities of scenarios.
//!
//! [`store::StartedStore`] runs this repository's stores for the tests of other crates.
//!
//! This crate is used only in tests and measurements of floodmark.

pub mod capacity;
pub mod cases;
pub mod log;
pub mod scenario;
pub mod server;
pub mod service;
pub mod store;
mod sys;

pub use cases::{CaseOptions, reference, run_cases};
pub use log::Log;
pub use scenario::Scenario;
pub use server::{TruthError, TruthServer};
