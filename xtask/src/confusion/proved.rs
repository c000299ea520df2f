//! Every third case once more, with its verdict proven by changing parts of it.

use std::path::Path;

use floodmark_record::verdict::{Confidence, Verdict};

use super::outcome::{drawn, is_set_aside};

/// The folder of their results, beside those of the passes.
pub const FOLDER: &str = "proved";

/// Whether a case is among them, drawn by its name.
pub fn is_drawn(name: &str) -> bool {
    drawn(name).is_multiple_of(3)
}

/// What a verdict was worth after parts were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// How sure it was then.
    pub confidence: Confidence,
    /// Whether its cause is the one that was injected.
    pub right: bool,
}

fn show(name: &str, right: bool, verdict: &Verdict) {
    println!(
        "{} {name}: {} ({:?} after changes)",
        if right { "right" } else { "WRONG" },
        verdict.cause,
        verdict.confidence
    );
    for tested in &verdict.tested {
        let i = tested.interval.as_ref();
        println!(
            "      {}: × {:?} ({:?}), predicted {:?}",
            tested.change.words(),
            tested.ratio,
            i.map(|i| (i.low, i.high)),
            tested.predicted
        );
    }
}

/// Those of the named cases that have been measured, and parts of which were changed; those that are not set aside are shown.
pub fn of<'a>(results: &Path, names: impl Iterator<Item = &'a String>) -> Vec<Proof> {
    let mut proofs = Vec::new();
    for name in names {
        let Ok(record) = floodmark_lab::fold(&results.join(FOLDER).join(name)) else {
            continue;
        };
        let Ok(expected) = super::judging::expected(&record) else {
            continue;
        };
        let verdict = record.runs.last().and_then(|run| run.verdict.as_ref());
        let Some(verdict) = verdict.filter(|verdict| !verdict.tested.is_empty()) else {
            continue;
        };
        let right = expected.contains(&verdict.cause);
        if !is_set_aside(name) {
            show(name, right, verdict);
        }
        proofs.push(Proof {
            confidence: verdict.confidence,
            right,
        });
    }
    proofs
}
