//! Reads a journal back.
//!
//! Recovery reads the snapshot and all later segments. It then writes a new snapshot and continues
//! in a segment without valid batches. The new snapshot makes the recovered records durable even if
//! an earlier sync of their segment failed.
//!
//! A snapshot of the state replaces all records before the segment that it names. The fields of a
//! snapshot, with sizes in bytes:
//!
//! ```text
//! magic 8 │ version 4 │ record size 4 │ records 8 │ segment 8 │ length 4 │ checksum 4 │ state
//! ```

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use floodmark_host::replace_file;
use rustix::fs::OFlags;

use crate::JournalState;
use crate::directory::{JournalDirectory, open_regular};
use crate::error::{JournalError, failed};
use crate::format::{
    BLOCK, HeaderFault, HeaderFields, SegmentHeader, SegmentScan, scan, versioned,
};
use crate::segment::Segment;

/// A recovered journal.
pub(crate) struct Recovered<S> {
    /// State after all records.
    pub(crate) state: S,
    /// Number of records.
    pub(crate) records: u64,
    /// The segment for the next record.
    pub(crate) segment: Segment,
}

/// The segment that was read last.
struct LastSegment {
    path: PathBuf,
    header: SegmentHeader,
    /// End of its valid batches, in bytes.
    end: usize,
}

