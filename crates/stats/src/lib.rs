//! Histograms, steady state and intervals: functions of numbers, without I/O.

pub mod histogram;

pub use histogram::Histogram;
