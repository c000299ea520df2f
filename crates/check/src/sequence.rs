//! `sequence`: were numbers handed out as by one counter that everybody draws from?
//!
//! What that means, and how it is found out, is said in [`crate::order`].

use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::answers::Answer;
use crate::order::{Beside, faults, scan, success};

/// Judges what a number dispenser answered, `answers` in any order; exact, O(n log n) in time and O(1) beyond the answers in memory,
/// which are sorted in place.
///
/// Without a single number it does not hold: nothing was shown.
#[must_use]
pub fn sequence(answers: &mut [Answer], beside: &Beside<'_>) -> CheckResult {
    // No two orders of equal triples differ, so the unstable sort is deterministic.
    answers.sort_unstable_by_key(|a| (a.number, a.sent_ns, a.done_ns));
    let found = scan(answers);
    let mut faults = faults(&found, beside);
    if beside.unreadable > 0 {
        faults.push(format!(
            "{} no number at all",
            match beside.unreadable {
                1 => "1 ok answer was".to_owned(),
                n => format!("{} ok answers were", show_count(n)),
            }
        ));
    }
    if found.range.is_none() && faults.is_empty() {
        faults.push("no number was answered, so there is nothing to check".to_owned());
    }
    CheckResult {
        name: "sequence".to_owned(),
        held: faults.is_empty(),
        detail: if faults.is_empty() {
            success(&found, answers.len(), beside.unknown)
        } else {
            faults.join("; ")
        },
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
