//! Figures for a run's window, its rate steps and its mix groups.
//!
//! The counts of groups come from the rows. Their times come from the worker's last event.

use std::collections::BTreeMap;

use floodmark_record::events::GroupRow;
use floodmark_record::plan::{FiguresOf, RateStep, Schedule, step_at};
use floodmark_record::run::{GroupFigures, HttpBytes, Saturation, Steady, StepFigures, Window};
use floodmark_record::{Counts, Plan, SecondRow, TimeKind, Times};
use floodmark_stats::saturation::{self, saturation};
use floodmark_stats::steady::{SeriesPoint, steady, varied, window};

use crate::run_events::{MeasuredSecond, RunEvents, TimeHistograms};

/// The window that the figures of a run cover.
pub struct FigureWindow {
    pub steady: Steady,
    pub window: Window,
    /// End of the sending window, in ns.
    pub sending_end_ns: u64,
}

impl FigureWindow {
    /// Determines the window of a run.
    pub fn of(run: &RunEvents) -> Self {
        let sending_end_ns = run.window_ns();
        let end_s = sending_end_ns as f64 / 1e9;
        let rows = run.rows.iter();
        let points: Vec<SeriesPoint> = rows
            .filter(|row| row.row.from_ns < sending_end_ns)
            .map(|row| row.point(end_s))
            .collect();
        let rate_changes = run.plan.rate_changes();
        let steady = if rate_changes {
            varied()
        } else {
            steady(&points)
        };
        let window = match run.plan.figures_of {
            FiguresOf::Whole if !rate_changes => Window {
                from_s: 0.0,
                to_s: end_s,
                why: "the whole run, as requested".to_owned(),
            },
            FiguresOf::Steady | FiguresOf::Whole => window(&steady, (0.0, end_s)),
        };
        FigureWindow {
            steady,
            window,
            sending_end_ns,
        }
    }

    /// Returns the whole measurement, without judging its steady state.
    pub fn whole(run: &RunEvents) -> Self {
        let sending_end_ns = run.window_ns();
        let window = Window {
            from_s: 0.0,
            to_s: sending_end_ns as f64 / 1e9,
            why: "the whole measurement".to_owned(),
        };
        FigureWindow {
            steady: varied(),
            window,
            sending_end_ns,
        }
    }

    /// Returns whether a second belongs to the window. A window that ends with the run includes the
    /// drain.
    pub fn contains(&self, row: &SecondRow) -> bool {
        let middle_s = (row.from_ns + row.to_ns) as f64 / 2e9;
        let ends_with_run = self.window.to_s * 1e9 >= self.sending_end_ns as f64 - 1.0;
        middle_s >= self.window.from_s && (ends_with_run || middle_s < self.window.to_s)
    }

    /// Returns the mean of a count per second within the window, or `None` if the window is empty.
    pub fn per_second(&self, run: &RunEvents, of: impl Fn(&SecondRow) -> u64) -> Option<f64> {
        let length_s = self.window.to_s - self.window.from_s;
        let rows = run.rows.iter().map(|row| &row.row);
        let sum: u64 = rows.filter(|row| self.contains(row)).map(of).sum();
        (length_s > 0.0).then(|| sum as f64 / length_s)
    }

    /// Returns the seconds of the window as points of the throughput curve, excluding the drain.
    pub fn points(&self, run: &RunEvents) -> Vec<SeriesPoint> {
        let sending =
            |row: &&MeasuredSecond| self.contains(&row.row) && row.row.to_ns <= self.sending_end_ns;
        let rows = run.rows.iter().filter(sending);
        rows.map(|row| row.point(f64::INFINITY)).collect()
    }
}

/// Times of the requests in a window.
#[derive(Default)]
pub struct WindowTimes {
    sums: TimeHistograms,
    /// Shortest service time in the whole run, in ns.
    min_service_ns: Option<u64>,
}

impl WindowTimes {
    /// Adds one second of the run.
    pub fn add(&mut self, row: &SecondRow, in_window: bool) {
        let select = |kind| in_window || kind == TimeKind::Service;
        let times = TimeHistograms::decode(&row.histograms, select);
        let min = self.min_service_ns.into_iter();
        self.min_service_ns = min.chain(times.min_ns(TimeKind::Service)).min();
        if in_window {
            self.sums.merge(&times);
        }
    }

    /// Summarizes one kind of time.
    pub fn summary(&self, kind: TimeKind) -> Times {
        self.sums.summary(kind)
    }

    /// Returns the shortest service time in the whole run, in µs.
    pub fn min_service_us(&self) -> Option<f64> {
        self.min_service_ns.map(|ns| ns as f64 / 1e3)
    }
}

/// Returns the figures of a run's groups, in the order of the plan's mix.
pub fn groups(run: &RunEvents, window: &FigureWindow) -> Vec<GroupFigures> {
    let requests = run.plan.mix.iter().flat_map(|mix| &mix.requests);
    let group = |(index, name): (usize, &String)| {
        let of =
            |row: &SecondRow, what: fn(&GroupRow) -> u64| row.groups.get(index).map_or(0, what);
        let sum = |what: fn(&GroupRow) -> u64| run.rows.iter().map(|row| of(&row.row, what)).sum();
        let mean = |what| window.per_second(run, |row| of(row, what));
        let end = run.end.as_ref();
        let times = end.and_then(|end| end.groups.get(index));
        let times = times.map(|times| TimeHistograms::decode(times, |_| true));
        let times = times.unwrap_or_default();
        GroupFigures {
            name: name.clone(),
            throughput_per_s: mean(|group| group.ok_in_window),
            goodput_per_s: mean(|group| group.good_in_window),
            requests: run.group_counts(index),
            bytes: HttpBytes {
                sent: sum(|group| group.bytes_sent),
                received: sum(|group| group.bytes_received),
            },
            response_time_us: times.summary(TimeKind::Response),
            service_time_us: times.summary(TimeKind::Service),
            blocked_us: times.summary(TimeKind::Blocked),
            lateness_us: times.summary(TimeKind::Lateness),
            first_byte_us: times.summary(TimeKind::FirstByte),
            error_time_us: times.summary(TimeKind::Error),
        }
    };
    let names = requests.map(|request| &request.name).enumerate();
    names.map(group).collect()
}

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
