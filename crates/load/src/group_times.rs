//! Times of the groups of a mix, counted up over a whole measurement: about 2 MiB for each group and thread. Second by second they
//! would be four times that, and a row as long as an hour's.

use floodmark_record::TimeKind;
use floodmark_stats::Histogram;

use crate::clock::Ns;

/// The times that a group has; a connection is no group's own.
pub const KINDS: [TimeKind; 7] = [
    TimeKind::Response,
    TimeKind::Censored,
    TimeKind::Service,
    TimeKind::Blocked,
    TimeKind::Lateness,
    TimeKind::FirstByte,
    TimeKind::Error,
];

/// One thread's.
#[derive(Debug, Clone, Default)]
pub struct GroupTimes {
    /// By group and [`TimeKind`], in its order; a kind that no group has stays empty.
    groups: Vec<Vec<Histogram>>,
}

impl GroupTimes {
    /// Times of `groups` groups, whose memory has been touched, so that later use does not grow the process.
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

    /// Counts a time.
    #[inline]
    pub fn record(&mut self, group: u32, kind: TimeKind, ns: Ns) {
        if let Some(times) = self.groups.get_mut(group as usize) {
            times[kind as usize].record(ns);
        }
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &GroupTimes) {
        let mine = self.groups.iter_mut().flatten();
        for (mine, theirs) in mine.zip(other.groups.iter().flatten()) {
            if !theirs.is_empty() {
                mine.merge(theirs);
            }
        }
    }

    /// How many times of a kind all groups have.
    #[cfg(test)]
    pub fn count(&self, kind: TimeKind) -> u64 {
        let times = self.groups.iter().map(|times| &times[kind as usize]);
        times.map(Histogram::count).sum()
    }

    /// By group, what is not empty, as text.
    pub fn encode(&self) -> impl Iterator<Item = std::collections::BTreeMap<TimeKind, String>> {
        self.groups.iter().map(|times| {
            TimeKind::ALL
                .into_iter()
                .zip(times)
                .filter(|(_, times)| !times.is_empty())
                .map(|(kind, times)| (kind, times.encode()))
                .collect()
        })
    }
}
