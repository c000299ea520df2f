//! Reads a schedule from a file with one timestamp per line.

mod timestamp;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use floodmark_record::profile::{MAX_ARRIVALS, Replay, Timetable, checksum};
use floodmark_record::units::{Bytes, show_count, show_ns};

use crate::clock::NS_PER_S;

pub use timestamp::TimestampUnit;

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

/// Reads the timestamps in a file. The replay starts with the first timestamp and is `speed` times
/// as fast as the file.
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
/// - a timestamp is due more than 31 days after the first one.
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

/// Reads all timestamps in the file in order, in ns.
/// Fails if the replay would be too long.
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
        // A URL in an access log may contain any bytes.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let stamp = timestamp::parse(text, unit).map_err(|error| wrong(error.to_string()))?;
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

/// Returns a remark if all timestamps are whole seconds, which is the default in server logs.
/// All requests in a second then seem to arrive at once.
fn coarse(stamps: &[u64]) -> Option<String> {
    let whole = stamps.iter().all(|stamp| stamp % NS_PER_S == 0);
    let together = stamps.windows(2).filter(|two| two[0] == two[1]).count();
    (whole && together > 0).then(|| {
        "the timestamps are whole seconds, so all requests in a second are sent at its start; to replay the true gaps, log \
         fractions of a second ($msec in nginx, %{usec}t in Apache)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
