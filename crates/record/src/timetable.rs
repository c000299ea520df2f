//! The arrivals of a replay, and their form on the way to a worker: distances as LEB128 numbers of 7 bits a byte, two or three
//! bytes for most arrivals where JSON text would take ten to twenty.

use std::sync::Arc;

/// Most arrivals of a replay: 80 MB in a worker's memory, shared by its threads.
pub const MOST_ARRIVALS: usize = 10_000_000;

/// Longest code of one distance, bytes.
const LONGEST: usize = 10;

/// Arrival times in ns from the start, in order. Cloning shares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timetable(Arc<[u64]>);

/// Bytes that are no timetable, or not the one that was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes of the timetable are not those that were announced")]
pub struct TimetableError;

impl Default for Timetable {
    fn default() -> Self {
        Timetable(Arc::from([]))
    }
}

impl Timetable {
    /// A timetable of times that are in order.
    #[must_use]
    pub fn new(times: Vec<u64>) -> Self {
        debug_assert!(times.is_sorted());
        Timetable(times.into())
    }

    /// The times, ns from the start.
    #[must_use]
    pub fn times(&self) -> &[u64] {
        &self.0
    }

    /// The bytes that [`Timetable::decode`] reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * 3);
        let mut before = 0;
        for time in self.0.iter() {
            let mut distance = time - before;
            before = *time;
            while distance >= 0x80 {
                bytes.push(distance as u8 | 0x80);
                distance >>= 7;
            }
            bytes.push(distance as u8);
        }
        bytes
    }

    /// Reads what [`Timetable::encode`] wrote.
    ///
    /// # Errors
    /// Bytes that have another checksum, end within a number, or hold more than [`MOST_ARRIVALS`] or 64 bits.
    pub fn decode(bytes: &[u8], announced: &str) -> Result<Self, TimetableError> {
        if checksum(bytes) != announced {
            return Err(TimetableError);
        }
        let mut times = Vec::with_capacity(bytes.iter().filter(|byte| **byte < 0x80).count());
        let (mut time, mut distance, mut length) = (0u64, 0u64, 0);
        for byte in bytes {
            let part = u64::from(byte & 0x7f);
            let shift = 7 * length as u32;
            if length == LONGEST || (part << shift) >> shift != part {
                return Err(TimetableError);
            }
            distance |= part << shift;
            length += 1;
            if *byte < 0x80 {
                time = time.checked_add(distance).ok_or(TimetableError)?;
                times.push(time);
                (distance, length) = (0, 0);
            }
        }
        if length > 0 || times.len() > MOST_ARRIVALS {
            return Err(TimetableError);
        }
        Ok(Timetable::new(times))
    }
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv) in hexadecimal: enough to notice a broken transfer, and to tell
/// in a record whether two replays were of the same arrivals.
#[must_use]
pub fn checksum(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_fnv_1a() {
        assert_eq!(checksum(b""), "cbf29ce484222325");
        assert_eq!(checksum(b"foobar"), "85944171f73967e8");
    }

    #[test]
    fn other_bytes_are_refused() {
        let bytes = Timetable::new(vec![0, 5, 1_000_000]).encode();
        let sum = checksum(&bytes);
        assert!(Timetable::decode(&bytes, &sum).is_ok());
        assert_eq!(Timetable::decode(&bytes[1..], &sum), Err(TimetableError));
        let endless = [0xff; 11];
        for bad in [&endless[..], &[0x80], &[0xff; 10]] {
            assert_eq!(
                Timetable::decode(bad, &checksum(bad)),
                Err(TimetableError),
                "{bad:?}"
            );
        }
        let mut overflowing = Timetable::new(vec![u64::MAX]).encode();
        overflowing.push(1);
        let sum = checksum(&overflowing);
        assert_eq!(Timetable::decode(&overflowing, &sum), Err(TimetableError));
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(mut times in proptest::collection::vec(any::<u64>(), 0..200)) {
            times.sort_unstable();
            let timetable = Timetable::new(times);
            let bytes = timetable.encode();
            prop_assert_eq!(Timetable::decode(&bytes, &checksum(&bytes)), Ok(timetable));
        }

        #[test]
        fn bytes_of_any_kind_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Timetable::decode(&bytes, &checksum(&bytes));
        }
    }
}
