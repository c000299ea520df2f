//! Turns command-line flags and manifests into one validated, typed plan.
//!
//! [`PlanSpec`] holds the settings as the user gave them, in flags or in a file.
//! [`target::resolve`] finds the server's addresses. [`plan`] checks the settings against each
//! other and against the host, and returns a [`Plan`](floodmark_record::Plan) for a worker.
//!
//! Invariant: this crate starts no process and connects to no server.

pub mod api_check;
pub mod certificate;
mod feed;
pub mod grpc;
mod host_addresses;
pub mod http;
mod input;
mod io_backend;
pub mod mix;
mod negotiation;
mod planning;
mod schedule;
pub mod spec;
pub mod target;
pub mod toml_file;
pub mod trust;
pub mod values;

pub use api_check::{CheckDocument, CheckFile, WriteRequest};
pub use host_addresses::HostAddresses;
pub use mix::MixFile;
pub use planning::{MAX_THREADS, Planned, agent_shortage, plan};
pub use spec::{LoadSpec, Origin, PlanSpec};
pub use toml_file::{FileError, did_you_mean};
