//! `sequence`: were numbers handed out as by one counter that everybody draws from?
//!
//! **What must hold.** A dispenser is a fetch-and-increment object. It behaves correctly under concurrency when its
//! history is *linearizable*: every request seems to take effect at one moment between being sent and being answered
//! (Herlihy & Wing 1990, "Linearizability", ACM TOPLAS 12(3)). For such an object the order of effects is
//! the order of the numbers, so no search is needed. The history of the answered requests is linearizable exactly when
//!
//! 1. no number was handed out twice;
//! 2. no number between the smallest and the largest is missing; a request whose fate is unknown (timed out,
//!    reset) may have drawn one, so as many may be missing as there are such requests;
//! 3. number order never contradicts real time: whenever one request was answered before another was sent, it has
//!    the smaller number.
//!
//! Point 3 is checked in one scan in order of numbers that keeps the latest moment at which any smaller number was
//! asked for: a number answered before that moment was handed out too early. Sorting dominates: O(n log n). The
//! converse holds too: without such a pair, moments of effect can be chosen in number order within the
//! requests' times. Equal nanoseconds count as overlap. The first number is free, for a server may have been used before.
//!
//! With requests of unknown fate the check stays sound (what it flags is wrong) and is complete but for them: when they
//! were sent is not asked, only how many they were.

use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::answers::Answer;

/// Offenders of each kind that are named; the others are only counted.
pub const SHOWN: usize = 5;

/// What was kept of a run for this check.
#[derive(Debug)]
pub struct Kept<'a> {
    /// The answers that were numbers, in any order; they are sorted in place.
    pub answers: &'a mut [Answer],
    /// Requests whose fate at the server is unknown; each may have drawn one number that nobody saw. A request
    /// that was sent a second time counts as one too.
    pub unknown: u64,
    /// Answers that were not larger than the one before on their connection.
    pub out_of_order_on_connection: u64,
    /// The first of them, in words.
    pub offenders: &'a [String],
    /// Ok answers that were no number.
    pub not_numbers: u64,
}

/// Judges what a number dispenser answered; exact, O(n log n) in time and O(1) beyond the answers in memory.
///
/// Without a single number it does not hold: nothing was shown.
#[must_use]
pub fn sequence(kept: Kept<'_>) -> CheckResult {
    // No two orders of equal triples differ, so the unstable sort is deterministic.
    kept.answers
        .sort_unstable_by_key(|a| (a.number, a.sent_ns, a.done_ns));
    let found = scan(kept.answers);
    let faults = faults(&found, &kept);
    CheckResult {
        name: "sequence".to_owned(),
        held: faults.is_empty(),
        detail: if faults.is_empty() {
            success(&found, kept.answers.len(), kept.unknown)
        } else {
            faults.join("; ")
        },
    }
}

/// What a scan in order of numbers finds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Smallest and largest number.
    range: Option<(u64, u64)>,
    /// Answers with a number that another one before them in the scan has too.
    repeated: u64,
    first_repeated: Vec<u64>,
    /// Numbers missing between the smallest and the largest.
    missing: u64,
    /// Runs of missing numbers, first and last.
    first_missing: Vec<(u64, u64)>,
    /// Answers that came before a smaller number was asked for.
    too_early: u64,
    first_too_early: Vec<TooEarly>,
}

/// `larger` was answered before `smaller` was asked for.
#[derive(Debug, PartialEq, Eq)]
struct TooEarly {
    larger: Answer,
    smaller: Answer,
}

/// Scans answers that are sorted by number.
fn scan(answers: &[Answer]) -> Found {
    let mut found = Found::default();
    let (Some(first), Some(last)) = (answers.first(), answers.last()) else {
        return found;
    };
    found.range = Some((first.number, last.number));
    // Of all strictly smaller numbers, the one that was asked for last.
    let mut latest: Option<Answer> = None;
    let mut previous: Option<u64> = None;
    for same in answers.chunk_by(|a, b| a.number == b.number) {
        let number = same[0].number;
        if same.len() > 1 {
            found.repeated += same.len() as u64 - 1;
            show(&mut found.first_repeated, number);
        }
        if let Some(before) = previous.filter(|p| number - p > 1) {
            found.missing += number - before - 1;
            show(&mut found.first_missing, (before + 1, number - 1));
        }
        previous = Some(number);
        for larger in same {
            if let Some(smaller) = latest.filter(|s| larger.done_ns < s.sent_ns) {
                found.too_early += 1;
                let larger = *larger;
                show(&mut found.first_too_early, TooEarly { larger, smaller });
            }
        }
        for answer in same {
            if latest.is_none_or(|l| answer.sent_ns > l.sent_ns) {
                latest = Some(*answer);
            }
        }
    }
    found
}

