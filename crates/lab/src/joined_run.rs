//! Folds a run while its load is sent.

use std::collections::BTreeMap;

use floodmark_record::events::{GroupRow, Phase, RunId};
use floodmark_record::plan::Plan;
use floodmark_record::run::Run;
use floodmark_record::stream::Event;
use floodmark_record::{Counts, SecondRow};

use crate::figure_window::{FigureWindow, WindowTimes};
use crate::fold::fold_run;
use crate::run_events::{MeasuredSecond, RunEvents};

/// A run in progress. It does not keep individual rows, so its memory use does not grow with the
/// run's length.
pub struct JoinedRun {
    pub(crate) events: RunEvents,
    times: WindowTimes,
}

impl JoinedRun {
    /// Returns a run that has just started.
    pub fn new(id: RunId, plan: Plan) -> Self {
        JoinedRun {
            events: RunEvents::new(id, plan, 0),
            times: WindowTimes::default(),
        }
    }

    /// Adds an event of the run.
    pub fn take(&mut self, event: &Event) {
        let Event::Second(row) = event else {
            return self.events.take(event.clone());
        };
        if row.phase == Phase::Measure {
            self.times.add(row, true);
        }
        self.events.take(Event::Second(SecondRow {
            histograms: BTreeMap::new(),
            ..row.clone()
        }));
        self.join_rows();
    }

    /// Joins all measured rows into one row.
    fn join_rows(&mut self) {
        let rows = &mut self.events.rows;
        if let Some(last) = rows.pop() {
            let row = match rows.pop() {
                Some(before) => joined(before.row, &last.row),
                None => last.row,
            };
            rows.push(MeasuredSecond::new(row, None, None));
        }
    }

    /// Returns the run. Its figures cover the whole measurement, and it has not been judged.
    pub fn finish(mut self) -> Run {
        self.events.complete();
        self.join_rows();
        let window = FigureWindow::whole(&self.events);
        fold_run(self.events, window, &self.times)
    }

    /// Returns the part of the run from `from_ns` on, if only rows of this part were added. Its
    /// requests are those of the part, but errors by name, groups and CPU time are those of the
    /// whole run.
    pub fn finish_from(mut self, from_ns: u64) -> Run {
        self.events.complete();
        self.join_rows();
        let mut window = FigureWindow::whole(&self.events);
        window.window.from_s = from_ns as f64 / 1e9;
        let last = self.events.rows.last();
        let mut requests = last.map_or_else(Counts::default, |row| row.row.counts.clone());
        requests.complete();
        let mut run = fold_run(self.events, window, &self.times);
        run.requests = requests;
        run
    }
}

/// Returns one row for two consecutive parts of a measurement, without histograms.
fn joined(mut row: SecondRow, next: &SecondRow) -> SecondRow {
    row.counts.merge(&next.counts);
    GroupRow::merge_each(&mut row.groups, &next.groups);
    SecondRow {
        to_ns: next.to_ns,
        good: row.good + next.good,
        ok_in_window: row.ok_in_window + next.ok_in_window,
        good_in_window: row.good_in_window + next.good_in_window,
        bytes_sent: row.bytes_sent + next.bytes_sent,
        bytes_received: row.bytes_received + next.bytes_received,
        connects: row.connects + next.connects,
        open_connections: next.open_connections,
        user_s: row.user_s + next.user_s,
        system_s: row.system_s + next.system_s,
        ..row
    }
}
