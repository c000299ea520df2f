//! `cargo xtask schema`: the JSON Schemas of the record, of the manifests and of what `observe` writes as files, for readers and editors that are not Rust.

use floodmark_lab::manifest::{client_schema, experiment_schema, store_schema, system_schema};

use crate::error::Error;
use crate::page::{self, Mode};
use crate::workspace::Workspace;

/// Writes or compares the files.
pub fn run(workspace: &Workspace, mode: Mode) -> Result<(), Error> {
    for (file, schema) in [
        ("docs/record.schema.json", floodmark_record::schema()),
        ("docs/experiment.schema.json", experiment_schema()),
        ("docs/system.schema.json", system_schema()),
        ("docs/store.schema.json", store_schema()),
        ("docs/client.schema.json", client_schema()),
        (
            "docs/observer.schema.json",
            floodmark_record::elsewhere::schema(),
        ),
    ] {
        let wanted = format!("{schema:#}\n");
        page::settle(workspace, file, &wanted, mode, "cargo xtask schema")?;
    }
    Ok(())
}
