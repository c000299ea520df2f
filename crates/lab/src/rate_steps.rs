//! Computes per-step figures of a run whose rate changes, and the capacity that a ramp reached.

use std::collections::BTreeMap;

use floodmark_record::plan::Schedule;
use floodmark_record::profile::{RateStep, step_at};
use floodmark_record::run::{Saturation, StepFigures};
use floodmark_record::{Counts, Plan, SecondRow, TimeKind, Times};
use floodmark_stats::saturation::{self, saturation};

use crate::run_events::RunEvents;
use crate::time_histograms::TimeHistograms;

/// Response times per step. Only the histograms of the current step are kept in memory.
#[derive(Default)]
pub struct StepTimes {
    steps: Vec<RateStep>,
    current: usize,
    times: TimeHistograms,
    done: BTreeMap<usize, Times>,
}

impl StepTimes {
    /// Starts with the first step of a plan. Returns `None` for a plan without steps.
    pub fn of(plan: &Plan) -> Option<Self> {
        Some(StepTimes {
            steps: plan.steps()?.to_vec(),
            ..StepTimes::default()
        })
    }

    /// Adds the next row.
    pub fn add(&mut self, row: &SecondRow) {
        let step = step_of(&self.steps, row);
        if step != self.current {
            self.finish_step();
            self.current = step;
        }
        self.times
            .merge(&TimeHistograms::decode_responses(&row.histograms));
    }

    fn finish_step(&mut self) {
        let times = std::mem::take(&mut self.times);
        let summary = times.summary(TimeKind::Response);
        self.done.insert(self.current, summary);
    }

    /// Returns the figures of all steps that started.
    pub fn figures(mut self, run: &RunEvents) -> Vec<StepFigures> {
        self.finish_step();
        let end_s = run.window_ns() as f64 / 1e9;
        let mut from_s = 0.0;
        let mut figures = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let to_s = (from_s + step.duration_s).min(end_s);
            if to_s <= from_s {
                break;
            }
            let rows = || {
                let within = |row: &&SecondRow| step_of(&self.steps, row) == number;
                run.rows.iter().map(|row| &row.row).filter(within)
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

/// Returns the step that contains a row. Rows are split at the ends of steps, so each row lies in a
/// single step.
fn step_of(steps: &[RateStep], row: &SecondRow) -> usize {
    step_at(steps, (row.from_ns + row.to_ns) as f64 / 2e9)
}

/// Returns the point at which a ramp reached the server's capacity. Returns `None` for other plans.
pub fn saturation_of(run: &RunEvents) -> Option<Saturation> {
    let Some(schedule @ Schedule::Ramp { ramp, .. }) = run.plan.schedule() else {
        return None;
    };
    let end_ns = run.window_ns();
    let rows: Vec<saturation::RampRow> = run
        .rows
        .iter()
        .filter(|row| row.row.to_ns <= end_ns)
        .map(|row| saturation::RampRow {
            from_s: row.figures.from_s,
            to_s: row.figures.to_s,
            ok: row.row.ok_in_window,
            p50_us: row.figures.p50_us,
        })
        .collect();
    saturation(ramp, &rows, |at_s| {
        schedule.expected_by(at_s).unwrap_or(0.0)
    })
}
