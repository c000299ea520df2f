//! The boundaries of a phase's rows: whole seconds, and the ends of the plan's steps.
//! Each row therefore belongs to exactly one step. Each row consists of parts of 100 ms.

use std::sync::Arc;

use floodmark_record::events::Phase;
use floodmark_record::plan::Plan;

use crate::clock::{Ns, seconds};
use crate::slice::ROW_NS;

/// Length of a part in ns. A killed run loses at most two parts: the incomplete one, and the one
/// before it, which is emitted only when its successor is complete.
pub const PART_NS: Ns = 100_000_000;

/// The rows of a phase, or the parts of these rows, numbered from 0.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Length of an uncut row in ns.
    length: Ns,
    /// The boundaries that are not at multiples of the length, in ascending order. Each entry
    /// contains the number of the row that starts there, and the time in ns.
    cuts: Arc<[(u64, Ns)]>,
}

impl Default for Rows {
    /// Returns rows of whole seconds.
    fn default() -> Self {
        Rows::cut(ROW_NS, [])
    }
}

impl Rows {
    /// Creates rows of whole seconds, split at the ends of `plan`'s steps.
    pub fn of(plan: &Plan) -> Self {
        let mut end_s = 0.0;
        let steps = plan.steps().unwrap_or_default();
        let ends = steps.iter().map(|step| {
            end_s += step.duration_s;
            seconds(end_s)
        });
        Rows::cut(ROW_NS, ends)
    }

    /// Creates rows of `length`, split at `ends`.
    fn cut(length: Ns, ends: impl IntoIterator<Item = Ns>) -> Self {
        let mut ends: Vec<Ns> = ends.into_iter().filter(|end| end % length != 0).collect();
        ends.dedup();
        let cuts = ends.into_iter().zip(1..);
        let cuts = cuts.map(|(end, cuts)| (end / length + cuts, end)).collect();
        Rows { length, cuts }
    }

    /// Returns the parts of these rows.
    pub fn parts(&self) -> Rows {
        Rows::cut(PART_NS, self.cuts.iter().map(|(_, end)| *end))
    }

    /// Returns the rows of a phase, if `self` contains the rows of the measurement. The warm-up has
    /// no steps.
    pub fn in_phase(&self, phase: Phase) -> Rows {
        match phase {
            Phase::Warmup => Rows::default(),
            Phase::Measure => self.clone(),
        }
    }

    /// Returns the row that contains `at`.
    pub fn at(&self, at: Ns) -> u64 {
        at / self.length + self.cuts.partition_point(|(_, cut)| *cut <= at) as u64
    }

    /// Returns the start and end of a row. The end is the start of the next row.
    pub fn bounds(&self, row: u64) -> (Ns, Ns) {
        let cuts = self.cuts.partition_point(|(first, _)| *first <= row);
        let second = row - cuts as u64;
        let (from, to) = (second * self.length, (second + 1) * self.length);
        let before = cuts.checked_sub(1).map_or(0, |i| self.cuts[i].1);
        let after = self.cuts.get(cuts).map_or(Ns::MAX, |(_, cut)| *cut);
        (from.max(before), to.min(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::steps_plan;
    use proptest::prelude::*;

    fn rows(lengths_s: &[f64]) -> Rows {
        let steps: Vec<_> = lengths_s.iter().map(|length| (1.0, *length)).collect();
        Rows::of(&steps_plan(&steps))
    }

    #[test]
    fn rows_are_whole_seconds_without_steps() {
        for rows in [rows(&[]), rows(&[2.0, 1.0, 5.0])] {
            assert_eq!(rows.at(3 * ROW_NS + 1), 3);
            assert_eq!(rows.bounds(3), (3 * ROW_NS, 4 * ROW_NS));
        }
    }

    #[test]
    fn splits_a_second_at_two_step_ends() {
        let rows = rows(&[3.25, 0.5, 1.0]);
        let ms = |row| {
            let (from, to) = rows.bounds(row);
            (from / 1_000_000, to / 1_000_000)
        };
        assert_eq!(
            [2, 3, 4, 5, 6, 7, 8].map(ms),
            [
                (2000, 3000),
                (3000, 3250),
                (3250, 3750),
                (3750, 4000),
                (4000, 4750),
                (4750, 5000),
                (5000, 6000),
            ]
        );
    }

    proptest! {
        #[test]
        fn rows_cover_all_times_and_end_with_steps(
            lengths in proptest::collection::vec(0.001f64..3.0, 1..12),
            at in 0u64..40_000_000_000,
        ) {
            let rows = rows(&lengths);
            let (from, to) = rows.bounds(rows.at(at));
            prop_assert!(from <= at && at < to && to - from <= ROW_NS);
            let next = rows.bounds(rows.at(at) + 1);
            prop_assert_eq!(next.0, to);
            let mut end = 0.0;
            for length in lengths {
                end += length;
                let end = seconds(end);
                prop_assert_eq!(rows.bounds(rows.at(end)).0, end);
            }
            let parts = rows.parts();
            let (from, to) = parts.bounds(parts.at(at));
            prop_assert!(from <= at && at < to && to - from <= PART_NS);
            prop_assert_eq!(rows.at(from), rows.at(to - 1));
        }
    }
}
