//! Finds the functions of a garbage collector in a program or library without a symbol table.
//!
//! Such a file still contains function start addresses (`.eh_frame_hdr`, for unwinding), the
//! functions that it exports, and the text of messages. A function that refers to a message of the
//! collector belongs to the collector. So do functions that jump to such a function (the main part
//! of a function whose rarely executed code the compiler split off), functions that only
//! the collector uses, and functions whose addresses it passes as callbacks. Exported functions are
//! classified by name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::code_kind::COLLECTOR_MESSAGES;

/// Bytes of a section, and their address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    pub address: u64,
    pub bytes: &'a [u8],
}

impl Section<'_> {
    /// Returns the address of the constant string `text`, which has a zero byte before
    /// and after it.
    fn address_of(&self, text: &str) -> Option<u64> {
        let wanted = [b"\0", text.as_bytes(), b"\0"].concat();
        let finder = memchr::memmem::Finder::new(&wanted);
        let at = finder.find(self.bytes)? as u64;
        Some(self.address + at + 1)
    }

    fn contains(&self, address: u64) -> bool {
        address
            .checked_sub(self.address)
            .is_some_and(|at| at < self.bytes.len() as u64)
    }
}

/// A reference from x86-64 code to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reference {
    Call(u64),
    Jump(u64),
    /// The operand of an instruction that loads, stores or compares an address.
    Address(u64),
}

impl Reference {
    /// Returns the address to which the operand refers.
    fn address(self) -> u64 {
        match self {
            Self::Call(to) | Self::Jump(to) | Self::Address(to) => to,
        }
    }
}

/// Interprets the four bytes at index `at` of a code section as an operand, if the preceding bytes
/// look like a matching opcode. Padding between functions contains the operand 0, which
/// would refer to the next function.
fn reference(text: Section<'_>, at: usize) -> Option<Reference> {
    let operand = text.bytes.get(at..)?.first_chunk()?;
    let operand = i32::from_le_bytes(*operand);
    if operand == 0 {
        return None;
    }
    let next = text.address + at as u64 + 4;
    let relative = next.wrapping_add_signed(i64::from(operand));
    Some(match text.bytes[..at] {
        // `jmp` and conditional jumps.
        [.., 0xe9] | [.., 0x0f, 0x80..=0x8f] => Reference::Jump(relative),
        [.., 0xe8] => Reference::Call(relative),
        // `lea` relative to the next instruction.
        [.., 0x8d, mode] if mode & 0xc7 == 0x05 => Reference::Address(relative),
        // `mov` to a register or to memory, and `cmp`. Only programs at fixed addresses contain
        // absolute addresses.
        [.., 0xb8..=0xbf]
        | [.., 0xc7, 0x00..=0x07 | 0xc0..=0xc7]
        | [.., 0xc7, 0x40..=0x47, _]
        | [.., 0xc7, 0x44, 0x24, _]
        | [.., 0x48, 0x3d]
        | [.., 0x81, 0xf8..=0xff] => Reference::Address(u64::from(operand.cast_unsigned())),
        _ => return None,
    })
}

/// Returns the start addresses of the functions described in `.eh_frame_hdr` (Linux Standard Base,
/// "Exception Frames"), in ascending order. Returns `None` if the table is damaged or has an
/// encoding that linkers do not use.
pub(crate) fn function_starts(header: Section<'_>) -> Option<Vec<u64>> {
    // Version 1, then 4-byte encodings: PC-relative pointer, count, and table relative to the
    // header.
    let table = header
        .bytes
        .strip_prefix(&[1, 0x1b, 0x03, 0x3b])?
        .get(4..)?;
    let (count, table) = table.split_first_chunk()?;
    let (entries, _) = table.as_chunks::<8>();
    let entries = entries.get(..u32::from_le_bytes(*count) as usize)?;
    let start = |[a, b, c, d, ..]: &[u8; 8]| {
        let offset = i32::from_le_bytes([*a, *b, *c, *d]);
        header.address.wrapping_add_signed(i64::from(offset))
    };
    let mut starts: Vec<u64> = entries.iter().map(start).collect();
    starts.sort_unstable();
    Some(starts)
}

