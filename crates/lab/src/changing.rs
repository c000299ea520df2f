//! What is folded of a run whose rate changes: figures step by step, and whether a ramp went beyond what the server answered.

use std::collections::BTreeMap;

use floodmark_record::profile::{Profile, Step, step_at};
use floodmark_record::run::{Saturation, StepFigures};
use floodmark_record::{Counts, Plan, SecondRow, TimeKind, Times};
use floodmark_stats::Histogram;
use floodmark_stats::saturation::{self, saturation};

use crate::tally::Tally;

/// Response times of one step after the other; only one step's histograms are in memory.
#[derive(Default)]
pub struct StepTimes {
    steps: Vec<Step>,
    current: usize,
    ok: Histogram,
    censored: Histogram,
    done: BTreeMap<usize, Times>,
}

impl StepTimes {
    /// For the steps of a plan, if it has any.
    pub fn of(plan: &Plan) -> Option<Self> {
        Some(StepTimes {
            steps: plan.steps()?.to_vec(),
            ..StepTimes::default()
        })
    }

    /// Takes the next row in.
    pub fn add(&mut self, row: &SecondRow) {
        let step = step_of(&self.steps, row);
        if step != self.current {
            self.finish_step();
            self.current = step;
        }
        let merge = |kind, into: &mut Histogram| {
            let text = row.histograms.get(&kind);
            if let Some(histogram) = text.and_then(|text| Histogram::decode(text).ok()) {
                into.merge(&histogram);
            }
        };
        merge(TimeKind::Response, &mut self.ok);
        merge(TimeKind::Censored, &mut self.censored);
    }

    fn finish_step(&mut self) {
        let times = Histogram::summarise(&self.ok, &self.censored);
        self.done.insert(self.current, times);
        self.ok.clear();
        self.censored.clear();
    }

    /// The figures of each step that was begun.
    pub fn figures(mut self, tally: &Tally) -> Vec<StepFigures> {
        self.finish_step();
        let end_s = tally.window_ns() as f64 / 1e9;
        let mut from_s = 0.0;
        let mut figures = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let to_s = (from_s + step.duration_s).min(end_s);
            if to_s <= from_s {
                break;
            }
            let rows = || {
                let within = |row: &&SecondRow| step_of(&self.steps, row) == number;
                tally.rows.iter().map(|row| &row.row).filter(within)
            };
            let per_s =
                |of: fn(&SecondRow) -> u64| rows().map(of).sum::<u64>() as f64 / (to_s - from_s);
            let mut requests = Counts::default();
            rows().for_each(|row| requests.merge(&row.counts));
            figures.push(StepFigures {
                from_s,
                to_s,
                offered_per_s: step.rate_per_s,
                throughput_per_s: per_s(|row| row.ok_in_window),
                goodput_per_s: per_s(|row| row.good_in_window),
                requests,
                response_time_us: self.done.get(&number).cloned().unwrap_or_default(),
            });
            from_s = to_s;
        }
        figures
    }
}

/// Rows are cut at the ends of steps, so the middle of one lies clear of them.
fn step_of(steps: &[Step], row: &SecondRow) -> usize {
    step_at(steps, (row.from_ns + row.to_ns) as f64 / 2e9)
}

/// Whether a ramp went beyond what the server answered.
pub fn saturated(tally: &Tally) -> Option<Saturation> {
    let Some(profile @ Profile::Ramp(ramp)) = &tally.plan.profile else {
        return None;
    };
    let end_ns = tally.window_ns();
    let rows: Vec<saturation::Row> = tally
        .rows
        .iter()
        .filter(|row| row.row.to_ns <= end_ns)
        .map(|row| saturation::Row {
            from_s: row.figures.from_s,
            to_s: row.figures.to_s,
            ok: row.row.ok_in_window,
            p50_us: row.figures.p50_us,
        })
        .collect();
    saturation(ramp, &rows, |at_s| profile.expected_by(at_s).unwrap_or(0.0))
}
