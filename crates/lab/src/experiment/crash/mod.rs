//! Crash rounds of a trial (docs/decisions/0029-crash-rounds.md).
//!
//! All rounds share one durable state: the store, and the server's run folder. Each round starts with
//! the state that the previous round left behind.

mod judging;
mod load;
mod processes;
mod round;

use std::time::Duration;

use floodmark_check::{ApiState, FoundItems};
use floodmark_record::Event;
use floodmark_record::crash::{CrashBegan, CrashRound, CrashSettings};
use floodmark_record::plan::Plan;
use floodmark_record::units::show_count;

use super::program::{StartOrder, restartable_address};
use super::{ExperimentRunner, ExperimentState, StepError, TrialHosts, child, plan_trial, server};
use crate::attempt::unix_ms;
use crate::manifest::Trial;
use floodmark_workers::WorkerFailure;
use processes::CrashProcesses;
use round::{NextRound, RoundError};

/// Length of a round's load. floodmark ends the load earlier, once the server has recovered.
const LOAD_LENGTH: Duration = Duration::from_secs(3600);

/// Number of losses of a trial that are shown during the rounds.
const LOSSES_SHOWN: u32 = 3;

/// Number of rounds between two progress messages.
const PROGRESS_EVERY: u32 = 10;

/// Maximum number of requests per second that a load sends.
const MAX_RATE_PER_S: f64 = 1e6;

/// Maximum time in seconds for which a round sends requests, excluding the warm-up, the time until
/// the signal, the pause of a stopped server, and the restart.
const REST_OF_ROUND_S: f64 = 10.0;

/// Maximum number of the first request. JSON numbers are exact below 2⁵³.
const MAX_NUMBER: u64 = 1 << 52;

/// Returns a trial whose load lasts until floodmark ends it.
#[must_use]
pub fn with_crash_load(trial: &Trial) -> Trial {
    let mut trial = trial.clone();
    trial.load.duration = Some(LOAD_LENGTH);
    trial
}

/// Runs the crash rounds of a trial that the earlier result does not contain.
pub(super) fn run<'a>(
    runner: &ExperimentRunner<'a>,
    trial: &'a Trial,
    hosts: &TrialHosts,
    settings: &CrashSettings,
    state: &mut ExperimentState<'a, '_>,
) -> Option<WorkerFailure> {
    let failed = match try_run(runner, trial, hosts, settings, state) {
        Ok(()) | Err(RoundError::Step(StepError::Interrupted)) => return None,
        Err(RoundError::Worker(failure)) => return Some(failure),
        Err(RoundError::LoadEnded) => format!("{}: the load ended too early", trial.name),
        Err(RoundError::Step(StepError::Failed(what))) => what,
    };
    state.fail_trial(trial, failed);
    None
}

fn try_run<'a>(
    runner: &ExperimentRunner<'a>,
    trial: &'a Trial,
    hosts: &TrialHosts,
    settings: &CrashSettings,
    state: &mut ExperimentState<'a, '_>,
) -> Result<(), RoundError> {
    let own = placed(trial, hosts)?;
    let name = format!("{}-1", own.name);
    let earlier = runner
        .earlier
        .and_then(|earlier| earlier.crash_events(&trial.name));
    // floodmark removes the data of a store that it starts, so the state is new.
    let starts_store = (trial.at.store.as_ref()).is_some_and(|store| store.started().is_some());
    let order = match earlier {
        Some(_) if !starts_store => StartOrder::Resumed,
        _ => StartOrder::First,
    };
    let (server, store) = runner.start(&own, &name, order, hosts, state)?;
    let url = format!("http://{}{}", server.address, own.sent_to());
    let planned = plan_trial(&own, hosts, &url).map_err(|what| format!("{}: {what}", own.place))?;
    let mut processes = CrashProcesses {
        runner,
        trial: &own,
        hosts,
        settings,
        planned: &planned,
        name: &name,
        server: Some(server),
        store,
        problem: None,
        phase: "at the start",
    };
    if let Some(server) = &mut processes.server
        && let Some(fault) = server::response_fault(server, &own, hosts)
    {
        return Err(format!("{}: unexpected response: {fault}", own.name).into());
    }
    // The set may contain items before the first round, also those of an interrupted round.
    let found = processes.items(u64::MAX)?.unwrap_or_default();
    let unused = earlier.map_or(1, |earlier| {
        let ready_within = own.server.start.ready_within();
        let skipped = numbers_per_round(settings, &planned.plan, ready_within);
        earlier.first_number().saturating_add(skipped)
    });
    let first_number = unused.max(number_after(&found)?);
    let workload = trial.workload.map(|workload| workload.name());
    state.folder.append(&Event::CrashBegan(CrashBegan {
        trial: trial.name.clone(),
        system: trial.server.name.clone(),
        workload: workload.unwrap_or(&trial.path).to_owned(),
        plan: planned.plan.clone(),
        place: hosts.place.clone(),
        first_number,
        unix_ms: unix_ms(),
    }));
    let last = earlier.and_then(|earlier| earlier.rounds.last());
    let next = NextRound {
        number: last.map_or(1, |last| last.round + 1),
        is_fresh_start: true,
        earlier: last.filter(|_| !starts_store).map(|last| last.state),
        first_number,
    };
    let ran = rounds(&mut processes, next, ApiState::with_items(found), state);
    let CrashProcesses { server, store, .. } = processes;
    // Stop the server first, so that it does not log the loss of its store.
    let killed = server.and_then(|server| server.stop("the server", runner.stop));
    let store_name = trial.at.store.as_ref().map_or("", |behind| behind.name());
    let store = store.and_then(|store| store.stop(store_name, runner.stop));
    for what in killed.into_iter().chain(store) {
        state
            .listener
            .on_problem(&format!("{}: {what}", trial.name));
    }
    ran
}

