//! Reads a schedule from a file with one timestamp per line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use floodmark_record::plan::{MAX_ARRIVALS, Replay, Timetable, checksum};
use floodmark_record::units::{Bytes, show_count, show_ns};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::clock::NS_PER_S;

/// Maximum line length in bytes. Lines in server logs are shorter. The maximum limits the memory
/// needed for files without line breaks.
const LONGEST_LINE: u64 = 64 << 10;

/// Maximum length of a replay in ns. A longer replay indicates a wrong unit or an impractical
/// speed.
const LONGEST_NS: u64 = 31 * 24 * 3600 * NS_PER_S;

/// The reason why a file is not a valid schedule, including the location and a fix.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("{}: {source}; name a readable file", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A line is invalid.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The error and its fix.
        reason: String,
    },
    /// The file contains no timestamp.
    #[error("{}: no timestamps; write one timestamp per line, such as 1763741296.123 or 2026-11-21T16:08:16.123Z", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// A replay and a remark for the user.
#[derive(Debug)]
pub struct Recording {
    /// The schedule.
    pub replay: Replay,
    /// A remark if the file's timestamps are too coarse.
    pub remark: Option<String>,
}

/// Reads the timestamps in a file. The replay starts with the first timestamp and runs `speed`
/// times as fast as the recorded traffic.
///
/// A line is a timestamp, or an access log line that contains a timestamp in brackets
/// (`[21/Nov/2026:16:08:16 +0000]`). Blank lines and lines that start with `#` are skipped.
///
/// # Errors
/// Fails if:
///
/// - the file cannot be read, has an invalid line or has no timestamps;
/// - timestamps are out of order;
/// - there are more than [`MAX_ARRIVALS`] timestamps;
/// - the replay would take more than 31 days.
pub fn read(path: &Path, unit: TimestampUnit, speed: f64) -> Result<Recording, ReplayError> {
    let stamps = stamps(path, unit, speed)?;
    let (Some(&first), Some(&last)) = (stamps.first(), stamps.last()) else {
        return Err(ReplayError::Empty {
            path: path.to_owned(),
        });
    };
    let remark = coarse(&stamps);
    let times: Vec<u64> = stamps
        .into_iter()
        .map(|stamp| played(stamp - first, speed).round() as u64)
        .collect();
    let length = played(last - first, speed).round() as u64;
    let (peak_per_s, arrivals) = (most_within_a_second(&times), times.len());
    let timetable = Timetable::new(times);
    let bytes = timetable.encode();
    let replay = Replay {
        file: path.display().to_string(),
        speed,
        peak_per_s,
        window_s: window_s(arrivals, length),
        timetable_bytes: Bytes(bytes.len() as u64),
        timetable_checksum: checksum(&bytes),
        timetable,
    };
    Ok(Recording { replay, remark })
}

/// Converts an interval in the file to its duration in the replay, in ns.
fn played(distance: u64, speed: f64) -> f64 {
    distance as f64 / speed
}

/// Returns the file's timestamps in ns, in ascending order.
/// Fails if a line is invalid, if timestamps are out of order, if there are too many of them, or if
/// the replay would be too long.
fn stamps(path: &Path, unit: TimestampUnit, speed: f64) -> Result<Vec<u64>, ReplayError> {
    let unread = |source| ReplayError::Read {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(unread)?);
    let mut stamps: Vec<u64> = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        let wrong = |reason: String| ReplayError::Line {
            path: path.to_owned(),
            line,
            reason,
        };
        bytes.clear();
        let mut limited = reader.by_ref().take(LONGEST_LINE);
        if limited.read_until(b'\n', &mut bytes).map_err(unread)? == 0 {
            break;
        }
        if bytes.len() as u64 == LONGEST_LINE {
            return Err(wrong(format!(
                "the line is longer than {LONGEST_LINE} bytes; write one timestamp per line"
            )));
        }
        // A URL in an access log may contain bytes that are not UTF-8.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let stamp = parse(text, unit).map_err(wrong)?;
        if let Some(before) = stamps.last()
            && stamp < *before
        {
            return Err(wrong(format!(
                "the timestamp is {} before the previous one; sort the file (sort -n)",
                show_ns((before - stamp) as f64)
            )));
        }
        if let Some(first) = stamps.first()
            && played(stamp - first, speed) > LONGEST_NS as f64
        {
            return Err(wrong(format!(
                "the timestamp is more than 31 days after the first at --replay-speed {speed}x; if plain numbers are not seconds, \
                 set --replay-unit (ms, us, ns)"
            )));
        }
        if stamps.len() == MAX_ARRIVALS {
            return Err(wrong(format!(
                "the file has more than {} timestamps; shorten it (head -n {MAX_ARRIVALS})",
                show_count(MAX_ARRIVALS as u64)
            )));
        }
        stamps.push(stamp);
    }
    Ok(stamps)
}

