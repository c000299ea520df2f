//! Correctness of the answers of a run, from what was kept of them. No I/O: bytes come in, a judgement goes out.

pub mod answers;
pub mod order;
pub mod scoring;
pub mod sequence;

pub use answers::{Answer, decode_answers, decode_scores};
pub use order::Beside;
pub use scoring::scoring;
pub use sequence::sequence;