/// Returns the trial with a load for crash rounds and with a port on which its server can listen
/// again after a crash.
fn placed(trial: &Trial, hosts: &TrialHosts) -> Result<Trial, String> {
    let mut trial = with_crash_load(trial);
    if trial.port.is_none() {
        let address = child::within(&hosts.server, || restartable_address(hosts.address));
        let address = address.map_err(|what| format!("{}: {what}", trial.name))?;
        trial.port = Some(address.port());
    }
    Ok(trial)
}

fn rounds(
    processes: &mut CrashProcesses<'_, '_>,
    mut next: NextRound,
    mut api: ApiState,
    state: &mut ExperimentState<'_, '_>,
) -> Result<(), RoundError> {
    let (trial, of) = (processes.trial, processes.settings.rounds);
    let mut lost = 0;
    while next.number <= of {
        if processes.runner.stop.is_set() || state.folder.failure().is_some() {
            return Ok(());
        }
        if next.is_fresh_start || next.number.is_multiple_of(PROGRESS_EVERY) {
            let (name, number) = (&trial.name, next.number);
            let step = format!("{name}: crash round {number} of {of}, {lost} with lost data");
            state.listener.on_step(&step);
        }
        let ran = next.run(processes, state, &mut api);
        if let Some(problem) = processes.problem.take() {
            state.listener.on_problem(&problem);
        }
        let round = ran?;
        next = NextRound {
            number: round.round + 1,
            is_fresh_start: false,
            earlier: Some(round.state),
            first_number: round.state.next_number,
        };
        if let Some(violation) = round.found.violations.first() {
            lost += 1;
            if lost <= LOSSES_SHOWN {
                let (name, number) = (&trial.name, round.round);
                let problem = format!("{name}: crash round {number} lost data: {violation}");
                state.listener.on_problem(&problem);
            }
        }
        append(round, state);
    }
    Ok(())
}

/// Returns the maximum number of requests in a round. A resumed experiment skips that many numbers,
/// because the interrupted round may have used them.
fn numbers_per_round(settings: &CrashSettings, plan: &Plan, ready_within: Duration) -> u64 {
    let waits = plan.warmup + plan.timeout + ready_within;
    let longest_s = waits.as_secs_f64() + settings.to_s + REST_OF_ROUND_S;
    (longest_s * MAX_RATE_PER_S) as u64
}

/// Returns a number that is larger than the numbers of all items.
fn number_after(found: &FoundItems) -> Result<u64, String> {
    let largest = found.numbers.iter().max().copied().unwrap_or(0);
    match largest.checked_add(1).filter(|next| *next <= MAX_NUMBER) {
        Some(next) => Ok(next),
        None => Err(format!(
            "the set contains an item with the number {}; remove items with numbers of at least {}",
            show_count(largest),
            show_count(MAX_NUMBER)
        )),
    }
}

/// Records a round. A killed floodmark process loses no complete round.
fn append(round: CrashRound, state: &mut ExperimentState<'_, '_>) {
    let event = Event::CrashRound(round);
    state.folder.append(&event);
    state.folder.sync();
    state.listener.on_event(&event);
}
