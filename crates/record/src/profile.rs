//! Rates that change during a run of the open model, and the arrival times of a replay.
//!
//! For a worker, each interval between arrivals is encoded as a LEB128 integer of two or three bytes.
//! JSON would need ten to twenty bytes.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A rate that changes linearly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ramp {
    /// Arrivals per second at the start; may be 0.
    pub from_per_s: f64,
    /// Arrivals per second at the end; may be 0.
    pub to_per_s: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// A constant rate for a given duration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateStep {
    /// Arrivals per second; 0 for a pause.
    pub rate_per_s: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// Arrivals that follow the timestamps in a file. The first arrival is at the start of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
    /// File name as given.
    pub file: String,
    /// Speed relative to the file; 2 means twice as fast.
    pub speed: f64,
    /// Maximum number of arrivals within any one second.
    pub peak_per_s: u64,
    /// Length of the sending window in seconds: the last arrival time plus one mean interval.
    /// The length is one second if all arrivals are at the same time.
    pub window_s: f64,
    /// Size of the encoded timetable in bytes.
    #[schemars(with = "u64")]
    pub timetable_bytes: Bytes,
    /// FNV-1a checksum (64 bits, hexadecimal) of the encoded timetable.
    pub timetable_checksum: String,
    /// Arrival times, sent to a worker as bytes after the plan.
    /// The JSON omits these times, so a plan read from a record has none.
    #[serde(skip)]
    #[schemars(skip)]
    pub timetable: Timetable,
}

/// A time segment in which the rate is constant or changes linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSegment {
    /// Start of the segment, in seconds since the start of the window.
    pub from_s: f64,
    /// Length of the segment in seconds.
    pub length_s: f64,
    /// Arrivals per second at the start of the segment.
    pub rate_per_s: f64,
    /// Increase of the rate, in arrivals per second per second.
    pub slope: f64,
    /// Expected number of arrivals before the segment.
    pub before: f64,
}

impl RateSegment {
    /// Returns the expected number of arrivals within the first `s` seconds of the segment.
    #[must_use]
    pub fn within(&self, s: f64) -> f64 {
        self.rate_per_s * s + self.slope * s * s / 2.0
    }
}

/// Returns the expected number of arrivals in the first `at_s` seconds; `None` without segments.
#[must_use]
pub fn expected_by(segments: &[RateSegment], at_s: f64) -> Option<f64> {
    let segment = segments
        .iter()
        .rev()
        .find(|s| s.from_s <= at_s)
        .or(segments.first())?;
    Some(segment.before + segment.within((at_s - segment.from_s).clamp(0.0, segment.length_s)))
}

/// Returns the index of the step that is active `at_s` seconds after the start.
/// Returns the last index if all steps have ended.
#[must_use]
pub fn step_at(steps: &[RateStep], at_s: f64) -> usize {
    let mut end_s = 0.0;
    steps
        .iter()
        .position(|step| {
            end_s += step.duration_s;
            at_s < end_s
        })
        .unwrap_or(steps.len().saturating_sub(1))
}

/// Maximum number of arrivals in a replay.
/// The threads of a worker share the arrival times, which take up to 80 MB.
pub const MAX_ARRIVALS: usize = 10_000_000;

/// Maximum length of an encoded interval in bytes.
const MAX_INTERVAL_BYTES: usize = 10;

/// Sorted arrival times, in ns since the start. Clones share the same memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timetable(Arc<[u64]>);

/// Error for bytes that are not a timetable or do not match the expected checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the timetable is invalid or does not match its checksum")]
pub struct TimetableError;

impl Timetable {
    /// Creates a timetable from sorted times.
    #[must_use]
    pub fn new(times: Vec<u64>) -> Self {
        debug_assert!(times.is_sorted());
        Timetable(times.into())
    }

    /// Returns the times, in ns since the start.
    #[must_use]
    pub fn times(&self) -> &[u64] {
        &self.0
    }

