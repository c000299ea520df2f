//! One timestamp: seconds, an ISO 8601 time as RFC 3339 has it, or the time of the common log format.

use crate::clock::NS_PER_S;

/// What a plain number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl Unit {
    fn ns(self) -> u64 {
        match self {
            Unit::Seconds => NS_PER_S,
            Unit::Milliseconds => 1_000_000,
            Unit::Microseconds => 1_000,
            Unit::Nanoseconds => 1,
        }
    }
}

/// Why a text is no timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// None of the forms.
    #[error(
        "{0} is no timestamp; write seconds such as 1763741296.123, or 2026-11-21T16:08:16.123Z, or give lines of an access \
         log with [21/Nov/2026:16:08:16 +0000]"
    )]
    Unknown(String),
    /// A number below zero.
    #[error("{0} is negative; count from any moment before the first request")]
    Negative(String),
    /// More than 64 bits of nanoseconds.
    #[error(
        "{0} is too large for a time; plain numbers are seconds unless --replay-unit says otherwise (ms, us, ns)"
    )]
    TooLarge(String),
}

/// Nanoseconds since 1970, or since whatever moment a number counts from.
pub fn parse(text: &str, unit: Unit) -> Result<u64, StampError> {
    let unknown = || StampError::Unknown(shown(text));
    if text.contains('[') {
        // syslog puts the number of a process in brackets before what the server wrote.
        return text
            .split('[')
            .skip(1)
            .filter_map(|part| part.split_once(']'))
            .find_map(|(stamp, _)| common_log(stamp.as_bytes()))
            .ok_or_else(unknown);
    }
    let bare = text.trim_matches('"');
    if bare.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        let (whole, fraction) = bare.split_once('.').unwrap_or((bare, ""));
        if whole.is_empty() || fraction.contains('.') {
            return Err(unknown());
        }
        return decimal(whole, fraction, unit.ns())
            .ok_or_else(|| StampError::TooLarge(shown(text)));
    }
    if bare
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    {
        return Err(StampError::Negative(shown(text)));
    }
    rfc3339(bare.as_bytes()).ok_or_else(unknown)
}

/// Quoted, without anything that acts on a terminal, and not too long.
fn shown(text: &str) -> String {
    let begin: String = text.chars().take(60).collect();
    if begin.len() < text.len() {
        format!("{begin:?}…")
    } else {
        format!("{begin:?}")
    }
}

/// A decimal number of `unit` ns, exact to the nanosecond: a double would have seconds since 1970 only to a quarter of a
/// microsecond. Digits beyond the nanosecond are dropped.
fn decimal(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(unit)?.checked_add(part(fraction, unit))
}

/// The part of `unit` that the digits after a point stand for.
fn part(digits: &str, unit: u64) -> u64 {
    let (mut sum, mut place) = (0, unit);
    for digit in digits.bytes() {
        place /= 10;
        sum += u64::from(digit - b'0') * place;
    }
    sum
}

/// RFC 3339, with a blank for the T, a comma for the point, an offset without colon or none (then UTC) allowed as in ISO 8601.
fn rfc3339(text: &[u8]) -> Option<u64> {
    let mut rest = Cursor(text);
    let date = (rest.number(4)?, rest.after(b"-", 2)?, rest.after(b"-", 2)?);
    rest.one_of(b"Tt ")?;
    let time = (rest.number(2)?, rest.after(b":", 2)?, rest.after(b":", 2)?);
    let mut ns = 0;
    if rest.one_of(b".,").is_some() {
        let digits = rest.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (fraction, after) = rest.0.split_at(digits);
        ns = part(
            std::str::from_utf8(fraction)
                .ok()
                .filter(|f| !f.is_empty())?,
            NS_PER_S,
        );
        rest.0 = after;
    }
    let offset_s = if rest.0.is_empty() || rest.one_of(b"Zz").is_some() {
        0
    } else {
        rest.offset_s()?
    };
    rest.end()?;
    since_1970(date, time, offset_s)?.checked_add(ns)
}

