//! Merges all threads' data for each second into rows, and emits each row in compressed form.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use floodmark_record::SecondRow;
use floodmark_record::events::Phase;
use floodmark_record::groups::GroupRow;

use crate::clock::Ns;
use crate::group_times::encode;
use crate::rows::Rows;
use crate::slice::Slice;
use crate::sums::{self, RequestSums};
use crate::usage::process_cpu;

/// The incomplete rows of one phase.
pub struct Gatherer {
    /// The channels through which threads get back their slices, one per thread.
    pub back: Vec<Sender<Box<Slice>>>,
    /// Rows of the measurement.
    measured: Rows,
    /// Rows of the current phase.
    rows: Rows,
    phase: Phase,
    pending: BTreeMap<u64, Box<Slice>>,
    /// For each thread, the earliest second that the thread may still report.
    reached: Vec<u64>,
    next: u64,
    /// The process's CPU time at the end of the previous row.
    cpu: (f64, f64),
    /// The process's CPU time at the end of each row that has not been emitted yet.
    cpu_at: BTreeMap<u64, (f64, f64)>,
    /// Sums over all rows in the phase.
    totals: GroupRow,
}

impl Gatherer {
    /// Creates a gatherer for a measurement with the rows `measured`.
    /// The gatherer returns empty slices to the threads through `back`.
    #[must_use]
    pub fn new(back: Vec<Sender<Box<Slice>>>, measured: Rows) -> Self {
        let threads = back.len();
        Gatherer {
            back,
            rows: measured.clone(),
            measured,
            phase: Phase::Measure,
            pending: BTreeMap::new(),
            reached: vec![0; threads],
            next: 0,
            cpu: (0.0, 0.0),
            cpu_at: BTreeMap::new(),
            totals: GroupRow::default(),
        }
    }

    /// Starts a phase. `cpu` contains the process's user and kernel CPU time so far, in seconds.
    pub fn begin(&mut self, phase: Phase, cpu: (f64, f64)) {
        self.phase = phase;
        self.rows = self.measured.in_phase(phase);
        self.pending.clear();
        self.reached.fill(0);
        self.next = 0;
        self.cpu = cpu;
        self.cpu_at.clear();
        self.totals = GroupRow::default();
    }

    /// Merges a thread's slice. Returns the rows that are now complete.
    pub fn take(&mut self, slice: Box<Slice>) -> Vec<SecondRow> {
        let (thread, index) = (slice.thread as usize, slice.index);
        self.reached[thread] = index + 1;
        match self.pending.get_mut(&index) {
            Some(pending) => {
                pending.merge(&slice);
                self.give_back(slice);
            }
            None => {
                self.pending.insert(index, slice);
            }
        }
        self.whole_rows()
    }

    /// Records that a thread has ended this phase. Returns the rows that are now complete.
    pub fn ended(&mut self, thread: u32) -> Vec<SecondRow> {
        self.reached[thread as usize] = u64::MAX;
        self.whole_rows()
    }

    fn whole_rows(&mut self) -> Vec<SecondRow> {
        let whole = self.reached.iter().copied().min().unwrap_or(0);
        if whole == u64::MAX {
            return Vec::new();
        }
        if whole > self.next {
            self.cpu_at.entry(whole - 1).or_insert_with(process_cpu);
        }
        // The last row is not emitted yet, because its length is known only at the end of the
        // phase.
        self.rows_before(whole.saturating_sub(1))
    }

    /// Ends the phase after `ended` ns. Returns the remaining rows and the sums over the phase.
    pub fn end(&mut self, ended: Ns) -> (Vec<SecondRow>, GroupRow) {
        let last = self
            .pending
            .last_key_value()
            .map_or(self.next, |(index, _)| *index);
        let mut rows = self.rows_before(last + 1);
        if let Some(row) = rows.last_mut() {
            row.to_ns = ended.clamp(row.from_ns + 1, row.to_ns);
        }
        (rows, std::mem::take(&mut self.totals))
    }

    fn rows_before(&mut self, end: u64) -> Vec<SecondRow> {
        let mut rows = Vec::new();
        while self.next < end {
            let slice = self.pending.remove(&self.next);
            rows.push(self.row(slice.as_deref()));
            if let Some(slice) = slice {
                self.give_back(slice);
            }
            self.next += 1;
        }
        rows
    }

