//! Errors of a journal.

use std::io;
use std::path::{Path, PathBuf};

use floodmark_cql::CqlError;

use crate::cassandra::cassandra_fix;

/// A reason why a journal cannot be opened or has failed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The path is not a directory.
    #[error("{} is not a directory; choose the path of a new or empty directory for the journal", .0.display())]
    NotADirectory(PathBuf),
    /// The directory contains other files but no journal.
    #[error("{} contains {other:?} but no journal; choose a new or empty directory", .directory.display())]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// Name of a file that is not part of a journal.
        other: String,
    },
    /// Another process uses the journal.
    #[error("the journal {} is in use by another process; stop that process or choose another directory", .0.display())]
    InUse(PathBuf),
    /// A file of the journal is not a regular file, or does not start with the expected bytes.
    #[error("{} is not a journal file; move it elsewhere, and restore the original from a backup", .0.display())]
    NotAJournalFile(PathBuf),
    /// A file was written by a later version.
    #[error("{} was written by a later version of floodmark; use that version or another directory", .0.display())]
    LaterVersion(PathBuf),
    /// A bucket in Cassandra was written by a later version.
    #[error(
        "{place}: bucket {bucket} was written by a later version of floodmark; use that version or another keyspace"
    )]
    LaterBucket {
        /// Address and keyspace.
        place: String,
        /// Number of the bucket.
        bucket: i64,
    },
    /// A file contains records of a different size than expected.
    #[error("{} contains records of {found} bytes, not {expected}; choose this workload's journal or another directory", .file.display())]
    OtherRecords {
        /// The file.
        file: PathBuf,
        /// Size of a record in the file, in bytes.
        found: u32,
        /// Expected size of a record, in bytes.
        expected: u32,
    },
    /// A batch is damaged, but a later one is intact.
    #[error(
        "{}: the batch at byte {offset} is damaged or missing, but later records are intact; restore the directory from a backup, \
         or discard this batch and all later records: truncate -s {offset} '{}'{then}",
        .file.display(), .file.display()
    )]
    DamagedBatch {
        /// Segment with the damage.
        file: PathBuf,
        /// Offset of the damaged batch, in bytes.
        offset: usize,
        /// Further instructions for discarding the records, or an empty string.
        then: String,
    },
    /// A snapshot or the header of a segment is damaged.
    #[error("{} is damaged (invalid checksum); restore the journal's directory from a backup, or choose another directory to start empty", .0.display())]
    DamagedFile(PathBuf),
    /// A file of the journal is missing.
    #[error("{} is missing, although later files of the journal exist; restore the journal's directory from a backup, or choose another directory to start empty", .0.display())]
    MissingFile(PathBuf),
    /// A write stored fewer bytes than requested.
    #[error("a write to {} stored {written} of {expected} bytes; free disk space or raise the file size limit", .file.display())]
    ShortWrite {
        /// The segment.
        file: PathBuf,
        /// Number of bytes written.
        written: usize,
        /// Number of bytes requested.
        expected: usize,
    },
    /// The directory cannot be created.
    #[error("cannot create the directory {}: {source}; {}", .directory.display(), create_fix(.source))]
    Create {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {doing} {}: {source}; check that the directory is writable and that the disk is healthy and has free space", .path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Cassandra is unreachable, or a statement failed.
    #[error("{place}: cannot {doing}: {source}; {}", cassandra_fix(.source))]
    Cassandra {
        /// Address and keyspace.
        place: String,
        /// The operation.
        doing: &'static str,
        /// The cause.
        source: CqlError,
    },
    /// The Cassandra nodes still have different schemas after a schema change.
    #[error("{0}: the nodes do not agree on the schema; check that all nodes are up, then retry")]
    NoAgreement(String),
    /// Another server has opened the journal in Cassandra.
    #[error(
        "{0}: another server has taken over the journal; choose another keyspace, or stop the other server"
    )]
    Superseded(String),
    /// A bucket in Cassandra is missing or invalid.
    #[error(
        "{place}: bucket {bucket} is damaged: {what}; restore the keyspace from a backup, or choose another keyspace to start empty"
    )]
    DamagedBucket {
        /// Address and keyspace.
        place: String,
        /// Number of the bucket.
        bucket: i64,
        /// What is wrong.
        what: &'static str,
    },
    /// A journal thread cannot start.
    #[error("cannot start a journal thread: {0}; free memory or raise the limit on processes")]
    Thread(io::Error),
    /// A journal thread panicked.
    #[error("a journal thread panicked; report this bug and include the output")]
    Panicked,
}

/// A reason why a record was not appended. The record is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The journal has failed. It accepts no more records.
    #[error("the journal has failed")]
    Failed,
    /// The queue is full because the store cannot keep up.
    #[error("the journal's queue is full")]
    Full,
}

/// Returns a function that wraps the error of a failed system call.
pub(crate) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io {
        doing,
        path,
        source,
    }
}

/// Suggests a fix for a directory that cannot be created.
fn create_fix(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "create its parent directory first, or choose another path",
        _ => "check the permissions and free space of the parent directory, or choose another path",
    }
}
