//! Parses one timestamp: seconds, an ISO 8601 time as in RFC 3339, or a time in the common log
//! format.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::clock::NS_PER_S;

/// The unit of a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimestampUnit {
    fn ns(self) -> u64 {
        match self {
            TimestampUnit::Seconds => NS_PER_S,
            TimestampUnit::Milliseconds => 1_000_000,
            TimestampUnit::Microseconds => 1_000,
            TimestampUnit::Nanoseconds => 1,
        }
    }
}

/// The reason why a string is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// The string matches no format.
    #[error(
        "{0} is not a timestamp; write seconds (1763741296.123), an ISO 8601 time (2026-11-21T16:08:16.123Z) or access \
         log lines with [21/Nov/2026:16:08:16 +0000]"
    )]
    Unknown(String),
    /// A negative number.
    #[error("{0} is negative; use non-negative timestamps")]
    Negative(String),
    /// The timestamp in nanoseconds does not fit into 64 bits.
    #[error("{0} is too large; if plain numbers are not seconds, set --replay-unit (ms, us, ns)")]
    TooLarge(String),
}

/// Returns the nanoseconds since 1970, or since the origin of plain numbers.
pub fn parse(text: &str, unit: TimestampUnit) -> Result<u64, StampError> {
    let unknown = || StampError::Unknown(shown(text));
    if text.contains('[') {
        // Syslog lines contain the process id in brackets before the server's text.
        return text
            .split('[')
            .skip(1)
            .filter_map(|part| part.split_once(']'))
            .find_map(|(stamp, _)| common_log(stamp))
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
    iso8601(bare).ok_or_else(unknown)
}

/// Quotes a string. Long strings are shortened, and terminal control characters are escaped.
fn shown(text: &str) -> String {
    let begin: String = text.chars().take(60).collect();
    if begin.len() < text.len() {
        format!("{begin:?}…")
    } else {
        format!("{begin:?}")
    }
}

/// Converts a decimal number of units to ns. The result is exact, but digits below a nanosecond are
/// dropped.
/// A double would represent seconds since 1970 with a resolution of only a quarter of a
/// microsecond.
fn decimal(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(unit)?.checked_add(part(fraction, unit))
}

/// Returns the fraction of `unit` that the digits after the decimal point represent.
fn part(digits: &str, unit: u64) -> u64 {
    let (mut sum, mut place) = (0, unit);
    for digit in digits.bytes() {
        place /= 10;
        sum += u64::from(digit - b'0') * place;
    }
    sum
}

/// Parses RFC 3339, and also accepts some variants from ISO 8601.
/// A space may replace the T, and a comma may replace the decimal point. The offset may lack its
/// colon or be absent (UTC).
fn iso8601(text: &str) -> Option<u64> {
    // A date without a time of day would also parse as a civil time, so require a colon.
    text.contains(':').then_some(())?;
    let without_offset = || TimeZone::UTC.to_timestamp(text.parse().ok()?).ok();
    since_1970(text.parse().ok().or_else(without_offset)?)
}

/// Parses `21/Nov/2026:16:08:16 +0000`, which may include fractions of a second (HAProxy).
fn common_log(text: &str) -> Option<u64> {
    const LOCAL: &str = "%d/%b/%Y:%H:%M:%S%.f";
    let at = match text.rsplit_once(' ') {
        Some(_) => Timestamp::strptime(format!("{LOCAL} %z"), text),
        None => DateTime::strptime(LOCAL, text).and_then(|at| TimeZone::UTC.to_timestamp(at)),
    };
    since_1970(at.ok()?)
}

/// Returns the nanoseconds since 1970, or `None` for earlier times.
fn since_1970(at: Timestamp) -> Option<u64> {
    u64::try_from(at.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: u64 = 1_795_277_296_000_000_000;

    fn read(text: &str) -> Result<u64, StampError> {
        parse(text, TimestampUnit::Seconds)
    }

    #[test]
    fn reads_every_timestamp_format() {
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
        // A leap second counts as the preceding second.
        assert_eq!(read("2016-12-31T23:59:60Z"), read("2016-12-31T23:59:59Z"));
    }

    #[test]
    fn numbers_are_exact_to_the_nanosecond() {
        assert_eq!(read("1795277296.123456789"), Ok(AT + 123_456_789));
        assert_eq!(read("1795277296.1234567891"), Ok(AT + 123_456_789));
        assert_eq!(read("0.5"), Ok(500_000_000));
        assert_eq!(read("7."), Ok(7 * NS_PER_S));
        assert_eq!(
            parse("1795277296123.5", TimestampUnit::Milliseconds),
            Ok(AT + 123_500_000)
        );
        assert_eq!(parse("12", TimestampUnit::Microseconds), Ok(12_000));
        assert_eq!(parse("12.9", TimestampUnit::Nanoseconds), Ok(12));
    }

    #[test]
    fn refuses_invalid_timestamps() {
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
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = read(&text);
        }

        #[test]
        fn converts_every_date(days in 0u64..100_000) {
            // Counts month by month.
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
