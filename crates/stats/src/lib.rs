//! Histograms, steady state, intervals and comparisons: functions of numbers, without I/O.

pub mod alignment;
pub mod attempts;
mod autocorrelation;
mod change;
mod chi_square;
pub mod comparison;
pub mod estimate;
pub mod histogram;
pub mod interval;
pub mod saturation;
pub mod steady;
pub mod student;
#[cfg(test)]
mod testing;

pub use estimate::Estimate;
pub use histogram::Histogram;
pub use steady::{Point, steady, window};
