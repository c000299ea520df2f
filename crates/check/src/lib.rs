//! Correctness checks for the responses of a run. The checks use the parts of the responses that
//! were kept during the run.
//!
//! [`sequence`] and [`scoring`] check one counter. [`check_api`] checks the operations on any API.

mod api;
mod counter;
pub mod crash;
mod increments;
mod register;
mod responses;
mod result;
mod scoring;
mod set;

pub use api::check_api;
pub use counter::{CheckContext, sequence};
pub use crash::{ApiRound, ApiState, RoundContext, crashed_scoring, crashed_sequence};
pub use responses::{DrawnNumber, decode_items, decode_numbers, decode_operations, decode_scores};
pub use scoring::scoring;
pub use set::FoundItems;
