//! Times of a mix's groups, accumulated over the measurement: about 2 MiB per group and thread.
//!
//! Times per second would take four times as much memory, and one row would be as long as the
//! result of a whole hour.

use std::collections::BTreeMap;

use floodmark_record::TimeKind;
use floodmark_stats::Histogram;

use crate::clock::Ns;

/// Kinds of times recorded per group. Connect times belong to no group.
pub const KINDS: [TimeKind; 7] = [
    TimeKind::Response,
    TimeKind::Censored,
    TimeKind::Service,
    TimeKind::Blocked,
    TimeKind::Lateness,
    TimeKind::FirstByte,
    TimeKind::Error,
];

/// Times of the groups, recorded by one thread.
#[derive(Debug, Clone, Default)]
pub struct GroupTimes {
    /// Histograms by group and [`TimeKind`]. Kinds that groups do not have stay empty.
    groups: Vec<Vec<Histogram>>,
}

impl GroupTimes {
    /// Creates the times of `groups` groups.
    /// Touches all memory, so that later use does not grow the process.
    #[must_use]
    pub fn new(groups: usize) -> Self {
        let group = || {
            let mut times: Vec<_> = TimeKind::ALL.iter().map(|_| Histogram::new()).collect();
            KINDS.iter().for_each(|kind| times[*kind as usize].clear());
            times
        };
        GroupTimes {
            groups: (0..groups).map(|_| group()).collect(),
        }
    }

    /// Records a time.
    #[inline]
    pub fn record(&mut self, group: u32, kind: TimeKind, ns: Ns) {
        if let Some(times) = self.groups.get_mut(group as usize) {
            times[kind as usize].record(ns);
        }
    }

    /// Adds the times of another thread.
    pub fn merge(&mut self, other: &GroupTimes) {
        let mine = self.groups.iter_mut().flatten();
        for (mine, theirs) in mine.zip(other.groups.iter().flatten()) {
            if !theirs.is_empty() {
                mine.merge(theirs);
            }
        }
    }

    /// Returns the number of recorded times of a kind, summed over all groups.
    #[cfg(test)]
    pub fn count(&self, kind: TimeKind) -> u64 {
        let times = self.groups.iter().map(|times| &times[kind as usize]);
        times.map(Histogram::count).sum()
    }

    /// Encodes the non-empty histograms of each group.
    pub fn encode(&self) -> impl Iterator<Item = BTreeMap<TimeKind, String>> {
        self.groups.iter().map(|times| encode(times))
    }
}

/// Encodes the non-empty histograms of `times`, a list with one histogram per [`TimeKind`].
#[must_use]
pub fn encode(times: &[Histogram]) -> BTreeMap<TimeKind, String> {
    TimeKind::ALL
        .into_iter()
        .zip(times)
        .filter(|(_, times)| !times.is_empty())
        .map(|(kind, times)| (kind, times.encode()))
        .collect()
}
