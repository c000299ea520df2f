//! Reads a journal back.
//!
//! Recovery reads the snapshot and all segments after it. It then writes a new snapshot and continues
//! in a segment without valid batches. Recovered records are durable even if an earlier sync of their
//! segment has failed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::JournalState;
use crate::error::{JournalError, failed};
use crate::folder::{JournalFolder, open_regular};
use crate::format::{BLOCK, SegmentHeader};
use crate::scan::{SegmentScan, scan};
use crate::segment::Segment;
use crate::snapshot::{StateSnapshot, fault_in};

/// A journal as it was read back.
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
    folder: &JournalFolder,
    segment_bytes: u64,
    empty: S,
) -> Result<Recovered<S>, JournalError> {
    let record_bytes = S::RECORD_BYTES as u32;
    let segments = folder.clean()?;
    let old = StateSnapshot::read(folder)?;
    let (mut state, mut records, first) = match &old {
        None => (empty, 0, 1),
        Some(snapshot) => {
            check_records(&folder.snapshot(), snapshot.record_bytes, record_bytes)?;
            let state = S::restore(&snapshot.state);
            let state = state.ok_or_else(|| JournalError::DamagedFile(folder.snapshot()))?;
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
            // Without a snapshot, the first segment of a journal is number 1.
            let missing = if last.is_none() && old.is_none() {
                folder.snapshot()
            } else {
                folder.segment(next)
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
            SegmentScan::Damaged { offset } => return Err(damaged(folder, path, offset)),
            SegmentScan::Gap => {
                let (file, offset) = last.map_or((path, BLOCK), |last| (last.path, last.end));
                return Err(damaged(folder, file, offset));
            }
        };
        last = Some(LastSegment { path, header, end });
        next += 1;
    }
    if last.is_none() && old.is_some() {
        return Err(JournalError::MissingFile(folder.segment(first)));
    }
    let segment = match last {
        Some(last) if last.end == BLOCK => Segment::reopen(&last.path, last.header)?,
        _ => Segment::create(folder, (next, segment_bytes), record_bytes, None)?,
    };
    let snapshot = StateSnapshot {
        record_bytes,
        records,
        segment: segment.sequence(),
        state: state.snapshot(),
    };
    if old.as_ref() == Some(&snapshot) {
        // The process that wrote the snapshot may have been killed before it synced the folder.
        folder.sync()?;
    } else {
        snapshot.write(folder)?;
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

/// Returns the error for a damaged batch. It names the segments that depend on the batch.
fn damaged(folder: &JournalFolder, file: PathBuf, offset: usize) -> JournalError {
    let segments = folder.segments().unwrap_or_default().into_iter();
    let paths = segments.map(|(_, path)| path);
    let mut later = paths.skip_while(|path| *path != file).skip(1);
    let then = later.next().map_or_else(String::new, |path| {
        format!(", then move '{}' and later segments away", path.display())
    });
    JournalError::DamagedBatch { file, offset, then }
}
