//! The result of a test on post-crash images.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use floodmark_host::output::failure_line;

use super::ImageOutcome;
use crate::model::Fate;

/// Maximum number of failures and of different refusals in a report.
const MAX_LISTED: usize = 100;

/// Result of a test on post-crash images.
#[derive(Debug, Clone, Default)]
pub struct ImageReport {
    /// Number of images on which the server was started.
    pub images: u64,
    /// Number of images on which the server returned everything that it had acknowledged.
    pub recovered: u64,
    /// Number of images that the server refused with a message.
    pub refused: u64,
    /// Number of images on which the server lost an acknowledged write, returned something that was
    /// never written, crashed, did not respond, or exited without an error message.
    pub failed: u64,
    /// Number of failed images on which the server crashed.
    pub crashed: u64,
    /// Number of refusals, by the line of the server's message that best explains the refusal.
    pub refusals: BTreeMap<String, u64>,
    /// The first failures, in the order of their crash points.
    pub failures: Vec<ImageFailure>,
    /// Time of the slowest image.
    pub longest: Duration,
    /// Sum of the times per image. Images are tested in parallel.
    pub total: Duration,
    /// Time of the whole test.
    pub elapsed: Duration,
    distinct: HashSet<u64>,
}

/// An image on which the server failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFailure {
    /// Crash point: a position in the trace.
    pub at: u64,
    /// Fates of the effects that were not durable.
    pub fates: Vec<Fate>,
    /// What the server lost, or how it failed.
    pub reason: String,
    /// Effects that were lost, one line each.
    pub missing: Vec<String>,
}

impl ImageReport {
    /// Returns the number of different images.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.distinct.len()
    }

    /// Returns the mean time per image: building it, starting the server and reading back.
    #[must_use]
    pub fn mean(&self) -> Duration {
        match u32::try_from(self.images) {
            Ok(images) if images > 0 => self.total / images,
            _ => Duration::ZERO,
        }
    }

    pub(super) fn add(&mut self, digest: u64, outcome: &ImageOutcome, took: Duration) {
        self.images += 1;
        self.distinct.insert(digest);
        self.total += took;
        self.longest = self.longest.max(took);
        self.failed += u64::from(outcome.failure().is_some());
        match outcome {
            ImageOutcome::Recovered => self.recovered += 1,
            ImageOutcome::Crashed(_) => self.crashed += 1,
            ImageOutcome::Lost(_) | ImageOutcome::Failed(_) => {}
            ImageOutcome::Refused(message) => {
                self.refused += 1;
                let line = failure_line(message).unwrap_or_default();
                if self.refusals.len() < MAX_LISTED || self.refusals.contains_key(&line) {
                    *self.refusals.entry(line).or_default() += 1;
                }
            }
        }
    }

    pub(super) fn add_failure(&mut self, failure: ImageFailure) {
        if self.failures.len() < MAX_LISTED {
            self.failures.push(failure);
        }
    }
}
