//! Responses kept for `--check scoring`: 24 bytes each, in memory and on disk.
//!
//! A response contains a number and a total. All requests have the same score, so the expected
//! total is `score × number` plus the total at the start.
//! Instead of the total, its distance from the expected total is kept, as a number of scores.
//! The distance is 0 unless the server loses updates.

use serde::{Deserialize, Serialize};

/// Size of a kept response in bytes.
pub const KEPT_BYTES: usize = 24;

/// Number of bits for a time in ns. 48 bits are enough for 78 hours.
const TIME_BITS: u32 = 48;

/// Latest representable time in ns.
pub(crate) const LATEST: u64 = (1 << TIME_BITS) - 1;

/// Packs a word, a label and two times in ns into three words.
pub(crate) fn pack(first: u64, label: u32, sent_ns: u64, done_ns: u64) -> [u64; 3] {
    let (sent, took) = (sent_ns.min(LATEST), done_ns.saturating_sub(sent_ns));
    let low = u64::from(label & 0xffff) << TIME_BITS;
    let high = u64::from(label >> 16) << TIME_BITS;
    [first, low | sent, high | took.min(LATEST)]
}

/// Returns the label in packed words.
pub(crate) fn label([_, low, high]: &[u64; 3]) -> u32 {
    ((high >> TIME_BITS) << 16 | low >> TIME_BITS) as u32
}

/// Returns the two times in packed words, in ns.
pub(crate) fn times([_, low, high]: &[u64; 3]) -> [u64; 2] {
    let sent = low & LATEST;
    [sent, sent + (high & LATEST)]
}

/// Marks a distance that is not an integer number of scores.
const NONE: i32 = i32::MIN;

/// Maximum rounding error accepted in a total, as a share of a score.
const MAX_ROUNDING: f64 = 0.25;

/// Expected totals as a function of the response's number: `before + score × number`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TotalLine {
    /// Score of each request: finite and not 0.
    pub score: f64,
    /// Total before the first score, computed from the response that defined the line.
    pub before: f64,
    /// Number of the response that defined the line.
    /// `before` includes the rounding errors of the total up to this number.
    pub drawn_at: u64,
}

impl TotalLine {
    /// Creates the line through one response.
    #[must_use]
    pub fn through(score: f64, number: u64, total: f64) -> Self {
        TotalLine {
            score,
            before: total - score * number as f64,
            drawn_at: number,
        }
    }

    /// Returns the expected total for a number.
    #[must_use]
    pub fn total(&self, number: f64) -> f64 {
        self.before + self.score * number
    }

    /// Returns a total's distance from the line in scores.
    /// Returns `None` if the distance is not an integer.
    #[must_use]
    pub fn distance(&self, number: u64, total: f64) -> Option<i32> {
        self.whole(number, total, number.max(self.drawn_at))
    }

    /// Returns the distance from this line to the line through 0, in scores.
    /// Returns `None` if the distance is not an integer.
    #[must_use]
    pub fn from_zero(&self) -> Option<i32> {
        self.whole(0, 0.0, self.drawn_at)
    }

    /// Returns the distance from another line with the same score, as a number of scores.
    /// Returns `None` if the distance is not an integer.
    #[must_use]
    pub fn ahead_of(&self, other: &TotalLine) -> Option<i32> {
        other.whole(0, self.before, self.drawn_at.max(other.drawn_at))
    }

    /// Implements [`TotalLine::distance`] for a total that is the sum of `term_count` scores.
    ///
    /// The relative error of a sum of `n` equal terms is at most `n · u` with `u` = 2⁻⁵³ (Higham,
    /// "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2). This function
    /// tolerates that error, up to a quarter of a score.
    fn whole(&self, number: u64, total: f64, term_count: u64) -> Option<i32> {
        let exact = (total - self.before) / self.score - number as f64;
        let size = term_count as f64 + (total.abs().max(self.before.abs()) / self.score).abs();
        let rounding = (term_count as f64 + 8.0) * (f64::EPSILON / 2.0) * size;
        let whole = exact.round();
        let fits = whole.abs() < f64::from(i32::MAX);
        // The comparison is false for NaN.
        let near = (exact - whole).abs() <= rounding.min(MAX_ROUNDING);
        (fits && near).then_some(whole as i32)
    }
}

