//! Numbers from one counter, as every check of such sees them: each once, without a gap, in real time's order.
//!
//! **What must hold.** A counter is a fetch-and-increment object. It behaves correctly under concurrency when its
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

use floodmark_record::kept::{KeptScore, SHOWN};
use floodmark_record::units::show_count;

use crate::answers::Answer;

/// An answer with the number that its request drew.
pub trait Drawn {
    /// The number.
    fn number(&self) -> u64;
    /// When the request was handed to the kernel, ns.
    fn sent_ns(&self) -> u64;
    /// When the whole answer was there, ns.
    fn done_ns(&self) -> u64;
}

impl Drawn for Answer {
    fn number(&self) -> u64 {
        self.number
    }

    fn sent_ns(&self) -> u64 {
        self.sent_ns
    }

    fn done_ns(&self) -> u64 {
        self.done_ns
    }
}

impl Drawn for KeptScore {
    fn number(&self) -> u64 {
        self.number()
    }

    fn sent_ns(&self) -> u64 {
        self.sent_ns()
    }

    fn done_ns(&self) -> u64 {
        self.done_ns()
    }
}

/// What is known of a run beside its answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// Requests whose fate at the server is unknown; each may have drawn one number that nobody saw. A request
    /// that was sent a second time counts as one too.
    pub unknown: u64,
    /// Answers that were not larger than the one before on their connection.
    pub out_of_order_on_connection: u64,
    /// The first of them, in words.
    pub offenders: &'a [String],
    /// Ok answers that were not what the check reads.
    pub unreadable: u64,
}

/// What a scan in order of numbers finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Smallest and largest number.
    pub range: Option<(u64, u64)>,
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
    larger: u64,
    smaller: u64,
    by_ns: u64,
}

/// Scans answers that are sorted by number.
pub(crate) fn scan<A: Drawn>(answers: &[A]) -> Found {
    let mut found = Found::default();
    let (Some(first), Some(last)) = (answers.first(), answers.last()) else {
        return found;
    };
    found.range = Some((first.number(), last.number()));
    // Of all strictly smaller numbers, the one that was asked for last.
    let mut latest: Option<&A> = None;
    let mut previous: Option<u64> = None;
    for same in answers.chunk_by(|a, b| a.number() == b.number()) {
        let number = same[0].number();
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
            if let Some(smaller) = latest.filter(|s| larger.done_ns() < s.sent_ns()) {
                found.too_early += 1;
                let pair = TooEarly {
                    larger: number,
                    smaller: smaller.number(),
                    by_ns: smaller.sent_ns() - larger.done_ns(),
                };
                show(&mut found.first_too_early, pair);
            }
        }
        for answer in same {
            if latest.is_none_or(|l| answer.sent_ns() > l.sent_ns()) {
                latest = Some(answer);
            }
        }
    }
    found
}

pub(crate) fn show<T>(shown: &mut Vec<T>, offender: T) {
    if shown.len() < SHOWN {
        shown.push(offender);
    }
}

/// What is wrong with the numbers, each kind in words.
pub(crate) fn faults(found: &Found, beside: &Beside<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    if found.repeated > 0 {
        let examples = found.first_repeated.iter().map(|n| show_count(*n));
        faults.push(format!(
            "{} handed out more than once ({})",
            numbers(found.repeated, "was", "were"),
            listed(examples, found.first_repeated.len() < SHOWN)
        ));
    }
    if found.missing > beside.unknown {
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
            match beside.unknown {
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
                show_count(pair.larger),
                pair.by_ns as f64 / 1e6,
                show_count(pair.smaller)
            )
        });
        faults.push(format!(
            "{} handed out before a smaller one that was asked for later ({})",
            numbers(found.too_early, "was", "were"),
            listed(examples, found.first_too_early.len() < SHOWN)
        ));
    }
    if beside.out_of_order_on_connection > 0 {
        faults.push(format!(
            "{} not larger than the one before on the same connection ({})",
            numbers(beside.out_of_order_on_connection, "was", "were"),
            listed(
                beside.offenders.iter().take(SHOWN).cloned(),
                beside.offenders.len() as u64 >= beside.out_of_order_on_connection
                    && beside.offenders.len() <= SHOWN
            )
        ));
    }
    faults
}

/// "200,000 numbers, 1 to 200,000, each once, no gap, in order".
pub(crate) fn success(found: &Found, n: usize, unknown: u64) -> String {
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

pub(crate) fn listed(examples: impl Iterator<Item = String>, all: bool) -> String {
    let text = examples.collect::<Vec<_>>().join(", ");
    match (all, text.is_empty()) {
        (_, true) => "none kept".to_owned(),
        (true, false) => text,
        (false, false) => format!("first: {text}"),
    }
}
