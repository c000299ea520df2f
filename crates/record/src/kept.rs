//! What is kept of the answers of `--check scoring`: 24 bytes each, in memory as on disk.
//!
//! An answer says a number and a total. Where each score is the same, the total is `score × number` and what was there before. So
//! instead of the total its distance from that is kept, in whole scores: a small number, 0 all along for a server that loses nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Size of one answer, bytes.
pub const KEPT_BYTES: usize = 24;

/// Times of a kept answer have so many bits, which are 78 hours of ns.
const TIME_BITS: u32 = 48;

/// The latest time that is told apart, ns.
const LATEST: u64 = (1 << TIME_BITS) - 1;

/// The distance of a total that no whole number of scores explains.
const NONE: i32 = i32::MIN;

/// A total may be off by this part of a score, whatever its rounding.
const MOST_ROUNDING: f64 = 0.25;

/// What totals are held against: `before + score × number`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// What each request adds; neither 0 nor infinite.
    pub score: f64,
    /// What was there before number 1, if the total that the line was drawn through is right.
    pub before: f64,
    /// The number of that total: what was rounded up to it is in `before`.
    pub drawn_at: u64,
}

impl Line {
    /// The line through one answer.
    #[must_use]
    pub fn through(score: f64, number: u64, total: f64) -> Self {
        Line {
            score,
            before: total - score * number as f64,
            drawn_at: number,
        }
    }

    /// The total that belongs to a number.
    #[must_use]
    pub fn total(&self, number: f64) -> f64 {
        self.before + self.score * number
    }

    /// How many scores a total is ahead of the line; none where that is no whole number.
    #[must_use]
    pub fn distance(&self, number: u64, total: f64) -> Option<i32> {
        self.whole(number, total, number.max(self.drawn_at))
    }

    /// How many scores a line that starts at 0 is ahead of this one; none where that is no whole number.
    #[must_use]
    pub fn from_zero(&self) -> Option<i32> {
        self.whole(0, 0.0, self.drawn_at)
    }

    /// How many scores this line is ahead of another with the same score; none where that is no whole number.
    #[must_use]
    pub fn ahead_of(&self, other: &Line) -> Option<i32> {
        other.whole(0, self.before, self.drawn_at.max(other.drawn_at))
    }

    /// [`Line::distance`], of a total that `sums` terms have been added for.
    ///
    /// A sum of `n` equal terms may be off by `n · u` of itself, with `u` = 2⁻⁵³ (Higham, "Accuracy and Stability of Numerical
    /// Algorithms", 2nd edition, section 4.2); that much is granted, up to a quarter of a score.
    fn whole(&self, number: u64, total: f64, sums: u64) -> Option<i32> {
        let exact = (total - self.before) / self.score - number as f64;
        let size = sums as f64 + (total.abs().max(self.before.abs()) / self.score).abs();
        let rounding = (sums as f64 + 8.0) * (f64::EPSILON / 2.0) * size;
        let whole = exact.round();
        let fits = whole.abs() < f64::from(i32::MAX);
        // False too where one of them is no number.
        let near = (exact - whole).abs() <= rounding.min(MOST_ROUNDING);
        (fits && near).then_some(whole as i32)
    }
}

/// One answered score. Both times are of one monotonic clock, and are told apart up to 78 hours; later ones are all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptScore([u64; 3]);

impl KeptScore {
    /// Keeps one; `distance` is that of its total, none where no whole number of scores explains it.
    #[must_use]
    pub fn new(number: u64, distance: Option<i32>, sent_ns: u64, done_ns: u64) -> Self {
        let distance = distance.unwrap_or(NONE) as u32;
        let (sent, took) = (sent_ns.min(LATEST), done_ns.saturating_sub(sent_ns));
        let low = u64::from(distance & 0xffff) << TIME_BITS;
        let high = u64::from(distance >> 16) << TIME_BITS;
        KeptScore([number, low | sent, high | took.min(LATEST)])
    }

    /// Which it is, by what the server says.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0[0]
    }

    /// How many scores its total is ahead of the line.
    #[must_use]
    pub fn distance(&self) -> Option<i32> {
        let half = |word: u64| (word >> TIME_BITS) as u32;
        let distance = (half(self.0[2]) << 16 | half(self.0[1])) as i32;
        (distance != NONE).then_some(distance)
    }

    /// When the request was handed to the kernel, ns.
    #[must_use]
    pub fn sent_ns(&self) -> u64 {
        self.0[1] & LATEST
    }

    /// When the whole answer was there, ns.
    #[must_use]
    pub fn done_ns(&self) -> u64 {
        self.sent_ns() + (self.0[2] & LATEST)
    }

    /// The same answer held against another line, that this one's is `by` scores ahead of, on a clock that started `earlier_ns`
    /// before; without `by` the lines are no whole number of scores apart, and so no total is known.
    #[must_use]
    pub fn moved(&self, by: Option<i32>, earlier_ns: u64) -> Self {
        let distance = self.distance().zip(by).and_then(|(a, b)| a.checked_add(b));
        let later = |ns: u64| ns.saturating_add(earlier_ns);
        Self::new(
            self.number(),
            distance,
            later(self.sent_ns()),
            later(self.done_ns()),
        )
    }

    /// As it stands in the file, where the words are little-endian.
    #[must_use]
    pub fn to_words(self) -> [u64; 3] {
        self.0
    }

    /// Read from the file.
    #[must_use]
    pub fn from_words(words: [u64; 3]) -> Self {
        KeptScore(words)
    }
}

