//! Accumulates the times of a mix's groups over the measurement. The times take about 2 MiB of
//! memory per group and thread.
//!
//! Separate times for each second would take four times as much memory, and would make each row as
//! long as the result of an hour-long run.

use std::collections::BTreeMap;

use floodmark_record::TimeKind;
use floodmark_stats::Histogram;

use crate::clock::Ns;

/// The times that one thread recorded for the groups.
#[derive(Debug, Clone, Default)]
pub struct GroupTimes {
    /// Histograms by group and [`TimeKind`]. The histograms for kinds that groups lack stay empty.
    groups: Vec<Vec<Histogram>>,
}

impl GroupTimes {
    /// Creates empty times for `groups` groups.
    /// Touches all of their memory in advance, so that recording does not increase the process's
    /// memory.
    #[must_use]
    pub fn new(groups: usize) -> Self {
        let group = || {
            let mut times = histograms();
            for kind in TimeKind::ALL {
                // The times of connections do not belong to a group.
                if !matches!(kind, TimeKind::Connect | TimeKind::Handshake) {
                    times[kind as usize].clear();
                }
            }
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

    /// Adds another thread's times.
    pub fn merge(&mut self, other: &GroupTimes) {
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            merge(mine, theirs);
        }
    }

    /// Returns the number of times recorded for a kind, over all groups.
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

/// Returns one empty histogram per [`TimeKind`], in the order of the enum.
pub(crate) fn histograms() -> Vec<Histogram> {
    TimeKind::ALL.iter().map(|_| Histogram::new()).collect()
}

/// Adds the histograms of another thread, which are often empty.
pub(crate) fn merge(mine: &mut [Histogram], theirs: &[Histogram]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        if !theirs.is_empty() {
            mine.merge(theirs);
        }
    }
}

/// Encodes the non-empty histograms in `times`, which contains one histogram per [`TimeKind`].
#[must_use]
pub fn encode(times: &[Histogram]) -> BTreeMap<TimeKind, String> {
    TimeKind::ALL
        .into_iter()
        .zip(times)
        .filter(|(_, times)| !times.is_empty())
        .map(|(kind, times)| (kind, times.encode()))
        .collect()
}