fn show<T>(shown: &mut Vec<T>, offender: T) {
    if shown.len() < SHOWN {
        shown.push(offender);
    }
}

fn faults(found: &Found, kept: &Kept<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    if found.repeated > 0 {
        let examples = found.first_repeated.iter().map(|n| show_count(*n));
        faults.push(format!(
            "{} handed out more than once ({})",
            numbers(found.repeated, "was", "were"),
            listed(examples, found.first_repeated.len() < SHOWN)
        ));
    }
    if found.missing > kept.unknown {
        let examples = found.first_missing.iter().map(|(from, to)| {
            if from == to {
                show_count(*from)
            } else {
                format!("{} to {}", show_count(*from), show_count(*to))
            }
        });
        faults.push(format!(
            "{} never handed out ({}), while {} can have taken one unseen",
            numbers(found.missing, "was", "were"),
            listed(examples, found.first_missing.len() < SHOWN),
            match kept.unknown {
                0 => "no request".to_owned(),
                1 => "only 1 request without a usable answer".to_owned(),
                n => format!("only {} requests without a usable answer", show_count(n)),
            }
        ));
    }
    if found.too_early > 0 {
        let examples = found.first_too_early.iter().map(|pair| {
            format!(
                "{} was answered {:.3} ms before {} was asked for",
                show_count(pair.larger.number),
                (pair.smaller.sent_ns - pair.larger.done_ns) as f64 / 1e6,
                show_count(pair.smaller.number)
            )
        });
        faults.push(format!(
            "{} handed out before a smaller one that was asked for later ({})",
            numbers(found.too_early, "was", "were"),
            listed(examples, found.first_too_early.len() < SHOWN)
        ));
    }
    if kept.out_of_order_on_connection > 0 {
        faults.push(format!(
            "{} not larger than the one before on the same connection ({})",
            numbers(kept.out_of_order_on_connection, "was", "were"),
            listed(
                kept.offenders.iter().take(SHOWN).cloned(),
                kept.offenders.len() as u64 >= kept.out_of_order_on_connection
                    && kept.offenders.len() <= SHOWN
            )
        ));
    }
    if kept.not_numbers > 0 {
        faults.push(format!(
            "{} no number at all",
            match kept.not_numbers {
                1 => "1 ok answer was".to_owned(),
                n => format!("{} ok answers were", show_count(n)),
            }
        ));
    }
    if found.range.is_none() && faults.is_empty() {
        faults.push("no number was answered, so there is nothing to check".to_owned());
    }
    faults
}

/// "200,000 numbers, 1 to 200,000, each once, no gap, in order".
fn success(found: &Found, n: usize, unknown: u64) -> String {
    let (first, last) = found.range.unwrap_or_default();
    let gaps = match found.missing {
        0 => "no gap".to_owned(),
        missing => format!(
            "{} missing, which the {} without a usable answer can have taken",
            show_count(missing),
            match unknown {
                1 => "1 request".to_owned(),
                n => format!("{} requests", show_count(n)),
            }
        ),
    };
    if n == 1 {
        format!(
            "1 number, {}: nothing it could contradict",
            show_count(first)
        )
    } else {
        format!(
            "{} numbers, {} to {}, each once, {gaps}, in order",
            show_count(n as u64),
            show_count(first),
            show_count(last)
        )
    }
}

fn numbers(n: u64, one: &str, many: &str) -> String {
    match n {
        1 => format!("1 number {one}"),
        n => format!("{} numbers {many}", show_count(n)),
    }
}

fn listed(examples: impl Iterator<Item = String>, all: bool) -> String {
    let text = examples.collect::<Vec<_>>().join(", ");
    match (all, text.is_empty()) {
        (_, true) => "none kept".to_owned(),
        (true, false) => text,
        (false, false) => format!("first: {text}"),
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
