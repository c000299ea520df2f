//! Manifests: `system.toml`, `store.toml` and `client.toml` define how to build, start and call
//! programs. An experiment defines which servers to load, and how.
//!
//! Serde types read manifests strictly and also generate their JSON Schemas. Every error
//! message contains the line number.

mod changes;
mod client;
mod experiment;
mod files;
mod modes;
mod place;
mod program;
mod system;
mod trial;
mod versions;
mod workload;

use floodmark_plan::toml_file::schema;
use serde_json::{Value as Json, json};

pub use changes::{Changes, TuningRequest};
pub use client::Client;
pub use experiment::Experiment;
pub use files::{Template, write_template};
pub use modes::CapacitySearchPlan;
pub use place::{PlacementSpec, TrialPlacement};
pub(crate) use program::ask;
pub use program::{
    Build, CommandWords, Filler, Knob, ManifestPackage, Need, Program, ReadyPath, Start, UrlScheme,
};
pub use system::{Store, StoreSource, System, TrialStore};
pub use trial::Trial;
pub use versions::{VersionComparison, request_path};
pub use workload::{Workload, WorkloadRequest};

/// Returns the JSON Schema of `system.toml`, kept in `docs/system.schema.json`.
#[must_use]
pub fn system_schema() -> Json {
    titled::<system::SystemManifest>("floodmark: a system (system.toml)")
}

/// Returns the JSON Schema of `store.toml`, kept in `docs/store.schema.json`.
#[must_use]
pub fn store_schema() -> Json {
    titled::<system::StoreManifest>("floodmark: a store (store.toml)")
}

/// Returns the JSON Schema of `client.toml`, kept in `docs/client.schema.json`.
#[must_use]
pub fn client_schema() -> Json {
    titled::<client::ClientManifest>("floodmark: a client (client.toml)")
}

/// Returns the JSON Schema of an experiment, kept in `docs/experiment.schema.json`.
#[must_use]
pub fn experiment_schema() -> Json {
    titled::<experiment::ExperimentManifest>("floodmark: an experiment")
}

/// Returns the JSON Schema of a check file, kept in `docs/check.schema.json`.
#[must_use]
pub fn check_schema() -> Json {
    titled::<floodmark_plan::CheckDocument>("floodmark: a check (load --check FILE)")
}

fn titled<T: schemars::JsonSchema>(title: &str) -> Json {
    let mut schema = schema::<T>();
    schema["title"] = json!(title);
    schema
}

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_tests;
