//! What a record means: whether a run's figures can be read as the server's, how two systems compare, and what to do next. Functions of the
//! record, without I/O.

mod asking;
pub mod comparing;
pub mod doctor;
mod held;
pub mod next;
pub mod notes;
pub mod tls;
pub mod validity;
pub mod why;

pub use next::next_step;
pub use validity::{Evidence, HostCounters, validity};

#[cfg(test)]
mod testing;
