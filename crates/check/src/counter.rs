//! Checks a counter: every number occurs once, without gaps, and in real-time order.
//!
//! A counter is a fetch-and-increment object. Under concurrency, a counter is correct if its
//! history is *linearizable*: each request takes effect at one moment between being sent and being
//! answered (Herlihy & Wing 1990, "Linearizability", ACM TOPLAS 12(3)). Requests take effect in the
//! order of their numbers, so no search is needed. A history is linearizable if and only if
//!
//! 1. no number occurs twice;
//! 2. no number between the smallest and the largest is missing, except that each request with an
//!    unknown outcome (timed out, reset) may have drawn one;
//! 3. the order of the numbers agrees with real time: if request A was answered before request B
//!    was sent, A has the smaller number.
//!
//! Point 3 needs one scan in number order. The scan tracks the latest send time among the smaller
//! numbers. A number returned before that time was drawn too early. If there is no such number, the
//! requests can take effect in number order. Sorting dominates the cost: O(n log n). Two requests
//! overlap if one is sent in the same nanosecond in which the other is answered. The first number
//! is arbitrary, because the server may have been used before.
//!
//! The check has no false positives, even if some outcomes are unknown. It counts the requests with
//! unknown outcomes and ignores their times.

use floodmark_record::kept::SHOWN;
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::responses::DrawnNumber;
use crate::result::{count, fault, joined, result};

/// Facts about a run that its kept responses do not contain.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckContext<'a> {
    /// Number of requests with an unknown outcome, including requests that were sent twice.
    /// Each of these requests may have drawn a number.
    pub unknown: u64,
    /// Number of responses that are out of order on their connection.
    /// The numbers on a connection must increase.
    pub out_of_order_on_connection: u64,
    /// Descriptions of the first responses that are out of order on their connection.
    pub offenders: &'a [String],
    /// Number of responses with status 2xx or 3xx that the check could not parse.
    pub unreadable: u64,
}

/// Result of a scan in number order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberScan {
    /// The smallest and the largest number.
    pub(crate) range: Option<(u64, u64)>,
    /// Responses that repeat an earlier response's number.
    repeated: Violations,
    /// Numbers missing between the smallest and the largest number, with some of the gaps.
    missing: Violations,
    /// Responses that arrived before the request for a smaller number was sent.
    too_early: Violations,
}

/// Violations of one rule.
#[derive(Debug, Default, PartialEq, Eq)]
struct Violations {
    count: u64,
    /// The first examples, at most [`SHOWN`].
    first: Vec<String>,
}

impl Violations {
    /// Counts `n` violations with one example.
    fn add(&mut self, n: u64, example: impl FnOnce() -> String) {
        self.count += n;
        if self.first.len() < SHOWN {
            self.first.push(example());
        }
    }

    fn fault(&self, nouns: [&str; 2], rule: &str) -> Option<String> {
        let is_complete = self.first.len() < SHOWN;
        fault(self.count, nouns, rule, &self.first, is_complete)
    }
}

/// Scans responses sorted by number. `draw` returns a response's number and times.
pub(crate) fn scan<T>(responses: &[T], draw: impl Fn(&T) -> DrawnNumber) -> NumberScan {
    let mut scan = NumberScan::default();
    let (Some(first), Some(last)) = (responses.first(), responses.last()) else {
        return scan;
    };
    scan.range = Some((draw(first).number, draw(last).number));
    // Among the smaller numbers, the one that was requested last.
    let mut latest: Option<DrawnNumber> = None;
    let mut previous: Option<u64> = None;
    for same in responses.chunk_by(|a, b| draw(a).number == draw(b).number) {
        let number = draw(&same[0]).number;
        if same.len() > 1 {
            let repeated = same.len() as u64 - 1;
            scan.repeated.add(repeated, || show_count(number));
        }
        if let Some(before) = previous.filter(|p| number - p > 1) {
            let (from, to) = (before + 1, number - 1);
            scan.missing.add(to - before, || {
                if from == to {
                    show_count(from)
                } else {
                    format!("{} to {}", show_count(from), show_count(to))
                }
            });
        }
        previous = Some(number);
        let same = same.iter().map(&draw);
        for larger in same.clone() {
            if let Some(smaller) = latest.filter(|s| larger.done_ns < s.sent_ns) {
                scan.too_early.add(1, || {
                    format!(
                        "{} was returned {:.3} ms before {} was requested",
                        show_count(number),
                        (smaller.sent_ns - larger.done_ns) as f64 / 1e6,
                        show_count(smaller.number)
                    )
                });
            }
        }
        // If send times are equal, keep the smaller number.
        let candidates = latest.into_iter().chain(same);
        latest = candidates.reduce(|a, b| if b.sent_ns > a.sent_ns { b } else { a });
    }
    scan
}

