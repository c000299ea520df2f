//! Prepares an experiment: checks required programs and builds systems, stores and clients.

use std::collections::BTreeMap;

use super::build;
use super::{ExperimentRunner, ExperimentState, StepError};
use crate::manifest::{Filler, ManifestPackage, Need, Trial};

/// Returns a trial's system, store and client, each with its name for messages.
fn parts(trial: &Trial) -> Vec<(String, &ManifestPackage)> {
    let server: &ManifestPackage = &trial.server;
    let mut parts = vec![(server.name.clone(), server)];
    if let Some(store) = trial.at.store.as_ref().and_then(|behind| behind.started()) {
        parts.push((format!("store {}", store.name), store));
    }
    if let Some(client) = &trial.client {
        parts.push((format!("client {}", client.package.name), &client.package));
    }
    // Skip a user's own server, because it may have the same name as a system.
    parts.retain(|(_, part)| !part.needs.is_empty() || part.build.is_some());
    parts
}

/// Checks and builds each system, store and client once. Skips trials for which one of these
/// programs is not available.
pub(super) fn prepare<'a>(runner: &ExperimentRunner<'a>, state: &mut ExperimentState<'a, '_>) {
    let mut available: BTreeMap<String, bool> = BTreeMap::new();
    for trial in &runner.experiment.trials {
        for (label, part) in parts(trial) {
            let is_available = match available.get(&label) {
                Some(known) => *known,
                None => match prepare_part(runner, &label, part, state) {
                    Some(is_available) => is_available,
                    None => return,
                },
            };
            if !is_available {
                state.leave_out(trial);
            }
            available.insert(label, is_available);
        }
    }
}

/// Returns whether a package is available, or `None` if floodmark was interrupted.
fn prepare_part(
    runner: &ExperimentRunner<'_>,
    label: &str,
    part: &ManifestPackage,
    state: &mut ExperimentState<'_, '_>,
) -> Option<bool> {
    let missing: Vec<String> = part.needs.iter().filter_map(Need::missing).collect();
    if !missing.is_empty() {
        let missing = missing.join("; ");
        state.skip(format!("{label} skipped: {missing}"));
        return Some(false);
    }
    let Some(command) = &part.build else {
        return Some(true);
    };
    let step = format!("building {label} if needed");
    state.listener.on_step(&step);
    let log = format!("build-{}.log", part.name);
    let log = state.folder.path().join(log);
    let mut filler = Filler::default();
    filler.set("floodmark", runner.floodmark.display().to_string());
    match build::build(part, command, &log, &state.temporary, &filler, runner.stop) {
        Ok(_) => Some(true),
        Err(StepError::Interrupted) => None,
        Err(StepError::Failed(what)) => {
            state.fail(what);
            Some(false)
        }
    }
}
