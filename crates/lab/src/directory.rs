//! The result directory: the event stream, the folded record, and recorded responses.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use floodmark_host::{lock, replace_file};
use floodmark_plan::FileError;
use floodmark_record::{Event, Record};

use crate::attempt::unix_ms;
use floodmark_workers::EVENT_LIMIT;

/// File name of the event stream.
pub const EVENTS: &str = "events.jsonl";
/// File name of the folded record.
pub const RECORD: &str = "record.json";

/// Maximum number of results kept in the temporary directory.
const KEPT_RESULTS: usize = 20;
/// Directory that is memory-backed on most Linux hosts.
const MEMORY: &str = "/dev/shm";

/// An open result directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The command-line flag that specified the directory.
    flag: &'static str,
    events: File,
    /// Length of the complete events in the file, in bytes.
    length: u64,
    /// Events that could not be written.
    unsaved: Vec<Event>,
    /// Error from the first of these events.
    failure: Option<FileError>,
}

impl Directory {
    /// Creates a result in the directory `path`. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// The directory already contains a result, or cannot be written.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let failed = |what| failed(path, "--out", what);
        fs::create_dir_all(path).map_err(failed("cannot be created"))?;
        let events = File::options()
            .append(true)
            .create_new(true)
            .open(path.join(EVENTS))
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => failed("already contains a result")(error),
                _ => failed("cannot be written")(error),
            })?;
        // The lock matters only if another floodmark process resumes the result.
        let _ = lock(&events);
        Ok(Directory::new(path, "--out", events, 0))
    }

    /// Opens an existing result for appending and removes an incomplete last event. `flag` is the
    /// command-line flag that specified the directory.
    ///
    /// # Errors
    /// The directory contains no result, is in use, or cannot be written.
    pub fn reopen(path: &Path, flag: &'static str) -> Result<Self, FileError> {
        let failed = |what| failed(path, flag, what);
        let mut events = File::options()
            .read(true)
            .append(true)
            .open(path.join(EVENTS))
            .map_err(failed("contains no result to resume"))?;
        if !lock(&events).map_err(failed("cannot be locked"))? {
            let source = io::Error::other("events.jsonl is locked");
            return Err(failed("is in use by another floodmark process")(source));
        }
        let length = remove_incomplete_line(&mut events).map_err(failed("cannot be written"))?;
        Ok(Directory::new(path, flag, events, length))
    }

    fn new(path: &Path, flag: &'static str, events: File, length: u64) -> Self {
        Directory {
            path: path.to_owned(),
            flag,
            events,
            length,
            unsaved: Vec::new(),
            failure: None,
        }
    }

    /// Creates a result in the temporary directory. The result is named after the current time.
    /// Removes old results.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create_temporary() -> Result<Self, FileError> {
        let parent = own_temporary()?;
        let name = format!("{:013}-{}", unix_ms(), std::process::id());
        let directory = Self::create(&parent.join(name))?;
        remove_old(&parent);
        Ok(directory)
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event. If the file cannot be written, keeps this event and all later ones in
    /// memory, and [`Directory::failure`] returns the reason.
    pub fn append(&mut self, event: &Event) {
        if self.failure.is_none() {
            match self.write(event) {
                Ok(()) => return,
                Err(error) => self.failure = Some(self.unwritable(error)),
            }
        }
        self.unsaved.push(event.clone());
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let line = event.to_line()?;
        self.events.write_all(&line).inspect_err(|_| {
            // Readers ignore an incomplete last line if it cannot be removed.
            let _ = self.events.set_len(self.length);
        })?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Syncs all events to disk, so that they survive a crash of the host. A failure is handled as
    /// in [`Directory::append`].
    pub fn sync(&mut self) {
        if let Err(error) = self.events.sync_data() {
            let failure = self.unwritable(error);
            self.failure.get_or_insert(failure);
        }
    }

    /// Returns the events that are only in memory.
    pub(crate) fn unsaved(&self) -> &[Event] {
        &self.unsaved
    }

    /// Returns why an event could not be written, if one could not.
    #[must_use]
    pub fn failure(&self) -> Option<&FileError> {
        self.failure.as_ref()
    }

    /// Writes `record.json` atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_record(&self, record: &Record) -> Result<(), FileError> {
        record
            .to_json()
            .map_err(io::Error::from)
            .and_then(|bytes| replace_file(&self.path.join(RECORD), &bytes))
            .map_err(|error| self.unwritable(error))
    }

    fn unwritable(&self, source: io::Error) -> FileError {
        failed(&self.path, self.flag, "cannot be written")(source)
    }
}

/// Returns a function that adds a directory's path and its command-line flag to an I/O error.
fn failed(
    path: &Path,
    flag: &'static str,
    what: &'static str,
) -> impl FnOnce(io::Error) -> FileError {
    move |error| FileError {
        place: format!("directory {}", path.display()),
        what: format!("{what}: {error}; choose another directory with {flag}"),
    }
}

