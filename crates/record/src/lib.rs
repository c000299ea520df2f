//! The vocabulary of floodmark: what was asked ([`plan`]), what happened ([`events`]), and what is
//! kept of it ([`run`], [`result`]). It is the only thing between measuring and judging.
//!
//! Invariant: no I/O beyond reading and writing a record, and no arithmetic that judges.

pub mod cause;
pub mod client;
pub mod comparison;
pub mod elsewhere;
pub mod events;
pub mod experiment;
pub mod groups;
pub mod host;
pub mod kept;
pub mod logged;
pub mod mix;
pub mod outcome;
pub mod place;
pub mod plan;
pub mod profile;
pub mod proof;
pub mod result;
pub mod run;
pub mod sweep;
pub mod target;
pub mod times;
pub mod timetable;
pub mod tls;
pub mod units;
pub mod verdict;
pub mod watch;

pub use comparison::{Claim, Comparison, Metric};
pub use events::{Event, SecondRow, ThreadUse, WorkerEnd};
pub use outcome::{Counts, Outcome};
pub use plan::Plan;
pub use profile::Profile;
pub use result::{Record, schema};
pub use run::Run;
pub use times::{TimeKind, Times};
pub use timetable::Timetable;

/// The version of the record's format; raised when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;
