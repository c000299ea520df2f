//! Statistics without I/O: histograms, steady state, intervals and comparisons.

pub mod attempts;
pub mod capacity;
pub mod change;
pub mod comparison;
pub mod crash;
mod distributions;
pub mod estimate;
pub mod histogram;
pub mod saturation;
pub mod sequential;
pub mod steady;
#[cfg(test)]
mod testing;

pub use estimate::Estimate;
pub use histogram::Histogram;
pub use steady::{SeriesPoint, steady, window};
