//! Puts the threads' seconds together and emits each as one row: merged, compressed, and forgotten.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use floodmark_record::events::Phase;
use floodmark_record::groups::GroupRow;
use floodmark_record::{Counts, SecondRow, TimeKind};

use crate::clock::Ns;
use crate::rows::Rows;
use crate::slice::Slice;
use crate::sums::Sums;
use crate::usage::process_cpu;

/// Rows of one phase in the making.
pub struct Gatherer {
    back: Vec<Sender<Box<Slice>>>,
    /// Rows of the measurement.
    measured: Rows,
    /// Rows of the current phase.
    rows: Rows,
    phase: Phase,
    pending: BTreeMap<u64, Box<Slice>>,
    /// For each thread the first second that it may still have something to say of.
    reached: Vec<u64>,
    next: u64,
    /// CPU at the end of the row before the next one.
    cpu: (f64, f64),
    /// CPU at the ends of rows that are not emitted yet.
    cpu_at: BTreeMap<u64, (f64, f64)>,
    totals: Totals,
}

/// Sums over the rows of a phase.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Counts.
    pub counts: Counts,
    /// Bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}

impl Gatherer {
    /// A gatherer that gives emptied slices back to their threads, for a measurement in rows `measured`.
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
            totals: Totals::default(),
        }
    }

    /// How many threads it gathers from.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.back.len()
    }

    /// Begins a phase, before which the process had used `cpu`: user and kernel seconds.
    pub fn begin(&mut self, phase: Phase, cpu: (f64, f64)) {
        self.phase = phase;
        self.rows = match phase {
            Phase::Warmup => Rows::default(),
            Phase::Measure => self.measured.clone(),
        };
        self.pending.clear();
        self.reached.fill(0);
        self.next = 0;
        self.cpu = cpu;
        self.cpu_at.clear();
        self.totals = Totals::default();
    }

    /// Takes a thread's slice; returns the rows that are whole now.
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

    /// Takes note that a thread has nothing more to say of this phase; returns the rows that are whole now.
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
        // The last row is held back: only the end of the phase tells how long it was.
        self.rows_before(whole.saturating_sub(1))
    }

    /// Ends the phase after `ended` ns; returns the rows left and the phase's sums.
    pub fn end(&mut self, ended: Ns) -> (Vec<SecondRow>, Totals) {
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
        let GroupRow {
            counts,
            good,
            ok_in_window,
            good_in_window,
            bytes_sent,
            bytes_received,
        } = slice.map(|s| s.all.row()).unwrap_or_default();
        let groups = slice.map_or(&[][..], |s| &s.groups);
        let value = |of: fn(&Slice) -> u64| slice.map_or(0, of);
        let histograms = slice.map_or_else(BTreeMap::new, |slice| {
            TimeKind::ALL
                .iter()
                .zip(&slice.times)
                .filter(|(_, times)| !times.is_empty())
                .map(|(kind, times)| (*kind, times.encode()))
                .collect()
        });
        let (from_ns, to_ns) = self.rows.bounds(self.next);
        self.totals.counts.merge(&counts);
        self.totals.bytes_sent += bytes_sent;
        self.totals.bytes_received += bytes_received;
        SecondRow {
            phase: self.phase,
            index: self.next,
            from_ns,
            to_ns,
            counts,
            good,
            ok_in_window,
            good_in_window,
            bytes_sent,
            bytes_received,
            connects: value(|s| s.connects),
            open_connections: value(|s| s.open),
            user_s: cpu.0 - before.0,
            system_s: cpu.1 - before.1,
            histograms,
            groups: groups.iter().map(Sums::row).collect(),
        }
    }

    fn give_back(&self, mut slice: Box<Slice>) {
        slice.clear();
        // A thread that has ended takes nothing back.
        let _ = self.back[slice.thread as usize].send(slice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn slice(thread: u32, index: u64, ok: u64) -> Box<Slice> {
        let mut slice = Slice::new(thread, 0);
        slice.index = index;
        slice.all.counts.ok = ok;
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
            "the last whole row is held back"
        );
        // Thread 1 was stalled: it says nothing of seconds 1 to 3.
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
            "slices go back"
        );
    }

    #[test]
    fn a_thread_that_has_ended_holds_nobody_up() {
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