/// Returns the start addresses of the collector's functions. `starts` are the start addresses of
/// all functions, in ascending order; `is_exported` returns whether the function at an address is
/// exported.
pub(crate) fn find(
    starts: &[u64],
    text: Section<'_>,
    constants: Section<'_>,
    is_exported: impl Fn(u64) -> bool,
) -> BTreeSet<u64> {
    let messages: Vec<u64> = COLLECTOR_MESSAGES
        .iter()
        .filter_map(|message| constants.address_of(message))
        .collect();
    if messages.is_empty() {
        return BTreeSet::new();
    }
    let function_at = |address: u64| {
        let after = starts.partition_point(|start| *start <= address);
        after.checked_sub(1).map(|at| starts[at])
    };
    let is_hidden = |start: &u64| {
        text.contains(*start) && starts.binary_search(start).is_ok() && !is_exported(*start)
    };
    // References in a function's code, each with the start address of that function.
    let references = |range: Range<usize>| {
        let found = range.filter_map(|at| Some((text.address + at as u64, reference(text, at)?)));
        found.filter_map(|(at, to)| Some((function_at(at)?, to)))
    };
    let mut found = BTreeSet::new();
    // Functions that call a function, jump to it or take its address.
    let mut users: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut jumps = Vec::new();
    for (from, to) in references(0..text.bytes.len()) {
        match to {
            Reference::Address(to) if messages.contains(&to) => {
                found.insert(from);
            }
            Reference::Jump(to) if text.contains(to) => jumps.push((from, function_at(to))),
            _ => {}
        }
        let to = to.address();
        if to != from && is_hidden(&to) {
            users.entry(to).or_default().insert(from);
        }
    }
    let jumping = jumps
        .iter()
        .filter(|(_, to)| to.is_some_and(|to| found.contains(&to)));
    let jumping: Vec<u64> = jumping.map(|(from, _)| *from).collect();
    found.extend(jumping);
    found.retain(is_hidden);
    let index = |address: u64| address.saturating_sub(text.address) as usize;
    let bytes_of = |start: u64| {
        let after = starts.partition_point(|other| *other <= start);
        let end = starts
            .get(after)
            .map_or(text.bytes.len(), |end| index(*end));
        index(start)..end.min(text.bytes.len())
    };
    loop {
        let only_used = users.iter().filter(|(_, users)| users.is_subset(&found));
        let only_used = only_used.map(|(start, _)| *start);
        let references = found.iter().flat_map(|start| references(bytes_of(*start)));
        let callbacks = references.filter(|(_, to)| matches!(to, Reference::Address(_)));
        let callbacks = callbacks.map(|(_, to)| to.address()).filter(is_hidden);
        let before = found.len();
        let more: Vec<u64> = only_used.chain(callbacks).collect();
        found.extend(more);
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: u64 = 0x1000;
    const CONSTANTS: u64 = 0x9000;
    const HEADER: u64 = 0xa000;
    /// Length of each function in bytes.
    const FUNCTION: u64 = 16;

    /// Returns a function at address `at` that starts with `opcode` and the distance from the
    /// next instruction to an address.
    fn code(at: u64, opcode: &[u8], to: u64) -> Vec<u8> {
        let next = at + opcode.len() as u64 + 4;
        let distance = (to as i32 - next as i32).to_le_bytes();
        let mut bytes = [opcode, &distance[..]].concat();
        bytes.resize(FUNCTION as usize, 0x90);
        bytes
    }

    fn start(function: u64) -> u64 {
        TEXT + function * FUNCTION
    }

    #[test]
    fn finds_functions_by_message_jump_call_and_address() {
        let constants = [b"\0\0", COLLECTOR_MESSAGES[1].as_bytes(), b"\0"].concat();
        let message = CONSTANTS + 2;
        let text = [
            // 0 calls the function that refers to the message, but may be an allocation function.
            code(start(0), &[0xe8], start(1)),
            code(start(1), &[0x48, 0x8d, 0x3d], message),
            // 2 and 3 jump into function 1, but 3 is exported.
            code(start(2), &[0x0f, 0x84], start(1) + 8),
            code(start(3), &[0xe9], start(1)),
            // 4 jumps to another function.
            code(start(4), &[0xe9], start(0)),
            // 2 passes the address of 5 as a callback. 5 calls 6. 6 and 0 call 7.
            code(start(5), &[0xe8], start(6)),
            code(start(6), &[0xe8], start(7)),
            code(start(7), &[0xe9], start(4)),
        ];
        let mut text = text.concat();
        let end = 3 * FUNCTION as usize;
        text[end - 5] = 0xbf;
        text[end - 4..end].copy_from_slice(&(start(5) as u32).to_le_bytes());
        let second_call = code(start(0) + 5, &[0xe8], start(7));
        text[5..10].copy_from_slice(&second_call[..5]);
        let starts = Vec::from_iter((0..8).map(start));
        let find = |constants: &[u8]| {
            let section = |address, bytes| Section { address, bytes };
            let constants = section(CONSTANTS, constants);
            super::find(&starts, section(TEXT, &text), constants, |of| {
                of == start(3)
            })
        };
        assert_eq!(find(&constants), [1, 2, 5, 6].map(start).into());
        // Only whole messages count.
        assert_eq!(find(&constants[..constants.len() - 1]), BTreeSet::new());
    }

    #[test]
    fn padding_is_not_a_reference_to_the_next_function() {
        let constants = [b"\0", COLLECTOR_MESSAGES[1].as_bytes(), b"\0"].concat();
        let mut first = code(start(0), &[0x48, 0x8d, 0x3d], CONSTANTS + 1);
        // nop DWORD PTR [rax+rax*1+0x0], which assemblers insert between functions.
        first[8..].copy_from_slice(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]);
        // An operand of another instruction, which happens to be the distance to function 2.
        let second = code(start(1), &[0x48, 0x03, 0x05], start(2));
        let third = code(start(2), &[0xc3], start(1));
        let text = [first, second, third].concat();
        let section = |address, bytes| Section { address, bytes };
        let starts = [start(0), start(1), start(2)];
        let constants = section(CONSTANTS, &constants);
        let found = find(&starts, section(TEXT, &text), constants, |_| false);
        assert_eq!(found, [start(0)].into());
    }

    /// Returns a table of function starts at the given distances from the table.
    fn header(distances: &[i32]) -> Vec<u8> {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
        bytes.extend(u32::try_from(distances.len()).unwrap().to_le_bytes());
        let entries = distances.iter().flat_map(|distance| [*distance, 0]);
        bytes.extend(entries.flat_map(i32::to_le_bytes));
        bytes
    }

    fn starts(bytes: &[u8]) -> Option<Vec<u64>> {
        let address = HEADER;
        function_starts(Section { address, bytes })
    }

    #[test]
    fn reads_the_starts_of_functions() {
        let table = header(&[-16, -32]);
        assert_eq!(starts(&table), Some(vec![HEADER - 32, HEADER - 16]));
        assert_eq!(starts(&table[..table.len() - 1]), None);
        let mut other = table;
        other[3] = 0xff;
        assert_eq!(starts(&other), None);
    }

    proptest! {
        #[test]
        fn damaged_sections_do_not_panic(
            mut starts: Vec<u64>,
            near in prop::collection::vec(TEXT - 8..TEXT + 80, 0..8),
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            address in prop_oneof![Just(TEXT), any::<u64>()],
        ) {
            let constants = [b"\0", COLLECTOR_MESSAGES[0].as_bytes(), b"\0"].concat();
            let constants = Section { address: CONSTANTS, bytes: &constants };
            starts.extend(near);
            starts.sort_unstable();
            let text = [code(TEXT, &[0x48, 0x8d, 0x3d], CONSTANTS + 1), bytes].concat();
            let _ = find(&starts, Section { address, bytes: &text }, constants, |_| false);
        }

        #[test]
        fn damaged_headers_do_not_panic(bytes: Vec<u8>, at in 0_usize..32, byte: u8) {
            let _ = starts(&bytes);
            let mut table = header(&[-16, i32::MIN]);
            let last = table.len() - 1;
            table[at.min(last)] = byte;
            let _ = starts(&table);
        }
    }
}
