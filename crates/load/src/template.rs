//! Templates: `{seq}`, `{rand:a-b}` and `{uuid}` are replaced with new values in each request. In the
//! requests of a check, `{key}` is replaced as well.
//!
//! All other braces are literal. A JSON body is therefore sent unchanged, because JSON cannot
//! contain `{seq}` outside strings. Inside strings, `{{seq}}` represents a literal `{seq}`. The
//! other placeholders follow the same rule.

use floodmark_record::operation::key_of;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::mix::below;

/// Maximum number of digits in a number.
const LONGEST_NUMBER: usize = 20;

/// Number of characters in a UUID.
const UUID_LENGTH: usize = 36;

/// Placeholder for a key.
const KEY: &[u8] = b"{key}";

/// Text with placeholders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(Vec<u8>),
    Marker(Marker),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    /// The request's number.
    Seq,
    /// An integer in an inclusive range.
    Rand { low: u64, high: u64 },
    /// A random UUID (version 4, RFC 9562).
    Uuid,
    /// The request's key.
    Key { keys: u64 },
}

/// A `{rand:…}` is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid template \"{0}\"; write two integers, the smaller first, such as {{rand:1-1000}}, or set templates = false to send the text unchanged"
)]
pub struct TemplateError(String);

impl RequestTemplate {
    /// Parses text with placeholders. With `keys`, `{key}` is a placeholder for a number from 1 to
    /// `keys`.
    ///
    /// # Errors
    /// Fails if a `{rand:…}` does not contain two integers, the smaller number first.
    pub fn parse(text: &[u8], keys: Option<u64>) -> Result<Self, TemplateError> {
        let marker = |text: &[u8]| match keys {
            Some(keys) if text.starts_with(KEY) => Ok(Some((Marker::Key { keys }, KEY.len()))),
            _ => marker(text),
        };
        let mut template = RequestTemplate::default();
        let mut rest = text;
        while let Some(at) = rest.iter().position(|b| *b == b'{') {
            template.push_text(&rest[..at]);
            rest = &rest[at..];
            let length = if let Some((marker, length)) = marker(rest)? {
                template.parts.push(TemplatePart::Marker(marker));
                length
            } else if let Some((_, length)) = marker(&rest[1..])?
                && rest.get(1 + length) == Some(&b'}')
            {
                template.push_text(&rest[1..=length]);
                length + 2
            } else {
                template.push_text(&rest[..1]);
                1
            };
            rest = &rest[length..];
        }
        template.push_text(rest);
        Ok(template)
    }

    fn push_text(&mut self, text: &[u8]) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(TemplatePart::Text(before)) => before.extend_from_slice(text),
            _ => self.parts.push(TemplatePart::Text(text.to_vec())),
        }
    }

    /// Returns whether the text contains placeholders.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, TemplatePart::Marker(_)))
    }

    /// Returns whether the text contains `{seq}`.
    #[must_use]
    pub fn has_seq(&self) -> bool {
        self.parts.contains(&TemplatePart::Marker(Marker::Seq))
    }

    /// Returns whether the text contains the placeholder `{key}`.
    #[must_use]
    pub fn has_key(&self) -> bool {
        let is_key = |part: &TemplatePart| matches!(part, TemplatePart::Marker(Marker::Key { .. }));
        self.parts.iter().any(is_key)
    }

    /// Returns whether the template is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns whether the literal text contains a byte.
    #[must_use]
    pub fn holds(&self, byte: u8) -> bool {
        let in_text =
            |part: &TemplatePart| matches!(part, TemplatePart::Text(text) if text.contains(&byte));
        self.parts.iter().any(in_text)
    }

    /// Returns the maximum length of the rendered text in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        let longest = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.len(),
            TemplatePart::Marker(Marker::Uuid) => UUID_LENGTH,
            TemplatePart::Marker(Marker::Seq | Marker::Rand { .. } | Marker::Key { .. }) => {
                LONGEST_NUMBER
            }
        };
        self.parts.iter().map(longest).sum()
    }

    /// Appends the text of request `number`.
    /// Does not allocate if `out` has room for [`RequestTemplate::longest`].
    pub fn render(&self, number: u64, random: &mut impl Rng, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Marker(Marker::Seq) => push_decimal(number, out),
                TemplatePart::Marker(Marker::Rand { low, high }) => {
                    // The size of the full range overflows. In this case, any 64 random bits are
                    // uniformly distributed.
                    let value = match (high - low).checked_add(1) {
                        Some(n) => low + below(random, n),
                        None => random.next_u64(),
                    };
                    push_decimal(value, out);
                }
                TemplatePart::Marker(Marker::Uuid) => push_uuid(random, out),
                TemplatePart::Marker(Marker::Key { keys }) => {
                    push_decimal(key_of(number, *keys), out);
                }
            }
        }
    }
}

/// Creates the source of random values for request `number`.
/// The seed and the number determine the initial state, so every thread that sends this request
/// sends the same bytes.
#[must_use]
pub fn randomness(seed: u64, number: u64) -> Xoshiro256PlusPlus {
    // The factor is odd, so different numbers map to different states. `seed_from_u64` mixes these
    // states (SplitMix64).
    let of_seed = seed.rotate_left(32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    Xoshiro256PlusPlus::seed_from_u64(
        of_seed.wrapping_add(number.wrapping_mul(0x2545_f491_4f6c_dd1d)),
    )
}

/// Parses the placeholder at the start of `text`, if any. Returns the placeholder and its length.
fn marker(text: &[u8]) -> Result<Option<(Marker, usize)>, TemplateError> {
    for (name, marker) in [("{seq}", Marker::Seq), ("{uuid}", Marker::Uuid)] {
        if text.starts_with(name.as_bytes()) {
            return Ok(Some((marker, name.len())));
        }
    }
    const RAND: &[u8] = b"{rand:";
    if !text.starts_with(RAND) {
        return Ok(None);
    }
    let end = text.iter().position(|b| matches!(b, b'}' | b'\n' | b'\r'));
    let end = end.unwrap_or(text.len());
    let whole = &text[..text.len().min(end + 1)];
    let error =
        || TemplateError(String::from_utf8_lossy(&whole[..whole.len().min(60)]).into_owned());
    let range = std::str::from_utf8(&text[RAND.len()..end]).map_err(|_| error())?;
    let (low, high) = range.split_once('-').ok_or_else(error)?;
    let bound = |digits: &str| -> Option<u64> {
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    };
    match (bound(low), bound(high)) {
        (Some(low), Some(high)) if low <= high && whole.ends_with(b"}") => {
            Ok(Some((Marker::Rand { low, high }, whole.len())))
        }
        _ => Err(error()),
    }
}

/// Appends a number in decimal.
pub fn push_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; LONGEST_NUMBER];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a random UUID (version 4, RFC 9562, section 5.4).
fn push_uuid(random: &mut impl Rng, out: &mut Vec<u8>) {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let mut text = [b'-'; UUID_LENGTH];
    let places = (0..UUID_LENGTH).filter(|place| !matches!(place, 8 | 13 | 18 | 23));
    for (place, digit) in places.zip((0..32).rev()) {
        text[place] = b"0123456789abcdef"[(bits >> (4 * digit)) as usize & 0xf];
    }
    out.extend_from_slice(&text);
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
