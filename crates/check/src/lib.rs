//! Correctness checks for the responses of a run. The checks use the parts of the responses that
//! were kept during the run.
//!
//! [`sequence`] and [`scoring`] check one counter. [`check_api`] checks the operations on any API.

mod api;
pub mod counter;
pub mod crash;
mod crash_api;
mod history;
mod increments;
mod register;
pub mod responses;
pub mod scoring;
pub mod sequence;
mod set;

pub use api::check_api;
pub use counter::CheckContext;
pub use crash::{RoundContext, crashed_scoring, crashed_sequence};
pub use crash_api::{ApiRound, ApiState};
pub use responses::{DrawnNumber, decode_items, decode_numbers, decode_operations, decode_scores};
pub use scoring::scoring;
pub use sequence::sequence;
pub use set::FoundItems;
