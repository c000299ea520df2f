//! Checks of the correctness of a run's responses, based on the kept parts of the responses.

pub mod counter;
pub mod responses;
pub mod scoring;
pub mod sequence;

pub use counter::CheckContext;
pub use responses::{DrawnNumber, decode_numbers, decode_scores};
pub use scoring::scoring;
pub use sequence::sequence;
