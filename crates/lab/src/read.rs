//! Reading a result back: its folder, or a file with its record.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floodmark_record::{Record, SCHEMA_VERSION};

use crate::fold::{FoldError, fold};
use crate::folder::{EVENTS, RECORD};

/// Why a record could not be read; each text names the place and the mend.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is nothing to read.
    #[error("{}: {source}; name a result folder, or the file that --json wrote", path.display())]
    Unreadable {
        /// What was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder without a result.
    #[error("{}: holds neither {RECORD} nor {EVENTS}; name the folder that --out named", path.display())]
    NoResult {
        /// Which.
        path: PathBuf,
    },
    /// A file that is no record.
    #[error("{}:{line}:{column}: not a record of floodmark: {reason}; name a result folder, or the file that --json wrote", path.display())]
    NoRecord {
        /// Which.
        path: PathBuf,
        /// Where in it, from 1.
        line: usize,
        /// Where in the line, from 1.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// A record in a format that this floodmark does not know.
    #[error("{}: is of schema {found}, and this floodmark reads schema {SCHEMA_VERSION}; use the floodmark that took it", path.display())]
    OtherSchema {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// Events that cannot be folded.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// Reads the record in a result folder, folding its events where a run that was killed left no `record.json`; or a record
/// that lies in a file of its own.
///
/// # Errors
/// See [`ReadError`].
pub fn read(path: &Path) -> Result<Record, ReadError> {
    let unreadable = |source| ReadError::Unreadable {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return of_file(path);
    }
    let kept = path.join(RECORD);
    if kept.is_file() {
        return of_file(&kept);
    }
    if path.join(EVENTS).is_file() {
        return Ok(fold(path)?);
    }
    Err(ReadError::NoResult {
        path: path.to_owned(),
    })
}

fn of_file(path: &Path) -> Result<Record, ReadError> {
    let bytes = fs::read(path).map_err(|source| ReadError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    // A later schema may have other fields, so its number is looked at before them.
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(&bytes)
        && let Some(schema) = value.get("schema").and_then(serde_json::Value::as_u64)
        && schema != u64::from(SCHEMA_VERSION)
    {
        return Err(ReadError::OtherSchema {
            path: path.to_owned(),
            found: schema,
        });
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let text = error.to_string();
        // The place is said before the reason.
        let reason = text.split(" at line ").next().unwrap_or_default();
        ReadError::NoRecord {
            path: path.to_owned(),
            line: error.line(),
            column: error.column(),
            reason: reason.to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;
    use floodmark_record::Event;
    use floodmark_record::run::{Environment, ToolInfo};

    fn tool() -> ToolInfo {
        ToolInfo {
            name: "floodmark".to_owned(),
            version: "0".to_owned(),
            command: Vec::new(),
        }
    }

    #[test]
    fn a_result_is_read_from_its_folder_its_record_or_its_events() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("result");
        let mut folder = Folder::create(&path).unwrap();
        folder
            .append(&Event::Opened {
                schema: SCHEMA_VERSION,
                tool: tool(),
                environment: Environment::default(),
            })
            .unwrap();
        folder.sync().unwrap();
        assert_eq!(read(&path).unwrap().tool, tool());
        let mut record = Record::new(tool(), Environment::default());
        record.skipped.push("written".to_owned());
        folder.write_record(&record).unwrap();
        assert_eq!(read(&path).unwrap(), record);
        assert_eq!(read(&path.join(RECORD)).unwrap(), record);
    }

    #[test]
    fn what_is_no_result_is_named_with_its_place() {
        let parent = tempfile::tempdir().unwrap();
        let error = |path: &Path| read(path).unwrap_err().to_string();
        assert!(error(&parent.path().join("absent")).contains("--json"));
        assert!(error(parent.path()).contains("neither record.json nor events.jsonl"));
        let file = parent.path().join("x.json");
        fs::write(&file, "{\n  \"schema\": 1,\n  \"tool\": 3\n}").unwrap();
        assert!(error(&file).contains("x.json:3:"), "{}", error(&file));
        fs::write(&file, "{\"schema\": 99}").unwrap();
        assert!(error(&file).contains("schema 99"), "{}", error(&file));
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(error(&file).contains("not a record"), "{}", error(&file));
    }
}
