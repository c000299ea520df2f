//! Correctness checks for the responses of a run. The checks use the parts of the responses that
//! were kept during the run.

pub mod counter;
pub mod crash;
pub mod responses;
pub mod scoring;
pub mod sequence;

pub use counter::CheckContext;
pub use crash::{RoundContext, crashed_scoring, crashed_sequence};
pub use responses::{DrawnNumber, decode_numbers, decode_scores};
pub use scoring::scoring;
pub use sequence::sequence;
