//! The window that the figures of a run cover.

use floodmark_record::plan::FiguresOf;
use floodmark_record::run::{Steady, Window};
use floodmark_record::{SecondRow, TimeKind, Times};
use floodmark_stats::steady::{SeriesPoint, steady, varied, window};

use crate::run_events::{MeasuredSecond, RunEvents};
use crate::time_histograms::TimeHistograms;

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
        let steady = match rate_changes {
            true => varied(),
            false => steady(&points),
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