/// Reads a journal and prepares it for the next record. `segment_bytes` is the size of a new
/// segment.
pub(crate) fn recover<S: JournalState>(
    directory: &JournalDirectory,
    segment_bytes: u64,
    empty: S,
) -> Result<Recovered<S>, JournalError> {
    let record_bytes = S::RECORD_BYTES as u32;
    let segments = directory.clean()?;
    let old = StateSnapshot::read(directory)?;
    let (mut state, mut records, first) = match &old {
        None => (empty, 0, 1),
        Some(snapshot) => {
            check_records(&directory.snapshot(), snapshot.record_bytes, record_bytes)?;
            let state = S::restore(&snapshot.state);
            let state = state.ok_or_else(|| JournalError::DamagedFile(directory.snapshot()))?;
            (state, snapshot.records, snapshot.segment)
        }
    };
    let mut last: Option<LastSegment> = None;
    let mut next = first;
    for (sequence, path) in segments {
        if sequence < first {
            continue;
        }
        if sequence != next {
            // Without a snapshot, a journal must start with segment 1.
            let missing = if last.is_none() && old.is_none() {
                directory.snapshot()
            } else {
                directory.segment(next)
            };
            return Err(JournalError::MissingFile(missing));
        }
        let bytes = read(&path)?;
        let header = SegmentHeader::decode(&bytes).map_err(|fault| fault_in(&path, fault))?;
        if header.sequence != sequence {
            return Err(JournalError::NotAJournalFile(path));
        }
        check_records(&path, header.record_bytes, record_bytes)?;
        let end = match scan(&bytes, &header, &mut records, |batch| state.apply(batch)) {
            SegmentScan::End(end) => end,
            SegmentScan::Damaged { offset } => return Err(damaged(directory, path, offset)),
            SegmentScan::Gap => {
                let (file, offset) = last.map_or((path, BLOCK), |last| (last.path, last.end));
                return Err(damaged(directory, file, offset));
            }
        };
        last = Some(LastSegment { path, header, end });
        next += 1;
    }
    if last.is_none() && old.is_some() {
        return Err(JournalError::MissingFile(directory.segment(first)));
    }
    let segment = match last {
        Some(last) if last.end == BLOCK => Segment::reopen(&last.path, last.header)?,
        _ => Segment::create(directory, (next, segment_bytes), record_bytes, None)?,
    };
    let snapshot = StateSnapshot {
        record_bytes,
        records,
        segment: segment.sequence(),
        state: state.snapshot(),
    };
    if old.as_ref() == Some(&snapshot) {
        // The process that wrote the snapshot may have been killed before it synced the directory.
        directory.sync()?;
    } else {
        snapshot.write(directory)?;
    }
    Ok(Recovered {
        state,
        records,
        segment,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, JournalError> {
    let file = open_regular(path, OFlags::RDONLY)?;
    let mut file: File = file.ok_or_else(|| JournalError::MissingFile(path.to_owned()))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed("read", path))?;
    Ok(bytes)
}

fn check_records(file: &Path, found: u32, expected: u32) -> Result<(), JournalError> {
    if found == expected {
        return Ok(());
    }
    Err(JournalError::OtherRecords {
        file: file.to_owned(),
        found,
        expected,
    })
}

/// Returns the error for a damaged batch. The error also names the next segment, if any, because
/// later segments depend on the batch.
fn damaged(directory: &JournalDirectory, file: PathBuf, offset: usize) -> JournalError {
    let segments = directory.segments().unwrap_or_default().into_iter();
    let paths = segments.map(|(_, path)| path);
    let mut later = paths.skip_while(|path| *path != file).skip(1);
    let then = later.next().map_or_else(String::new, |path| {
        format!(", then move '{}' and later segments away", path.display())
    });
    JournalError::DamagedBatch { file, offset, then }
}

const MAGIC: &[u8; 8] = b"FMsnapsh";
/// Length of the fields before the state, in bytes.
const HEADER: usize = 40;
/// Maximum length of a snapshot, in bytes. The state is at most 1 MiB long. A longer file is not
/// a snapshot.
const MAX_BYTES: u64 = HEADER as u64 + (1 << 20);

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateSnapshot {
    /// Size of a record, in bytes.
    pub(crate) record_bytes: u32,
    /// Number of records in the state.
    pub(crate) records: u64,
    /// Sequence number of the segment or bucket that starts after these records.
    pub(crate) segment: u64,
    /// The state, as bytes.
    pub(crate) state: Vec<u8>,
}

impl StateSnapshot {
    /// Replaces the directory's snapshot durably. After a crash, the directory contains either the
    /// old or the new snapshot.
    pub(crate) fn write(&self, directory: &JournalDirectory) -> Result<(), JournalError> {
        let path = directory.snapshot();
        replace_file(&path, &self.encode()).map_err(failed("write", &path))
    }

    /// Reads the directory's snapshot. Returns `None` if there is none.
    pub(crate) fn read(directory: &JournalDirectory) -> Result<Option<Self>, JournalError> {
        let path = directory.snapshot();
        let Some(file) = open_regular(&path, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(failed("read", &path))?;
        let decoded = Self::decode(&bytes);
        decoded.map(Some).map_err(|fault| fault_in(&path, fault))
    }

    /// Returns the snapshot as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = versioned(MAGIC);
        bytes.extend_from_slice(&self.record_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        // States are at most 1 MiB long.
        bytes.extend_from_slice(&(self.state.len() as u32).to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes), &self.state);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&self.state);
        bytes
    }

    /// Reads a snapshot from bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let mut fields = HeaderFields::versioned(bytes, MAGIC)?;
        let read = (|| {
            let snapshot = StateSnapshot {
                record_bytes: fields.u32()?,
                records: fields.u64()?,
                segment: fields.u64()?,
                state: Vec::new(),
            };
            let (length, sum) = (fields.u32()?, fields.u32()?);
            let state = fields.rest();
            let before = crc32c::crc32c(&bytes[..HEADER - 4]);
            let is_valid =
                state.len() == length as usize && sum == crc32c::crc32c_append(before, state);
            is_valid.then(|| StateSnapshot {
                state: state.to_vec(),
                ..snapshot
            })
        })();
        read.ok_or(HeaderFault::Damaged)
    }
}

/// Returns the error for a file whose header is invalid.
pub(crate) fn fault_in(path: &Path, fault: HeaderFault) -> JournalError {
    let path = PathBuf::from(path);
    match fault {
        HeaderFault::Foreign => JournalError::NotAJournalFile(path),
        HeaderFault::LaterVersion => JournalError::LaterVersion(path),
        HeaderFault::Damaged => JournalError::DamagedFile(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_any_changed_or_missing_byte() {
        let snapshot = StateSnapshot {
            record_bytes: 8,
            records: 1_000_000,
            segment: 12,
            state: b"the state".to_vec(),
        };
        let good = snapshot.encode();
        assert_eq!(StateSnapshot::decode(&good), Ok(snapshot));
        for at in 0..good.len() {
            assert!(StateSnapshot::decode(&good[..at]).is_err(), "cut at {at}");
            for flip in [1, 0x20, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(StateSnapshot::decode(&bad).is_err(), "byte {at} ^ {flip}");
            }
        }
        let longer = [&good[..], &[0]].concat();
        assert_eq!(StateSnapshot::decode(&longer), Err(HeaderFault::Damaged));
    }
}
