//! The Huffman code for strings (RFC 7541 section 5.2 and appendix B).

use super::HpackError;

/// Length of the code of each byte, and of the end-of-string symbol, in bits.
///
/// The code is canonical (appendix B): shorter codes come first, then lower symbols. The lengths
/// therefore determine the codes.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The symbol that must not appear in a string.
const END_OF_STRING: u16 = 256;

const MAX_LENGTH: usize = 30;

static CODE: Code = Code::new();

/// Tables for decoding. Codes are aligned to the left of 32 bits.
struct Code {
    /// Symbol and length for each value of the next 8 bits. A length of zero marks the start of a
    /// longer code.
    short: [(u8, u8); 256],
    /// All symbols in the order of their codes.
    symbols: [u16; 257],
    /// First code of each length.
    first: [u32; MAX_LENGTH + 1],
    /// Upper bound (exclusive) of the codes of each length.
    end: [u64; MAX_LENGTH + 1],
    /// Position in `symbols` of the first code of each length.
    rank: [usize; MAX_LENGTH + 1],
}

impl Code {
    const fn new() -> Code {
        let mut code = Code {
            short: [(0, 0); 256],
            symbols: [0; 257],
            first: [0; MAX_LENGTH + 1],
            end: [0; MAX_LENGTH + 1],
            rank: [0; MAX_LENGTH + 1],
        };
        let mut next = 0u64;
        let mut rank = 0;
        let mut length = 1;
        while length <= MAX_LENGTH {
            code.first[length] = next as u32;
            code.rank[length] = rank;
            let mut symbol = 0;
            while symbol < LENGTHS.len() {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[rank] = symbol as u16;
                    rank += 1;
                    let end = next + (1 << (32 - length));
                    let mut start = next >> 24;
                    while length <= 8 && start < end >> 24 {
                        code.short[start as usize] = (symbol as u8, length as u8);
                        start += 1;
                    }
                    next = end;
                }
                symbol += 1;
            }
            code.end[length] = next;
            length += 1;
        }
        assert!(next == 1 << 32, "the code is complete");
        code
    }

    /// Returns the symbol at the start of `bits` and the length of its code.
    #[inline]
    fn symbol(&self, bits: u32) -> (u16, u32) {
        let (symbol, length) = self.short[(bits >> 24) as usize];
        if length > 0 {
            return (u16::from(symbol), u32::from(length));
        }
        self.long_symbol(bits)
    }

    #[cold]
    fn long_symbol(&self, bits: u32) -> (u16, u32) {
        let length = (9..MAX_LENGTH)
            .find(|&length| u64::from(bits) < self.end[length])
            .unwrap_or(MAX_LENGTH);
        let offset = (bits - self.first[length]) >> (32 - length);
        let symbol = self.symbols[self.rank[length] + offset as usize];
        (symbol, length as u32)
    }
}

/// Appends the decoded string to `out`, which may grow by at most `limit` bytes.
pub(super) fn decode(input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), HpackError> {
    let end = out.len() + limit;
    let mut rest = input;
    // Unread bits, aligned to the left and followed by zeros.
    let mut bits = 0u64;
    let mut count = 0;
    loop {
        while count <= 56
            && let Some((&byte, after)) = rest.split_first()
        {
            bits |= u64::from(byte) << (56 - count);
            count += 8;
            rest = after;
        }
        let (symbol, length) = CODE.symbol((bits >> 32) as u32);
        if length > count {
            break;
        }
        if symbol == END_OF_STRING {
            return Err(HpackError::EndOfString);
        }
        if out.len() == end {
            return Err(HpackError::ListTooLarge);
        }
        out.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
    // Padding is shorter than a byte and consists of ones.
    if count < 8 && bits == !(u64::MAX >> count) {
        Ok(())
    } else {
        Err(HpackError::HuffmanPadding)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Encodes a string bit by bit.
    pub fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for &byte in text {
            let length = usize::from(LENGTHS[usize::from(byte)]);
            let rank = CODE
                .symbols
                .iter()
                .position(|&symbol| symbol == u16::from(byte))
                .unwrap();
            let offset = (rank - CODE.rank[length]) as u32;
            let code = (CODE.first[length] >> (32 - length)) + offset;
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        }
        bits.resize(bits.len().next_multiple_of(8), true);
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        bits.chunks(8).map(byte).collect()
    }

    fn decoded(input: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = Vec::new();
        decode(input, 1 << 20, &mut out).map(|()| out)
    }

    /// Rows of the table in RFC 7541 appendix B, one per code length.
    #[test]
    fn codes_match_the_table_of_the_rfc() {
        for (byte, length, code) in [
            (b'0', 5, 0x0),
            (b' ', 6, 0x14),
            (b':', 7, 0x5c),
            (b'&', 8, 0xf8),
            (b'!', 10, 0x3f8),
            (b'|', 11, 0x7fc),
            (b'#', 12, 0xffa),
            (0, 13, 0x1ff8),
            (b'}', 14, 0x3ffd),
            (b'`', 15, 0x7ffd),
            (b'\\', 19, 0x7fff0),
            (128, 20, 0xfffe6),
            (153, 21, 0x1f_ffdc),
            (129, 22, 0x3f_ffd2),
            (1, 23, 0x7f_ffd8),
            (9, 24, 0xff_ffea),
            (199, 25, 0x1ff_ffec),
            (192, 26, 0x3ff_ffe0),
            (203, 27, 0x7ff_ffde),
            (2, 28, 0xfff_ffe2),
            (10, 30, 0x3fff_fffc),
        ] {
            let bits = code << (32 - length);
            assert_eq!(CODE.symbol(bits), (u16::from(byte), length), "{byte}");
        }
    }

    #[test]
    fn checks_padding_and_end_of_string() {
        assert_eq!(decoded(&[]), Ok(Vec::new()));
        // `a` is 00011, followed by three bits of padding.
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decoded(&[0b0001_1110]), Err(HpackError::HuffmanPadding));
        assert_eq!(decoded(&[0xff]), Err(HpackError::HuffmanPadding));
        assert_eq!(
            decoded(&[0b0001_1111, 0xff]),
            Err(HpackError::HuffmanPadding)
        );
        assert_eq!(decoded(&[0xff; 4]), Err(HpackError::EndOfString));
    }

    #[test]
    fn output_is_bounded() {
        let mut out = b"x".to_vec();
        assert_eq!(decode(&encode(b"abc"), 3, &mut out), Ok(()));
        assert_eq!(out, b"xabc");
        let result = decode(&encode(b"abc"), 2, &mut out);
        assert_eq!(result, Err(HpackError::ListTooLarge));
    }

    proptest! {
        #[test]
        fn decodes_what_it_encodes(text in vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decoded(&encode(&text)), Ok(text));
        }

        /// Each valid string has exactly one encoding.
        #[test]
        fn encodes_what_it_decodes(input in vec(any::<u8>(), 0..12)) {
            if let Ok(text) = decoded(&input) {
                prop_assert_eq!(encode(&text), input);
            }
        }
    }
}
