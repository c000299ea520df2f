//! The `sequence` check: all numbers must come from one correct counter (see [`crate::counter`]).

use floodmark_record::run::CheckResult;

use crate::counter::{CheckContext, count, faults, result, scan, success};
use crate::responses::DrawnNumber;

/// Checks the numbers of a counter. The numbers may be in any order.
///
/// The result is exact. The check sorts the numbers in place, which takes O(n log n) time and O(1)
/// extra memory.
///
/// The check is not evaluated if there are no numbers.
#[must_use]
pub fn sequence(numbers: &mut [DrawnNumber], context: &CheckContext<'_>) -> CheckResult {
    // Equal triples are interchangeable, so the unstable sort is deterministic.
    numbers.sort_unstable_by_key(|n| (n.number, n.sent_ns, n.done_ns));
    let scan = scan(numbers, |number| *number);
    let mut faults = faults(&scan, context);
    if context.unreadable > 0 {
        faults.push(count(
            context.unreadable,
            "response with status 2xx or 3xx was not a number",
            "responses with status 2xx or 3xx were not numbers",
        ));
    }
    result("sequence", "a number", &scan, faults, || {
        success(&scan, numbers.len(), context.unknown)
    })
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
