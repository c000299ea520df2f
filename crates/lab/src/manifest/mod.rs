//! Manifests: `system.toml` says how a server is built, started and probed, `store.toml` the same of a database, `client.toml` how
//! another load generator is called; an experiment says which servers are loaded how.
//!
//! All are read strictly: a key that is not known, a value that is not what its key takes, and a name that leads nowhere are
//! errors with their line. [`fields`] is the one place that says what may stand in them; the JSON Schemas are made of it.

mod claim;
mod client;
mod experiment;
mod fields;
mod figure;
mod fill;
mod found;
mod load;
mod need;
mod place;
mod program;
mod section;
mod store;
mod sweep;
mod system;
mod template;
mod trial;
mod workload;

pub use client::Client;
pub use experiment::{Changes, Experiment};
pub use fill::{Filler, words};
pub use load::Load;
pub use need::Need;
pub(crate) use need::ask;
pub use place::{Place, Wish};
pub use program::{Build, Knob, Program, Start};
pub use store::{Behind, From, Store};
pub use system::System;
pub use template::{Template, write_template};
pub use trial::{Server, Trial};
pub use workload::{Asked, WORKLOADS, Workload};

/// JSON Schema of `system.toml`, as it is kept in `docs/system.schema.json`.
#[must_use]
pub fn system_schema() -> serde_json::Value {
    fields::schema("floodmark: a system (system.toml)", system::SYSTEM)
}

/// JSON Schema of `store.toml`, as it is kept in `docs/store.schema.json`.
#[must_use]
pub fn store_schema() -> serde_json::Value {
    fields::schema("floodmark: a store (store.toml)", store::MANIFEST)
}

/// JSON Schema of `client.toml`, as it is kept in `docs/client.schema.json`.
#[must_use]
pub fn client_schema() -> serde_json::Value {
    fields::schema("floodmark: a client (client.toml)", client::CLIENT)
}

/// JSON Schema of an experiment, as it is kept in `docs/experiment.schema.json`.
#[must_use]
pub fn experiment_schema() -> serde_json::Value {
    fields::schema("floodmark: an experiment", experiment::EXPERIMENT)
}

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_tests;
