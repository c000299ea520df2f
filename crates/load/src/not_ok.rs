//! Keeps the body of the first response with each status that is not ok.

use std::collections::BTreeMap;

use floodmark_record::outcome::{MAX_EXCERPT, MAX_STATUSES, NotOkResponse};
use floodmark_wire::Reader;

/// Maximum length of a kept body in bytes. One byte more than the excerpt shows that a body is
/// longer.
pub const MAX_KEPT: usize = MAX_EXCERPT + 1;

/// Bodies kept by one thread, by status. Only a new status allocates memory.
#[derive(Debug, Default)]
pub struct NotOkBodies(BTreeMap<u16, Vec<u8>>);

impl NotOkBodies {
    /// Returns whether the body of a response with this status is still needed.
    #[must_use]
    pub fn wants(&self, status: u16) -> bool {
        self.0.len() < MAX_STATUSES && !self.0.contains_key(&status)
    }

    /// Keeps the start of a body.
    #[cold]
    pub fn keep(&mut self, status: u16, body: &[u8]) {
        let body = body.get(..MAX_KEPT).unwrap_or(body);
        self.0.insert(status, body.to_vec());
    }

    /// Combines the bodies of all threads.
    #[must_use]
    pub fn join<'a>(all: impl Iterator<Item = &'a Self>) -> Vec<NotOkResponse> {
        let mut first: BTreeMap<u16, &[u8]> = BTreeMap::new();
        for (status, body) in all.flat_map(|bodies| &bodies.0) {
            first.entry(*status).or_insert(body);
        }
        let first = first.into_iter().take(MAX_STATUSES);
        first
            .map(|(status, body)| NotOkResponse::new(status, body))
            .collect()
    }
}

/// Extracts the beginning of the body from the first bytes of a response.
#[cold]
#[must_use]
pub fn body_in(data: &[u8], to_head: bool) -> Vec<u8> {
    let (mut reader, mut body) = (Reader::new(), Vec::new());
    reader.expect_response(to_head);
    // The connection's own reader has reported any error.
    let _ = reader.feed(data, &mut body);
    body.truncate(MAX_KEPT);
    body
}
