//! Correctness of the answers of a run, from what was kept of them. No I/O: bytes come in, a judgement goes out.

pub mod answers;
pub mod sequence;

pub use answers::{Answer, decode_answers};
pub use sequence::{Kept, sequence};