/// A response kept for `--check scoring`, packed into three 64-bit words.
/// The file stores the words in little-endian order.
/// Both times come from the same monotonic clock. Times above 78 hours are stored as 78 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptScore(pub [u64; 3]);

impl KeptScore {
    /// Packs a response.
    /// `distance` is the total's distance from the line, or `None` if the distance is not an
    /// integer.
    #[must_use]
    pub fn new(number: u64, distance: Option<i32>, sent_ns: u64, done_ns: u64) -> Self {
        let distance = distance.unwrap_or(NONE) as u32;
        KeptScore(pack(number, distance, sent_ns, done_ns))
    }

    /// Returns the number of the response.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0[0]
    }

    /// Returns the total's distance from the line in scores.
    /// Returns `None` if the distance is not an integer.
    #[must_use]
    pub fn distance(&self) -> Option<i32> {
        let distance = label(&self.0) as i32;
        (distance != NONE).then_some(distance)
    }

    /// Returns the time at which the request was sent, in ns.
    #[must_use]
    pub fn sent_ns(&self) -> u64 {
        times(&self.0)[0]
    }

    /// Returns the time at which the response was complete, in ns.
    #[must_use]
    pub fn done_ns(&self) -> u64 {
        times(&self.0)[1]
    }

    /// Converts the response to another line and another clock.
    /// The new line is `by` scores below the current line, and the new clock started `earlier_ns`
    /// ns before the current clock.
    /// If `by` is `None`, the distance between the lines is not an integer number of scores, so the
    /// new distance is unknown.
    #[must_use]
    pub fn moved(&self, by: Option<i32>, earlier_ns: u64) -> Self {
        let distance = self.distance().zip(by).and_then(|(a, b)| a.checked_add(b));
        let [sent, done] = times(&self.0).map(|ns| ns.saturating_add(earlier_ns));
        Self::new(self.number(), distance, sent, done)
    }
}

/// Summary of the responses that one load process received with `--check scoring`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScoringSummary {
    /// Expected totals, derived from the first response; null without responses.
    pub line: Option<TotalLine>,
    /// Number of responses whose average differs from total ÷ number.
    pub wrong_averages: u64,
    /// The first responses with a wrong average, as text.
    pub first_wrong_averages: Vec<String>,
    /// Totals whose distance from the line is not an integer number of scores.
    /// Only the totals with the lowest numbers are kept, in ascending order of number.
    pub first_strange_totals: Vec<StrangeTotal>,
}

/// A total whose distance from the line is not an integer number of scores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StrangeTotal {
    /// Number of the response.
    pub number: u64,
    /// Total of the response.
    pub total: f64,
}

/// Maximum number of violations kept per kind.
pub const SHOWN: usize = 5;

impl ScoringSummary {
    /// Keeps a total if its number is among the [`SHOWN`] lowest.
    pub fn strange(&mut self, total: StrangeTotal) {
        let shown = &mut self.first_strange_totals;
        let place = shown.partition_point(|t| t.number <= total.number);
        if place < SHOWN {
            shown.insert(place, total);
            shown.truncate(SHOWN);
        }
    }

