//! The `counter` check: each counter counts every acknowledged increment exactly once.
//!
//! Increments add one. Two kinds of responses are checked, for each key:
//!
//! - If an increment returns the counter's new value, the values must be those of a correct counter
//!   ([`crate::counter`]): each once, without gaps, and in real-time order. This check is exact.
//! - A read must return at least the number of increments that were acknowledged before the read
//!   was sent, and at most the number of increments that were sent before the read was answered. A
//!   later read must not return less than an earlier one. These rules have no false positives, but
//!   among concurrent increments they can miss a violation.
//!
//! The counter's initial value is arbitrary, so the reads of a key must agree on one initial value.

use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::counter::{CheckContext, faults, scan};
use crate::responses::DrawnNumber;
use crate::result::{count, history, result};

/// Checks the increments and reads of all counters. The operations may be in any order.
/// `returns_value` tells whether the value of an acknowledged increment is the counter value that
/// the server returned.
///
/// The check sorts the operations in place. It also allocates 16 bytes per operation, but only for
/// one key at a time. The check is not evaluated if there are no values.
pub fn increments(operations: &mut [KeptOperation], returns_value: bool) -> CheckResult {
    operations.sort_unstable_by_key(|o| (o.key(), o.kind(), o.value(), o.0));
    let (mut keys, mut faulty, mut values) = (0u64, 0u64, 0u64);
    let mut first: Option<(String, Vec<String>)> = None;
    for of_key in operations.chunk_by(|a, b| a.key() == b.key()) {
        keys += 1;
        let counter = CounterHistory::of(of_key, returns_value);
        values += counter.observed().count() as u64;
        let Some((what, marked)) = counter.fault() else {
            continue;
        };
        faulty += 1;
        if first.is_none() {
            let what = format!("key {}: {what}", show_count(of_key[0].key()));
            first = Some((what, history(of_key, &marked, |kind| counter.verb(kind))));
        }
    }
    let violation = first.map(|(what, history)| {
        let of_keys = count(keys, "counter is", "counters are");
        let faulty = show_count(faulty);
        let detail = format!("{faulty} of {of_keys} wrong; first violation: {what}");
        (detail, history)
    });
    let nothing = (values == 0).then_some("no response had a value");
    result("counter", violation, nothing, || {
        let acknowledged = operations
            .iter()
            .filter(|o| o.kind() == OperationKind::Acknowledged);
        format!(
            "{} of {}: every acknowledged increment is reflected in the {} returned",
            count(acknowledged.count() as u64, "increment", "increments"),
            count(keys, "counter", "counters"),
            count(values, "value", "values")
        )
    })
}

/// The operations on one counter.
struct CounterHistory<'a> {
    reads: &'a [KeptOperation],
    /// Acknowledged increments, sorted by value.
    acknowledged: &'a [KeptOperation],
    unknown: &'a [KeptOperation],
    returns_value: bool,
}

impl<'a> CounterHistory<'a> {
    /// Takes the operations of a key, sorted by kind and value.
    fn of(operations: &'a [KeptOperation], returns_value: bool) -> Self {
        let from = |kind| operations.partition_point(|o| o.kind() < kind);
        let acknowledged = from(OperationKind::Acknowledged);
        let (refused, unknown) = (from(OperationKind::Refused), from(OperationKind::Unknown));
        CounterHistory {
            reads: &operations[..acknowledged],
            acknowledged: &operations[acknowledged..refused],
            unknown: &operations[unknown..],
            returns_value,
        }
    }

