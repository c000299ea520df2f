//! What an experiment takes is got ready before anything is measured: programs that must be here, and what has to be built.

use std::collections::BTreeMap;

use crate::attempt::LabError;
use crate::manifest::{Build, Filler, Need, Program, Server, Trial};

use super::{Ended, Runner, State, build};

/// A system, store or client.
struct Part<'a> {
    /// How it is called in messages.
    called: String,
    /// What its log is called after.
    name: &'a str,
    needs: &'a [Need],
    source: Option<build::Source<'a>>,
}

impl<'a> Part<'a> {
    fn program(called: String, program: &'a Program) -> Self {
        Part::new(
            called,
            &program.name,
            &program.needs,
            &program.build,
            &program.folder,
        )
    }

    fn new(
        called: String,
        name: &'a str,
        needs: &'a [Need],
        build: &'a Option<Build>,
        folder: &'a std::path::Path,
    ) -> Self {
        let source = build.as_ref().map(|build| build::Source {
            name,
            folder,
            build,
        });
        Part {
            called,
            name,
            needs,
            source,
        }
    }

    /// All of a trial.
    fn of(trial: &'a Trial) -> Vec<Self> {
        let mut parts = Vec::new();
        if let Server::System(system) = &trial.server {
            parts.push(Part::program(system.name.clone(), &system.program));
        }
        if let Some(store) = trial.at.store.as_ref().and_then(|behind| behind.started()) {
            parts.push(Part::program(
                format!("store {}", store.name),
                &store.program,
            ));
        }
        if let Some(client) = &trial.client {
            let called = format!("client {}", client.name);
            parts.push(Part::new(
                called,
                &client.name,
                &client.needs,
                &client.build,
                &client.folder,
            ));
        }
        parts
    }
}

/// Sees that everything of each trial is here and built; trials of which something is not are left out.
pub(super) fn provide<'a>(runner: &Runner<'a>, state: &mut State<'a, '_>) -> Result<(), LabError> {
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    for trial in &runner.experiment.trials {
        let mut usable = true;
        for part in Part::of(trial) {
            let known = seen.get(&part.called).copied();
            let here = match known {
                Some(here) => here,
                None => match one(runner, &part, state)? {
                    Some(here) => here,
                    None => return Ok(()),
                },
            };
            usable &= here;
            seen.insert(part.called, here);
        }
        if !usable {
            state.leave_out(trial);
        }
    }
    Ok(())
}

/// Whether it can be used; none where floodmark was told to stop.
fn one(
    runner: &Runner<'_>,
    part: &Part<'_>,
    state: &mut State<'_, '_>,
) -> Result<Option<bool>, LabError> {
    let missing: Vec<String> = part.needs.iter().filter_map(Need::missing).collect();
    if !missing.is_empty() {
        state.skip(format!(
            "{} is skipped: {}",
            part.called,
            missing.join("; ")
        ))?;
        return Ok(Some(false));
    }
    let Some(source) = part.source else {
        return Ok(Some(true));
    };
    state
        .watcher
        .doing(&format!("building {} where that is needed", part.called));
    let log = format!("build-{}.log", part.name);
    let log = state.folder.path().join(log);
    let mut filler = Filler::default();
    filler.set("floodmark", runner.floodmark.display().to_string());
    match build::build(source, &log, &state.leases, &filler, runner.stop) {
        Ok(_) => Ok(Some(true)),
        Err(Ended::Interrupted) => Ok(None),
        Err(Ended::Failed(what)) => {
            state.fail(what)?;
            Ok(Some(false))
        }
    }
}
