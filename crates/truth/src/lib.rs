//! Known truth: an HTTP/1.1 server that injects what it is told and logs it ([`Server`]), and the cases
//! T1 to T10 that hold a real `floodmark` against that log and against closed formulas ([`run_cases`]).
//!
//! Client and server read the same clock (CLOCK_MONOTONIC of one machine) on the same requests, so every
//! figure of the client has a reference that does not come from the client.
//!
//! Tests only; nothing else depends on this crate.

pub mod cases;
pub mod choice;
pub mod log;
pub mod scenario;
pub mod server;
pub mod sys;

pub use cases::{CaseReport, reference, run_cases};
pub use log::Log;
pub use scenario::Scenario;
pub use server::{Server, TruthError};
