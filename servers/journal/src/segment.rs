//! A segment: a file of fixed size that contains batches.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::directory::{JournalDirectory, open_regular, remove, rename};
use crate::error::{JournalError, failed};
use crate::format::{BLOCK, SegmentHeader, seal};

/// Number of zero bytes per write when a segment is filled.
const FILL_BYTES: usize = 1 << 20;

/// The segment that the journal writes to.
#[derive(Debug)]
pub(crate) struct Segment {
    file: File,
    path: PathBuf,
    header: SegmentHeader,
    /// Offset of the next batch, in bytes.
    at: u64,
    /// Size of the file, in bytes.
    bytes: u64,
}

impl Segment {
    /// Opens an existing segment without valid batches.
    pub(crate) fn reopen(path: &Path, header: SegmentHeader) -> Result<Self, JournalError> {
        let file = open_regular(path, OFlags::RDWR)?;
        let file = file.ok_or_else(|| JournalError::MissingFile(path.to_owned()))?;
        let bytes = file.metadata().map_err(failed("read", path))?.len();
        Ok(Segment {
            file,
            path: path.to_owned(),
            header,
            at: BLOCK as u64,
            bytes,
        })
    }

    /// Creates an empty segment, from an old segment of the same size if possible.
    ///
    /// A new file is filled with zeros. Its blocks are then allocated and marked as written, so
    /// that a later `fdatasync` writes only data. After `fallocate`, each `fdatasync` would also
    /// write metadata. The file gets its final name when it is complete and durable.
    pub(crate) fn create(
        directory: &JournalDirectory,
        (sequence, bytes): (u64, u64),
        record_bytes: u32,
        old: Option<&Path>,
    ) -> Result<Self, JournalError> {
        let header = SegmentHeader {
            record_bytes,
            sequence,
            // The keys of a `RandomState` are random.
            salt: RandomState::new().build_hasher().finish(),
        };
        let (path, new) = (directory.segment(sequence), directory.new_segment());
        let reused = old.map(|old| reuse(directory, old, bytes)).transpose()?;
        let file = match reused.flatten() {
            Some(file) => {
                let first = header.encode();
                write_at(&file, &new, &first, 0)?;
                file
            }
            None => fill(&new, &header, bytes)?,
        };
        file.sync_all().map_err(failed("sync", &new))?;
        rename(&new, &path)?;
        directory.sync()?;
        Ok(Segment {
            file,
            path,
            header,
            at: BLOCK as u64,
            bytes,
        })
    }

    /// Returns the position of the segment in the journal.
    pub(crate) fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// Returns whether a batch of this length fits, after padding.
    pub(crate) fn has_room(&self, batch: usize) -> bool {
        self.at + batch.next_multiple_of(BLOCK) as u64 <= self.bytes
    }

    /// Returns whether at least half of the segment is used.
    pub(crate) fn is_half_full(&self) -> bool {
        self.at >= self.bytes / 2
    }

    /// Completes a batch and writes it durably. `first` is the number of records before the batch.
    /// After an error, the segment must not be used again.
    pub(crate) fn append(&mut self, batch: &mut Vec<u8>, first: u64) -> Result<(), JournalError> {
        seal(batch, first, self.header.salt);
        write_at(&self.file, &self.path, batch, self.at)?;
        let synced = self.file.sync_data();
        synced.map_err(failed("sync", &self.path))?;
        self.at += batch.len() as u64;
        Ok(())
    }
}

/// Renames an old segment to the name of a new one. Returns `None` if its size differs.
fn reuse(
    directory: &JournalDirectory,
    old: &Path,
    bytes: u64,
) -> Result<Option<File>, JournalError> {
    let Some(file) = open_regular(old, OFlags::RDWR)? else {
        return Ok(None);
    };
    if file.metadata().map_err(failed("read", old))?.len() != bytes {
        return Ok(None);
    }
    rename(old, &directory.new_segment())?;
    // Without this sync, a crash could leave the new header in a file with the old name.
    directory.sync()?;
    Ok(Some(file))
}

/// Creates a file with a header and zeros.
fn fill(path: &Path, header: &SegmentHeader, bytes: u64) -> Result<File, JournalError> {
    remove(path)?;
    let create = || {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.write_all(&header.encode())?;
        let zeros = vec![0; FILL_BYTES];
        let mut left = bytes.saturating_sub(BLOCK as u64);
        while left > 0 {
            let n = left.min(FILL_BYTES as u64);
            file.write_all(&zeros[..n as usize])?;
            left -= n;
        }
        Ok(file)
    };
    create().map_err(failed("create", path))
}

/// Writes with a single system call. A short write is an error, because the disk is full or broken.
fn write_at(file: &File, path: &Path, bytes: &[u8], at: u64) -> Result<(), JournalError> {
    let written = rustix::io::pwrite(file, bytes, at);
    let written = written.map_err(|error| failed("write", path)(error.into()))?;
    if written < bytes.len() {
        return Err(JournalError::ShortWrite {
            file: path.to_owned(),
            written,
            expected: bytes.len(),
        });
    }
    Ok(())
}
