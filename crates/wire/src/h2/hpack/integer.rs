//! Integers with a prefix (RFC 7541 section 5.1).

use super::HpackError;

/// Maximum number of bytes after the prefix. Four bytes hold 28 bits, and no length, index or table
/// size that a session accepts is larger.
const MAX_MORE_BYTES: u32 = 4;

/// Reads an integer whose prefix has `bits` bits, and removes it from the start of `input`.
pub(super) fn decode(input: &mut &[u8], bits: u32) -> Result<usize, HpackError> {
    let limit = (1u32 << bits) - 1;
    let mut value = u32::from(next(input)?) & limit;
    if value == limit {
        let mut shift = 0;
        loop {
            if shift == 7 * MAX_MORE_BYTES {
                return Err(HpackError::IntegerOverflow);
            }
            let byte = next(input)?;
            value += u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    Ok(value as usize)
}

fn next(input: &mut &[u8]) -> Result<u8, HpackError> {
    let (&first, rest) = input.split_first().ok_or(HpackError::Truncated)?;
    *input = rest;
    Ok(first)
}

/// Appends an integer whose prefix has `bits` bits. `pattern` contains the bits before the prefix.
pub(crate) fn encode(value: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let limit = (1usize << bits) - 1;
    if value < limit {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The examples in RFC 7541 appendix C.1.
    #[test]
    fn encodes_the_examples_of_the_rfc() {
        for (value, bits, bytes) in [
            (10, 5, &[0b01010][..]),
            (1337, 5, &[0b11111, 0b1001_1010, 0b0000_1010]),
            (42, 8, &[0b0010_1010]),
        ] {
            let mut out = Vec::new();
            encode(value, bits, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(decode(&mut &bytes[..], bits), Ok(value));
        }
    }

    #[test]
    fn rejects_long_and_truncated_integers() {
        let decode = |mut bytes: &[u8]| decode(&mut bytes, 5);
        assert_eq!(decode(&[]), Err(HpackError::Truncated));
        assert_eq!(decode(&[31, 0xff]), Err(HpackError::Truncated));
        assert_eq!(decode(&[31, 0x80, 0x80, 0x80, 0]), Ok(31));
        assert_eq!(decode(&[31, 0xff, 0xff, 0xff, 0x7f]), Ok((1 << 28) + 30));
        assert_eq!(
            decode(&[31, 0x80, 0x80, 0x80, 0x80, 0]),
            Err(HpackError::IntegerOverflow)
        );
    }

    proptest! {
        #[test]
        fn decodes_what_it_encodes(value in 0usize..1 << 28, bits in 4u32..=7, rest in any::<[u8; 2]>()) {
            let mut out = Vec::new();
            encode(value, bits, 0, &mut out);
            out.extend(rest);
            let mut input = &out[..];
            prop_assert_eq!(decode(&mut input, bits), Ok(value));
            prop_assert_eq!(input, rest);
        }
    }
}
