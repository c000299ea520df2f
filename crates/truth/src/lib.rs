//! A reference for testing floodmark: an HTTP/1.1 server that injects known faults and logs each
//! request ([`TruthServer`]), and the cases T1 to T10 that compare `floodmark` with that log and
//! with formulas ([`run_cases`]).
//!
//! Client and server read the same clock (CLOCK_MONOTONIC of one host), so every figure of the
//! client has an independent reference.
//!
//! For tests and measurements of floodmark only.

pub mod cases;
pub mod choice;
pub mod log;
pub mod scenario;
pub mod server;
pub mod sys;

pub use cases::{CaseReport, reference, run_cases};
pub use log::Log;
pub use scenario::Scenario;
pub use server::{TruthError, TruthServer};
