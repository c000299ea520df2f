//! `floodmark-bench schema`: prints the JSON Schemas of records, manifests and `floodmark observe`.
//! The output is one JSON object keyed by file name.

use floodmark_lab::manifest::{
    check_schema, client_schema, experiment_schema, store_schema, system_schema,
};
use serde_json::json;

/// Prints the schemas.
pub fn run() {
    let schemas = json!({
        "docs/record.schema.json": floodmark_record::schema(),
        "docs/experiment.schema.json": experiment_schema(),
        "docs/system.schema.json": system_schema(),
        "docs/store.schema.json": store_schema(),
        "docs/client.schema.json": client_schema(),
        "docs/check.schema.json": check_schema(),
        "docs/observer.schema.json": floodmark_record::remote::schema(),
    });
    println!("{schemas}");
}
