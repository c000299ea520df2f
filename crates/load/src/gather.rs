//! Merges all threads' data into parts and rows. Emits the counts of each part, and each row in
//! compressed form.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use floodmark_record::events::{GroupRow, PartRow, Phase};
use floodmark_record::{Event, SecondRow};

use crate::clock::Ns;
use crate::rows::Rows;
use crate::slice::{PartSums, Slice, encode_times};
use crate::usage::process_cpu;

/// The incomplete rows of one phase.
pub struct Gatherer {
    /// The channels through which threads get back their slices, one per thread.
    pub back: Vec<Sender<Box<Slice>>>,
    /// Rows of the measurement.
    measured: Rows,
    /// Rows of the current phase.
    rows: Rows,
    /// Parts of `rows`.
    parts: Rows,
    phase: Phase,
    /// Parts that are not complete yet.
    pending: BTreeMap<u64, Box<Slice>>,
    /// Sums of incomplete parts that threads passed on together with a later part.
    earlier: BTreeMap<u64, PartSums>,
    /// For each thread, the earliest part that the thread may still report.
    reached: Vec<u64>,
    /// The next part to emit.
    next: u64,
    /// The complete parts of the current row.
    row: Slice,
    /// The process's CPU time at the end of the previous row.
    cpu: (f64, f64),
    /// The process's CPU time at the end of each part that has not been emitted yet.
    cpu_at: BTreeMap<u64, (f64, f64)>,
    /// Sums over all rows in the phase.
    totals: GroupRow,
}

impl Gatherer {
    /// Creates a gatherer for the rows in `measured`. `groups` is the number of groups.
    /// The gatherer returns empty slices to the threads through `back`.
    pub fn new(back: Vec<Sender<Box<Slice>>>, measured: Rows, groups: usize) -> Self {
        let threads = back.len();
        Gatherer {
            back,
            rows: measured.clone(),
            parts: measured.parts(),
            measured,
            phase: Phase::Measure,
            pending: BTreeMap::new(),
            earlier: BTreeMap::new(),
            reached: vec![0; threads],
            next: 0,
            row: Slice::new(0, groups),
            cpu: (0.0, 0.0),
            cpu_at: BTreeMap::new(),
            totals: GroupRow::default(),
        }
    }

    /// Starts a phase. `cpu` contains the process's user and kernel CPU time so far, in seconds.
    pub fn begin(&mut self, phase: Phase, cpu: (f64, f64)) {
        self.phase = phase;
        self.rows = self.measured.in_phase(phase);
        self.parts = self.rows.parts();
        self.pending.clear();
        self.earlier.clear();
        self.reached.fill(0);
        self.next = 0;
        self.row.clear();
        self.cpu = cpu;
        self.cpu_at.clear();
        self.totals = GroupRow::default();
    }

    /// Merges a thread's slice. Returns an event for each part and row that is now complete.
    pub fn take(&mut self, slice: Box<Slice>) -> Vec<Event> {
        let (thread, index) = (slice.thread as usize, slice.index);
        self.reached[thread] = index + 1;
        for part in slice.earlier() {
            self.earlier.entry(part.index).or_default().merge(part);
        }
        match self.pending.get_mut(&index) {
            Some(pending) => {
                pending.merge(&slice);
                self.give_back(slice);
            }
            None => {
                self.pending.insert(index, slice);
            }
        }
        self.complete()
    }

    /// Records that a thread has ended this phase. Returns an event for each part and row that is
    /// now complete.
    pub fn ended(&mut self, thread: u32) -> Vec<Event> {
        self.reached[thread as usize] = u64::MAX;
        self.complete()
    }

    fn complete(&mut self) -> Vec<Event> {
        let whole = self.reached.iter().copied().min().unwrap_or(0);
        if whole == u64::MAX {
            return Vec::new();
        }
        if whole > self.next {
            self.cpu_at.entry(whole - 1).or_insert_with(process_cpu);
        }
        // The last part is not emitted yet, because its length is known only at the end of the
        // phase.
        self.emit_before(whole.saturating_sub(1), Ns::MAX)
    }

    /// Ends the phase after `ended` ns. Returns the remaining events and the sums over the phase.
    pub fn end(&mut self, ended: Ns) -> (Vec<Event>, GroupRow) {
        let last = self
            .pending
            .last_key_value()
            .map_or(self.next, |(index, _)| *index);
        let events = self.emit_before(last + 1, ended);
        (events, std::mem::take(&mut self.totals))
    }

    /// Emits all parts before `end`, and the rows that end with them. The phase ends at `ended`.
    fn emit_before(&mut self, end: u64, ended: Ns) -> Vec<Event> {
        let mut events = Vec::new();
        while self.next < end {
            let is_last = ended < Ns::MAX && self.next + 1 == end;
            let (from_ns, mut to_ns) = self.parts.bounds(self.next);
            let row = self.rows.at(from_ns);
            let ends_row = is_last || to_ns == self.rows.bounds(row).1;
            if is_last {
                to_ns = ended.clamp(from_ns + 1, to_ns);
            }
            let slice = self.pending.remove(&self.next);
            let mut sums = slice.as_ref().map(|slice| slice.sums()).unwrap_or_default();
            if let Some(earlier) = self.earlier.remove(&self.next) {
                sums.merge(&earlier);
                self.row.add(&earlier);
            }
            events.push(Event::Part(PartRow {
                phase: self.phase,
                from_ns,
                to_ns,
                sums: sums.all,
                groups: sums.groups,
            }));
            if let Some(slice) = slice {
                self.row.merge(&slice);
                // The number at the end of the row.
                self.row.open = slice.open;
                self.give_back(slice);
            }
            if ends_row {
                events.push(Event::Second(self.end_row(row, to_ns)));
            }
            self.next += 1;
        }
        events
    }