/// `21/Nov/2026:16:08:16 +0000`, with a fraction of the second where the server logs one (HAProxy).
fn common_log(text: &[u8]) -> Option<u64> {
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let mut rest = Cursor(text);
    let day = rest.number(2)?;
    rest.one_of(b"/")?;
    let (name, after) = rest.0.split_at_checked(3)?;
    let month = MONTHS
        .iter()
        .zip(1..)
        .find(|(m, _)| m.as_slice() == name)?
        .1;
    rest.0 = after;
    let year = rest.after(b"/", 4)?;
    let time = (
        rest.after(b":", 2)?,
        rest.after(b":", 2)?,
        rest.after(b":", 2)?,
    );
    let mut ns = 0;
    if rest.one_of(b".").is_some() {
        let digits = rest.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (fraction, after) = rest.0.split_at(digits);
        ns = part(std::str::from_utf8(fraction).ok()?, NS_PER_S);
        rest.0 = after;
    }
    let offset_s = if rest.one_of(b" ").is_some() {
        rest.offset_s()?
    } else {
        0
    };
    rest.end()?;
    since_1970((year, month, day), time, offset_s)?.checked_add(ns)
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// Exactly `digits` digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, after) = self.0.split_at_checked(digits)?;
        let value = number.iter().try_fold(0, |value, byte| {
            byte.is_ascii_digit()
                .then(|| value * 10 + i64::from(byte - b'0'))
        })?;
        self.0 = after;
        Some(value)
    }

    fn after(&mut self, mark: &[u8], digits: usize) -> Option<i64> {
        self.one_of(mark)?;
        self.number(digits)
    }

    fn one_of(&mut self, marks: &[u8]) -> Option<u8> {
        let (first, after) = self.0.split_first()?;
        marks.contains(first).then(|| {
            self.0 = after;
            *first
        })
    }

    /// `+01:00`, `+0100` or `+01`, as seconds east of UTC.
    fn offset_s(&mut self) -> Option<i64> {
        let sign = if self.one_of(b"+-")? == b'+' { 1 } else { -1 };
        let hours = self.number(2).filter(|hours| *hours < 24)?;
        let minutes = match (self.one_of(b":"), self.0.is_empty()) {
            (None, true) => 0,
            _ => self.number(2).filter(|minutes| *minutes < 60)?,
        };
        Some(sign * (hours * 3600 + minutes * 60))
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Nanoseconds from 1970 in UTC to a civil time (proleptic Gregorian) of an offset. None for what is no such time or lies before.
///
/// Days are counted as in H. Hinnant, "chrono-Compatible Low-Level Date Algorithms" (2013), `days_from_civil`.
fn since_1970(date: (i64, i64, i64), time: (i64, i64, i64), offset_s: i64) -> Option<u64> {
    let (year, month, day) = date;
    let (hour, minute, second) = time;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is 60; it lies where the next minute begins.
    if !(1..=days_of_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years begin in March, so that the leap day is a year's last.
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset_s;
    u64::try_from(seconds).ok()?.checked_mul(NS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: u64 = 1_795_277_296_000_000_000;

    fn read(text: &str) -> Result<u64, StampError> {
        parse(text, Unit::Seconds)
    }

    #[test]
    fn every_form_of_one_moment() {
        for text in [
            "1795277296",
            "1795277296.000",
            "2026-11-21T16:08:16Z",
            "2026-11-21t16:08:16z",
            "2026-11-21 16:08:16",
            "\"2026-11-21T16:08:16.000000000+00:00\"",
            "2026-11-21T17:08:16+01:00",
            "2026-11-21T11:38:16-0430",
            "2026-11-21T18:08:16+02",
            "[21/Nov/2026:16:08:16 +0000]",
            "10.0.0.1 - - [21/Nov/2026:17:08:16 +0100] \"GET /[x] HTTP/1.1\" 200 5 \"-\" \"curl/8\"",
            "[21/Nov/2026:16:08:16.000]",
            "Nov 21 16:08:16 lb haproxy[14389]: 10.0.1.2:33317 [21/Nov/2026:16:08:16.000] http-in",
            "[::1]:80 [error] [21/Nov/2026:16:08:16 +0000] [20/Nov/2026:16:08:16 +0000]",
        ] {
            assert_eq!(read(text), Ok(AT), "{text}");
        }
        assert_eq!(read("2026-11-21T16:08:16.1234Z"), Ok(AT + 123_400_000));
        assert_eq!(read("2026-11-21T16:08:16,000000001Z"), Ok(AT + 1));
        assert_eq!(read("[21/Nov/2026:16:08:16.655]"), Ok(AT + 655_000_000));
        assert_eq!(read("2000-02-29T00:00:00Z"), Ok(951_782_400_000_000_000));
        assert_eq!(read("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(read("2016-12-31T23:59:60Z"), read("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn numbers_are_exact_to_the_nanosecond() {
        assert_eq!(read("1795277296.123456789"), Ok(AT + 123_456_789));
        assert_eq!(read("1795277296.1234567891"), Ok(AT + 123_456_789));
        assert_eq!(read("0.5"), Ok(500_000_000));
        assert_eq!(read("7."), Ok(7 * NS_PER_S));
        assert_eq!(
            parse("1795277296123.5", Unit::Milliseconds),
            Ok(AT + 123_500_000)
        );
        assert_eq!(parse("12", Unit::Microseconds), Ok(12_000));
        assert_eq!(parse("12.9", Unit::Nanoseconds), Ok(12));
    }

    #[test]
    fn what_is_no_timestamp() {
        for text in [
            "abc",
            "1e9",
            "1.2.3",
            ".5",
            "0x10",
            "12 s",
            "2026-11-21",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T16:08:16.Z",
            "2026-11-21T16:08:16+1",
            "2026-11-21T16:08:16Z x",
            "[21/Now/2026:16:08:16 +0000]",
            "[21/Nov/2026:16:08:16",
            "[]",
            "haproxy[14389]: started",
            "21/Nov/2026:16:08:16 +0000] [",
            "1969-12-31T23:59:59Z",
            "inf",
            "NaN",
            "\u{661}",
        ] {
            assert!(matches!(read(text), Err(StampError::Unknown(_))), "{text}");
        }
        assert!(matches!(read("-1.5"), Err(StampError::Negative(_))));
        for text in ["99999999999999999999", "18446744074"] {
            assert!(matches!(read(text), Err(StampError::TooLarge(_))), "{text}");
        }
        let said = read("\u{1b}[31m").unwrap_err().to_string();
        assert!(!said.contains('\u{1b}'), "{said}");
    }

    proptest! {
        #[test]
        fn any_text_is_no_panic(text in "\\PC{0,40}") {
            let _ = read(&text);
        }

        #[test]
        fn days_follow_one_another(days in 0u64..100_000) {
            // Counted the slow way, month by month.
            let (mut year, mut left) = (1970, days);
            let leap = |year: u64| {
                year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
            };
            while left >= 365 + u64::from(leap(year)) {
                left -= 365 + u64::from(leap(year));
                year += 1;
            }
            let mut month = 1;
            let length = |month| match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            while left >= length(month) {
                left -= length(month);
                month += 1;
            }
            let text = format!("{year:04}-{month:02}-{:02}T00:00:00Z", left + 1);
            prop_assert_eq!(read(&text), Ok(days * 86_400 * NS_PER_S));
        }
    }
}
