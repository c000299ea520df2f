//! Decoder for compressed header fields (HPACK, RFC 7541).

mod huffman;
pub(super) mod integer;
pub(super) mod table;

use std::ops::Range;

use strum::{EnumString, IntoStaticStr};

use table::{DynamicTable, ENTRY_OVERHEAD, STATIC};

/// Initial maximum size of the dynamic table, in bytes (RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE_BYTES: u32 = 4096;

/// Reason for rejecting a field block. The decoder cannot be used afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, EnumString, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantNames))]
#[strum(serialize_all = "snake_case")]
pub enum HpackError {
    /// An integer has more than 28 bits after its prefix (RFC 7541 section 5.1).
    #[error("an integer in a field block is too long (RFC 7541 section 5.1)")]
    IntegerOverflow,
    /// The block ends within a field (RFC 7541 section 6).
    #[error("a field block ends within a field (RFC 7541 section 6)")]
    Truncated,
    /// An index is zero or beyond both tables (RFC 7541 sections 2.3.3 and 6.1).
    #[error("a field refers to an entry that is not in the tables (RFC 7541 section 2.3.3)")]
    InvalidIndex,
    /// A Huffman-encoded string contains the end-of-string symbol (RFC 7541 section 5.2).
    #[error("a Huffman-encoded string contains the end-of-string symbol (RFC 7541 section 5.2)")]
    EndOfString,
    /// The padding of a Huffman-encoded string is longer than 7 bits or is not all ones (RFC 7541
    /// section 5.2).
    #[error("a Huffman-encoded string has invalid padding (RFC 7541 section 5.2)")]
    HuffmanPadding,
    /// The size of the dynamic table exceeds the limit in our SETTINGS (RFC 7541 section 6.3).
    #[error("the server's compression table exceeds the limit in SETTINGS (RFC 7541 section 6.3)")]
    TableTooLarge,
    /// The size of the dynamic table changes after the first field of a block (RFC 7541 section
    /// 4.2).
    #[error("the size of the compression table changes after a field (RFC 7541 section 4.2)")]
    MisplacedSizeUpdate,
    /// Our SETTINGS reduced the table, but the first block does not start with its new size (RFC
    /// 9113 section 4.3.1).
    #[error("the server ignores the compression table size in SETTINGS (RFC 9113 section 4.3.1)")]
    MissingSizeUpdate,
    /// The decoded fields exceed the limit in our SETTINGS (RFC 9113 section 10.5.1).
    #[error("the decoded headers exceed the limit in SETTINGS (RFC 9113 section 10.5.1)")]
    ListTooLarge,
}

/// Decodes the field blocks on one connection.
///
/// Memory: the dynamic table, and one buffer for strings that are not contiguous in the block or in
/// the table. Both are allocated when the decoder is created.
///
/// ```
/// use floodmark_wire::h2::hpack::{DEFAULT_TABLE_BYTES, Decoder};
///
/// let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, 1000);
/// decoder.decode(&[0x88], |name, value| assert_eq!((name, value), (&b":status"[..], &b"200"[..])))?;
/// # Ok::<(), floodmark_wire::h2::hpack::HpackError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// Capacity: the larger of the table's size and `list_bytes`.
    scratch: Vec<u8>,
    list_bytes: usize,
    /// Whether the next block must start with a size update.
    needs_size_update: bool,
    /// Number of changes to the table.
    changes: u64,
}

impl Decoder {
    /// Creates a decoder for a connection on which our SETTINGS allow a dynamic table of
    /// `table_bytes` (RFC 7541 section 4.1).
    ///
    /// The fields of a block may have at most `list_bytes`, including an overhead of 32 bytes each
    /// (RFC 9113 section 6.5.2).
    #[must_use]
    pub fn new(table_bytes: u32, list_bytes: usize) -> Self {
        let capacity = table_bytes as usize;
        let initial = table_bytes.min(DEFAULT_TABLE_BYTES) as usize;
        Decoder {
            table: DynamicTable::new(capacity, initial),
            scratch: Vec::with_capacity(capacity.max(list_bytes)),
            list_bytes,
            needs_size_update: table_bytes < DEFAULT_TABLE_BYTES,
            changes: 0,
        }
    }

