//! The content of a state file: two slots that contain the same record.
//!
//! ```text
//! floodmark dispatcher state 2
//! next 1048577
//! sum 5d1f0c4a1e0b7c33
//! ```
//!
//! Each update writes and syncs the second slot, and then the first. A value is in effect only when
//! both slots contain it. A valid slot is therefore never too old, even if the other slot is torn
//! by a crash or damaged later. Version 1 had only the first slot.

const MAGIC: &str = "floodmark dispatcher state ";
const VERSION: u32 = 2;

/// Size of a slot, in bytes. A disk writes at most this much at once, so that a torn write damages
/// only one slot.
pub(crate) const SLOT_BYTES: usize = 4096;

/// Why a state file has no valid slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotFault {
    /// There is no record of a state file.
    Foreign,
    /// A later version wrote the file.
    Version,
    /// The checksum is invalid.
    Damaged,
}

/// Parses a state file and returns the next number.
pub(crate) fn parse_slots(content: &[u8]) -> Result<u64, SlotFault> {
    use SlotFault::{Damaged, Foreign, Version};
    let (first, second) = content.split_at(content.len().min(SLOT_BYTES));
    match (parse(first), parse(second)) {
        (Err(Version), _) | (_, Err(Version)) => Err(Version),
        // The server crashed between the two writes, or while it wrote a slot.
        (Ok(first), Ok(second)) => Ok(first.max(second)),
        (Ok(next), Err(_)) | (Err(_), Ok(next)) => Ok(next),
        (Err(Foreign), Err(Foreign)) => Err(Foreign),
        (Err(Foreign | Damaged), Err(Foreign | Damaged)) => Err(Damaged),
    }
}

/// Returns the content of each slot.
pub(crate) fn render_slot(next: u64) -> Vec<u8> {
    let mut slot = render(VERSION, next).into_bytes();
    slot.resize(SLOT_BYTES, b'\n');
    slot
}

fn parse(slot: &[u8]) -> Result<u64, SlotFault> {
    let rest = slot.strip_prefix(MAGIC.as_bytes());
    let rest = rest.ok_or(SlotFault::Foreign)?;
    let end = rest.iter().position(|byte| *byte == 0);
    let text = str::from_utf8(&rest[..end.unwrap_or(rest.len())]).unwrap_or_default();
    let mut lines = text.lines();
    let version: Option<u32> = lines.next().and_then(|line| line.parse().ok());
    let version = version.ok_or(SlotFault::Damaged)?;
    if version > VERSION {
        return Err(SlotFault::Version);
    }
    let number = lines.next().and_then(|line| line.strip_prefix("next "));
    let next = number.and_then(|number| number.parse().ok());
    // Refuse other representations of the same number. Slots are padded with newlines. In a
    // version 1 file, writing the second slot leaves zeros after the first record.
    let is_padding = |rest: &[u8]| rest.iter().all(|byte| matches!(byte, b'\n' | 0));
    let is_canonical = |next: &u64| {
        let padding = slot.strip_prefix(render(version, *next).as_bytes());
        *next > 0 && padding.is_some_and(is_padding)
    };
    next.filter(is_canonical).ok_or(SlotFault::Damaged)
}

fn render(version: u32, next: u64) -> String {
    let content = format!("{MAGIC}{version}\nnext {next}\n");
    let sum = fnv1a(content.as_bytes());
    format!("{content}sum {sum:016x}\n")
}

/// Computes the 64-bit FNV-1a hash. Each step is a bijection of the state, so changing one byte
/// always changes the hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u64 = 999;
    const NEW: u64 = 1_048_577;

    fn file(first: u64, second: u64) -> Vec<u8> {
        [render_slot(first), render_slot(second)].concat()
    }

    #[test]
    fn detects_any_changed_byte_of_a_record() {
        let good = render(VERSION, NEW);
        assert_eq!(parse(good.as_bytes()), Ok(NEW));
        for at in 0..good.len() {
            for flip in [0x01, 0x20, 0x80] {
                let mut bad = good.clone().into_bytes();
                bad[at] ^= flip;
                assert!(parse(&bad).is_err(), "byte {at} ^ {flip}");
            }
        }
        for cut in 0..good.len() {
            assert!(parse(&good.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
        for foreign in ["", "#!/bin/sh\n"] {
            assert_eq!(parse(foreign.as_bytes()), Err(SlotFault::Foreign));
        }
        let later = format!("{MAGIC}3\nwhatever\n");
        assert_eq!(parse(later.as_bytes()), Err(SlotFault::Version));
        for damaged in [render(VERSION, 0), format!("{good} ")] {
            assert_eq!(parse(damaged.as_bytes()), Err(SlotFault::Damaged));
        }
    }

    #[test]
    fn one_valid_slot_is_enough() {
        let good = file(NEW, NEW);
        assert_eq!(parse_slots(&good), Ok(NEW));
        for slot in [0, SLOT_BYTES] {
            let mut bad = good.clone();
            bad[slot..slot + SLOT_BYTES].fill(0);
            assert_eq!(parse_slots(&bad), Ok(NEW));
        }
        let mut bad = good;
        (bad[30], bad[SLOT_BYTES + 30]) = (b'!', b'!');
        assert_eq!(parse_slots(&bad), Err(SlotFault::Damaged));
        assert_eq!(parse_slots(&[0; 8192]), Err(SlotFault::Foreign));
    }

    /// Checks each state of a file during an update: part of the second slot is written, or the
    /// second slot and part of the first.
    fn assert_torn_updates_are_safe(old: &[u8]) {
        let new = render_slot(NEW);
        for written in 1..=SLOT_BYTES {
            let mut torn = old.to_vec();
            torn.resize(2 * SLOT_BYTES, 0);
            torn[SLOT_BYTES..][..written].copy_from_slice(&new[..written]);
            let next = parse_slots(&torn);
            assert!(matches!(next, Ok(OLD | NEW)), "{written}: {next:?}");
            torn[SLOT_BYTES..].copy_from_slice(&new);
            torn[..written].copy_from_slice(&new[..written]);
            assert_eq!(parse_slots(&torn), Ok(NEW), "{written}");
        }
    }

    #[test]
    fn a_torn_write_leaves_the_old_or_the_new_value() {
        assert_torn_updates_are_safe(&file(OLD, OLD));
        assert_torn_updates_are_safe(render(1, OLD).as_bytes());
    }

    #[test]
    fn the_checksum_is_fnv1a() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
