//! Proving what limited a trial, on the server that it was measured on and on one beside it with a knob changed.

use floodmark_diagnose::why::proof;
use floodmark_record::Record;
use floodmark_record::run::Run;

use super::server::Running;
use super::{Ended, Hosts, Planned, Runner, State};
use crate::attempt::LabError;
use crate::manifest::{Server, Trial};
use crate::proving::{Beside, Proved, Proving};

/// A server with one knob changed.
struct Changed {
    running: Running,
    knob: String,
    planned: Planned,
}

/// Changes parts of a trial's setup after a process of it was measured, where that could tell its cause from others, and keeps what came of
/// it. `of` is that process, its hosts and where its store is reached.
pub fn prove<'a>(
    runner: &Runner<'a>,
    trial: &'a Trial,
    of: (u32, &Hosts, Option<&str>),
    proving: Proving<'_>,
    state: &mut State<'a, '_>,
) -> Result<(), LabError> {
    let (process, ..) = of;
    state.folder.sync()?;
    let record = crate::fold(state.folder.path())?;
    let of_process = |run: &&Run| run.trial.as_ref() == Some(&trial.name) && run.process == process;
    let Some(run) = record.runs.iter().rfind(of_process) else {
        return Ok(());
    };
    if runner.stop.is_set() {
        return Ok(());
    }
    let changed = match changed(runner, trial, of, &record, run, state) {
        Ok(changed) => changed,
        Err(Ended::Interrupted) => return Ok(()),
        Err(Ended::Failed(what)) => {
            state.watcher.trouble(&what);
            None
        }
    };
    let what = format!("changing parts of {} in turn", trial.name);
    state.watcher.doing(&what);
    let proving = Proving {
        beside: changed.as_ref().map(|changed| Beside {
            knob: changed.knob.clone(),
            plan: &changed.planned.plan,
        }),
        ..proving
    };
    if let Proved::Failed(what) = proving.prove(run, state.folder)? {
        let what = format!("{}: the verdict is not proven: {what}", trial.name);
        state.watcher.trouble(&what);
    }
    if let Some(what) = changed.and_then(|changed| changed.running.stop(runner.stop)) {
        state.watcher.trouble(&format!("{}: {what}", trial.name));
    }
    Ok(())
}

/// The same server with the knob of its full pool set to twice its value, where it has such a knob.
fn changed<'a>(
    runner: &Runner<'a>,
    trial: &Trial,
    (process, hosts, store): (u32, &Hosts, Option<&str>),
    record: &Record,
    run: &Run,
    state: &mut State<'_, '_>,
) -> Result<Option<Changed>, Ended> {
    let Server::System(system) = &trial.server else {
        return Ok(None);
    };
    // A proxy stands before the one server only, and a fixed port has room for one.
    if trial.at.delay.is_some() || trial.server.port().is_some() {
        return Ok(None);
    }
    let mut settings = trial.setting.clone();
    for (name, knob) in &system.knobs {
        if let (Some(default), false) = (&knob.default, settings.contains_key(name)) {
            settings.insert(name.clone(), default.clone());
        }
    }
    let Some(knob) = proof::knob(run, &record.environment, &settings) else {
        return Ok(None);
    };
    if system.check(&knob.name, &knob.to.to_string()).is_err() {
        return Ok(None);
    }
    let mut trial = trial.clone();
    trial.setting.insert(knob.name.clone(), knob.to.to_string());
    let words = format!("{} = {} instead of {}", knob.name, knob.to, knob.from);
    let what = format!("starting {} with {words}", trial.name);
    state.watcher.doing(&what);
    let places = state.places(&format!("{}-{process}-changed", trial.name));
    let filler = runner.filler(&trial, hosts);
    let running = runner
        .serve(&trial, hosts, filler, store, places)
        .map_err(|ended| ended.of(&what))?;
    let url = format!("http://{}{}", running.address(), trial.sent_to());
    let planned = (runner.planner)(&trial, hosts, &url).map_err(Ended::Failed)?;
    Ok(Some(Changed {
        running,
        knob: words,
        planned,
    }))
}