    fn end_row(&mut self, index: u64, to_ns: Ns) -> SecondRow {
        let cpu = self.cpu_at.remove(&self.next).unwrap_or(self.cpu);
        self.cpu_at = self.cpu_at.split_off(&self.next);
        let before = std::mem::replace(&mut self.cpu, cpu);
        let row = self.row.all.to_row();
        self.totals.merge(&row);
        let ended = SecondRow {
            phase: self.phase,
            index,
            from_ns: self.rows.bounds(index).0,
            to_ns,
            counts: row.counts,
            good: row.good,
            ok_in_window: row.ok_in_window,
            good_in_window: row.good_in_window,
            bytes_sent: row.bytes_sent,
            bytes_received: row.bytes_received,
            connects: self.row.connects,
            open_connections: self.row.open,
            user_s: cpu.0 - before.0,
            system_s: cpu.1 - before.1,
            histograms: encode_times(&self.row.times),
            groups: self.row.group_rows(),
        };
        self.row.clear();
        ended
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
    use crate::rows::PART_NS;
    use std::sync::mpsc::{Receiver, channel};

    fn slice(thread: u32, index: u64, ok: u64) -> Box<Slice> {
        let mut slice = Slice::new(thread, 0);
        slice.index = index;
        slice.all.row.counts.ok = ok;
        for _ in 0..ok {
            slice.times[TimeKind::Response as usize].record(1000);
        }
        Box::new(slice)
    }

    /// Returns a gatherer for two threads, and the channels that return their slices.
    fn gatherer() -> (Gatherer, Vec<Receiver<Box<Slice>>>) {
        let (senders, receivers) = (0..2).map(|_| channel()).unzip();
        let mut gatherer = Gatherer::new(senders, Rows::default(), 0);
        gatherer.begin(Phase::Measure, (0.0, 0.0));
        (gatherer, receivers)
    }

    /// Returns the number of ok responses in each part, and the index and the number of ok
    /// responses of each row.
    fn oks(events: &[Event]) -> (Vec<u64>, Vec<(u64, u64)>) {
        let part = |event: &Event| match event {
            Event::Part(part) => Some(part.sums.counts.ok),
            _ => None,
        };
        let row = |event: &Event| match event {
            Event::Second(row) => Some((row.index, row.counts.ok)),
            _ => None,
        };
        let (parts, rows) = (
            events.iter().filter_map(part),
            events.iter().filter_map(row),
        );
        (parts.collect(), rows.collect())
    }

    #[test]
    fn parts_wait_for_the_slowest_thread_and_add_up() {
        let (mut gatherer, receivers) = gatherer();
        assert!(gatherer.take(slice(0, 0, 1)).is_empty());
        assert!(gatherer.take(slice(0, 1, 2)).is_empty());
        assert!(
            gatherer.take(slice(1, 0, 4)).is_empty(),
            "the last complete part has not been emitted yet"
        );
        // Thread 1 stalled and reports no data for parts 1 to 23.
        assert_eq!(oks(&gatherer.take(slice(1, 24, 8))), (vec![5], vec![]));
        let (events, totals) = gatherer.end(24 * PART_NS + 1);
        let (parts, rows) = oks(&events);
        assert_eq!((parts.len(), parts[0], parts[23]), (24, 2, 8));
        assert_eq!(rows, [(0, 7), (1, 0), (2, 8)]);
        let Some(Event::Second(last)) = events.last() else {
            panic!("the last event is not a row");
        };
        assert_eq!((last.from_ns, last.to_ns), (20 * PART_NS, 24 * PART_NS + 1));
        assert_eq!(totals.counts.ok, 15);
        assert_eq!(
            receivers
                .iter()
                .map(|r| r.try_iter().count())
                .sum::<usize>(),
            4,
            "emptied slices go back to their threads"
        );
    }

    #[test]
    fn earlier_parts_of_a_slice_count_in_their_own_rows() {
        let (mut gatherer, receivers) = gatherer();
        let mut late = slice(0, 8, 1);
        for (index, ok) in [(9, 2), (10, 4), (11, 8)] {
            assert!(late.start_part(index));
            late.all.row.counts.ok = ok;
        }
        assert!(gatherer.take(late).is_empty());
        assert!(gatherer.ended(0).is_empty());
        let (parts, rows) = oks(&gatherer.take(slice(1, 11, 16)));
        assert_eq!((&parts[8..], rows), (&[1, 2, 4][..], vec![(0, 3)]));
        let (events, totals) = gatherer.end(12 * PART_NS);
        assert_eq!(oks(&events), (vec![24], vec![(1, 28)]));
        assert_eq!(totals.counts.ok, 31);
        assert!(receivers[0].try_recv().unwrap().earlier().is_empty());
    }

    #[test]
    fn does_not_wait_for_an_ended_thread() {
        let (mut gatherer, receivers) = gatherer();
        assert!(gatherer.take(slice(1, 0, 1)).is_empty());
        assert!(gatherer.ended(1).is_empty());
        let mut events = Vec::new();
        for index in 0..20 {
            events.extend(gatherer.take(slice(0, index, 1)));
        }
        let (parts, rows) = oks(&events);
        assert_eq!((parts.len(), parts[0], rows), (19, 2, vec![(0, 11)]));
        assert_eq!(
            receivers
                .iter()
                .map(|r| r.try_iter().count())
                .sum::<usize>(),
            20
        );
        assert!(gatherer.ended(0).is_empty());
        let (events, totals) = gatherer.end(20 * PART_NS);
        assert_eq!(oks(&events), (vec![1], vec![(1, 10)]));
        assert_eq!(totals.counts.ok, 21);
    }
}