/// What a load process says of the answers of `--check scoring`, beside those it kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scored {
    /// What totals are held against, drawn through the first that came; null where none came.
    pub line: Option<Line>,
    /// Answers whose average is not their total divided by their number.
    pub wrong_averages: u64,
    /// The first of them, in words.
    pub first_wrong_averages: Vec<String>,
    /// The answers whose total no whole number of scores explains: those with the lowest numbers, in their order.
    pub first_strange_totals: Vec<StrangeTotal>,
}

/// An answer's total that no whole number of scores explains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StrangeTotal {
    /// The answer's number.
    pub number: u64,
    /// The total that came with it.
    pub total: f64,
}

/// First offenders of a kind that are kept to be shown.
pub const SHOWN: usize = 5;

impl Scored {
    /// Takes note of a strange total.
    pub fn strange(&mut self, total: StrangeTotal) {
        let shown = &mut self.first_strange_totals;
        let place = shown.partition_point(|t| t.number <= total.number);
        if place < SHOWN {
            shown.insert(place, total);
            shown.truncate(SHOWN);
        }
    }

    /// Adds what another said; the line stays.
    pub fn join(&mut self, other: &Scored) {
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
    fn an_answer_takes_what_is_said() {
        assert_eq!(size_of::<KeptScore>(), KEPT_BYTES);
    }

    #[test]
    fn of_strange_totals_the_lowest_numbers_are_kept_whatever_came_first() {
        let numbers = |scored: &Scored| -> Vec<u64> {
            let totals = &scored.first_strange_totals;
            totals.iter().map(|total| total.number).collect()
        };
        let [mut one, mut other] = [Scored::default(), Scored::default()];
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
    fn totals_are_whole_scores_from_their_line() {
        let line = Line::through(10.0, 5, 50.0);
        assert_eq!((line.before, line.from_zero()), (0.0, Some(0)));
        assert_eq!(Line::through(10.0, 1, 30.0).from_zero(), Some(-2));
        assert_eq!(Line::through(10.0, 1, 31.0).from_zero(), None);
        assert_eq!(Line::through(10.0, 3, 0.0).ahead_of(&line), Some(-3));
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
    fn what_adding_up_rounds_is_granted() {
        let (score, mut total) = (0.1, 0.0);
        let line = Line::through(score, 0, 0.0);
        for number in 1..=1_000_000 {
            total += score;
            assert_eq!(line.distance(number, total), Some(0), "{number}: {total}");
            let late = Line::through(score, number, total);
            assert_eq!((late.from_zero(), late.ahead_of(&line)), (Some(0), Some(0)));
        }
        assert_ne!(total, 100_000.0, "it does round");
    }

    proptest! {
        #[test]
        fn what_was_kept_is_read(
            number in any::<u64>(), distance in any::<i32>(), sent in 0u64..=LATEST, took in 0u64..=LATEST,
        ) {
            let kept = KeptScore::new(number, Some(distance), sent, sent + took);
            let kept = KeptScore::from_words(kept.to_words());
            prop_assert_eq!((kept.number(), kept.sent_ns(), kept.done_ns()), (number, sent, sent + took));
            prop_assert_eq!(kept.distance(), (distance != NONE).then_some(distance));
        }

        #[test]
        fn times_that_do_not_fit_overlap(sent in LATEST.., took in 0u64..1000) {
            let kept = KeptScore::new(1, None, sent, sent.saturating_add(took));
            prop_assert_eq!(kept.sent_ns(), LATEST);
            prop_assert!(kept.done_ns() >= LATEST);
        }

        #[test]
        fn moving_adds_up(distance in -1000i32..1000, by in -1000i32..1000, sent in 0u64..1000, took in 0u64..1000) {
            let kept = KeptScore::new(3, Some(distance), sent, sent + took).moved(Some(by), 7);
            prop_assert_eq!(kept, KeptScore::new(3, Some(distance + by), sent + 7, sent + took + 7));
            prop_assert_eq!(kept.moved(None, 0).distance(), None);
        }

        #[test]
        fn an_honest_total_is_on_the_line_whatever_was_there_before(
            score in prop_oneof![-1e6f64..-1e-3, 1e-3f64..1e6], before in -1e6f64..1e6, first in 1u64..1000, n in 1u64..2000,
        ) {
            let mut total = before;
            let mut line = None;
            for number in 1..first + n {
                total += score;
                if number >= first {
                    let line = line.get_or_insert_with(|| Line::through(score, number, total));
                    prop_assert_eq!(line.distance(number, total), Some(0));
                    prop_assert_eq!(line.distance(number + 1, total), Some(-1));
                    prop_assert_eq!(line.distance(number, total + score * 0.5), None);
                }
            }
        }
    }
}
