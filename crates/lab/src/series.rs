//! The series of a run, with rows that are long enough to compute a rate.
//!
//! A load rarely ends on a full second, and each step of a plan ends a row. In a row of a few
//! milliseconds, a single response can multiply the rate. A row with less than 0.5 s of sending is
//! therefore joined to a neighboring row of the same step, if there is one. Rows after the sending
//! window stay separate, because their responses do not count toward the throughput.

use std::collections::BTreeMap;

use floodmark_record::SecondRow;
use floodmark_record::plan::Plan;
use floodmark_record::run::SeriesRow;
use floodmark_stats::steady::SHORTEST_ROW_S;

use crate::run_events::{MeasuredSecond, ResponseTimes, TimeHistograms};
use crate::run_figures::step_of;

/// Joins the short rows of a run. Only the histograms of the current row are kept in memory.
#[derive(Debug, Default)]
pub struct SeriesJoiner {
    /// For each row of the measurement, whether it is joined to the previous row.
    is_joined: Vec<bool>,
    /// Number of rows added so far.
    added: usize,
    /// Index of the first row of the current joined row, and its times so far.
    current: Option<(usize, TimeHistograms)>,
    /// Response times of joined rows, by the index of their first row.
    times: BTreeMap<usize, ResponseTimes>,
}

