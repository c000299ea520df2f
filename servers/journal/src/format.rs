//! On-disk format of segments and batches. Field sizes are in bytes.
//!
//! ```text
//! segment   header │ batch │ batch │ … │ free
//! header    magic 8 │ version 4 │ record size 4 │ sequence 8 │ salt 8 │ checksum 4 │ zeros
//! batch     magic 4 │ version 4 │ first record 8 │ length 4 │ checksum 4 │ records │ zeros
//! ```
//!
//! Numbers are little-endian. Checksums are CRC-32C (RFC 3720, appendix B.4). Header and batches
//! start at multiples of [`BLOCK`], so no write touches a block with acknowledged records.
//!
//! The checksum of a batch also covers the segment's random salt. Batches from an earlier use of
//! the file, and records that imitate a batch, are therefore never mistaken for valid batches.
//!
//! The journal writes a batch only after the previous batch is durable. An invalid batch that no
//! valid batch follows is therefore a torn write, whose records were never reported as durable. If
//! a valid batch follows an invalid one, the invalid batch was once durable and was damaged later.

/// Unit of alignment, in bytes: the usual size of a page and of a physical sector.
pub(crate) const BLOCK: usize = 4096;
/// Size of a batch's header, in bytes.
pub(crate) const BATCH_HEADER: usize = 24;
/// Current version of the format.
const VERSION: u32 = 1;
const SEGMENT_MAGIC: &[u8; 8] = b"FMjournl";
const BATCH_MAGIC: &[u8; 4] = b"FMjb";
const SEGMENT_HEADER: usize = 36;

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Size of a record, in bytes.
    pub(crate) record_bytes: u32,
    /// Position of the segment in the journal, from 1.
    pub(crate) sequence: u64,
    /// Random number that all checksums of this segment cover.
    pub(crate) salt: u64,
}

/// A reason why bytes are not a header of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// The magic number is wrong.
    Foreign,
    /// A later version wrote the file.
    LaterVersion,
    /// The checksum is wrong.
    Damaged,
}

impl SegmentHeader {
    /// Returns the first block of a segment.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK);
        block.extend_from_slice(SEGMENT_MAGIC);
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&self.record_bytes.to_le_bytes());
        block.extend_from_slice(&self.sequence.to_le_bytes());
        block.extend_from_slice(&self.salt.to_le_bytes());
        let sum = crc32c::crc32c(&block);
        block.extend_from_slice(&sum.to_le_bytes());
        block.resize(BLOCK, 0);
        block
    }

    /// Reads the header at the start of a segment.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let mut fields = HeaderFields::versioned(bytes, SEGMENT_MAGIC)?;
        let header = (fields.u32(), fields.u64(), fields.u64());
        let sum = fields.u32();
        let (Some(record_bytes), Some(sequence), Some(salt)) = header else {
            return Err(HeaderFault::Damaged);
        };
        if sum != Some(crc32c::crc32c(&bytes[..SEGMENT_HEADER - 4])) {
            return Err(HeaderFault::Damaged);
        }
        Ok(SegmentHeader {
            record_bytes,
            sequence,
            salt,
        })
    }
}

/// Completes a batch and pads it to whole blocks. `batch` starts with room for the header, followed
/// by the records.
pub(crate) fn seal(batch: &mut Vec<u8>, first: u64, salt: u64) {
    write_header(batch, first, salt);
    batch.resize(batch.len().next_multiple_of(BLOCK), 0);
}

/// Writes a batch's header. `batch` starts with room for the header, followed by the records.
pub(crate) fn write_header(batch: &mut [u8], first: u64, salt: u64) {
    // The queue is bounded far below 4 GiB.
    let length = (batch.len() - BATCH_HEADER) as u32;
    batch[..4].copy_from_slice(BATCH_MAGIC);
    batch[4..8].copy_from_slice(&VERSION.to_le_bytes());
    batch[8..16].copy_from_slice(&first.to_le_bytes());
    batch[16..20].copy_from_slice(&length.to_le_bytes());
    let sum = batch_checksum(batch, batch.len(), salt);
    batch[20..24].copy_from_slice(&sum.to_le_bytes());
}

/// A valid batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BatchView<'a> {
    /// Number of records before this batch.
    pub(crate) first: u64,
    /// Whole records.
    pub(crate) records: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Reads the batch at the start of `bytes`. Returns `None` if there is no valid batch.
    pub(crate) fn read(bytes: &'a [u8], header: &SegmentHeader) -> Option<Self> {
        let mut fields = HeaderFields::versioned(bytes, BATCH_MAGIC).ok()?;
        let (first, length, sum) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let end = BATCH_HEADER.checked_add(usize::try_from(length).ok()?)?;
        let records = bytes.get(BATCH_HEADER..end)?;
        let is_whole = length > 0 && length.is_multiple_of(header.record_bytes);
        let is_valid = is_whole && sum == batch_checksum(bytes, end, header.salt);
        is_valid.then_some(BatchView { first, records })
    }

    /// Length of the batch with header and padding, in bytes.
    pub(crate) fn span(&self) -> usize {
        (BATCH_HEADER + self.records.len()).next_multiple_of(BLOCK)
    }
}

fn batch_checksum(bytes: &[u8], end: usize, salt: u64) -> u32 {
    let sum = crc32c::crc32c(&salt.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &bytes[..BATCH_HEADER - 4]);
    crc32c::crc32c_append(sum, &bytes[BATCH_HEADER..end])
}

/// Reads consecutive fields.
pub(crate) struct HeaderFields<'a>(&'a [u8]);

impl<'a> HeaderFields<'a> {
    /// Checks the magic number and the version, and returns the fields after them.
    pub(crate) fn versioned(bytes: &'a [u8], magic: &[u8]) -> Result<Self, HeaderFault> {
        let rest = bytes.strip_prefix(magic).ok_or(HeaderFault::Foreign)?;
        let mut fields = HeaderFields(rest);
        match fields.u32() {
            Some(VERSION) => Ok(fields),
            Some(version) if version > VERSION => Err(HeaderFault::LaterVersion),
            _ => Err(HeaderFault::Damaged),
        }
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    /// Reads a 32-bit number.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads a 64-bit number.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Returns the remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Returns the start of a file: the magic number and the version.
pub(crate) fn versioned(magic: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Result of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentScan {
    /// The valid batches end at this offset. No valid batch follows.
    End(usize),
    /// The batch at `offset` is damaged or missing, but a valid batch follows in this segment.
    Damaged {
        /// Offset of the damage, in bytes.
        offset: usize,
    },
    /// The first batch of the segment is valid, but records before it are missing.
    Gap,
}

/// Scans a whole segment. Passes the records of each valid batch to `apply`, in order. `next` is
/// the number of records before the segment. The scan increases `next` by the number of records in
/// the segment.
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
#[path = "format_tests.rs"]
mod tests;
