//! One load thread's data for a part of a second, and the messages that pass it to the gatherer.

use std::collections::BTreeMap;
use std::io;

use floodmark_record::events::{GroupRow, Phase};
use floodmark_record::grpc::GrpcStatus;
use floodmark_record::{TimeKind, WorkerEnd};
use floodmark_stats::Histogram;

use crate::clock::Ns;

/// Length of a row in ns.
pub const ROW_NS: Ns = 1_000_000_000;

/// Number of slices that circulate between a thread and the gatherer.
/// One slice is being filled, one is waiting until its part is complete, one is in transit, and one
/// is spare.
pub const SLICES: usize = 4;

/// Maximum number of earlier parts in a slice. They cover 10 s, or less if the ends of steps
/// shorten parts.
pub const MOST_EARLIER: usize = 100;

/// One thread's data for one part of a row. If no empty slice was available when earlier parts
/// ended, the slice also contains their sums.
#[derive(Debug)]
pub struct Slice {
    /// Index of the thread.
    pub thread: u32,
    /// The phase that contains the part.
    pub phase: Phase,
    /// Index of the part within the phase.
    pub index: u64,
    /// Sums of all requests.
    pub all: RequestSums,
    /// Sums per group; empty without a mix.
    pub groups: Vec<RequestSums>,
    /// Number of connections opened, including those in earlier parts.
    pub connects: u64,
    /// Number of open connections at the end of the slice.
    pub open: u64,
    /// One histogram per [`TimeKind`](floodmark_record::TimeKind), in the order of the enum. They
    /// include the times of earlier parts.
    pub times: Vec<Histogram>,
    /// Sums of earlier parts. Only the first `earlier_count` are used.
    earlier: Vec<PartSums>,
    earlier_count: usize,
}

impl Slice {
    /// Creates an empty slice for `groups` groups.
    pub fn new(thread: u32, groups: usize) -> Self {
        Slice {
            thread,
            phase: Phase::Measure,
            index: 0,
            all: RequestSums::default(),
            groups: vec![RequestSums::default(); groups],
            connects: 0,
            open: 0,
            times: histograms(|_| true),
            earlier: vec![PartSums::new(groups); MOST_EARLIER],
            earlier_count: 0,
        }
    }

    /// Moves the sums of the current part to the earlier parts, and starts part `index`. The counts
    /// by status and the times stay with the current part. Returns false if there are already
    /// [`MOST_EARLIER`] earlier parts.
    pub fn start_part(&mut self, index: u64) -> bool {
        let Some(earlier) = self.earlier.get_mut(self.earlier_count) else {
            return false;
        };
        earlier.index = self.index;
        std::mem::swap(&mut earlier.all, &mut self.all.row);
        for (earlier, group) in earlier.groups.iter_mut().zip(&mut self.groups) {
            std::mem::swap(earlier, &mut group.row);
        }
        self.earlier_count += 1;
        self.index = index;
        true
    }

    /// Returns the sums of the earlier parts, in order.
    pub fn earlier(&self) -> &[PartSums] {
        &self.earlier[..self.earlier_count]
    }

    /// Returns the sums of the current part.
    pub fn sums(&self) -> PartSums {
        PartSums {
            index: self.index,
            all: self.all.to_row(),
            groups: self.group_rows(),
        }
    }

    /// Returns the sums per group; empty without a mix.
    pub fn group_rows(&self) -> Vec<GroupRow> {
        self.groups.iter().map(RequestSums::to_row).collect()
    }

    /// Adds the sums of an earlier part.
    pub fn add(&mut self, part: &PartSums) {
        self.all.row.merge(&part.all);
        for (group, part) in self.groups.iter_mut().zip(&part.groups) {
            group.row.merge(part);
        }
    }

    /// Clears the slice, but keeps its memory.
    pub fn clear(&mut self) {
        self.all.clear();
        self.groups.iter_mut().for_each(RequestSums::clear);
        self.connects = 0;
        self.open = 0;
        let used = self.times.iter_mut().filter(|times| !times.is_empty());
        used.for_each(Histogram::clear);
        self.earlier[..self.earlier_count]
            .iter_mut()
            .for_each(PartSums::clear);
        self.earlier_count = 0;
    }

    /// Adds another slice for the same part or row, without its earlier parts.
    pub fn merge(&mut self, other: &Slice) {
        self.all.merge(&other.all);
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            mine.merge(theirs);
        }
        self.connects += other.connects;
        self.open += other.open;
        merge_times(&mut self.times, &other.times);
    }
}

/// Sums of one part. An earlier part of a [`Slice`] has no counts by status, because they are
/// included in the counts of the slice's current part.
#[derive(Debug, Clone, Default)]
pub struct PartSums {
    /// Index of the part within the phase.
    pub index: u64,
    /// Sums of all requests.
    pub all: GroupRow,
    /// Sums per group; empty without a mix.
    pub groups: Vec<GroupRow>,
}

impl PartSums {
    fn new(groups: usize) -> Self {
        PartSums {
            groups: vec![GroupRow::default(); groups],
            ..PartSums::default()
        }
    }

    fn clear(&mut self) {
        self.all = GroupRow::default();
        self.groups.fill(GroupRow::default());
    }

    /// Adds another thread's sums of the same part.
    pub fn merge(&mut self, other: &PartSums) {
        self.all.merge(&other.all);
        GroupRow::merge_each(&mut self.groups, &other.groups);
    }
}

