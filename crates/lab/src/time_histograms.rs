//! Histograms by kind of time.

use std::collections::BTreeMap;

use floodmark_record::fine_series::TimeBuckets;
use floodmark_record::{TimeKind, Times};
use floodmark_stats::Histogram;

/// The histograms, by kind of time. A missing histogram counts as empty.
#[derive(Debug, Default)]
pub struct TimeHistograms(BTreeMap<TimeKind, Histogram>);

impl TimeHistograms {
    /// Decodes the histograms for the selected kinds of time. Ignores invalid histograms.
    pub fn decode(texts: &BTreeMap<TimeKind, String>, select: impl Fn(TimeKind) -> bool) -> Self {
        let selected = texts.iter().filter(|(kind, _)| select(**kind));
        let decoded =
            selected.filter_map(|(kind, text)| Some((*kind, Histogram::decode(text).ok()?)));
        Self(decoded.collect())
    }

    /// Decodes the response times and the timeouts.
    pub fn decode_responses(texts: &BTreeMap<TimeKind, String>) -> Self {
        Self::decode(texts, |kind| {
            matches!(kind, TimeKind::Response | TimeKind::Censored)
        })
    }

    /// Adds the values of other histograms.
    pub fn merge(&mut self, other: &Self) {
        for (kind, histogram) in &other.0 {
            self.0.entry(*kind).or_default().merge(histogram);
        }
    }

    /// Returns the shortest time of a kind, in ns.
    pub fn min_ns(&self, kind: TimeKind) -> Option<u64> {
        self.0.get(&kind)?.min()
    }

    /// Returns the distribution of one kind of time, or `None` without times.
    pub fn buckets(&self, kind: TimeKind) -> Option<TimeBuckets> {
        TimeBuckets::of(self.0.get(&kind)?.recorded())
    }

    /// Returns a summary of one kind of time. Response times include the timeouts.
    pub fn summary(&self, kind: TimeKind) -> Times {
        let empty = Histogram::new();
        let of = |kind| self.0.get(&kind).unwrap_or(&empty);
        let censored = match kind {
            TimeKind::Response => of(TimeKind::Censored),
            _ => &empty,
        };
        Histogram::summarise(of(kind), censored)
    }
}