/// Removes the last line if it has no line feed. Returns the file's length, in bytes.
fn remove_incomplete_line(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(EVENT_LIMIT as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(length - from).read_to_end(&mut tail)?;
    let complete = tail.iter().rposition(|byte| *byte == b'\n');
    let end = complete.map_or(0, |at| from + at as u64 + 1);
    if end < length {
        file.set_len(end)?;
    }
    Ok(end)
}

/// Returns the current user's temporary directory. Creates the directory if it does not exist.
///
/// # Errors
/// `TMPDIR` does not name a directory, the directory cannot be written to, or another user can
/// change it.
pub fn own_temporary() -> Result<PathBuf, FileError> {
    // An empty TMPDIR would name the current directory.
    let parent = std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    own_directory_in(&parent)
}

/// Returns the current user's directory within a directory that all users can write to. Creates it
/// if necessary.
fn own_directory_in(parent: &Path) -> Result<PathBuf, FileError> {
    let user = rustix::process::geteuid().as_raw();
    let path = parent.join(format!("floodmark-{user}"));
    own_directory(&path, user).map_err(failed(&path, "TMPDIR", "cannot be used"))?;
    Ok(path)
}

/// Returns the current user's memory-backed directory. If the host has none, returns the directory
/// of [`own_temporary`].
///
/// # Errors
/// See [`own_temporary`].
pub fn own_memory() -> Result<PathBuf, FileError> {
    let memory = Path::new(MEMORY);
    if memory.is_dir() {
        own_directory_in(memory)
    } else {
        own_temporary()
    }
}

/// Creates a directory that only its owner can change. Checks an existing directory, because
/// another user may have created it or put a symbolic link there.
fn own_directory(path: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(path)?;
    let wrong = match () {
        () if !meta.is_dir() => "not a directory",
        () if meta.uid() != user => "owned by another user",
        () if meta.mode() & 0o022 != 0 => "other users may write to it",
        () => return Ok(()),
    };
    Err(io::Error::other(wrong))
}

/// Removes all results except the latest ones (by name). Keeps results whose names end with the PID
/// of a running process.
fn remove_old(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    let mut results: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join(EVENTS).is_file() && !is_in_use(path))
        .collect();
    results.sort_unstable();
    for old in results.iter().rev().skip(KEPT_RESULTS) {
        // Another floodmark process may remove the directory at the same time.
        let _ = fs::remove_dir_all(old);
    }
}

fn is_in_use(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.rsplit_once('-'))
        .is_some_and(|(_, pid)| Path::new("/proc").join(pid).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::host::ToolInfo;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn never_overwrites_a_result() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("deep/result");
        let mut directory = Directory::create(&path).unwrap();
        directory.append(&Event::Missing {
            missing: vec!["x".into()],
        });
        directory.sync();
        assert!(directory.failure().is_none());
        let text = Directory::create(&path).unwrap_err().to_string();
        assert!(
            text.contains("result: already contains a result: "),
            "{text}"
        );
        assert!(text.contains("--out"), "{text}");
        assert_eq!(
            fs::read_to_string(path.join(EVENTS))
                .unwrap()
                .lines()
                .count(),
            1
        );
    }

    #[test]
    fn keeps_events_in_memory_if_the_disk_is_full() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join(EVENTS), "").unwrap();
        let full = File::options().append(true).open("/dev/full").unwrap();
        let mut directory = Directory::new(parent.path(), "--out", full, 0);
        let tool = ToolInfo::floodmark("0", Vec::new());
        crate::attempt::open(&mut directory, tool);
        directory.append(&Event::Skipped {
            what: "the rest".to_owned(),
            failed: true,
        });
        let (record, failure) = crate::finish(&mut directory, None).unwrap();
        assert_eq!(record.skipped, ["the rest"]);
        assert_eq!(record.failures, ["the rest"]);
        let failure = failure.unwrap();
        assert!(failure.contains("No space left on device"), "{failure}");
        assert!(
            failure.ends_with("choose another directory with --out"),
            "{failure}"
        );
    }

    #[test]
    fn resumes_after_the_last_complete_event() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("result");
        let missing = |what: &str| Event::Missing {
            missing: vec![what.to_owned()],
        };
        let mut first = Directory::create(&path).unwrap();
        first.append(&missing("one"));
        let text = Directory::reopen(&path, "--resume")
            .unwrap_err()
            .to_string();
        assert!(text.contains("another floodmark"), "{text}");
        drop(first);
        let whole = fs::read_to_string(path.join(EVENTS)).unwrap();
        for incomplete in ["", "{\"event\"", &"x".repeat(200_000)] {
            fs::write(path.join(EVENTS), whole.clone() + incomplete).unwrap();
            Directory::reopen(&path, "--resume")
                .unwrap()
                .append(&missing("two"));
            let now = fs::read_to_string(path.join(EVENTS)).unwrap();
            assert_eq!(now, whole.clone() + &whole.replace("one", "two"));
        }
        fs::write(path.join(EVENTS), "no end").unwrap();
        drop(Directory::reopen(&path, "--resume").unwrap());
        assert_eq!(fs::read(path.join(EVENTS)).unwrap(), b"");
        assert!(Directory::reopen(&parent.path().join("none"), "--resume").is_err());
    }

    #[test]
    fn refuses_a_temporary_directory_that_others_may_change() {
        let parent = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let path = parent.path().join("own");
        own_directory(&path, user).unwrap();
        own_directory(&path, user).unwrap();
        let refuses = |path: &Path, user| own_directory(path, user).unwrap_err().to_string();
        assert_eq!(refuses(&path, user + 1), "owned by another user");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refuses(&path, user), "other users may write to it");
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(refuses(&link, user), "not a directory");
    }

    #[test]
    fn keeps_only_the_latest_results() {
        let parent = tempfile::tempdir().unwrap();
        for i in 0..KEPT_RESULTS + 3 {
            drop(Directory::create(&parent.path().join(format!("{i:03}"))).unwrap());
        }
        fs::create_dir(parent.path().join("other")).unwrap();
        let running = parent.path().join(format!("000-{}", std::process::id()));
        drop(Directory::create(&running).unwrap());
        remove_old(parent.path());
        assert!(!parent.path().join("002").exists());
        assert!(running.exists(), "a result in use stays");
        assert!(parent.path().join("003").exists());
        assert!(parent.path().join("other").exists());
    }
}
