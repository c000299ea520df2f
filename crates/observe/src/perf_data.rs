//! The file in which a HotSpot JVM keeps its counters for tools to read: the layout of version 2.0, as HotSpot's
//! `perfMemory.hpp` documents it. Any byte may be wrong: the file belongs to another process, which may be writing it.

use std::collections::HashMap;

/// `0xcafec0c0`, always with the most significant byte first.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];

/// Bytes before the first entry: magic, byte order, two of the version, accessible, used, overflow, time stamp, offset of the
/// first entry, number of entries.
const PROLOGUE: usize = 32;

/// Bytes of an entry before its name: length, name's offset, vector length, type, flags, unit, variability, data's offset.
const ENTRY: usize = 20;

/// More entries than any JVM has (about 300): a number above is garbage.
const MOST_ENTRIES: u32 = 100_000;

/// Type code of a 64-bit integer.
const LONG: u8 = b'J';

/// Code of the unit "ticks of the high-resolution timer"; `sun.os.hrt.frequency` has their number per second.
const TICKS: u8 = 3;

/// Why a file is no counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Short,
    Magic,
    Version,
    /// The JVM is still filling it.
    NotReady,
    Entry,
}

impl Fault {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Short => "it is too short",
            Self::Magic => "it does not begin as such a file does",
            Self::Version => "its format is not version 2",
            Self::NotReady => "the JVM is still filling it",
            Self::Entry => "an entry lies outside of it",
        }
    }
}

/// Where a counter lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    offset: usize,
    /// Whether it counts ticks.
    pub ticks: bool,
}

/// Where the counters lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    little: bool,
    /// 64-bit counters by name.
    places: HashMap<String, Place>,
}

impl Table {
    /// Reads the entries of a file.
    ///
    /// # Errors
    /// It is no such file, or a broken one.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let head = bytes.get(..PROLOGUE).ok_or(Fault::Short)?;
        if head[..4] != MAGIC {
            return Err(Fault::Magic);
        }
        let little = head[4] == 1;
        if head[5] != 2 {
            return Err(Fault::Version);
        }
        if head[7] != 1 {
            return Err(Fault::NotReady);
        }
        let number = |at: usize| u32_at(bytes, at, little).ok_or(Fault::Entry);
        let (mut at, entries) = (number(24)? as usize, number(28)?);
        if entries > MOST_ENTRIES {
            return Err(Fault::Entry);
        }
        let mut places = HashMap::new();
        for _ in 0..entries {
            let length = number(at)? as usize;
            let end = at.checked_add(length).ok_or(Fault::Entry)?;
            if length < ENTRY || end > bytes.len() {
                return Err(Fault::Entry);
            }
            let entry = &bytes[at..end];
            let inner = |at| u32_at(entry, at, little).map(|offset| offset as usize);
            let (name, vector, data) = (inner(4), inner(8), inner(16));
            let (Some(name), Some(vector), Some(data)) = (name, vector, data) else {
                return Err(Fault::Entry);
            };
            let name = entry.get(name..).ok_or(Fault::Entry)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let fits = data.checked_add(8).is_some_and(|end| end <= length);
            if entry[12] == LONG && vector == 0 && fits {
                let place = Place {
                    offset: at + data,
                    ticks: entry[14] == TICKS,
                };
                places.insert(String::from_utf8_lossy(name).into_owned(), place);
            }
            at = end;
        }
        Ok(Self { little, places })
    }

    pub(crate) fn place(&self, name: &str) -> Option<Place> {
        self.places.get(name).copied()
    }

    /// The value at a place of a later reading of the same file.
    pub(crate) fn value(&self, bytes: &[u8], place: Place) -> Option<u64> {
        let end = place.offset.checked_add(8)?;
        let raw: [u8; 8] = bytes.get(place.offset..end)?.try_into().ok()?;
        Some(if self.little {
            u64::from_le_bytes(raw)
        } else {
            u64::from_be_bytes(raw)
        })
    }
}

fn u32_at(bytes: &[u8], at: usize, little: bool) -> Option<u32> {
    let raw: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(if little {
        u32::from_le_bytes(raw)
    } else {
        u32::from_be_bytes(raw)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with 64-bit counters, as HotSpot lays it out.
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
    fn counters_in_either_byte_order() {
        for little in [true, false] {
            let bytes = file(&[("a.b", 4, 7), ("sun.rt.time", TICKS, 1 << 40)], little);
            let table = Table::parse(&bytes).unwrap();
            let (a, b) = (
                table.place("a.b").unwrap(),
                table.place("sun.rt.time").unwrap(),
            );
            assert_eq!(table.value(&bytes, a), Some(7));
            assert_eq!(table.value(&bytes, b), Some(1 << 40));
            assert_eq!((a.ticks, b.ticks), (false, true));
            assert_eq!(table.place("a"), None);
            assert_eq!(table.value(&bytes[..40], b), None, "it has shrunk");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = file(&[("a", 4, 1)], true);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Table::parse(&bytes)
        };
        assert_eq!(Table::parse(&good[..31]), Err(Fault::Short));
        assert_eq!(with(0, 0), Err(Fault::Magic));
        assert_eq!(with(5, 1), Err(Fault::Version));
        assert_eq!(with(7, 0), Err(Fault::NotReady));
        assert_eq!(with(27, 255), Err(Fault::Entry), "first entry far outside");
        assert_eq!(
            with(28, 2),
            Err(Fault::Entry),
            "more entries than there are"
        );
        assert_eq!(
            with(32, 3),
            Err(Fault::Entry),
            "an entry shorter than its head"
        );
        assert!(Fault::Entry.text().contains("outside"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Table::parse(&bytes);
        }

        #[test]
        fn a_file_with_wrong_bytes_is_read_or_refused(
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
            if let Ok(table) = Table::parse(&bytes) {
                let short = &bytes[..cut.min(bytes.len())];
                for place in table.places.values() {
                    prop_assert!(table.value(&bytes, *place).is_some());
                    let _ = table.value(short, *place);
                }
            }
        }
    }
}
