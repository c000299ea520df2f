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
use floodmark_record::units::show_count;

use crate::responses::DrawnNumber;

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
    /// Number of ok responses that the check could not parse.
    pub unreadable: u64,
}

/// Result of a scan in number order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberScan {
    /// The smallest and the largest number.
    pub(crate) range: Option<(u64, u64)>,
    /// Count of responses that repeat an earlier response's number.
    repeated: u64,
    first_repeated: Vec<u64>,
    /// Count of numbers missing between the smallest and the largest number.
    missing: u64,
    /// The first gaps, each as its first and last missing number.
    first_missing: Vec<(u64, u64)>,
    /// Count of responses that arrived before the request for a smaller number was sent.
    too_early: u64,
    /// The first examples: larger number, smaller number, and the time in ns by which the larger
    /// number was too early.
    first_too_early: Vec<(u64, u64, u64)>,
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
            scan.repeated += same.len() as u64 - 1;
            keep_first(&mut scan.first_repeated, number);
        }
        if let Some(before) = previous.filter(|p| number - p > 1) {
            scan.missing += number - before - 1;
            keep_first(&mut scan.first_missing, (before + 1, number - 1));
        }
        previous = Some(number);
        let same = same.iter().map(&draw);
        for larger in same.clone() {
            if let Some(smaller) = latest.filter(|s| larger.done_ns < s.sent_ns) {
                scan.too_early += 1;
                let by_ns = smaller.sent_ns - larger.done_ns;
                keep_first(&mut scan.first_too_early, (number, smaller.number, by_ns));
            }
        }
        // If send times are equal, keep the smaller number.
        let candidates = latest.into_iter().chain(same);
        latest = candidates.reduce(|a, b| if b.sent_ns > a.sent_ns { b } else { a });
    }
    scan
}

/// Adds an example unless [`SHOWN`] examples are already kept.
pub(crate) fn keep_first<T>(kept: &mut Vec<T>, example: T) {
    if kept.len() < SHOWN {
        kept.push(example);
    }
}

/// Describes the faults in the numbers, one string per kind of fault.
pub(crate) fn faults(scan: &NumberScan, context: &CheckContext<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    if scan.repeated > 0 {
        let examples = scan.first_repeated.iter().map(|n| show_count(*n));
        faults.push(format!(
            "{} more than once ({})",
            count(scan.repeated, "number occurs", "numbers occur"),
            list(examples, scan.first_repeated.len() < SHOWN)
        ));
    }
    if scan.missing > context.unknown {
        let examples = scan
            .first_missing
            .iter()
            .map(|(from, to)| match from == to {
                true => show_count(*from),
                false => format!("{} to {}", show_count(*from), show_count(*to)),
            });
        faults.push(format!(
            "{} missing ({}), but {}",
            count(scan.missing, "number is", "numbers are"),
            list(examples, scan.first_missing.len() < SHOWN),
            match context.unknown {
                0 => "no request has an unknown outcome".to_owned(),
                n => format!(
                    "only {} an unknown outcome",
                    count(n, "request has", "requests have")
                ),
            }
        ));
    }
    if scan.too_early > 0 {
        let examples = scan.first_too_early.iter().map(|(larger, smaller, by_ns)| {
            format!(
                "{} was returned {:.3} ms before {} was requested",
                show_count(*larger),
                *by_ns as f64 / 1e6,
                show_count(*smaller)
            )
        });
        faults.push(format!(
            "{} before a smaller number was requested ({})",
            count(
                scan.too_early,
                "number was returned",
                "numbers were returned"
            ),
            list(examples, scan.first_too_early.len() < SHOWN)
        ));
    }
    let out_of_order = context.out_of_order_on_connection;
    if out_of_order > 0 {
        let known = context.offenders.len();
        faults.push(format!(
            "{} not larger than the previous number on the same connection ({})",
            count(out_of_order, "number is", "numbers are"),
            list(
                context.offenders.iter().take(SHOWN).cloned(),
                known as u64 >= out_of_order && known <= SHOWN
            )
        ));
    }
    faults
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
    let gaps = match scan.missing {
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

/// Formats a count with its noun.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(n), if n == 1 { one } else { many })
}

/// Lists examples. `all` is true if the list is complete.
pub(crate) fn list(examples: impl Iterator<Item = String>, all: bool) -> String {
    let text = examples.collect::<Vec<_>>().join(", ");
    match (all, text.is_empty()) {
        (_, true) => "no examples kept".to_owned(),
        (true, false) => text,
        (false, false) => format!("first: {text}"),
    }
}
