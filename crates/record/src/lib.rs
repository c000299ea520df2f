//! The data types of floodmark: the plan ([`plan`]), the events of a run ([`events`]) and the
//! record ([`run`], [`result`]).
//!
//! These types are the only interface between the code that measures and the code that judges.
//!
//! Invariants: this crate does no I/O except reading and writing records, and it judges nothing.

pub mod agent;
pub mod agent_lines;
pub mod alternating;
pub mod api_check;
mod base64_bytes;
pub mod body;
pub mod capacity;
pub mod cause;
pub mod client;
pub mod comparison;
pub mod crash;
pub mod disk;
pub mod events;
pub mod experiment;
pub mod figure;
pub mod fine_series;
pub mod gate;
pub mod grouped;
pub mod groups;
pub mod host;
pub mod kept;
pub mod logged;
pub mod merging;
pub mod metric;
pub mod mix;
mod model;
mod names;
pub mod not_ok;
pub mod operation;
pub mod outcome;
pub mod path;
pub mod place;
pub mod plan;
pub mod pointer;
pub mod profile;
pub mod proof;
pub mod reason;
pub mod remote;
pub mod result;
pub mod run;
pub mod sweep;
pub mod target;
pub mod times;
pub mod timetable;
pub mod tls;
pub mod trend;
pub mod tuning;
pub mod units;
pub mod verdict;
pub mod watch;
pub mod worded;
pub mod worker_input;

pub use comparison::{ClaimResult, ComparedMetric, Comparison};
pub use events::{Event, SecondRow, ThreadUsage, WorkerEnd};
pub use metric::{Metric, Observation};
pub use outcome::{Counts, Outcome};
pub use plan::Plan;
pub use result::{Record, schema};
pub use run::Run;
pub use times::{TimeKind, Times};
pub use timetable::Timetable;

/// Version of the record format. The version increases when a field is removed or changes meaning.
/// Records of all earlier versions can be read. Version 1 stored ruled-out causes as text.
pub const SCHEMA_VERSION: u32 = 2;
