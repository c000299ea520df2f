//! One thread's sums for one second, over all requests or over one group.

use floodmark_record::events::GroupRow;

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
