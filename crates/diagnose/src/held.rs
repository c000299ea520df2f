//! Whether connections that were to be held were (`--hold`).

use floodmark_record::units::show_count;

use crate::validity::{Evidence, OUR_ERRORS, UNSENT_SHARE, plural};

/// Connections that could not be held for a reason of ours: the state that was asked for was not there.
pub(crate) fn unheld(evidence: &Evidence<'_>) -> Option<String> {
    let reasons = &evidence.held?.reasons;
    let of = |name| Some((name, *reasons.get(name).filter(|n| **n > 0)?));
    let (ours, failed): (Vec<&str>, Vec<u64>) = OUR_ERRORS.into_iter().filter_map(of).unzip();
    let failed: u64 = failed.iter().sum();
    let asked = evidence.plan.connections;
    if failed as f64 <= UNSENT_SHARE * f64::from(asked) {
        return None;
    }
    Some(format!(
        "{} of {} connections could not be held ({}): add source addresses (--sources), raise the limit on open files, or hold fewer",
        show_count(failed),
        show_count(asked.into()),
        ours.join(", ").replace('_', " ")
    ))
}

/// What failed to open before the run.
pub(crate) fn unopened(evidence: &Evidence<'_>) -> Option<String> {
    let held = evidence.held.filter(|held| held.failed > 0)?;
    let reasons: Vec<String> = held
        .reasons
        .keys()
        .map(|name| name.replace('_', " "))
        .collect();
    let reasons = match reasons.as_slice() {
        [] => "reasons not known".to_owned(),
        reasons => reasons.join(", "),
    };
    Some(format!(
        "{} of {} could not be opened before the run ({reasons}), which began without them; they were tried again in it",
        show_count(held.failed),
        plural(
            evidence.plan.connections.into(),
            "held connection",
            "held connections"
        ),
    ))
}

/// What ended while it was held.
pub(crate) fn lost(evidence: &Evidence<'_>) -> Option<String> {
    let held = evidence.held.filter(|held| held.lost > 0)?;
    Some(format!(
        "{} ended in the run, {} opened in their place: a server that closes idle connections may have a longer idle timeout",
        plural(held.lost, "held connection", "held connections"),
        plural(held.reopened, "was", "were"),
    ))
}