    fn row(&mut self, slice: Option<&Slice>) -> SecondRow {
        let cpu = self.cpu_at.remove(&self.next).unwrap_or(self.cpu);
        let before = std::mem::replace(&mut self.cpu, cpu);
        let row = slice.map(|s| s.all.to_row()).unwrap_or_default();
        let groups = slice.map_or(&[][..], |s| &s.groups);
        let value = |of: fn(&Slice) -> u64| slice.map_or(0, of);
        let histograms = slice.map_or_else(BTreeMap::new, |slice| encode(&slice.times));
        let (from_ns, to_ns) = self.rows.bounds(self.next);
        sums::add(&mut self.totals, &row);
        SecondRow {
            phase: self.phase,
            index: self.next,
            from_ns,
            to_ns,
            counts: row.counts,
            good: row.good,
            ok_in_window: row.ok_in_window,
            good_in_window: row.good_in_window,
            bytes_sent: row.bytes_sent,
            bytes_received: row.bytes_received,
            connects: value(|s| s.connects),
            open_connections: value(|s| s.open),
            user_s: cpu.0 - before.0,
            system_s: cpu.1 - before.1,
            histograms,
            groups: groups.iter().map(RequestSums::to_row).collect(),
        }
    }

    fn give_back(&self, mut slice: Box<Slice>) {
        slice.clear();
        // Sending fails only after the thread has exited. The slice is then not needed.
        let _ = self.back[slice.thread as usize].send(slice);
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::TimeKind;

    use super::*;
    use std::sync::mpsc::channel;

    fn slice(thread: u32, index: u64, ok: u64) -> Box<Slice> {
        let mut slice = Slice::new(thread, 0);
        slice.index = index;
        slice.all.row.counts.ok = ok;
        for _ in 0..ok {
            slice.times[TimeKind::Response as usize].record(1000);
        }
        Box::new(slice)
    }

    #[test]
    fn rows_wait_for_the_slowest_thread_and_add_up() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
        let mut gatherer = Gatherer::new(senders, Rows::default());
        gatherer.begin(Phase::Measure, (0.0, 0.0));
        assert!(gatherer.take(slice(0, 0, 1)).is_empty());
        assert!(gatherer.take(slice(0, 1, 2)).is_empty());
        assert!(
            gatherer.take(slice(1, 0, 4)).is_empty(),
            "the last complete row is not emitted yet"
        );
        // Thread 1 stalled and reports no data for seconds 1 to 3.
        let rows = gatherer.take(slice(1, 4, 8));
        assert_eq!(rows.iter().map(|r| r.counts.ok).collect::<Vec<_>>(), [5]);
        let (rows, totals) = gatherer.end(4_500_000_000);
        assert_eq!(
            rows.iter()
                .map(|r| (r.index, r.counts.ok))
                .collect::<Vec<_>>(),
            [(1, 2), (2, 0), (3, 0), (4, 8)]
        );
        assert_eq!(rows[3].to_ns, 4_500_000_000);
        assert_eq!(totals.counts.ok, 15);
        assert_eq!(
            receivers[0].try_iter().count() + receivers[1].try_iter().count(),
            4,
            "emptied slices go back to their threads"
        );
    }

    #[test]
    fn does_not_wait_for_an_ended_thread() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
        let mut gatherer = Gatherer::new(senders, Rows::default());
        gatherer.begin(Phase::Measure, (0.0, 0.0));
        assert!(gatherer.take(slice(1, 0, 1)).is_empty());
        assert!(gatherer.ended(1).is_empty());
        let mut rows = Vec::new();
        for index in 0..20 {
            rows.extend(gatherer.take(slice(0, index, 1)));
        }
        assert_eq!((rows.len(), rows[0].counts.ok), (19, 2));
        assert_eq!(
            receivers[0].try_iter().count() + receivers[1].try_iter().count(),
            20
        );
        assert!(gatherer.ended(0).is_empty());
        let (rows, totals) = gatherer.end(19_500_000_000);
        assert_eq!((rows.len(), totals.counts.ok), (1, 21));
    }
}
