//! Adds the events of several threads or workers that send one load.

use std::collections::BTreeMap;

use crate::events::{AddressUse, HeldConnections, PartRow, SecondRow};
use crate::groups::GroupRow;

impl PartRow {
    /// Adds the same part of another worker. The part ends with the longer one of both.
    pub fn merge(&mut self, other: &PartRow) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.to_ns = self.to_ns.max(other.to_ns);
        self.sums.merge(&other.sums);
        GroupRow::merge_each(&mut self.groups, &other.groups);
    }
}

impl SecondRow {
    /// Returns the sum of the parts of one second as a row, or `None` if `parts` is empty.
    /// Connections, CPU times and histograms are unknown, so they are 0 or empty.
    #[must_use]
    pub fn of_parts(parts: &[PartRow], index: u64) -> Option<Self> {
        let mut sum = parts.first()?.clone();
        parts[1..].iter().for_each(|part| sum.merge(part));
        Some(SecondRow {
            phase: sum.phase,
            index,
            from_ns: sum.from_ns,
            to_ns: sum.to_ns,
            counts: sum.sums.counts,
            good: sum.sums.good,
            ok_in_window: sum.sums.ok_in_window,
            good_in_window: sum.sums.good_in_window,
            bytes_sent: sum.sums.bytes_sent,
            bytes_received: sum.sums.bytes_received,
            connects: 0,
            open_connections: 0,
            user_s: 0.0,
            system_s: 0.0,
            histograms: BTreeMap::new(),
            groups: sum.groups,
        })
    }

    /// Adds the same second of another worker, except its histograms. The row ends with the longer
    /// one of both.
    pub fn merge(&mut self, other: &SecondRow) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.to_ns = self.to_ns.max(other.to_ns);
        self.counts.merge(&other.counts);
        self.good += other.good;
        self.ok_in_window += other.ok_in_window;
        self.good_in_window += other.good_in_window;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.connects += other.connects;
        self.open_connections += other.open_connections;
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        GroupRow::merge_each(&mut self.groups, &other.groups);
    }
}

impl HeldConnections {
    /// Adds the held connections of another worker, which opened them at the same time.
    pub fn merge(&mut self, other: &HeldConnections) {
        self.standing += other.standing;
        self.failed += other.failed;
        add_counts(&mut self.reasons, &other.reasons);
        self.lost += other.lost;
        self.reopened += other.reopened;
        self.opening_ns = self.opening_ns.max(other.opening_ns);
    }
}

impl AddressUse {
    /// Adds another worker's use of the same address.
    /// An address that any worker reached does not count as left out.
    pub fn merge(&mut self, other: &AddressUse) {
        self.opened += other.opened;
        self.moved += other.moved;
        let reason = self.left_out.take().or_else(|| other.left_out.clone());
        self.left_out = reason.filter(|_| self.opened == 0);
    }
}

/// Adds counts by name to a sum.
pub fn add_counts(sum: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, n) in counts {
        *sum.entry(name.clone()).or_default() += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Phase;

    fn part(from_ns: u64, to_ns: u64, ok: u64, groups: &[u64]) -> PartRow {
        let row = |ok: u64| {
            let mut row = GroupRow::default();
            row.counts.ok = ok;
            row
        };
        PartRow {
            phase: Phase::Measure,
            from_ns,
            to_ns,
            sums: row(ok),
            groups: groups.iter().copied().map(row).collect(),
        }
    }

    #[test]
    fn a_row_of_parts_covers_all_parts() {
        assert_eq!(SecondRow::of_parts(&[], 3), None);
        let parts = [part(0, 100, 1, &[]), part(100, 150, 6, &[4, 2])];
        let row = SecondRow::of_parts(&parts, 3).unwrap();
        assert_eq!((row.index, row.from_ns, row.to_ns), (3, 0, 150));
        let groups: Vec<u64> = row.groups.iter().map(|group| group.counts.ok).collect();
        assert_eq!((row.counts.ok, groups), (7, vec![4, 2]));
    }

    #[test]
    fn a_merged_row_ends_with_the_longer_row() {
        let mut sum = SecondRow::of_parts(&[part(0, 100, 1, &[1])], 0).unwrap();
        let other = SecondRow::of_parts(&[part(0, 90, 2, &[0, 2])], 0).unwrap();
        sum.merge(&other);
        assert_eq!((sum.to_ns, sum.counts.ok, sum.groups.len()), (100, 3, 2));
    }

    #[test]
    fn an_address_that_a_worker_reached_is_not_left_out() {
        let of = |opened, left_out: Option<&str>| AddressUse {
            address: "127.0.0.1:80".to_owned().try_into().unwrap(),
            opened,
            moved: 1,
            left_out: left_out.map(str::to_owned),
        };
        let mut unreached = of(0, None);
        unreached.merge(&of(0, Some("connect_refused")));
        assert_eq!(unreached.left_out.as_deref(), Some("connect_refused"));
        unreached.merge(&of(2, None));
        unreached.merge(&of(0, Some("connect_refused")));
        assert_eq!(
            unreached,
            AddressUse {
                moved: 4,
                ..of(2, None)
            }
        );
    }
}
