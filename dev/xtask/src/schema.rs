//! `cargo xtask schema`: writes the JSON Schemas of records and manifests, and the table of causes in
//! the guide, to `docs/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command;
use crate::error::TaskError;
use crate::page::{self, Mode};
use crate::workspace::Workspace;

/// Writes or checks the files. `bench` is the path of `floodmark-bench`.
pub fn run(workspace: &Workspace, mode: &Mode, bench: &Path) -> Result<(), TaskError> {
    let mut print = Command::new(bench);
    let text = command::capture(print.arg("schema"))?;
    let pages: BTreeMap<String, Value> =
        serde_json::from_str(&text).map_err(|error| TaskError::output(&print, error))?;
    for (file, page) in pages {
        let text = match page {
            Value::String(text) => text,
            schema => format!("{schema:#}\n"),
        };
        page::update(workspace, &file, &text, mode, "cargo xtask schema")?;
    }
    Ok(())
}