/// Returns the length of the window in seconds: the mean gap multiplied by the number of arrivals,
/// or 1 s if all arrive at once.
fn window_s(arrivals: usize, length: u64) -> f64 {
    if length == 0 {
        return 1.0;
    }
    let n = arrivals as f64;
    length as f64 / NS_PER_S as f64 * (n / (n - 1.0))
}

fn most_within_a_second(times: &[u64]) -> u64 {
    let mut end = 0;
    let counts = times.iter().enumerate().map(|(begin, from)| {
        while times.get(end).is_some_and(|at| *at < from + NS_PER_S) {
            end += 1;
        }
        end - begin
    });
    counts.max().unwrap_or(0) as u64
}

/// Returns a remark if all timestamps are whole seconds (the default in server logs) and some are
/// equal. All requests logged in the same second then seem to have arrived at once.
fn coarse(stamps: &[u64]) -> Option<String> {
    let whole = stamps.iter().all(|stamp| stamp % NS_PER_S == 0);
    let together = stamps.windows(2).filter(|two| two[0] == two[1]).count();
    (whole && together > 0).then(|| {
        "the timestamps are whole seconds, so all requests in a second are sent at its start; to replay the true gaps, log \
         fractions of a second ($msec in nginx, %{usec}t in Apache)"
            .to_owned()
    })
}

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

/// Parses one timestamp: a plain number, an ISO 8601 time as in RFC 3339, or a time in the common
/// log format. Returns the nanoseconds since 1970 or, for plain numbers, since their origin.
fn parse(text: &str, unit: TimestampUnit) -> Result<u64, String> {
    let unknown = || {
        format!(
            "{} is not a timestamp; write seconds (1763741296.123), an ISO 8601 time (2026-11-21T16:08:16.123Z) or access \
             log lines with [21/Nov/2026:16:08:16 +0000]",
            shown(text)
        )
    };
    if text.contains('[') {
        // Syslog lines contain the PID in brackets before the server's text, so try all brackets.
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
        return decimal(whole, fraction, unit.ns()).ok_or_else(|| {
            format!(
                "{} is too large; if plain numbers are not seconds, set --replay-unit (ms, us, ns)",
                shown(text)
            )
        });
    }
    if bare
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    {
        return Err(format!(
            "{} is negative; use non-negative timestamps",
            shown(text)
        ));
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

/// Converts a decimal number of units to ns. The result is exact to the nanosecond; further digits
/// are dropped. A double would represent seconds since 1970 with a resolution of only a quarter of
/// a microsecond.
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

/// Parses an RFC 3339 time, and also accepts some variants from ISO 8601.
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
#[path = "replay_tests.rs"]
mod tests;

#[cfg(test)]
mod timestamp_tests {
    use super::*;
    use proptest::prelude::*;

    const AT: u64 = 1_795_277_296_000_000_000;

    fn read(text: &str) -> Result<u64, String> {
        parse(text, TimestampUnit::Seconds)
    }

    fn assert_fails(text: &str, reason: &str) {
        let error = read(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
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
            assert_fails(text, "is not a timestamp");
        }
        assert_fails("-1.5", "is negative");
        for text in ["99999999999999999999", "18446744074"] {
            assert_fails(text, "is too large");
        }
        let said = read("\u{1b}[31m").unwrap_err();
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
