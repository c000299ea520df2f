//! Throughput in steps of 100 ms, for short runs.

use floodmark_record::events::{PartRow, Phase};
use floodmark_record::fine_series::FineThroughput;

/// Length of a step in ns: one part.
const STEP_NS: u64 = 100_000_000;

/// Maximum number of steps: 30 s, and the drain.
const MAX_STEPS: usize = 310;

/// Counts the ok responses of a measurement by step.
#[derive(Debug, Default)]
pub struct FineThroughputCounter {
    ok: Vec<u64>,
    /// Whether the run has more than [`MAX_STEPS`].
    is_too_long: bool,
}

impl FineThroughputCounter {
    /// Adds a part of the run.
    pub fn add(&mut self, part: &PartRow) {
        if part.phase != Phase::Measure || self.is_too_long {
            return;
        }
        let step = (part.from_ns / STEP_NS) as usize;
        if step >= MAX_STEPS {
            self.is_too_long = true;
            self.ok = Vec::new();
            return;
        }
        if self.ok.len() <= step {
            self.ok.resize(step + 1, 0);
        }
        self.ok[step] += part.sums.counts.ok;
    }

    /// Returns the throughput, or `None` if the run was too long or had no parts.
    pub fn finish(self) -> Option<FineThroughput> {
        (!self.ok.is_empty()).then_some(FineThroughput {
            step_s: STEP_NS as f64 / 1e9,
            ok: self.ok,
        })
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::Counts;
    use floodmark_record::events::GroupRow;

    use super::*;

    fn part(phase: Phase, step: u64, ok: u64) -> PartRow {
        PartRow {
            phase,
            from_ns: step * STEP_NS,
            to_ns: (step + 1) * STEP_NS,
            sums: GroupRow {
                counts: Counts {
                    ok,
                    ..Counts::default()
                },
                ..GroupRow::default()
            },
            groups: Vec::new(),
        }
    }

    #[test]
    fn missing_parts_are_zero_and_the_warmup_is_left_out() {
        let mut counter = FineThroughputCounter::default();
        counter.add(&part(Phase::Warmup, 1, 9));
        counter.add(&part(Phase::Measure, 0, 5));
        counter.add(&part(Phase::Measure, 3, 7));
        let found = counter.finish().unwrap();
        assert_eq!((found.step_s, found.ok), (0.1, vec![5, 0, 0, 7]));
        assert_eq!(FineThroughputCounter::default().finish(), None);
    }

    #[test]
    fn a_long_run_has_no_fine_throughput() {
        let mut counter = FineThroughputCounter::default();
        (0..400).for_each(|step| counter.add(&part(Phase::Measure, step, 5)));
        assert_eq!(counter.finish(), None);
    }
}
