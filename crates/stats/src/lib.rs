//! Statistics without I/O: histograms, steady state, intervals and comparisons.

pub mod attempts;
mod autocorrelation;
pub mod capacity;
mod change;
pub mod comparison;
mod distributions;
pub mod estimate;
pub mod histogram;
pub mod interval;
pub mod loss;
pub mod recovery;
pub mod saturation;
pub mod sequential;
pub mod steady;
#[cfg(test)]
mod testing;
pub mod trend;

pub use estimate::Estimate;
pub use histogram::Histogram;
pub use steady::{SeriesPoint, steady, window};
