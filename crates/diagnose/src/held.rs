//! Whether connections that were to be held were (`--hold`).

use floodmark_record::units::show_count;

use crate::validity::{Evidence, OUR_ERRORS, UNSENT_SHARE, plural};

/// Connections that could not be held for a reason of ours: the state that was asked for was not there.
pub(crate) fn unheld(evidence: &Evidence<'_>) -> Option<String> {
    let held = evidence.held?;
    let named = |name: &&str| evidence.errors.get(*name).is_some_and(|n| *n > 0);
    let ours: Vec<&str> = OUR_ERRORS.into_iter().filter(|name| named(name)).collect();
    let asked = evidence.plan.connections;
    if ours.is_empty() || held.failed as f64 <= UNSENT_SHARE * f64::from(asked) {
        return None;
    }
    Some(format!(
        "{} of {} connections could not be held ({}): add source addresses (--sources), raise the limit on open files, or hold fewer",
        show_count(held.failed),
        show_count(asked.into()),
        ours.join(", ").replace('_', " ")
    ))
}

/// What failed to open before the run.
pub(crate) fn unopened(evidence: &Evidence<'_>) -> Option<String> {
    let failed = evidence.held.filter(|held| held.failed > 0)?.failed;
    let reasons: Vec<String> = evidence
        .errors
        .keys()
        .map(|name| name.replace('_', " "))
        .collect();
    Some(format!(
        "{} of {} could not be opened before the run ({}), which began without them; they were tried again in it",
        show_count(failed),
        plural(
            evidence.plan.connections.into(),
            "held connection",
            "held connections"
        ),
        reasons.join(", ")
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
