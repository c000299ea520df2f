//! Held connections (`--hold`) that failed to open or were lost.

use floodmark_record::reason::{CLIENT_ERRORS, Reason};
use floodmark_record::run::Run;
use floodmark_record::units::show_count;

use crate::text::{plural, plural_if_any};
use crate::validity::{Judged, UNSENT_SHARE};

/// Reports connections that the client failed to hold, if the failures invalidate the run.
pub(crate) fn not_held(judged: &Judged<'_>) -> Option<Reason> {
    let reasons = &judged.run.connections.held.as_ref()?.reasons;
    let names = CLIENT_ERRORS.iter().map(|(name, ..)| *name);
    let failures =
        names.filter_map(|name| Some((name.to_owned(), *reasons.get(name).filter(|n| **n > 0)?)));
    let (errors, failed): (Vec<String>, Vec<u64>) = failures.unzip();
    let failed: u64 = failed.iter().sum();
    let connections = judged.run.plan.connections;
    (failed as f64 > UNSENT_SHARE * f64::from(connections)).then_some(Reason::NotHeld {
        failed,
        connections,
        errors,
    })
}

/// Reports connections that failed to open before the run.
pub(crate) fn not_opened(run: &Run) -> Option<String> {
    let held = run.connections.held.as_ref();
    let held = held.filter(|held| held.failed > 0)?;
    let reasons = Vec::from_iter(held.reasons.keys().map(String::as_str)).join(", ");
    let reasons = match reasons.as_str() {
        "" => "reason unknown".to_owned(),
        reasons => reasons.replace('_', " "),
    };
    Some(format!(
        "{} of {} failed to open before the run ({reasons}); the run started without these \
         connections and retried",
        show_count(held.failed),
        plural(run.plan.connections.into(), "held connection"),
    ))
}

/// Reports connections that closed during the run.
pub(crate) fn lost(run: &Run) -> Option<String> {
    let held = run.connections.held.as_ref()?;
    Some(format!(
        "{} closed during the run ({} reopened); if the server closes idle connections, raise its \
         idle timeout",
        plural_if_any(held.lost, "held connection")?,
        show_count(held.reopened),
    ))
}
