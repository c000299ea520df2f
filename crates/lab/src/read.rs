//! Reading a result back: its folder, or a file with its record.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
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
    let found = fs::metadata(path).map_err(unreadable)?;
    if !found.is_dir() {
        // A device may never end.
        if found.file_type().is_char_device() || found.file_type().is_block_device() {
            let what = io::Error::new(io::ErrorKind::InvalidInput, "a device is no file");
            return Err(unreadable(what));
        }
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

/// The record that [`read`] finds at a path, or of a folder of result folders those of all, by name.
///
/// # Errors
/// See [`ReadError`].
pub fn read_all(path: &Path) -> Result<Vec<Record>, ReadError> {
    let none = match read(path) {
        Err(none @ ReadError::NoResult { .. }) => none,
        one => return one.map(|record| vec![record]),
    };
    let unreadable = |source| ReadError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut within: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        within.push(entry.map_err(unreadable)?.path());
    }
    within.retain(|path| path.is_dir());
    within.sort_unstable();
    let mut records = Vec::new();
    for folder in within {
        match read(&folder) {
            Err(ReadError::NoResult { .. }) => {}
            record => records.push(record?),
        }
    }
    match records.is_empty() {
        true => Err(none),
        false => Ok(records),
    }
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
    fn a_folder_of_results_is_read_by_name() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            let folder = Folder::create(&parent.path().join(name)).unwrap();
            let mut record = Record::new(tool(), Environment::default());
            record.skipped.push(name.to_owned());
            folder.write_record(&record).unwrap();
        }
        fs::create_dir(parent.path().join("no result")).unwrap();
        let names = |path: &Path| -> Vec<String> {
            let all = read_all(path).unwrap();
            all.into_iter().flat_map(|record| record.skipped).collect()
        };
        assert_eq!(names(parent.path()), ["a", "b"]);
        assert_eq!(names(&parent.path().join("b")), ["b"]);
        let error = read_all(&parent.path().join("no result")).unwrap_err();
        assert!(error.to_string().contains("neither record.json"), "{error}");
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