    /// Returns the number of changes to the dynamic table. While this number stays the same, equal
    /// blocks decode to equal fields.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Decodes a block and passes the name and value of each field to `field`. If the block is
    /// invalid, `field` has received the fields before the error.
    ///
    /// # Errors
    /// The block is invalid, or its fields exceed the limit.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let mut rest = block;
        let mut left = Allowance(self.list_bytes);
        while let Some(0x20..=0x3f) = rest.first() {
            let size = integer::decode(&mut rest, 5)?;
            let changed = self.table.set_max_size(size);
            changed.ok_or(HpackError::TableTooLarge)?;
            self.changes += 1;
            self.needs_size_update = false;
        }
        if self.needs_size_update {
            return Err(HpackError::MissingSizeUpdate);
        }
        while let Some(&first) = rest.first() {
            match first {
                // Indexed field (section 6.1).
                0x80.. => {
                    let index = integer::decode(&mut rest, 7)?;
                    let (name, value) = lookup(&self.table, index, &mut self.scratch)?;
                    left.spend(ENTRY_OVERHEAD + name.len() + value.len())?;
                    field(name, value);
                }
                // Literal field with incremental indexing (section 6.2.1).
                0x40..=0x7f => self.literal(&mut rest, 6, &mut left, &mut field)?,
                0x20..=0x3f => return Err(HpackError::MisplacedSizeUpdate),
                // Literal field without indexing, or never indexed (sections 6.2.2 and 6.2.3).
                0x00..=0x1f => self.literal(&mut rest, 4, &mut left, &mut field)?,
            }
        }
        Ok(())
    }

    /// Decodes a literal field whose name index has a prefix of `bits` bits. A prefix of 6 bits
    /// means that the field is inserted into the dynamic table.
    fn literal(
        &mut self,
        rest: &mut &[u8],
        bits: u32,
        left: &mut Allowance,
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        left.spend(ENTRY_OVERHEAD)?;
        self.scratch.clear();
        let index = integer::decode(rest, bits)?;
        let name = match index.checked_sub(1).map(|index| STATIC.get(index)) {
            None => Text::decode(rest, left, &mut self.scratch)?,
            Some(Some((name, _))) => {
                left.spend(name.len())?;
                Text::Borrowed(name.as_bytes())
            }
            Some(None) => {
                // The name is copied, because inserting the field may evict its entry (section
                // 4.4).
                let index = index - 1 - STATIC.len();
                let copied = self.table.copy_name(index, &mut self.scratch);
                copied.ok_or(HpackError::InvalidIndex)?;
                left.spend(self.scratch.len())?;
                Text::Decoded(0..self.scratch.len())
            }
        };
        let value = Text::decode(rest, left, &mut self.scratch)?;
        let name = name.bytes(&self.scratch);
        let value = value.bytes(&self.scratch);
        field(name, value);
        if bits == 6 {
            self.table.insert(name, value);
            self.changes += 1;
        }
        Ok(())
    }
}

/// Number of bytes that the remaining fields of a block may have.
struct Allowance(usize);

impl Allowance {
    fn spend(&mut self, bytes: usize) -> Result<(), HpackError> {
        self.0 = self.0.checked_sub(bytes).ok_or(HpackError::ListTooLarge)?;
        Ok(())
    }
}

/// Returns the field with an index (section 2.3.3).
fn lookup<'a>(
    table: &'a DynamicTable,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], &'a [u8]), HpackError> {
    let index = index.checked_sub(1).ok_or(HpackError::InvalidIndex)?;
    match STATIC.get(index) {
        Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
        None => {
            let found = table.get(index - STATIC.len(), scratch);
            found.ok_or(HpackError::InvalidIndex)
        }
    }
}

/// The name or value of a literal field.
enum Text<'a> {
    Borrowed(&'a [u8]),
    /// Position in the scratch buffer.
    Decoded(Range<usize>),
}

impl<'a> Text<'a> {
    /// Reads a string (section 5.2). A Huffman-encoded string is appended to `scratch`.
    fn decode(
        rest: &mut &'a [u8],
        left: &mut Allowance,
        scratch: &mut Vec<u8>,
    ) -> Result<Text<'a>, HpackError> {
        let is_huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
        let length = integer::decode(rest, 7)?;
        let (text, after) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
        *rest = after;
        if !is_huffman {
            left.spend(length)?;
            return Ok(Text::Borrowed(text));
        }
        let start = scratch.len();
        huffman::decode(text, left.0, scratch)?;
        left.spend(scratch.len() - start)?;
        Ok(Text::Decoded(start..scratch.len()))
    }

    fn bytes<'b>(&self, scratch: &'b [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Text::Borrowed(text) => text,
            Text::Decoded(range) => &scratch[range.clone()],
        }
    }
}

#[cfg(test)]
mod tests;