    /// Encodes the timetable for [`Timetable::decode`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * 3);
        let mut before = 0;
        for time in self.0.iter() {
            let mut distance = time - before;
            before = *time;
            while distance >= 0x80 {
                bytes.push(distance as u8 | 0x80);
                distance >>= 7;
            }
            bytes.push(distance as u8);
        }
        bytes
    }

    /// Decodes the output of [`Timetable::encode`].
    ///
    /// # Errors
    ///
    /// The checksum differs from `expected_checksum`, the bytes end within a number, a number has
    /// more than 64 bits, or there are more than [`MAX_ARRIVALS`] numbers.
    pub fn decode(bytes: &[u8], expected_checksum: &str) -> Result<Self, TimetableError> {
        if checksum(bytes) != expected_checksum {
            return Err(TimetableError);
        }
        let mut times = Vec::with_capacity(bytes.iter().filter(|byte| **byte < 0x80).count());
        let (mut time, mut distance, mut length) = (0u64, 0u64, 0);
        for byte in bytes {
            let part = u64::from(byte & 0x7f);
            let shift = 7 * length as u32;
            if length == MAX_INTERVAL_BYTES || (part << shift) >> shift != part {
                return Err(TimetableError);
            }
            distance |= part << shift;
            length += 1;
            if *byte < 0x80 {
                time = time.checked_add(distance).ok_or(TimetableError)?;
                times.push(time);
                (distance, length) = (0, 0);
            }
        }
        if length > 0 || times.len() > MAX_ARRIVALS {
            return Err(TimetableError);
        }
        Ok(Timetable::new(times))
    }
}

/// Returns the FNV-1a checksum (64 bits, hexadecimal; draft-eastlake-fnv).
/// The checksum detects corrupted transfers and shows whether two replays had the same arrivals.
#[must_use]
pub fn checksum(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(rates: &[(f64, f64)]) -> Vec<RateStep> {
        rates
            .iter()
            .map(|(rate_per_s, duration_s)| RateStep {
                rate_per_s: *rate_per_s,
                duration_s: *duration_s,
            })
            .collect()
    }

    #[test]
    fn a_step_includes_its_begin_but_not_its_end() {
        let steps = steps(&[(1.0, 1.0), (2.0, 0.5), (3.0, 1.0)]);
        let at = [0.0, 0.99, 1.0, 1.49, 1.5, 2.5, 9.0].map(|s| step_at(&steps, s));
        assert_eq!(at, [0, 0, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn computes_fnv_1a() {
        assert_eq!(checksum(b""), "cbf29ce484222325");
        assert_eq!(checksum(b"foobar"), "85944171f73967e8");
    }

    #[test]
    fn refuses_other_bytes() {
        let bytes = Timetable::new(vec![0, 5, 1_000_000]).encode();
        let sum = checksum(&bytes);
        assert!(Timetable::decode(&bytes, &sum).is_ok());
        assert_eq!(Timetable::decode(&bytes[1..], &sum), Err(TimetableError));
        let endless = [0xff; 11];
        for bad in [&endless[..], &[0x80], &[0xff; 10]] {
            assert_eq!(
                Timetable::decode(bad, &checksum(bad)),
                Err(TimetableError),
                "{bad:?}"
            );
        }
        let mut overflowing = Timetable::new(vec![u64::MAX]).encode();
        overflowing.push(1);
        let sum = checksum(&overflowing);
        assert_eq!(Timetable::decode(&overflowing, &sum), Err(TimetableError));
    }

    proptest! {
        #[test]
        fn decodes_what_it_encoded(mut times in proptest::collection::vec(any::<u64>(), 0..200)) {
            times.sort_unstable();
            let timetable = Timetable::new(times);
            let bytes = timetable.encode();
            prop_assert_eq!(Timetable::decode(&bytes, &checksum(&bytes)), Ok(timetable));
        }

        #[test]
        fn never_panics_on_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Timetable::decode(&bytes, &checksum(&bytes));
        }
    }
}
