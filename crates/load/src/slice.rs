//! What one load thread saw in one second: the piece that it hands to the gatherer.

use floodmark_record::TimeKind;
use floodmark_record::events::Phase;
use floodmark_stats::Histogram;

use crate::clock::Ns;
use crate::sums::Sums;

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
    /// What is counted of all requests.
    pub all: Sums,
    /// The same by group; empty without a mix.
    pub groups: Vec<Sums>,
    /// Connections opened.
    pub connects: u64,
    /// Connections open when the slice was handed over.
    pub open: u64,
    /// One histogram for each [`TimeKind`], in its order.
    pub times: Vec<Histogram>,
}

impl Slice {
    /// An empty slice for `groups` groups, whose memory has been touched, so that later use does not grow the process.
    #[must_use]
    pub fn new(thread: u32, groups: usize) -> Self {
        let mut slice = Slice {
            thread,
            phase: Phase::Measure,
            index: 0,
            all: Sums::default(),
            groups: vec![Sums::default(); groups],
            connects: 0,
            open: 0,
            times: TimeKind::ALL.iter().map(|_| Histogram::new()).collect(),
        };
        slice.clear();
        slice
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.groups.iter_mut().for_each(Sums::clear);
        self.connects = 0;
        self.open = 0;
        self.times.iter_mut().for_each(Histogram::clear);
    }

    /// Adds another thread's slice of the same second.
    pub fn merge(&mut self, other: &Slice) {
        self.all.merge(&other.all);
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            mine.merge(theirs);
        }
        self.connects += other.connects;
        self.open += other.open;
        for (mine, theirs) in self.times.iter_mut().zip(&other.times) {
            if !theirs.is_empty() {
                mine.merge(theirs);
            }
        }
    }
}
