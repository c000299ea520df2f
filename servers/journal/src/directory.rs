//! The directory of a journal. Only one process can use the directory at a time.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use floodmark_host::{lock, sync_directory};
use rustix::fs::{Mode, OFlags};

use crate::error::{JournalError, failed};

/// Extension of segments.
const EXTENSION: &str = "segment";
/// Name of the snapshot.
const SNAPSHOT: &str = "snapshot";
/// Name of the snapshot until it is complete.
const NEW_SNAPSHOT: &str = "snapshot.new";
/// Name of a segment until it is prepared.
const NEW_SEGMENT: &str = "segment.new";

/// An open and locked directory.
///
/// The lock is on the directory itself (`flock(2)`). A lock file could be deleted, and a second
/// process could then lock a new one.
#[derive(Debug)]
pub(crate) struct JournalDirectory {
    path: PathBuf,
    handle: File,
}

/// Sequence numbers and paths of the segments in a directory, in order.
pub(crate) type SegmentList = Vec<(u64, PathBuf)>;

impl JournalDirectory {
    /// Opens and locks a directory. Creates it if necessary.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        match fs::create_dir(path) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                let directory = path.to_owned();
                return Err(JournalError::Create { directory, source });
            }
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(handle) => File::from(handle),
            Err(rustix::io::Errno::NOTDIR) => {
                return Err(JournalError::NotADirectory(path.to_owned()));
            }
            Err(error) => return Err(failed("open the directory", path)(error.into())),
        };
        let directory = JournalDirectory {
            path: path.to_owned(),
            handle,
        };
        match lock(&directory.handle) {
            Ok(true) => {
                // The process that created the directory may have been killed before it synced the
                // parent directory.
                sync_directory(path).map_err(failed("sync the parent of", path))?;
                Ok(directory)
            }
            Ok(false) => Err(JournalError::InUse(directory.path)),
            Err(error) => Err(failed("lock the directory", path)(error)),
        }
    }

    /// Makes the creation, renaming and removal of files durable.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let synced = self.handle.sync_all();
        synced.map_err(failed("sync the directory", &self.path))
    }

    /// Removes unfinished files left by a killed process. Returns the segments.
    ///
    /// # Errors
    /// The directory contains other files but no journal.
    pub(crate) fn clean(&self) -> Result<SegmentList, JournalError> {
        let (segments, other) = self.list()?;
        if segments.is_empty()
            && !self.snapshot().exists()
            && let Some(other) = other
        {
            return Err(JournalError::Foreign {
                directory: self.path.clone(),
                other,
            });
        }
        for unfinished in [self.path.join(NEW_SNAPSHOT), self.new_segment()] {
            remove(&unfinished)?;
        }
        Ok(segments)
    }

    /// Returns the segments.
    pub(crate) fn segments(&self) -> Result<SegmentList, JournalError> {
        Ok(self.list()?.0)
    }

    /// Returns the segments, and the name of a file that is not part of a journal, if any.
    fn list(&self) -> Result<(SegmentList, Option<String>), JournalError> {
        let mut segments = Vec::new();
        let mut other = None;
        let unreadable = || failed("read the directory", &self.path);
        for entry in fs::read_dir(&self.path).map_err(unreadable())? {
            let path = entry.map_err(unreadable())?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match sequence(&path) {
                Some(sequence) => segments.push((sequence, path)),
                None if [SNAPSHOT, NEW_SNAPSHOT, NEW_SEGMENT].contains(&&*name) => {}
                None => other = Some(name.into_owned()),
            }
        }
        segments.sort_unstable();
        Ok((segments, other))
    }

    /// Returns the path of a segment.
    pub(crate) fn segment(&self, sequence: u64) -> PathBuf {
        self.path.join(format!("{sequence:08}.{EXTENSION}"))
    }

    /// Returns the path of a segment until it is prepared.
    pub(crate) fn new_segment(&self) -> PathBuf {
        self.path.join(NEW_SEGMENT)
    }

    /// Returns the path of the snapshot.
    pub(crate) fn snapshot(&self) -> PathBuf {
        self.path.join(SNAPSHOT)
    }
}

/// Returns the sequence number in the name of a segment.
fn sequence(path: &Path) -> Option<u64> {
    if path.extension()? != EXTENSION {
        return None;
    }
    let digits = path.file_stem()?.to_str()?;
    let sequence = digits.parse().ok()?;
    // Reject other names for the same segment, such as "1.segment".
    (format!("{sequence:08}") == digits).then_some(sequence)
}

/// Removes a file. The file may be missing.
pub(crate) fn remove(path: &Path) -> Result<(), JournalError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Renames a file within the directory.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), JournalError> {
    fs::rename(from, to).map_err(failed("rename", from))
}

/// Opens a regular file. Returns `None` if the file is missing. Never waits for the other end of a
/// FIFO, and does not follow symbolic links.
pub(crate) fn open_regular(path: &Path, access: OFlags) -> Result<Option<File>, JournalError> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO | rustix::io::Errno::ISDIR) => {
            return Err(JournalError::NotAJournalFile(path.to_owned()));
        }
        Err(error) => return Err(failed("open", path)(io::Error::from(error))),
    };
    let metadata = file.metadata().map_err(failed("read", path))?;
    if metadata.is_file() {
        Ok(Some(file))
    } else {
        Err(JournalError::NotAJournalFile(path.to_owned()))
    }
}