/// Describes the faults in the numbers, one string per kind of fault.
pub(crate) fn faults(scan: &NumberScan, context: &CheckContext<'_>) -> Vec<String> {
    let unknown = match context.unknown {
        0 => "no request has".to_owned(),
        n => format!("only {}", count(n, "request has", "requests have")),
    };
    let missing = scan.missing.fault(["number is", "numbers are"], "missing");
    let missing = missing.filter(|_| scan.missing.count > context.unknown);
    let (out_of_order, known) = (context.out_of_order_on_connection, context.offenders.len());
    let faults = [
        scan.repeated
            .fault(["number occurs", "numbers occur"], "more than once"),
        missing.map(|missing| format!("{missing}, but {unknown} an unknown outcome")),
        scan.too_early.fault(
            ["number was returned", "numbers were returned"],
            "before a smaller number was requested",
        ),
        fault(
            out_of_order,
            ["number is", "numbers are"],
            "not larger than the previous number on the same connection",
            context.offenders,
            known as u64 >= out_of_order && known <= SHOWN,
        ),
    ];
    faults.into_iter().flatten().collect()
}

/// Describes correct numbers: "200,000 numbers from 1 to 200,000: each once, no gaps, in order".
pub(crate) fn success(scan: &NumberScan, n: usize, unknown: u64) -> String {
    let (first, last) = scan.range.unwrap_or_default();
    if n == 1 {
        return format!(
            "1 number ({}); no other number to compare it with",
            show_count(first)
        );
    }
    let gaps = match scan.missing.count {
        0 => "no gaps".to_owned(),
        missing => format!(
            "{} missing (explained by {})",
            show_count(missing),
            count(
                unknown,
                "request with an unknown outcome",
                "requests with unknown outcomes"
            )
        ),
    };
    format!(
        "{} numbers from {} to {}: each once, {gaps}, in order",
        show_count(n as u64),
        show_count(first),
        show_count(last)
    )
}

/// Returns the result of a check. The check holds if there are no faults. `content` names the part
/// of a response that is checked. If no response had this part and there are no faults, the check
/// is not evaluated.
pub(crate) fn counter_result(
    name: &str,
    content: &str,
    scan: &NumberScan,
    faults: &[String],
    success: impl FnOnce() -> String,
) -> CheckResult {
    let violation = joined(faults).map(|detail| (detail, Vec::new()));
    let nothing = format!("no response had {content}");
    let nothing = scan.range.is_none().then_some(&*nothing);
    result(name, violation, nothing, success)
}

/// The `sequence` check: all numbers must come from one correct counter. `numbers` may be in any
/// order.
///
/// The result is exact. The check sorts the numbers in place, which takes O(n log n) time and O(1)
/// extra memory.
///
/// The check is not evaluated if there are no numbers.
#[must_use]
pub fn sequence(numbers: &mut [DrawnNumber], context: &CheckContext<'_>) -> CheckResult {
    // Values with equal sort keys are identical, so the unstable sort is deterministic.
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
    counter_result("sequence", "a number", &scan, &faults, || {
        success(&scan, numbers.len(), context.unknown)
    })
}

#[cfg(test)]
#[path = "counter_tests.rs"]
mod tests;
