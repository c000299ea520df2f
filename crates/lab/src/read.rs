//! Reads a saved result from its directory, or from a file that contains its record.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use floodmark_plan::FileError;
use floodmark_record::{Record, SCHEMA_VERSION};
use serde_json::Value;

use crate::directory::{EVENTS, RECORD};
use crate::fold::fold;

/// Reads a record from its file or result directory. If the directory has no `record.json`, folds
/// the directory's events.
///
/// # Errors
/// The path cannot be read, or contains no record of this schema version.
pub fn read(path: &Path) -> Result<Record, FileError> {
    read_if_any(path)?.ok_or_else(|| no_result(path))
}

/// Reads the record at a path, or the records of all result directories in it, sorted by name.
///
/// # Errors
/// See [`read`].
pub fn read_all(path: &Path) -> Result<Vec<Record>, FileError> {
    let results = read_each(path)?.into_iter();
    results.map(|found| found.record).collect()
}

/// A result with its path.
#[derive(Debug)]
pub struct FoundResult {
    /// Result directory, or file that contains the record.
    pub path: PathBuf,
    /// The record, or the reason why it cannot be read.
    pub record: Result<Record, FileError>,
}

/// Reads the result at a path. If the path is a directory without a result, reads each result
/// directory in it, in order of name.
///
/// # Errors
/// The path cannot be read, or contains no result.
pub fn read_each(path: &Path) -> Result<Vec<FoundResult>, FileError> {
    if let Some(record) = read_if_any(path).transpose() {
        let path = path.to_owned();
        return Ok(vec![FoundResult { path, record }]);
    }
    let entries = fs::read_dir(path).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<io::Result<Vec<PathBuf>>>()
    });
    let mut directories = entries.map_err(|error| unreadable(path, error))?;
    directories.retain(|path| path.is_dir());
    directories.sort_unstable();
    let read = |path: PathBuf| {
        let record = read_if_any(&path).transpose()?;
        Some(FoundResult { path, record })
    };
    let results: Vec<FoundResult> = directories.into_iter().filter_map(read).collect();
    if results.is_empty() {
        Err(no_result(path))
    } else {
        Ok(results)
    }
}

/// Reads a record, or returns `None` for a directory without a result.
fn read_if_any(path: &Path) -> Result<Option<Record>, FileError> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
    let kind = metadata.file_type();
    // Reading a device may never end.
    if kind.is_char_device() || kind.is_block_device() {
        return Err(unreadable(path, io::Error::other("a device")));
    }
    let record = path.join(RECORD);
    if !metadata.is_dir() {
        read_file(path).map(Some)
    } else if record.is_file() {
        read_file(&record).map(Some)
    } else if path.join(EVENTS).is_file() {
        fold(path).map(Some)
    } else {
        Ok(None)
    }
}

fn unreadable(path: &Path, error: io::Error) -> FileError {
    let fix = "name a result directory or a file written by --json";
    FileError::in_file(path, format!("{error}; {fix}"))
}

fn no_result(path: &Path) -> FileError {
    let what = format!("contains neither {RECORD} nor {EVENTS}; name a directory written by --out");
    FileError::in_file(path, what)
}

fn read_file(path: &Path) -> Result<Record, FileError> {
    let bytes = fs::read(path).map_err(|error| unreadable(path, error))?;
    // Check the version first, because records of other schema versions may have other fields.
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let version = value["schema"].as_u64();
    let known = 1..=u64::from(SCHEMA_VERSION);
    if let Some(found) = version.filter(|found| !known.contains(found)) {
        let what = format!(
            "schema version {found} is not supported (expected 1 to {SCHEMA_VERSION}); use the floodmark version that wrote this record"
        );
        return Err(FileError::in_file(path, what));
    }
    let mut record = Record::from_json(&bytes).map_err(|error| {
        let text = error.to_string();
        // Omit the position from the message, because `place` contains it.
        let reason = text.split(" at line ").next().unwrap_or_default();
        FileError {
            place: format!("{}:{}:{}", path.display(), error.line(), error.column()),
            what: format!(
                "not a floodmark record: {reason}; name a result directory or a file written by --json"
            ),
        }
    })?;
    record.schema = SCHEMA_VERSION;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;
    use floodmark_record::Event;
    use floodmark_record::host::{Environment, ToolInfo};

    fn tool() -> ToolInfo {
        ToolInfo::floodmark("0", Vec::new())
    }

    #[test]
    fn reads_a_directory_a_record_or_events() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("result");
        let mut directory = Directory::create(&path).unwrap();
        directory.append(&Event::Opened {
            schema: SCHEMA_VERSION,
            tool: tool(),
            environment: Environment::default(),
        });
        assert_eq!(read(&path).unwrap().tool, tool());
        let mut record = Record::new(tool(), Environment::default());
        record.skipped.push("written".to_owned());
        directory.write_record(&record).unwrap();
        assert_eq!(read(&path).unwrap(), record);
        assert_eq!(read(&path.join(RECORD)).unwrap(), record);
    }

    #[test]
    fn reads_a_directory_of_results_by_name() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            let directory = Directory::create(&parent.path().join(name)).unwrap();
            let mut record = Record::new(tool(), Environment::default());
            record.skipped.push(name.to_owned());
            directory.write_record(&record).unwrap();
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
    fn names_the_place_of_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let error = |path: &Path| read(path).unwrap_err().to_string();
        assert!(error(&parent.path().join("absent")).contains("--json"));
        assert!(error(parent.path()).contains("neither record.json nor events.jsonl"));
        let file = parent.path().join("x.json");
        fs::write(&file, "{\n  \"schema\": 1,\n  \"tool\": 3\n}").unwrap();
        assert!(error(&file).contains("x.json:3:"), "{}", error(&file));
        fs::write(&file, "{\"schema\": 99}").unwrap();
        assert!(
            error(&file).contains("schema version 99"),
            "{}",
            error(&file)
        );
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(
            error(&file).contains("not a floodmark record"),
            "{}",
            error(&file)
        );
    }
}
