//! What one load thread saw in one second: the piece that it hands to the gatherer.

use floodmark_record::events::Phase;
use floodmark_record::{Counts, TimeKind};
use floodmark_stats::Histogram;

use crate::clock::Ns;

/// Length of a row.
pub const ROW_NS: Ns = 1_000_000_000;

/// Slices that go round between a thread and the gatherer: one filling, one held back until its row is whole,
/// one on its way, one spare.
pub const SLICES: usize = 4;

/// What one thread saw in one second.
#[derive(Debug)]
pub struct Slice {
    /// Whose.
    pub thread: u32,
    /// Which phase.
    pub phase: Phase,
    /// Which second of it.
    pub index: u64,
    /// Counts; statuses are in `statuses`.
    pub counts: Counts,
    /// Answers by status code 0–999, kept flat so that counting one is an increment.
    pub statuses: Box<[u64; 1000]>,
    /// Ok answers within their deadline.
    pub good: u64,
    /// Ok answers up to the end of the sending window.
    pub ok_in_window: u64,
    /// Good answers up to the end of the sending window.
    pub good_in_window: u64,
    /// Bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Connections opened.
    pub connects: u64,
    /// Connections open when the slice was handed over.
    pub open: u64,
    /// One histogram for each [`TimeKind`], in its order.
    pub times: Vec<Histogram>,
}

impl Slice {
    /// An empty slice whose memory has been touched, so that later use does not grow the process.
    #[must_use]
    pub fn new(thread: u32) -> Self {
        let mut slice = Slice {
            thread,
            phase: Phase::Measure,
            index: 0,
            counts: Counts::default(),
            statuses: Box::new([0; 1000]),
            good: 0,
            ok_in_window: 0,
            good_in_window: 0,
            bytes_sent: 0,
            bytes_received: 0,
            connects: 0,
            open: 0,
            times: TimeKind::ALL.iter().map(|_| Histogram::new()).collect(),
        };
        slice.clear();
        slice
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.statuses.fill(0);
        self.good = 0;
        self.ok_in_window = 0;
        self.good_in_window = 0;
        self.bytes_sent = 0;
        self.bytes_received = 0;
        self.connects = 0;
        self.open = 0;
        self.times.iter_mut().for_each(Histogram::clear);
    }

    /// Adds another thread's slice of the same second.
    pub fn merge(&mut self, other: &Slice) {
        self.counts.merge(&other.counts);
        for (mine, theirs) in self.statuses.iter_mut().zip(other.statuses.iter()) {
            *mine += theirs;
        }
        self.good += other.good;
        self.ok_in_window += other.ok_in_window;
        self.good_in_window += other.good_in_window;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.connects += other.connects;
        self.open += other.open;
        for (mine, theirs) in self.times.iter_mut().zip(&other.times) {
            if !theirs.is_empty() {
                mine.merge(theirs);
            }
        }
    }

    /// The counts with the status codes filled in.
    #[must_use]
    pub fn whole_counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        counts.statuses = self
            .statuses
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(status, n)| (status as u16, *n))
            .collect();
        counts
    }
}