/// A message from a load thread.
#[derive(Debug)]
pub enum Message {
    /// Index of the thread, and the numbers of connections that it opened and failed to open before
    /// the first phase.
    Opening(u32, (u64, u64)),
    /// A phase starts: start time, and the process's user and kernel CPU time so far, in seconds.
    Began(Ns, (f64, f64)),
    /// The data of a completed part.
    Slice(Box<Slice>),
    /// Index of the thread, and the result of a phase on this thread. Handshakes are counted from
    /// the start of the thread.
    End(u32, io::Result<Box<WorkerEnd>>),
}

/// Request counts and related sums.
#[derive(Debug, Clone)]
pub struct RequestSums {
    /// All sums except the counts by status, which are in the other fields.
    pub row: GroupRow,
    /// Number of responses by status code (0–999). With an array, counting a response takes only
    /// one increment.
    pub statuses: Box<[u64; 1000]>,
    /// Number of responses by [`GrpcStatus`], in the order of the enum.
    pub grpc_statuses: [u64; GrpcStatus::ALL.len()],
}

impl Default for RequestSums {
    fn default() -> Self {
        RequestSums {
            row: GroupRow::default(),
            statuses: Box::new([0; 1000]),
            grpc_statuses: [0; GrpcStatus::ALL.len()],
        }
    }
}

impl RequestSums {
    /// Resets the sums, but keeps their memory.
    pub fn clear(&mut self) {
        self.row = GroupRow::default();
        self.statuses.fill(0);
        self.grpc_statuses.fill(0);
    }

    /// Adds another thread's sums.
    pub fn merge(&mut self, other: &RequestSums) {
        self.row.merge(&other.row);
        let grpc = self.grpc_statuses.iter_mut().zip(&other.grpc_statuses);
        let all = self.statuses.iter_mut().zip(other.statuses.iter());
        for (mine, theirs) in all.chain(grpc) {
            *mine += theirs;
        }
    }

    /// Converts the sums to a row that includes the counts by status.
    pub fn to_row(&self) -> GroupRow {
        let mut row = self.row.clone();
        row.counts.statuses = (0..)
            .zip(self.statuses.iter().copied())
            .filter(|(_, n)| *n > 0)
            .collect();
        let grpc = GrpcStatus::ALL.into_iter().zip(self.grpc_statuses);
        row.counts.grpc_statuses = grpc.filter(|(_, n)| *n > 0).collect();
        row
    }
}

/// The times that one thread recorded for the groups of a mix during the measurement.
///
/// They take about 2 MiB of memory per group and thread. Separate times for each second would take
/// four times as much memory, and would make each row as long as the result of an hour-long run.
#[derive(Debug, Clone, Default)]
pub struct GroupTimes {
    /// Histograms by group and [`TimeKind`]. A histogram stays empty if its group has no such
    /// times.
    groups: Vec<Vec<Histogram>>,
}

impl GroupTimes {
    /// Creates empty histograms for `groups` groups.
    pub fn new(groups: usize) -> Self {
        // The times of connections do not belong to a group.
        let of_requests = |kind| !matches!(kind, TimeKind::Connect | TimeKind::Handshake);
        GroupTimes {
            groups: (0..groups).map(|_| histograms(of_requests)).collect(),
        }
    }

    /// Records a time.
    #[inline]
    pub fn record(&mut self, group: u32, kind: TimeKind, ns: Ns) {
        if let Some(times) = self.groups.get_mut(group as usize) {
            times[kind as usize].record(ns);
        }
    }

    /// Adds another thread's times.
    pub fn merge(&mut self, other: &GroupTimes) {
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            merge_times(mine, theirs);
        }
    }

    /// Returns the number of times recorded for a kind, across all groups.
    #[cfg(test)]
    pub fn count(&self, kind: TimeKind) -> u64 {
        let times = self.groups.iter().map(|times| &times[kind as usize]);
        times.map(Histogram::count).sum()
    }

    /// Encodes the non-empty histograms of each group.
    pub fn encode(&self) -> impl Iterator<Item = BTreeMap<TimeKind, String>> {
        self.groups.iter().map(|times| encode_times(times))
    }
}

/// Returns one empty histogram per [`TimeKind`], in the order of the enum. Prefaults the memory of
/// the kinds that `is_used` selects, so that recording does not increase the process's memory use.
/// Kinds that most loads do not have take memory only when they are recorded.
fn histograms(is_used: impl Fn(TimeKind) -> bool) -> Vec<Histogram> {
    let histogram = |kind| {
        let mut times = Histogram::new();
        let is_rare = matches!(
            kind,
            TimeKind::BlockedConnecting
                | TimeKind::BlockedOwnLimit
                | TimeKind::BlockedServerLimit
                | TimeKind::BlockedRetried
                | TimeKind::Window
                | TimeKind::Ping
        );
        if is_used(kind) && !is_rare {
            times.clear();
        }
        times
    };
    TimeKind::ALL.into_iter().map(histogram).collect()
}

/// Adds the histograms of another thread, which are often empty.
fn merge_times(mine: &mut [Histogram], theirs: &[Histogram]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        if !theirs.is_empty() {
            mine.merge(theirs);
        }
    }
}

/// Encodes the non-empty histograms in `times`, which contains one histogram per [`TimeKind`].
pub(crate) fn encode_times(times: &[Histogram]) -> BTreeMap<TimeKind, String> {
    TimeKind::ALL
        .into_iter()
        .zip(times)
        .filter(|(_, times)| !times.is_empty())
        .map(|(kind, times)| (kind, times.encode()))
        .collect()
}
