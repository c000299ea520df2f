//! One load thread's data for a part of a second, as passed to the gatherer.

use floodmark_record::events::{GroupRow, Phase};
use floodmark_stats::Histogram;

use crate::clock::Ns;
use crate::group_times;
use crate::sums::RequestSums;

/// Length of a row in ns.
pub const ROW_NS: Ns = 1_000_000_000;

/// Number of slices that circulate between a thread and the gatherer.
/// One slice is being filled, one is waiting until its part is complete, one is in transit, and one
/// is spare.
pub const SLICES: usize = 4;

/// One thread's data for one part of a row.
#[derive(Debug)]
pub struct Slice {
    /// Thread number.
    pub thread: u32,
    /// The phase that contains the part.
    pub phase: Phase,
    /// Index of the part within the phase.
    pub index: u64,
    /// Sums of all requests.
    pub all: RequestSums,
    /// Sums per group; empty without a mix.
    pub groups: Vec<RequestSums>,
    /// Connections opened.
    pub connects: u64,
    /// Number of open connections at the end of the slice.
    pub open: u64,
    /// One histogram per [`TimeKind`](floodmark_record::TimeKind), in the order of the enum.
    pub times: Vec<Histogram>,
}

impl Slice {
    /// Creates an empty slice for `groups` groups.
    /// Touches all of its memory in advance, so that recording does not increase the process's
    /// memory.
    #[must_use]
    pub fn new(thread: u32, groups: usize) -> Self {
        let mut slice = Slice {
            thread,
            phase: Phase::Measure,
            index: 0,
            all: RequestSums::default(),
            groups: vec![RequestSums::default(); groups],
            connects: 0,
            open: 0,
            times: group_times::histograms(),
        };
        slice.clear();
        slice
    }

    /// Clears the slice, but keeps its memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.groups.iter_mut().for_each(RequestSums::clear);
        self.connects = 0;
        self.open = 0;
        self.times.iter_mut().for_each(Histogram::clear);
    }

    /// Returns the sums per group; empty without a mix.
    #[must_use]
    pub fn group_rows(&self) -> Vec<GroupRow> {
        self.groups.iter().map(RequestSums::to_row).collect()
    }

    /// Adds another slice for the same part or row.
    pub fn merge(&mut self, other: &Slice) {
        self.all.merge(&other.all);
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            mine.merge(theirs);
        }
        self.connects += other.connects;
        self.open += other.open;
        group_times::merge(&mut self.times, &other.times);
    }
}
