//! Totals of a server.

/// Totals of a server from start to shutdown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ServeSummary {
    /// Number of connections accepted and served.
    pub accepted: u64,
    /// Number of responses, including those that refuse a request. hyper's own responses to invalid
    /// heads (400, 431) are not counted.
    pub answered: u64,
    /// Number of connections closed at shutdown before their request or response was complete.
    pub cut_at_end: u64,
    /// The dispatcher's next number.
    pub next_number: Option<u64>,
}

impl ServeSummary {
    /// Adds a worker's totals.
    pub(crate) fn add(&mut self, worker: ServeSummary) {
        self.accepted += worker.accepted;
        self.answered += worker.answered;
        self.cut_at_end += worker.cut_at_end;
    }
}
