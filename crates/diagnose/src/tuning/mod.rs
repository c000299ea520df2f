//! Tuning: which setting to measure next, and the smallest setting within 2 % of the best
//! (docs/decisions/0036-tune.md).
//!
//! The search is a function of the measured processes. It runs from the start each time, and stops
//! at the first process that has not been measured. Therefore, an interrupted tuning can be resumed,
//! and a record can be judged again.

mod advice;
mod figure;
mod line;
mod measured;
mod outcome;
mod search;

pub(crate) use advice::FullPool;
pub use outcome::{TuningState, judge};
pub use search::NextProcess;

/// Settings whose figure is at least this share of the best figure are good enough.
const ENOUGH: f64 = 0.98;

#[cfg(test)]
mod capacity_tests;
#[cfg(test)]
mod search_tests;
