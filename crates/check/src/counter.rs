//! Correctness of a counter: every number once, without gaps, in real-time order.
//!
//! A counter is a fetch-and-increment object. Under concurrency, a counter is correct if its
//! history is *linearizable*: each request takes effect at one moment between being sent and being
//! answered (Herlihy & Wing 1990, "Linearizability", ACM TOPLAS 12(3)). The order of effects is the
//! order of the numbers, so no search is needed. A history is linearizable exactly if
//!
//! 1. no number occurs twice;
//! 2. no number between the smallest and the largest is missing, except that each request with an
//!    unknown outcome (timed out, reset) may have drawn one;
//! 3. the order of numbers agrees with real time: a request answered before another one was sent
//!    has the smaller number.
//!
//! Point 3 needs one scan in the order of numbers, which keeps the latest send time of all smaller
//! numbers. A number answered before that time was drawn too early. Without such a number, moments
//! of effect can be chosen in the order of numbers. Sorting dominates the cost: O(n log n). Equal
//! nanoseconds count as overlap. The first number is arbitrary, because the server may have been
//! used before.
//!
//! If some outcomes are unknown, the check still has no false positives. It counts the requests
//! with unknown outcomes, and ignores their times.

use floodmark_record::kept::SHOWN;
use floodmark_record::units::show_count;

use crate::responses::DrawnNumber;

/// Facts about a run besides its kept responses.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckContext<'a> {
    /// Number of requests with an unknown outcome, each of which may have drawn a number.
    /// This includes requests that were sent twice.
    pub unknown: u64,
    /// Number of responses whose number did not exceed the previous one on their connection.
    pub out_of_order_on_connection: u64,
    /// Descriptions of the first responses that are out of order on their connection.
    pub offenders: &'a [String],
    /// Number of ok responses that the check could not read.
    pub unreadable: u64,
}

/// Result of a scan in number order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberScan {
    /// The smallest and the largest number.
    pub(crate) range: Option<(u64, u64)>,
    /// Number of responses that repeat the number of an earlier one.
    repeated: u64,
    first_repeated: Vec<u64>,
    /// Number of missing numbers between the smallest and the largest.
    missing: u64,
    /// The first ranges of missing numbers, each with its first and last number.
    first_missing: Vec<(u64, u64)>,
    /// Number of responses that arrived before a smaller number was requested.
    too_early: u64,
    /// Larger number, smaller number, and the time in ns by which the larger one was too early.
    first_too_early: Vec<(u64, u64, u64)>,
}

/// Scans responses that are sorted by number. `draw` returns the number and times of a response.
pub(crate) fn scan<T>(responses: &[T], draw: impl Fn(&T) -> DrawnNumber) -> NumberScan {
    let mut scan = NumberScan::default();
    let (Some(first), Some(last)) = (responses.first(), responses.last()) else {
        return scan;
    };
    scan.range = Some((draw(first).number, draw(last).number));
    // The strictly smaller number with the latest send time.
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
        // Choose the first number with the latest send time.
        let candidates = latest.into_iter().chain(same);
        latest = candidates.reduce(|a, b| if b.sent_ns > a.sent_ns { b } else { a });
    }
    scan
}

/// Keeps an example if fewer than [`SHOWN`] are kept.
pub(crate) fn keep_first<T>(kept: &mut Vec<T>, example: T) {
    if kept.len() < SHOWN {
        kept.push(example);
    }
}

/// Describes each kind of fault in the numbers.
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
            "{} before a smaller one was requested ({})",
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
            "{} not larger than the one before on the same connection ({})",
            count(out_of_order, "number is", "numbers are"),
            list(
                context.offenders.iter().take(SHOWN).cloned(),
                known as u64 >= out_of_order && known <= SHOWN
            )
        ));
    }
    faults
}

/// Describes correct numbers: "200,000 numbers, 1 to 200,000, each once, no gap, in order".
pub(crate) fn success(scan: &NumberScan, n: usize, unknown: u64) -> String {
    let (first, last) = scan.range.unwrap_or_default();
    if n == 1 {
        return format!(
            "1 number, {}: nothing to compare it with",
            show_count(first)
        );
    }
    let gaps = match scan.missing {
        0 => "no gap".to_owned(),
        missing => format!(
            "{} missing, explained by {} with unknown outcome",
            show_count(missing),
            count(unknown, "request", "requests")
        ),
    };
    format!(
        "{} numbers, {} to {}, each once, {gaps}, in order",
        show_count(n as u64),
        show_count(first),
        show_count(last)
    )
}

/// Formats a count with its noun.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(n), if n == 1 { one } else { many })
}

/// Lists examples. `all` is true if there are no others.
pub(crate) fn list(examples: impl Iterator<Item = String>, all: bool) -> String {
    let text = examples.collect::<Vec<_>>().join(", ");
    match (all, text.is_empty()) {
        (_, true) => "no examples kept".to_owned(),
        (true, false) => text,
        (false, false) => format!("first: {text}"),
    }
}
