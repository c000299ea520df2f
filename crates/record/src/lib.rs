//! The data types of floodmark: the plan ([`plan`]), the events of a result ([`stream`]) and
//! the record ([`run`], [`result`]).
//!
//! These types are the only interface between the code that measures and the code that judges.
//!
//! A module depends only on modules in its own line of this list or in earlier lines:
//!
//! - values: [`units`], [`times`], [`grpc`], [`outcome`], [`interval`], [`cause`],
//!   [`origin`]
//! - a worker's input and reports: [`plan`], [`worker_input`], [`events`]
//! - the parts of a run: [`host`], [`metric`], [`watch`], [`verdict`]; then [`run`]
//! - results of several runs: [`comparison`], [`experiment`], [`capacity`], [`gate`], [`tuning`]
//! - [`stream`], from which the [`result`] is derived; `json` reads and writes both
//!
//! Invariants: this crate does no I/O except reading and writing records, and it judges nothing.

pub mod agent_lines;
pub mod api_check;
pub mod body;
pub mod capacity;
pub mod cause;
pub mod client;
pub mod comparison;
pub mod crash;
pub mod credentials;
pub mod disk;
pub mod events;
pub mod experiment;
pub mod feed;
pub mod figure;
pub mod gate;
pub mod grouped;
pub mod grpc;
pub mod host;
pub mod http2;
pub mod interval;
mod json;
pub mod kept;
pub mod metric;
mod names;
pub mod operation;
pub mod origin;
pub mod outcome;
pub mod path;
pub mod plan;
pub mod pointer;
pub mod reason;
pub mod result;
pub mod run;
pub mod stream;
pub mod times;
pub mod tls;
pub mod tuning;
pub mod units;
pub mod verdict;
pub mod watch;
pub mod worker_input;

pub use comparison::{ClaimResult, ComparedMetric, Comparison};
pub use events::{SecondRow, ThreadUsage, WorkerEnd};
pub use metric::{Metric, Observation};
pub use outcome::{Counts, Outcome};
pub use plan::{Plan, Timetable};
pub use result::{Record, schema};
pub use run::Run;
pub use stream::Event;
pub use times::{TimeKind, Times};

/// Version of the record format. The version increases when a field is removed or its meaning
/// changes. Records of all earlier versions can be read. Version 1 stored ruled-out causes as text.
/// Versions 1 and 2 called the candidate of a comparison `a` and its baseline `b`.
pub const SCHEMA_VERSION: u32 = 3;