    /// Returns the words that describe an increment in a history. Only an acknowledged increment is
    /// shown with the value that the server returned.
    fn verb(&self, kind: OperationKind) -> &'static str {
        if self.returns_value && kind == OperationKind::Acknowledged {
            "increment to"
        } else {
            "increment by request"
        }
    }

    /// Returns the operations that observed a value.
    fn observed(&self) -> impl Iterator<Item = &'a KeptOperation> {
        let increments = if self.returns_value {
            self.acknowledged
        } else {
            &[]
        };
        self.reads.iter().chain(increments)
    }

    /// Returns a violation and the operations that prove it, if there is one.
    fn fault(&self) -> Option<(String, Vec<KeptOperation>)> {
        let drawn = self.returns_value.then(|| self.wrong_values()).flatten();
        drawn
            .or_else(|| self.decrease())
            .or_else(|| self.out_of_bounds())
    }

    /// Checks the values that increments returned.
    fn wrong_values(&self) -> Option<(String, Vec<KeptOperation>)> {
        let scan = scan(self.acknowledged, drawn);
        let context = CheckContext {
            unknown: self.unknown.len() as u64,
            ..CheckContext::default()
        };
        let faults = faults(&scan, &context);
        if faults.is_empty() {
            return None;
        }
        let pairs = || self.acknowledged.windows(2).map(|pair| [pair[0], pair[1]]);
        let repeated = pairs().find(|[a, b]| a.value() == b.value());
        let missing = || pairs().find(|[a, b]| b.value() - a.value() > 1);
        let pair = repeated.or_else(|| self.too_early()).or_else(missing);
        Some((faults.join("; "), pair.map_or_else(Vec::new, Vec::from)))
    }

    /// Finds an increment that was answered before an increment to a smaller value was sent.
    /// Returns the latter first.
    fn too_early(&self) -> Option<[KeptOperation; 2]> {
        let mut latest = self.acknowledged.first()?;
        for increment in self.acknowledged {
            if increment.done_ns() < latest.sent_ns() {
                return Some([*latest, *increment]);
            }
            if increment.sent_ns() > latest.sent_ns() {
                latest = increment;
            }
        }
        None
    }

    /// Finds a value that is smaller than a value returned before its request was sent.
    fn decrease(&self) -> Option<(String, Vec<KeptOperation>)> {
        let mut by_sent: Vec<&KeptOperation> = self.observed().collect();
        let mut by_done = by_sent.clone();
        by_sent.sort_unstable_by_key(|o| o.sent_ns());
        by_done.sort_unstable_by_key(|o| o.done_ns());
        let mut done = by_done.into_iter().peekable();
        let mut largest: Option<&KeptOperation> = None;
        for later in by_sent {
            while let Some(earlier) = done.next_if(|o| o.done_ns() < later.sent_ns()) {
                if largest.is_none_or(|largest| observed(earlier) > observed(largest)) {
                    largest = Some(earlier);
                }
            }
            if let Some(largest) = largest.filter(|largest| observed(largest) > observed(later)) {
                let what = format!(
                    "a request returned {} after another had returned {}",
                    show_count(observed(later)),
                    show_count(observed(largest))
                );
                return Some((what, vec![*largest, *later]));
            }
        }
        None
    }

    /// Finds two reads that imply contradictory initial values of the counter.
    fn out_of_bounds(&self) -> Option<(String, Vec<KeptOperation>)> {
        let mut done: Vec<u64> = self
            .acknowledged
            .iter()
            .map(KeptOperation::done_ns)
            .collect();
        let possible = self.acknowledged.iter().chain(self.unknown);
        let mut sent: Vec<u64> = possible.map(KeptOperation::sent_ns).collect();
        done.sort_unstable();
        sent.sort_unstable();
        let bounds = |read: &KeptOperation| {
            let at_least = done.partition_point(|done| *done < read.sent_ns());
            let at_most = sent.partition_point(|sent| *sent <= read.done_ns());
            (at_least as i128, at_most as i128)
        };
        let value = |read: &KeptOperation| i128::from(observed(read));
        // Each read bounds the first value: `low ≤ first ≤ high`.
        let low = |read: &KeptOperation| value(read) - bounds(read).1;
        let high = |read: &KeptOperation| value(read) - bounds(read).0;
        let largest_low = self.reads.iter().max_by_key(|read| low(read))?;
        let smallest_high = self.reads.iter().min_by_key(|read| high(read))?;
        let first = low(largest_low).max(0);
        if first <= high(smallest_high) {
            return None;
        }
        let is_excess =
            low(largest_low) == first && largest_low.sent_ns() > smallest_high.sent_ns();
        let (read, limit, expected) = if is_excess {
            let most = high(smallest_high).max(0) + bounds(largest_low).1;
            (largest_low, "most", most)
        } else {
            (smallest_high, "least", first + bounds(smallest_high).0)
        };
        let what = format!(
            "a read returned {} instead of at {limit} {}",
            show_count(observed(read)),
            show_count(u64::try_from(expected).unwrap_or(0))
        );
        let marked = if low(largest_low) == first {
            vec![*largest_low, *smallest_high]
        } else {
            vec![*smallest_high]
        };
        Some((what, marked))
    }
}

/// Returns the counter value that an operation observed. A counter that does not exist yet has the
/// value 0.
fn observed(operation: &KeptOperation) -> u64 {
    match operation.kind() {
        OperationKind::ReadNothing => 0,
        _ => operation.value(),
    }
}

fn drawn(operation: &KeptOperation) -> DrawnNumber {
    DrawnNumber {
        number: operation.value(),
        sent_ns: operation.sent_ns(),
        done_ns: operation.done_ns(),
    }
}

#[cfg(test)]
#[path = "increments_tests.rs"]
mod tests;
