//! `cargo xtask schema`: the record's JSON Schema as a file, for readers that are not Rust.

use crate::error::Error;
use crate::page::{self, Mode};
use crate::workspace::Workspace;

/// The file, from the root.
const FILE: &str = "docs/record.schema.json";

/// Writes or compares the file.
pub fn run(workspace: &Workspace, mode: Mode) -> Result<(), Error> {
    let schema = floodmark_record::schema();
    page::settle(
        workspace,
        FILE,
        &format!("{schema:#}\n"),
        mode,
        "cargo xtask schema",
    )
}
