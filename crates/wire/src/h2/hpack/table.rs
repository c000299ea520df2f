//! The static table and the decoder's dynamic table (RFC 7541 section 2.3).

/// The static table (RFC 7541 appendix A). The first entry has index 1.
#[rustfmt::skip]
pub(crate) static STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""),
    ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""),
    ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
];

/// Overhead of an entry beyond its name and value, in bytes (RFC 7541 section 4.1).
pub(crate) const ENTRY_OVERHEAD: usize = 32;

/// The dynamic table. Entries and their bytes are stored in rings whose size never changes.
#[derive(Debug)]
pub(super) struct DynamicTable {
    bytes: Box<[u8]>,
    entries: Box<[Entry]>,
    /// Position in `bytes` after the newest entry.
    end: usize,
    /// Position in `entries` after the newest entry.
    next: usize,
    /// Number of entries.
    count: usize,
    /// Size as defined in RFC 7541 section 4.1, in bytes.
    size: usize,
    /// Maximum size that the encoder chose, in bytes.
    max_size: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Position in `bytes` of the name. The value follows.
    start: usize,
    name_length: usize,
    value_length: usize,
}

impl Entry {
    fn size(&self) -> usize {
        self.name_length + self.value_length + ENTRY_OVERHEAD
    }
}

impl DynamicTable {
    /// Creates an empty table whose size can be set to at most `capacity` bytes.
    pub fn new(capacity: usize, max_size: usize) -> Self {
        DynamicTable {
            bytes: vec![0; capacity].into(),
            entries: vec![Entry::default(); capacity / ENTRY_OVERHEAD].into(),
            end: 0,
            next: 0,
            count: 0,
            size: 0,
            max_size,
        }
    }

    /// Sets the maximum size and evicts entries that no longer fit (RFC 7541 section 4.3).
    /// Returns `None` if the size exceeds the table's capacity.
    pub fn set_max_size(&mut self, max_size: usize) -> Option<()> {
        if max_size > self.bytes.len() {
            return None;
        }
        self.max_size = max_size;
        self.evict(max_size);
        Some(())
    }

    /// Inserts an entry (RFC 7541 section 4.4). An entry that is larger than the table empties it.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let entry = Entry {
            start: self.end,
            name_length: name.len(),
            value_length: value.len(),
        };
        let size = entry.size();
        self.evict(self.max_size.saturating_sub(size));
        if size > self.max_size {
            return;
        }
        self.append(name);
        self.append(value);
        self.entries[self.next] = entry;
        self.next = (self.next + 1) % self.entries.len();
        self.count += 1;
        self.size += size;
    }

    /// Evicts the oldest entries until the table's size is at most `size`.
    fn evict(&mut self, size: usize) {
        while self.size > size {
            let oldest = (self.next + self.entries.len() - self.count) % self.entries.len();
            self.size -= self.entries[oldest].size();
            self.count -= 1;
        }
    }

    fn append(&mut self, part: &[u8]) {
        let first = part.len().min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + first].copy_from_slice(&part[..first]);
        self.bytes[..part.len() - first].copy_from_slice(&part[first..]);
        self.end = (self.end + part.len()) % self.bytes.len();
    }

    /// Returns the name and value of an entry, where 0 is the newest. An entry that wraps around
    /// the end of the ring is copied to `scratch`.
    pub fn get<'a>(
        &'a self,
        index: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<(&'a [u8], &'a [u8])> {
        let entry = self.entry(index)?;
        let length = entry.name_length + entry.value_length;
        let joined = match self.bytes.get(entry.start..entry.start + length) {
            Some(joined) => joined,
            None => {
                scratch.clear();
                self.copy(entry.start, length, scratch);
                scratch
            }
        };
        Some(joined.split_at(entry.name_length))
    }

    /// Appends the name of an entry to `out`.
    pub fn copy_name(&self, index: usize, out: &mut Vec<u8>) -> Option<()> {
        let entry = self.entry(index)?;
        self.copy(entry.start, entry.name_length, out);
        Some(())
    }

    fn entry(&self, index: usize) -> Option<Entry> {
        let length = self.entries.len();
        (index < self.count).then(|| self.entries[(self.next + length - 1 - index) % length])
    }

    fn copy(&self, start: usize, length: usize, out: &mut Vec<u8>) {
        let first = length.min(self.bytes.len() - start);
        out.extend_from_slice(&self.bytes[start..start + first]);
        out.extend_from_slice(&self.bytes[..length - first]);
    }

    /// Returns the table's size as defined in RFC 7541 section 4.1, in bytes.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        /// The table behaves like a queue of strings.
        #[test]
        fn matches_a_simple_table(
            capacity in 0usize..300,
            changes in vec((vec(any::<u8>(), 0..60), vec(any::<u8>(), 0..60), 0usize..400), 0..60),
        ) {
            let mut table = DynamicTable::new(capacity, capacity);
            let mut simple: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let mut max_size = capacity;
            let size = |simple: &[(Vec<u8>, Vec<u8>)]| -> usize {
                simple.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
            };
            for (name, value, new_size) in changes {
                // Most changes are insertions.
                if new_size < 40 {
                    prop_assert_eq!(table.set_max_size(new_size).is_some(), new_size <= capacity);
                    max_size = if new_size <= capacity { new_size } else { max_size };
                } else {
                    table.insert(&name, &value);
                    simple.insert(0, (name, value));
                    if size(&simple[..1]) > max_size {
                        simple.clear();
                    }
                }
                while size(&simple) > max_size {
                    simple.pop();
                }
                prop_assert_eq!(table.size(), size(&simple));
                let mut scratch = Vec::new();
                for (index, (name, value)) in simple.iter().enumerate() {
                    prop_assert_eq!(table.get(index, &mut scratch), Some((&name[..], &value[..])));
                    let mut copy = b"x".to_vec();
                    prop_assert_eq!(table.copy_name(index, &mut copy), Some(()));
                    prop_assert_eq!(&copy[1..], &name[..]);
                }
                prop_assert_eq!(table.get(simple.len(), &mut scratch), None);
            }
        }
    }
}
