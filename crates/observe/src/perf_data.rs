//! Parses the file in which a HotSpot JVM publishes its counters. The layout is version 2.0,
//! defined in HotSpot's `perfMemory.hpp`. Any byte may be invalid, because another process owns the
//! file and may be writing to it.

use std::collections::HashMap;

/// `0xcafec0c0`, always big-endian.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];

/// Length of the prologue in bytes. Its fields are magic, byte order, major and minor version,
/// accessible flag, used, overflow, time stamp, offset of the first entry, and number of entries.
const PROLOGUE: usize = 32;

/// Length of an entry's header in bytes. Its fields are entry length, name offset, vector length,
/// type, flags, unit, variability and data offset.
const ENTRY: usize = 20;

/// Maximum number of entries; JVMs have about 300.
const MAX_ENTRIES: u32 = 100_000;

/// Type code of a 64-bit integer.
const LONG: u8 = b'J';

/// Code of the unit "ticks of the high-resolution timer". `sun.os.hrt.frequency` is the number of
/// ticks per second.
const TICKS: u8 = 3;

/// Reasons why a file can't be parsed.
const SHORT: &str = "the file is too short";
const FOREIGN: &str = "not an hsperfdata file";
const WRONG_VERSION: &str = "the format is not version 2";
const NOT_READY: &str = "the JVM is still writing the file";
const OUTSIDE: &str = "an entry points outside the file";

/// Position of a counter in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CounterOffset {
    offset: usize,
    /// Whether the counter is in ticks.
    pub ticks: bool,
}

/// Positions of all counters in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PerfData {
    little: bool,
    /// 64-bit counters by name.
    places: HashMap<String, CounterOffset>,
}

impl PerfData {
    /// Parses the entries of a file.
    ///
    /// # Errors
    /// The file has a different format or is damaged.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let head = bytes.get(..PROLOGUE).ok_or(SHORT)?;
        if head[..4] != MAGIC {
            return Err(FOREIGN);
        }
        let little = head[4] == 1;
        if head[5] != 2 {
            return Err(WRONG_VERSION);
        }
        if head[7] != 1 {
            return Err(NOT_READY);
        }
        let number = |at: usize| u32_at(bytes, at, little).ok_or(OUTSIDE);
        let (mut at, entries) = (number(24)? as usize, number(28)?);
        if entries > MAX_ENTRIES {
            return Err(OUTSIDE);
        }
        let mut places = HashMap::new();
        for _ in 0..entries {
            let length = number(at)? as usize;
            let end = at.checked_add(length).ok_or(OUTSIDE)?;
            if length < ENTRY || end > bytes.len() {
                return Err(OUTSIDE);
            }
            let entry = &bytes[at..end];
            let inner = |at| u32_at(entry, at, little).map(|offset| offset as usize);
            let [Some(name), Some(vector), Some(data)] = [4, 8, 16].map(inner) else {
                return Err(OUTSIDE);
            };
            let name = entry.get(name..).ok_or(OUTSIDE)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let fits = data.checked_add(8).is_some_and(|end| end <= length);
            if entry[12] == LONG && vector == 0 && fits {
                let place = CounterOffset {
                    offset: at + data,
                    ticks: entry[14] == TICKS,
                };
                places.insert(String::from_utf8_lossy(name).into_owned(), place);
            }
            at = end;
        }
        Ok(Self { little, places })
    }

    pub(crate) fn place(&self, name: &str) -> Option<CounterOffset> {
        self.places.get(name).copied()
    }

    /// Returns a counter's value from a later reading of the same file.
    pub(crate) fn value(&self, bytes: &[u8], place: CounterOffset) -> Option<u64> {
        little_endian(bytes, place.offset, self.little).map(u64::from_le_bytes)
    }
}

fn u32_at(bytes: &[u8], at: usize, little: bool) -> Option<u32> {
    little_endian(bytes, at, little).map(u32::from_le_bytes)
}

/// Returns the `N` bytes of a number in little-endian order. `little` is the order in the file.
fn little_endian<const N: usize>(bytes: &[u8], at: usize, little: bool) -> Option<[u8; N]> {
    let mut raw: [u8; N] = bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
    if !little {
        raw.reverse();
    }
    Some(raw)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a file with 64-bit counters in HotSpot's layout.
    pub(crate) fn file(counters: &[(&str, u8, u64)], little: bool) -> Vec<u8> {
        let u32_of = |n: u32| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend([u8::from(little), 2, 0, 1]);
        bytes.extend([0; 16]);
        bytes.extend(u32_of(PROLOGUE as u32));
        bytes.extend(u32_of(counters.len() as u32));
        for (name, unit, value) in counters {
            let data = (ENTRY + name.len() + 1).next_multiple_of(8);
            bytes.extend(u32_of(data as u32 + 8));
            bytes.extend(u32_of(ENTRY as u32));
            bytes.extend(u32_of(0));
            bytes.extend([LONG, 0, *unit, 1]);
            bytes.extend(u32_of(data as u32));
            let begin = bytes.len();
            bytes.extend(name.as_bytes());
            bytes.resize(begin + data - ENTRY, 0);
            bytes.extend(if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            });
        }
        bytes
    }

    #[test]
    fn parses_counters_in_either_byte_order() {
        for little in [true, false] {
            let bytes = file(&[("a.b", 4, 7), ("sun.rt.time", TICKS, 1 << 40)], little);
            let table = PerfData::parse(&bytes).unwrap();
            let (a, b) = (
                table.place("a.b").unwrap(),
                table.place("sun.rt.time").unwrap(),
            );
            assert_eq!(table.value(&bytes, a), Some(7));
            assert_eq!(table.value(&bytes, b), Some(1 << 40));
            assert_eq!((a.ticks, b.ticks), (false, true));
            assert_eq!(table.place("a"), None);
            assert_eq!(table.value(&bytes[..40], b), None, "truncated file");
        }
    }

    #[test]
    fn reports_the_kind_of_damage() {
        let good = file(&[("a", 4, 1)], true);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            PerfData::parse(&bytes)
        };
        assert_eq!(PerfData::parse(&good[..31]), Err(SHORT));
        assert_eq!(with(0, 0), Err(FOREIGN));
        assert_eq!(with(5, 1), Err(WRONG_VERSION));
        assert_eq!(with(7, 0), Err(NOT_READY));
        assert_eq!(with(27, 255), Err(OUTSIDE), "first entry is past the end");
        assert_eq!(with(28, 2), Err(OUTSIDE), "more entries than the file has");
        assert_eq!(with(32, 3), Err(OUTSIDE), "entry shorter than its header");
    }

    proptest! {
        #[test]
        fn accepts_or_rejects_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = PerfData::parse(&bytes);
        }

        #[test]
        fn accepts_or_rejects_a_damaged_file(
            wrong in proptest::collection::vec((0_usize..160, any::<u8>()), 1..12),
            cut in 0_usize..160,
            little: bool,
        ) {
            let mut bytes = file(&[("first.counter", 4, 1), ("second", TICKS, 2), ("third", 1, 3)], little);
            for (at, byte) in wrong {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok(table) = PerfData::parse(&bytes) {
                let short = &bytes[..cut.min(bytes.len())];
                for place in table.places.values() {
                    prop_assert!(table.value(&bytes, *place).is_some());
                    let _ = table.value(short, *place);
                }
            }
        }
    }
}
