//! Reads the batches of one segment.
//!
//! The journal writes a batch only after the previous batch is durable. An invalid batch without a
//! valid one after it is therefore a torn write, whose records were never reported as durable. If a
//! valid batch follows an invalid one, the invalid batch was durable once, so the file was damaged
//! later.

use crate::format::{BLOCK, BatchView, SegmentHeader};

/// Result of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentScan {
    /// The valid batches end at this offset. Nothing valid follows.
    End(usize),
    /// The batch at `offset` is damaged or missing, but a valid batch follows in this segment.
    Damaged {
        /// Offset of the damage, in bytes.
        offset: usize,
    },
    /// The first batch of the segment is valid, but records before it are missing.
    Gap,
}

/// Scans a whole segment. `next` is the number of records before the segment, and is advanced.
/// Passes the records of each valid batch to `apply`, in order.
pub(crate) fn scan(
    bytes: &[u8],
    header: &SegmentHeader,
    next: &mut u64,
    mut apply: impl FnMut(&[u8]),
) -> SegmentScan {
    let batch_at = |at: usize| BatchView::read(bytes.get(at..)?, header);
    let record_bytes = u64::from(header.record_bytes);
    let mut at = BLOCK;
    while let Some(batch) = batch_at(at) {
        if batch.first != *next {
            return match at {
                BLOCK => SegmentScan::Gap,
                offset => SegmentScan::Damaged { offset },
            };
        }
        apply(batch.records);
        *next += batch.records.len() as u64 / record_bytes;
        at += batch.span();
    }
    let mut later = (at + BLOCK..bytes.len()).step_by(BLOCK);
    if later.any(|at| batch_at(at).is_some()) {
        SegmentScan::Damaged { offset: at }
    } else {
        SegmentScan::End(at)
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
