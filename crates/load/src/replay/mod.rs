//! A file of timestamps, one a line, as a schedule.

mod timestamp;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use floodmark_record::profile::Replay;
use floodmark_record::timetable::{MOST_ARRIVALS, Timetable, checksum};
use floodmark_record::units::{show_count, show_ns};

use crate::clock::NS_PER_S;

pub use timestamp::Unit;

/// Longest line, bytes: above what servers log of a request, and a bound for a file that has no lines.
const LONGEST_LINE: u64 = 64 << 10;

/// Longest replay, as it is played: a longer one is a file read in the wrong unit, or a speed that nobody waits for.
const LONGEST_NS: u64 = 31 * 24 * 3600 * NS_PER_S;

/// Why a file is no schedule; each with the place and the mend.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it, and the mend.
        reason: String,
    },
    /// There is no timestamp in it.
    #[error("{}: holds no timestamp; write one a line, such as 1763741296.123 or 2026-11-21T16:08:16.123Z", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// A replay, with what the user should know of it.
#[derive(Debug)]
pub struct Recording {
    /// The schedule.
    pub replay: Replay,
    /// What the file's timestamps do not tell.
    pub remark: Option<String>,
}

/// Reads the timestamps of a file and plays them `speed` times as fast, the first at the start.
///
/// A line is a timestamp, or a line of an access log with one in brackets (`[21/Nov/2026:16:08:16 +0000]`). Blank lines and
/// those that begin with `#` are passed over.
///
/// # Errors
/// A file that cannot be read, a line that is no timestamp or lies before the one above it, no timestamp at all, more than
/// [`MOST_ARRIVALS`], one that would be sent more than 31 days after the first.
pub fn read(path: &Path, unit: Unit, speed: f64) -> Result<Recording, ReplayError> {
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
    let replay = Replay {
        file: path.display().to_string(),
        speed,
        peak_per_s: most_within_a_second(&times),
        window_s: window_s(times.len(), length),
        timetable_bytes: 0,
        timetable_checksum: String::new(),
        timetable: Timetable::new(times),
    };
    let bytes = replay.timetable.encode();
    Ok(Recording {
        replay: Replay {
            timetable_bytes: bytes.len() as u64,
            timetable_checksum: checksum(&bytes),
            ..replay
        },
        remark,
    })
}

/// What a distance in the file comes to at a speed, ns.
fn played(distance: u64, speed: f64) -> f64 {
    distance as f64 / speed
}

/// Nanoseconds of each timestamp in the file, in order; the last is no further from the first than can be played.
fn stamps(path: &Path, unit: Unit, speed: f64) -> Result<Vec<u64>, ReplayError> {
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
                "is longer than {LONGEST_LINE} bytes; is this a file of lines?"
            )));
        }
        // A URL in an access log may hold any bytes.
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
                "lies {} before the timestamp above it; sort the file (sort -n)",
                show_ns((before - stamp) as f64)
            )));
        }
        if let Some(first) = stamps.first()
            && played(stamp - first, speed) > LONGEST_NS as f64
        {
            return Err(wrong(format!(
                "lies more than 31 days after the first timestamp at --replay-speed {speed}x; plain numbers are seconds unless \
                 --replay-unit says otherwise (ms, us, ns)"
            )));
        }
        if stamps.len() == MOST_ARRIVALS {
            return Err(wrong(format!(
                "is one more than the {} timestamps that can be replayed; cut the file (head -n {MOST_ARRIVALS})",
                show_count(MOST_ARRIVALS as u64)
            )));
        }
        stamps.push(stamp);
    }
    Ok(stamps)
}

/// As many mean distances as there are arrivals; a second where there is none.
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

/// Servers log whole seconds by default, and then all requests of a second seem to come at once.
fn coarse(stamps: &[u64]) -> Option<String> {
    let whole = stamps.iter().all(|stamp| stamp % NS_PER_S == 0);
    let together = stamps.windows(2).filter(|two| two[0] == two[1]).count();
    (whole && together > 0).then(|| {
        "the timestamps are whole seconds, so the requests of each second are sent at once at its beginning; for their true \
         distances log fractions ($msec in nginx, %{usec}t in Apache)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
