//! Pure functions that judge a record: validity, verdicts, comparisons, gates, claims, conditions
//! and next steps.

mod asking;
pub mod comparing;
pub mod conditions;
pub mod doctor;
mod failures;
pub mod gate;
pub mod next;
pub mod notes;
mod silence;
mod suspicion;
mod text;
pub mod tls;
pub mod tuning;
pub mod validity;
pub mod why;

pub use failures::{ResponseFault, response_fault};
pub use next::{next_step, unexpected_response};
pub use silence::server_gone_since_s;
pub use suspicion::RecentFigures;
pub use validity::{agent_validity, client_fault, validity};

#[cfg(test)]
mod testing;
