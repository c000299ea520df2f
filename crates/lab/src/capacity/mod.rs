//! Searches for the highest rate at which a server meets its objectives.
//!
//! [`CapacityRun`] sends the loads, `floodmark_stats::capacity` chooses their rates, and
//! [`CapacityEvents`] derives the result from the recorded trials.

mod loads;
mod result;
mod run;
mod searches;

pub(crate) use loads::closed_load;
pub use result::{CapacityEvents, EarlierSearch};
pub use run::{CapacityRun, check_budget};

/// Half-width of the interval at which a search ends, as a share of the capacity.
pub const CAPACITY_PRECISION: f64 = 0.02;
