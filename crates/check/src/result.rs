//! The result of a check as text: its message, and the operations around a violation.

use std::collections::BinaryHeap;

use floodmark_record::kept::SHOWN;
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

/// Returns the result of a check. `violation` describes a violation and contains its history. If
/// there is nothing to check, `nothing` is the reason; a check without a violation then counts as
/// not evaluated.
pub(crate) fn result(
    name: &str,
    violation: Option<(String, Vec<String>)>,
    nothing: Option<&str>,
    success: impl FnOnce() -> String,
) -> CheckResult {
    let (held, (detail, history)) = match (violation, nothing) {
        (Some(violation), _) => (Some(false), violation),
        (None, Some(why)) => (None, (nothing_to_check(why), Vec::new())),
        (None, None) => (Some(true), (success(), Vec::new())),
    };
    CheckResult {
        name: name.to_owned(),
        held,
        detail,
        history,
    }
}

/// Explains why a check is not evaluated.
pub(crate) fn nothing_to_check(why: &str) -> String {
    format!("{why}, so there is nothing to check")
}

/// Joins the descriptions of faults. Returns `None` if there are none.
pub(crate) fn joined(faults: &[String]) -> Option<String> {
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// Formats a count with its noun.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(n), if n == 1 { one } else { many })
}

/// Describes `n` violations of a rule: "2 numbers are missing (3, 5)". Returns `None` if `n` is 0.
/// Lists at most [`SHOWN`] examples. `is_complete` is true if `examples` covers all violations.
pub(crate) fn fault(
    n: u64,
    [one, many]: [&str; 2],
    rule: &str,
    examples: &[String],
    is_complete: bool,
) -> Option<String> {
    let shown = examples.get(..SHOWN).unwrap_or(examples).join(", ");
    let examples = match (is_complete, shown.is_empty()) {
        (_, true) => "no examples kept".to_owned(),
        (true, false) => shown,
        (false, false) => format!("first: {shown}"),
    };
    (n > 0).then(|| format!("{} {rule} ({examples})", count(n, one, many)))
}

/// Maximum number of operations in a history, in addition to those that show the violation.
const NEIGHBORS: usize = 10;

/// Returns a history with one line per operation. The operations that show a violation are marked
/// with `>`. Up to [`NEIGHBORS`] others are marked with `·`: those whose send time is closest to
/// the latest response in the violation. `verb` returns the words that are printed for a kind of
/// write, such as `write`.
pub(crate) fn history(
    all: &[KeptOperation],
    marked: &[KeptOperation],
    verb: impl Fn(OperationKind) -> &'static str,
) -> Vec<String> {
    let Some(last) = marked.iter().map(KeptOperation::done_ns).max() else {
        return Vec::new();
    };
    // The operation farthest away in time is at the top of the heap, so a nearer one replaces it.
    let mut nearest: BinaryHeap<(u64, [u64; 3])> = BinaryHeap::new();
    for operation in all.iter().filter(|operation| !marked.contains(operation)) {
        nearest.push((operation.sent_ns().abs_diff(last), operation.0));
        if nearest.len() > NEIGHBORS {
            nearest.pop();
        }
    }
    let neighbors = nearest.into_iter().map(|(_, words)| KeptOperation(words));
    let mut shown: Vec<KeptOperation> = marked.iter().copied().chain(neighbors).collect();
    shown.sort_unstable_by_key(order);
    shown.dedup();
    let mut skipped = vec![0u64; shown.len() + 1];
    for operation in all {
        if let Err(place) = shown.binary_search_by_key(&order(operation), order) {
            skipped[place] += 1;
        }
    }
    let mut lines = Vec::new();
    for (place, operation) in shown.iter().enumerate() {
        // Report skipped operations only between two lines.
        if place > 0 && skipped[place] > 0 {
            lines.push(format!("… {} more", show_count(skipped[place])));
        }
        let mark = if marked.contains(operation) {
            '>'
        } else {
            '·'
        };
        lines.push(format!(
            "{mark} {}",
            line(operation, verb(operation.kind()))
        ));
    }
    lines
}

fn order(operation: &KeptOperation) -> (u64, u64, [u64; 3]) {
    (operation.sent_ns(), operation.done_ns(), operation.0)
}

/// Describes an operation: `1.002003 s to 1.002504 s: write 17`.
fn line(operation: &KeptOperation, verb: &str) -> String {
    let seconds = |ns: u64| format!("{:.6} s", ns as f64 / 1e9);
    let (value, kind) = (show_count(operation.value()), operation.kind());
    let what = match kind {
        OperationKind::Read => format!("read {value}"),
        OperationKind::ReadNothing => "read no value".to_owned(),
        OperationKind::Acknowledged => format!("{verb} {value}"),
        OperationKind::Refused => format!("{verb} {value}, refused"),
        OperationKind::Unknown => format!("{verb} {value}, outcome unknown"),
    };
    let (sent, done) = (seconds(operation.sent_ns()), seconds(operation.done_ns()));
    format!("{sent} to {done}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_marked_operations_and_their_neighbors() {
        let write = |n: u64| {
            KeptOperation::new(
                OperationKind::Acknowledged,
                1,
                n,
                n * 1_000_000,
                n * 1_000_000 + 500_000,
            )
        };
        let all: Vec<KeptOperation> = (1..=100).map(write).collect();
        let lines = history(&all, &[write(3), write(50)], |_| "write");
        let expected = [
            "> 0.003000 s to 0.003500 s: write 3",
            "… 41 more",
            "· 0.045000 s to 0.045500 s: write 45",
        ];
        assert_eq!(lines[..3], expected);
        assert_eq!(lines.len(), 1 + 1 + NEIGHBORS + 1);
        assert!(
            lines.contains(&"> 0.050000 s to 0.050500 s: write 50".to_owned()),
            "{lines:#?}"
        );
        assert_eq!(history(&all, &[], |_| "write"), Vec::<String>::new());
    }
}