impl SeriesJoiner {
    /// Determines which of the rows to join. The sending window ends at `sending_end_ns`. Rows that
    /// follow `rows` stay separate.
    pub fn of<'a>(
        plan: &Plan,
        rows: impl IntoIterator<Item = &'a SecondRow>,
        sending_end_ns: u64,
    ) -> Self {
        let steps = plan.steps().unwrap_or_default();
        let is_short = |from_ns: u64, to_ns: u64| {
            let sending_ns = to_ns.min(sending_end_ns).saturating_sub(from_ns);
            (sending_ns as f64) < SHORTEST_ROW_S * 1e9
        };
        let mut is_joined = Vec::new();
        // Start of the joined row, and its latest row.
        let mut before: Option<(u64, &SecondRow)> = None;
        for row in rows {
            let joined_from_ns = before.and_then(|(from_ns, last)| {
                let can_join =
                    row.from_ns < sending_end_ns && step_of(steps, last) == step_of(steps, row);
                let has_short = is_short(from_ns, last.to_ns) || is_short(row.from_ns, row.to_ns);
                (can_join && has_short).then_some(from_ns)
            });
            is_joined.push(joined_from_ns.is_some());
            before = Some((joined_from_ns.unwrap_or(row.from_ns), row));
        }
        SeriesJoiner {
            is_joined,
            ..SeriesJoiner::default()
        }
    }

    fn is_joined(&self, row: usize) -> bool {
        self.is_joined.get(row).copied().unwrap_or(false)
    }

    /// Adds the histograms of the next row of the measurement.
    pub fn add(&mut self, row: &SecondRow) {
        let index = self.added;
        self.added += 1;
        if !self.is_joined(index) {
            self.finish_row();
        }
        if self.is_joined(index) || self.is_joined(index + 1) {
            let times = TimeHistograms::decode_responses(&row.histograms);
            let (_, sum) = (self.current).get_or_insert_with(|| (index, TimeHistograms::default()));
            sum.merge(&times);
        }
    }

    fn finish_row(&mut self) {
        if let Some((first, times)) = self.current.take() {
            self.times.insert(first, ResponseTimes::of(&times));
        }
    }

    /// Returns the series. `rows` are the rows of the measurement.
    pub fn series(mut self, rows: &[MeasuredSecond], sending_end_ns: u64) -> Vec<SeriesRow> {
        self.finish_row();
        let mut series: Vec<(usize, MeasuredSecond)> = Vec::new();
        for (index, row) in rows.iter().cloned().enumerate() {
            match series.pop() {
                Some((first, before)) if self.is_joined(index) => {
                    series.push((first, before.join(row)));
                }
                before => {
                    series.extend(before);
                    series.push((index, row));
                }
            }
        }
        let rows = series.into_iter().map(|(first, mut row)| {
            row.end_at(sending_end_ns);
            if let Some(times) = self.times.remove(&first) {
                times.fill(&mut row.figures);
            }
            row.figures
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use floodmark_record::TimeKind;
    use floodmark_record::events::{GroupRow, PartRow, Phase};
    use floodmark_record::plan::{Model, RateStep, Schedule, Spacing};
    use floodmark_record::watch::ServerUsed;
    use floodmark_stats::Histogram;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns a row with 100 ok responses per second, rounded up.
    fn row(from_ms: u64, to_ms: u64) -> SecondRow {
        let ok = (to_ms - from_ms).div_ceil(10);
        let mut sums = GroupRow {
            ok_in_window: ok,
            ..GroupRow::default()
        };
        sums.counts.ok = ok;
        let part = PartRow {
            phase: Phase::Measure,
            from_ns: from_ms * MS,
            to_ns: to_ms * MS,
            sums,
            groups: Vec::new(),
        };
        let mut row = SecondRow::of_parts(&[part], from_ms / 1000).unwrap();
        let mut times = Histogram::new();
        (0..ok).for_each(|_| times.record(from_ms + 1));
        row.histograms.insert(TimeKind::Response, times.encode());
        row
    }

    fn series(plan: &Plan, ends_ms: &[u64], sending_end_ms: u64) -> Vec<SeriesRow> {
        let starts = [0].into_iter().chain(ends_ms.iter().copied());
        let rows: Vec<SecondRow> = starts
            .zip(ends_ms)
            .map(|(from, to)| row(from, *to))
            .collect();
        let end_ns = sending_end_ms * MS;
        let mut joiner = SeriesJoiner::of(plan, &rows, end_ns);
        rows.iter().for_each(|row| joiner.add(row));
        let measured = rows.into_iter();
        let measured = measured.map(|row| MeasuredSecond::new(row, None, None));
        joiner.series(&Vec::from_iter(measured), end_ns)
    }

    /// Returns the start, the end and the rate of each row.
    fn rates(series: &[SeriesRow]) -> Vec<(f64, f64, f64)> {
        let rates = series.iter();
        let rates = rates.map(|row| (row.from_s, row.to_s, row.throughput_per_s.round()));
        rates.collect()
    }

    fn plan() -> Plan {
        let address: SocketAddr = ([127, 0, 0, 1], 80).into();
        Plan::of(address.into())
    }

    #[test]
    fn a_short_last_row_is_joined_to_the_row_before() {
        let joined = series(&plan(), &[1000, 2000, 2005], 2005);
        assert_eq!(rates(&joined), [(0.0, 1.0, 100.0), (1.0, 2.005, 100.0)]);
        // The times of both rows.
        let counts = joined[1].response_times.as_ref().unwrap().counts.iter();
        assert_eq!(counts.sum::<u64>(), 101);
        assert_eq!(joined[1].max_us, Some(2.001));
        let long = series(&plan(), &[1000, 1500], 1500);
        assert_eq!(rates(&long), [(0.0, 1.0, 100.0), (1.0, 1.5, 100.0)]);
        let only = series(&plan(), &[5], 5);
        assert_eq!(rates(&only), [(0.0, 0.005, 200.0)]);
    }

    #[test]
    fn a_joined_row_keeps_the_cpu_use_that_only_one_row_has() {
        let used = ServerUsed {
            over_s: 1.0,
            user_s: 0.5,
            system_s: 0.25,
        };
        let whole = || MeasuredSecond::new(row(0, 1000), Some(used), None);
        let short = |server| MeasuredSecond::new(row(1000, 1100), server, Some(used));
        let cpus = |joined: MeasuredSecond| {
            let row = joined.figures;
            (row.server_user_cpus, row.store_system_cpus)
        };
        assert_eq!(cpus(whole().join(short(None))), (Some(0.5), Some(0.25)));
        let twice = ServerUsed {
            user_s: 1.5,
            ..used
        };
        let both = whole().join(short(Some(twice)));
        assert_eq!(cpus(both), (Some(1.0), Some(0.25)));
    }

    #[test]
    fn rates_exclude_the_time_after_the_sending_window() {
        // The row after the window remains separate, so that it does not lower the previous row's
        // rate.
        let drained = series(&plan(), &[1000, 2000, 2005], 2000);
        assert_eq!(drained.len(), 3);
        // Ok responses within the window: 100 + 50.
        let cut = series(&plan(), &[1000, 1500], 1250);
        assert_eq!(rates(&cut), [(0.0, 1.5, 120.0)]);
    }

    #[test]
    fn rows_are_joined_only_within_a_step() {
        let step = |duration_s| RateStep {
            rate_per_s: 100.0,
            duration_s,
        };
        let mut stepped = plan();
        stepped.model = Model::Open {
            schedule: Schedule::Steps {
                steps: vec![step(1.25), step(0.25), step(1.0)],
                spacing: Spacing::Constant,
            },
            hold: false,
        };
        let joined = series(&stepped, &[1000, 1250, 1500, 2000, 2500], 2500);
        let spans: Vec<_> = joined.iter().map(|row| (row.from_s, row.to_s)).collect();
        assert_eq!(spans, [(0.0, 1.25), (1.25, 1.5), (1.5, 2.0), (2.0, 2.5)]);
        // A short first row of a step is joined to the next row.
        stepped.model = Model::Open {
            schedule: Schedule::Steps {
                steps: vec![step(0.75), step(1.25)],
                spacing: Spacing::Constant,
            },
            hold: false,
        };
        let joined = series(&stepped, &[750, 1000, 2000], 2000);
        assert_eq!(rates(&joined), [(0.0, 0.75, 100.0), (0.75, 2.0, 100.0)]);
    }
}
