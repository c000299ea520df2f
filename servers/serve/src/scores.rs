//! The scores of all threads: their number and total, and the journal that keeps them.

use std::sync::{Arc, Mutex, PoisonError};

use floodmark_journal::{AppendError, Journal, JournalError, JournalOptions, JournalState};
use serde::Serialize;

use crate::settings::JournalSetting;

/// Number and total of scores.
///
/// The total is a compensated sum (Neumaier, 1974), so rounding errors do not grow with the number of
/// scores.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ScoreTotals {
    number: u64,
    sum: f64,
    compensation: f64,
}

/// Body of a response.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScoreAnswer {
    average_score: f64,
    total_score: f64,
    number_of_trials: u64,
}

impl ScoreTotals {
    /// Returns the totals after another score. Returns `None` if the total is too large for a
    /// double.
    fn plus(mut self, score: f64) -> Option<Self> {
        let sum = self.sum + score;
        self.compensation += if self.sum.abs() >= score.abs() {
            (self.sum - sum) + score
        } else {
            (score - sum) + self.sum
        };
        self.sum = sum;
        self.number += 1;
        self.total().is_finite().then_some(self)
    }

    fn total(&self) -> f64 {
        self.sum + self.compensation
    }

    /// Returns the number of scores.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the body of the response to the last score. There must be a score.
    pub(crate) fn answer(&self) -> ScoreAnswer {
        ScoreAnswer {
            average_score: self.total() / self.number as f64,
            total_score: self.total(),
            number_of_trials: self.number,
        }
    }
}

impl JournalState for ScoreTotals {
    const RECORD_BYTES: usize = 8;

    fn apply(&mut self, records: &[u8]) {
        for record in records.as_chunks().0 {
            // A score is recorded only if the total stays finite.
            *self = self.plus(f64::from_le_bytes(*record)).unwrap_or(*self);
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        let fields = [self.number, self.sum.to_bits(), self.compensation.to_bits()];
        fields.map(u64::to_le_bytes).concat()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        let (fields, []) = bytes.as_chunks() else {
            return None;
        };
        let [number, sum, compensation] = fields else {
            return None;
        };
        Some(ScoreTotals {
            number: u64::from_le_bytes(*number),
            sum: f64::from_le_bytes(*sum),
            compensation: f64::from_le_bytes(*compensation),
        })
    }
}

/// A reason why a score is not recorded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScoreRefusal {
    /// The total would be too large for a double.
    Overflow,
    /// The journal refuses the score.
    Journal(AppendError),
}

/// The scores of all threads.
pub(crate) struct SharedScores {
    totals: Mutex<ScoreTotals>,
    journal: Option<Journal>,
}

impl SharedScores {
    /// Opens the journal and reads it back.
    pub(crate) fn open(setting: &JournalSetting) -> Result<Self, JournalError> {
        let options = JournalOptions::default();
        let empty = ScoreTotals::default();
        let (journal, totals) = match setting {
            JournalSetting::None => (None, empty),
            JournalSetting::Memory => (Some(Journal::in_memory(&options)?), empty),
            JournalSetting::File(folder) => {
                let (journal, totals) = Journal::open(folder, &options, empty)?;
                (Some(journal), totals)
            }
            JournalSetting::Cassandra(address) => {
                let (journal, totals) = Journal::open_cassandra(address, &options, empty)?;
                (Some(journal), totals)
            }
        };
        let totals = Mutex::new(totals);
        Ok(SharedScores { totals, journal })
    }

    /// Adds a score and returns the totals after it. With a journal, the score is durable once the
    /// journal has reached its number.
    pub(crate) fn add(&self, score: f64) -> Result<ScoreTotals, ScoreRefusal> {
        // Append under the lock, so that the journal has the order of the totals.
        let totals = self.totals.lock();
        let mut totals = totals.unwrap_or_else(PoisonError::into_inner);
        let after = totals.plus(score).ok_or(ScoreRefusal::Overflow)?;
        if let Some(journal) = &self.journal {
            let appended = journal.append(&score.to_le_bytes());
            appended.map_err(ScoreRefusal::Journal)?;
        }
        *totals = after;
        Ok(after)
    }

    /// Returns the journal.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Closes the journal.
    pub(crate) fn close(self) -> Result<(), Arc<JournalError>> {
        self.journal.map_or(Ok(()), Journal::close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(scores: impl IntoIterator<Item = f64>) -> ScoreTotals {
        let mut scores = scores.into_iter();
        let sum = scores.try_fold(ScoreTotals::default(), ScoreTotals::plus);
        sum.unwrap()
    }

    #[test]
    fn the_total_of_many_scores_is_exact() {
        let many = totals((0..1_000_000).map(|_| 0.1));
        assert_eq!(many.total(), 100_000.000_000_000_0);
        assert_eq!(many.answer().average_score, 0.1);
        assert_eq!(totals([1e16, 1.0, -1e16]).total(), 1.0);
        assert_eq!(totals([1.0, 1e100, 1.0, -1e100]).total(), 2.0);
    }

    #[test]
    fn a_total_too_large_for_a_double_changes_nothing() {
        let scores = SharedScores::open(&JournalSetting::None).unwrap();
        let first = scores.add(f64::MAX).unwrap();
        assert_eq!(scores.add(f64::MAX), Err(ScoreRefusal::Overflow));
        let second = scores.add(-f64::MAX).unwrap();
        assert_eq!((first.number(), second.number()), (1, 2));
        assert_eq!(second.total(), 0.0);
    }

    #[test]
    fn a_snapshot_restores_the_totals() {
        let before = totals([0.1, 1e9, -7.25, 1e-300]);
        assert_eq!(ScoreTotals::restore(&before.snapshot()), Some(before));
        for wrong in [&before.snapshot()[1..], &[], &[0; 32]] {
            assert_eq!(ScoreTotals::restore(wrong), None);
        }
        let mut applied = ScoreTotals::default();
        applied.apply(&[0.1, 1e9, -7.25, 1e-300].map(f64::to_le_bytes).concat());
        assert_eq!(applied, before);
    }
}
