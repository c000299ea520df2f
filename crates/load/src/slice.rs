//! One load thread's data for a part of a second, and the messages that pass it to the gatherer.

use std::io;

use floodmark_record::ThreadUsage;
use floodmark_record::events::{EndReason, GroupRow, Phase};
use floodmark_record::tls::TlsUse;
use floodmark_stats::Histogram;

use crate::clock::Ns;
use crate::group_times;

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

/// A message from a load thread.
#[derive(Debug)]
pub enum Message {
    /// Thread number, and the numbers of opened and failed connections before the first phase.
    Opening(u32, (u64, u64)),
    /// A phase starts. The message contains the time of the start, and the process's user and kernel CPU
    /// time so far, in seconds.
    Began(Ns, (f64, f64)),
    /// The data of a completed second.
    Slice(Box<Slice>),
    /// Thread number, and the thread's report on a phase.
    End(u32, io::Result<Box<PhaseEnd>>),
}

/// One thread's report on one phase.
#[derive(Debug, Clone)]
pub struct PhaseEnd {
    /// The reason why the phase ended.
    pub reason: EndReason,
    /// Time of the last response in ns from the phase's start: 0 if this response arrived earlier,
    /// `None` if no response arrived.
    pub last_response: Option<Ns>,
    /// End of the thread's sending window in ns from the phase's start.
    pub window: Ns,
    /// Time of the last outcome in ns from the phase's start.
    pub ended: Ns,
    /// The longest stall in ns: the longest delay in returning from a wait or in completing an
    /// iteration.
    pub longest_stall: Ns,
    /// Resources used within the sending window.
    pub usage: ThreadUsage,
    /// TLS statistics. Handshakes are counted from the start of the thread. Cost and bytes cover
    /// only this phase.
    pub tls: Option<TlsUse>,
}

/// Request counts and related sums.
#[derive(Debug, Clone)]
pub struct RequestSums {
    /// All sums except the counts by status, which are in `statuses`.
    pub row: GroupRow,
    /// Number of responses by status code (0–999). With an array, counting takes only one
    /// increment.
    pub statuses: Box<[u64; 1000]>,
}

impl Default for RequestSums {
    fn default() -> Self {
        RequestSums {
            row: GroupRow::default(),
            statuses: Box::new([0; 1000]),
        }
    }
}

impl RequestSums {
    /// Resets the sums, but keeps their memory.
    pub fn clear(&mut self) {
        self.row = GroupRow::default();
        self.statuses.fill(0);
    }

    /// Adds another thread's sums.
    pub fn merge(&mut self, other: &RequestSums) {
        self.row.merge(&other.row);
        for (mine, theirs) in self.statuses.iter_mut().zip(other.statuses.iter()) {
            *mine += theirs;
        }
    }

    /// Converts the sums to a row that includes the counts by status.
    #[must_use]
    pub fn to_row(&self) -> GroupRow {
        let mut row = self.row.clone();
        row.counts.statuses = (0..)
            .zip(self.statuses.iter().copied())
            .filter(|(_, n)| *n > 0)
            .collect();
        row
    }
}
