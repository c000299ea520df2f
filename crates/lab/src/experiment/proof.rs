//! Tests what limited a trial: perturbs its server, and loads a second server with one setting
//! doubled.

use floodmark_diagnose::why::proof;
use floodmark_plan::Planned;
use floodmark_record::Record;
use floodmark_record::run::Run;

use super::measurement::TrialProcess;
use super::program::{RunningProgram, StartOrder};
use super::{ExperimentRunner, ExperimentState, StepError, plan_trial, server};
use crate::fold::fold_with;
use crate::perturbation::{PerturbationTest, ProofOutcome};

/// A running server with one setting doubled.
struct DoubledProcess {
    server: RunningProgram,
    setting: String,
    planned: Planned,
}

/// Perturbs a measured process and records the result. Skips processes for which no perturbation
/// can distinguish the cause from others.
pub(super) fn prove<'a>(
    runner: &ExperimentRunner<'a>,
    process: &TrialProcess<'a, '_>,
    planned: &Planned,
    state: &mut ExperimentState<'a, '_>,
) {
    let trial = process.trial;
    let record = match fold_with(state.folder.path(), state.folder.unsaved()) {
        Ok(record) => record,
        Err(error) => return state.listener.on_problem(&error.to_string()),
    };
    let is_run =
        |run: &&Run| run.trial.as_ref() == Some(&trial.name) && run.process == process.process;
    let run = record.runs.iter().rfind(is_run);
    let Some(run) = run.filter(|_| !runner.stop.is_set()) else {
        return;
    };
    let doubled = match start_doubled(runner, process, &record, run, state) {
        Ok(doubled) => doubled,
        Err(StepError::Interrupted) => return,
        Err(StepError::Failed(what)) => {
            state.listener.on_problem(&what);
            None
        }
    };
    state.listener.on_step(&format!(
        "perturbing {} to prove what limits it",
        trial.name
    ));
    let test = PerturbationTest {
        floodmark: &runner.floodmark,
        plan: &planned.plan,
        anchors: &planned.anchors,
        side: &process.hosts.client,
        server: Some(process.server.pid()),
        store: process.store_pid(),
        doubled: doubled
            .as_ref()
            .map(|doubled| (&*doubled.setting, &doubled.planned.plan)),
        stop: runner.stop,
    };
    let outcome = test.run(run, state.folder);
    let killed = doubled.and_then(|doubled| doubled.server.stop("the second server", runner.stop));
    let failed = match outcome {
        ProofOutcome::Failed(what) => Some(format!("the verdict is not proven: {what}")),
        ProofOutcome::Measured | ProofOutcome::NothingToChange => None,
    };
    for what in failed.into_iter().chain(killed) {
        state
            .listener
            .on_problem(&format!("{}: {what}", trial.name));
    }
}

/// Starts a second server with a doubled pool setting, if the server has a pool setting.
fn start_doubled(
    runner: &ExperimentRunner<'_>,
    process: &TrialProcess<'_, '_>,
    record: &Record,
    run: &Run,
    state: &mut ExperimentState<'_, '_>,
) -> Result<Option<DoubledProcess>, StepError> {
    let (trial, hosts) = (process.trial, process.hosts);
    // Only one server can use a delay proxy or a fixed port.
    if trial.at.delay.is_some() || trial.port.is_some() {
        return Ok(None);
    }
    let settings = trial.server.setting(&trial.setting);
    let Some(doubled) = proof::pool_setting(run, &record.environment, &settings) else {
        return Ok(None);
    };
    let to = doubled.to.to_string();
    if trial.server.check(&doubled.name, &to).is_err() {
        return Ok(None);
    }
    let mut trial = trial.clone();
    trial.setting.insert(doubled.name.clone(), to);
    let setting = format!(
        "{} = {} instead of {}",
        doubled.name, doubled.to, doubled.from
    );
    let step = format!("starting {} with {setting}", trial.name);
    state.listener.on_step(&step);
    let paths = state.paths(&format!("{}-{}-changed", trial.name, process.process));
    let store = process.store.as_ref().map(|store| &*store.reached);
    let server = server::start(runner, &trial, hosts, store, paths, StartOrder::First)
        .map_err(|error| error.of(&step))?;
    let url = format!("http://{}{}", server.address, trial.sent_to());
    let planned = plan_trial(&trial, hosts, &url).map_err(StepError::Failed)?;
    Ok(Some(DoubledProcess {
        server,
        setting,
        planned,
    }))
}
