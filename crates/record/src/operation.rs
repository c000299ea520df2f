//! Operations on an API kept for a check: 24 bytes each, in memory and on disk.

use crate::kept::{label, pack, times};

/// Number of bits for a key.
const KEY_BITS: u32 = 29;

/// Maximum number of keys in a check.
pub const MAX_KEYS: u64 = 1_000_000;

/// Kind and outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKind {
    /// A read that returned a value.
    Read = 0,
    /// A read that found no value: status 404 or JSON null.
    ReadNothing = 1,
    /// A write that the server acknowledged with status 2xx or 3xx.
    Acknowledged = 2,
    /// A write that the server refused with status 4xx. The server must not execute it.
    Refused = 3,
    /// A write that the server may have executed: no usable response arrived, or its status is 5xx.
    Unknown = 4,
}

impl OperationKind {
    const ALL: [OperationKind; 5] = [
        OperationKind::Read,
        OperationKind::ReadNothing,
        OperationKind::Acknowledged,
        OperationKind::Refused,
        OperationKind::Unknown,
    ];

    /// Returns whether the operation is a read.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, OperationKind::Read | OperationKind::ReadNothing)
    }
}

/// An operation kept for a check, packed into three 64-bit words.
/// The file stores the words in little-endian order.
/// Both times come from the same monotonic clock. Times above 78 hours are stored as 78 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptOperation(pub [u64; 3]);

impl KeptOperation {
    /// Packs an operation on a key, from 1 to [`MAX_KEYS`].
    ///
    /// `value` is the value that was read or written. For an increment that returned a value, it is
    /// the returned value.
    #[must_use]
    pub fn new(kind: OperationKind, key: u64, value: u64, sent_ns: u64, done_ns: u64) -> Self {
        let label = (kind as u32) << KEY_BITS | key as u32 & ((1 << KEY_BITS) - 1);
        KeptOperation(pack(value, label, sent_ns, done_ns))
    }

    /// Returns the kind. Words that were not packed by [`KeptOperation::new`] are `Unknown`.
    #[must_use]
    pub fn kind(&self) -> OperationKind {
        let kind = OperationKind::ALL.get(self.kind_index());
        kind.copied().unwrap_or(OperationKind::Unknown)
    }

    /// Returns whether the words have a kind. If not, the file that contains them is damaged.
    #[must_use]
    pub fn has_kind(&self) -> bool {
        self.kind_index() < OperationKind::ALL.len()
    }

    fn kind_index(&self) -> usize {
        (label(&self.0) >> KEY_BITS) as usize
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> u64 {
        u64::from(label(&self.0) & ((1 << KEY_BITS) - 1))
    }

    /// Returns the value that was read or written.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0[0]
    }

    /// Returns the time at which the request was sent, in ns.
    #[must_use]
    pub fn sent_ns(&self) -> u64 {
        times(&self.0)[0]
    }

    /// Returns the time at which the outcome was known, in ns.
    #[must_use]
    pub fn done_ns(&self) -> u64 {
        times(&self.0)[1]
    }

    /// Converts the operation to a clock that started `earlier_ns` ns before the current clock.
    #[must_use]
    pub fn moved(&self, earlier_ns: u64) -> Self {
        let [sent, done] = times(&self.0).map(|ns| ns.saturating_add(earlier_ns));
        self.at(sent, done)
    }

    /// Returns the same operation with other times, in ns.
    #[must_use]
    pub fn at(&self, sent_ns: u64, done_ns: u64) -> Self {
        KeptOperation(pack(self.value(), label(&self.0), sent_ns, done_ns))
    }
}

/// Returns the key of request `number`, from 1 to `keys`.
/// Consecutive numbers get keys in a fixed random order.
#[must_use]
pub fn key_of(number: u64, keys: u64) -> u64 {
    let mixed = mix64(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    1 + ((u128::from(mixed) * u128::from(keys)) >> 64) as u64
}

/// The mixing function of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
/// generators", OOPSLA).
#[must_use]
pub const fn mix64(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{KEPT_BYTES, LATEST};
    use proptest::prelude::*;

    #[test]
    fn a_kept_operation_has_the_size_of_other_kept_responses() {
        assert_eq!(size_of::<KeptOperation>(), KEPT_BYTES);
    }

    #[test]
    fn spreads_numbers_evenly_over_the_keys() {
        let mut counts = [0u32; 10];
        for number in 1..=10_000 {
            counts[key_of(number, 10) as usize - 1] += 1;
        }
        assert!(counts.iter().all(|n| (800..1200).contains(n)), "{counts:?}");
        assert_eq!(key_of(7, 1), 1);
    }

    #[test]
    fn detects_words_that_are_no_operation() {
        assert!(!KeptOperation([0, 0, u64::MAX]).has_kind());
    }

    proptest! {
        #[test]
        fn packs_and_unpacks(
            kind in proptest::sample::select(OperationKind::ALL.to_vec()), key in 1u64..=MAX_KEYS, value in any::<u64>(),
            sent in 0u64..LATEST / 2, took in 0u64..LATEST / 4, earlier in 0u64..LATEST / 4,
        ) {
            let kept = KeptOperation::new(kind, key, value, sent, sent + took);
            prop_assert_eq!((kept.kind(), kept.key(), kept.value()), (kind, key, value));
            prop_assert!(kept.has_kind());
            prop_assert_eq!((kept.sent_ns(), kept.done_ns()), (sent, sent + took));
            let moved = KeptOperation::new(kind, key, value, sent + earlier, sent + took + earlier);
            prop_assert_eq!(kept.moved(earlier), moved);
        }
    }
}