    /// Merges another summary, except its line, into this summary.
    pub fn join(&mut self, other: &ScoringSummary) {
        self.wrong_averages += other.wrong_averages;
        let averages = &mut self.first_wrong_averages;
        averages.extend_from_slice(&other.first_wrong_averages);
        averages.truncate(SHOWN);
        for total in &other.first_strange_totals {
            self.strange(total.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_kept_score_has_the_stated_size() {
        assert_eq!(size_of::<KeptScore>(), KEPT_BYTES);
    }

    #[test]
    fn keeps_the_unexplained_totals_with_the_lowest_numbers() {
        let numbers = |scored: &ScoringSummary| -> Vec<u64> {
            let totals = &scored.first_strange_totals;
            totals.iter().map(|total| total.number).collect()
        };
        let [mut one, mut other] = [ScoringSummary::default(), ScoringSummary::default()];
        for (scored, came) in [(&mut one, [9, 2, 7, 11]), (&mut other, [8, 3, 7, 1])] {
            for number in came {
                scored.strange(StrangeTotal { number, total: 0.5 });
            }
        }
        assert_eq!(numbers(&one), [2, 7, 9, 11]);
        one.join(&other);
        assert_eq!(numbers(&one), [1, 2, 3, 7, 7]);
    }

    #[test]
    fn measures_the_distance_of_totals_in_scores() {
        let line = TotalLine::through(10.0, 5, 50.0);
        assert_eq!((line.before, line.from_zero()), (0.0, Some(0)));
        assert_eq!(TotalLine::through(10.0, 1, 30.0).from_zero(), Some(-2));
        assert_eq!(TotalLine::through(10.0, 1, 31.0).from_zero(), None);
        assert_eq!(TotalLine::through(10.0, 3, 0.0).ahead_of(&line), Some(-3));
        for (number, total, distance) in [
            (1, 10.0, Some(0)),
            (7, 60.0, Some(-1)),
            (7, 90.0, Some(2)),
            (7, 70.5, None),
            (7, f64::INFINITY, None),
            (7, f64::NAN, None),
            (u64::MAX, 0.0, None),
        ] {
            assert_eq!(line.distance(number, total), distance, "{number} {total}");
        }
    }

    #[test]
    fn tolerates_rounding_of_sums() {
        let (score, mut total) = (0.1, 0.0);
        let line = TotalLine::through(score, 0, 0.0);
        for number in 1..=1_000_000 {
            total += score;
            assert_eq!(line.distance(number, total), Some(0), "{number}: {total}");
            let late = TotalLine::through(score, number, total);
            assert_eq!((late.from_zero(), late.ahead_of(&line)), (Some(0), Some(0)));
        }
        assert_ne!(total, 100_000.0, "expected rounding");
    }

    proptest! {
        #[test]
        fn packs_and_unpacks(
            number in any::<u64>(), distance in any::<i32>(), sent in 0u64..=LATEST, took in 0u64..=LATEST,
        ) {
            let kept = KeptScore::new(number, Some(distance), sent, sent + took);
            let kept = KeptScore(kept.0);
            prop_assert_eq!((kept.number(), kept.sent_ns(), kept.done_ns()), (number, sent, sent + took));
            prop_assert_eq!(kept.distance(), (distance != NONE).then_some(distance));
        }

        #[test]
        fn clamps_times_beyond_the_limit(sent in LATEST.., took in 0u64..1000) {
            let kept = KeptScore::new(1, None, sent, sent.saturating_add(took));
            prop_assert_eq!(kept.sent_ns(), LATEST);
            prop_assert!(kept.done_ns() >= LATEST);
        }

        #[test]
        fn adds_distances_when_moved(distance in -1000i32..1000, by in -1000i32..1000, sent in 0u64..1000, took in 0u64..1000) {
            let kept = KeptScore::new(3, Some(distance), sent, sent + took).moved(Some(by), 7);
            prop_assert_eq!(kept, KeptScore::new(3, Some(distance + by), sent + 7, sent + took + 7));
            prop_assert_eq!(kept.moved(None, 0).distance(), None);
        }

        #[test]
        fn accepts_correct_totals_for_any_start(
            score in prop_oneof![-1e6f64..-1e-3, 1e-3f64..1e6], before in -1e6f64..1e6, first in 1u64..1000, n in 1u64..2000,
        ) {
            let mut total = before;
            let mut line = None;
            for number in 1..first + n {
                total += score;
                if number >= first {
                    let line = line.get_or_insert_with(|| TotalLine::through(score, number, total));
                    prop_assert_eq!(line.distance(number, total), Some(0));
                    prop_assert_eq!(line.distance(number + 1, total), Some(-1));
                    prop_assert_eq!(line.distance(number, total + score * 0.5), None);
                }
            }
        }
    }
}
