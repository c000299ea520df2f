//! What one thread counts in one second, of all requests or of one group.

use floodmark_record::Counts;
use floodmark_record::groups::GroupRow;

/// Counts, and what goes with them.
#[derive(Debug, Clone)]
pub struct Sums {
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
}

impl Default for Sums {
    fn default() -> Self {
        Sums {
            counts: Counts::default(),
            statuses: Box::new([0; 1000]),
            good: 0,
            ok_in_window: 0,
            good_in_window: 0,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }
}

impl Sums {
    /// Empties them, keeping their memory.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.statuses.fill(0);
        self.good = 0;
        self.ok_in_window = 0;
        self.good_in_window = 0;
        self.bytes_sent = 0;
        self.bytes_received = 0;
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Sums) {
        self.counts.merge(&other.counts);
        for (mine, theirs) in self.statuses.iter_mut().zip(other.statuses.iter()) {
            *mine += theirs;
        }
        self.good += other.good;
        self.ok_in_window += other.ok_in_window;
        self.good_in_window += other.good_in_window;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    /// All of it as a row has it, with the status codes filled in.
    #[must_use]
    pub fn row(&self) -> GroupRow {
        let mut counts = self.counts.clone();
        counts.statuses = self
            .statuses
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(status, n)| (status as u16, *n))
            .collect();
        GroupRow {
            counts,
            good: self.good,
            ok_in_window: self.ok_in_window,
            good_in_window: self.good_in_window,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
        }
    }
}
