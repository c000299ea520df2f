//! Measures a process of a trial as often as asked, and looks at what became of its server, its store and its client.

use std::cell::RefCell;

use floodmark_record::Event;
use floodmark_record::events::RunId;

use super::client::Other;
use super::delayed::Delayed;
use super::server::Running;
use super::store::Standing;
use super::{Hosts, Planned, Runner, State, proof};
use crate::alive::Alive;
use crate::attempt::{Attempts, Driver, LabError, Watching};
use crate::manifest::{Server, Trial};
use crate::proving::Proving;
use crate::server_log::ServerLog;
use crate::worker::WorkerFailure;

/// What a trial is measured on.
pub(super) struct Up<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) running: &'a mut Running,
    pub(super) standing: Option<&'a mut Standing>,
}

impl Up<'_> {
    fn store_pid(&self) -> Option<u32> {
        self.standing.as_ref().and_then(|standing| standing.pid())
    }
}

/// Measures one process of a trial, and changes parts of it afterwards where the experiment asks for that.
pub(super) fn measure<'a>(
    runner: &Runner<'a>,
    trial: &'a Trial,
    process: u32,
    mut up: Up<'_>,
    state: &mut State<'a, '_>,
) -> Result<Option<WorkerFailure>, LabError> {
    let hosts = up.hosts;
    let delayed = trial
        .at
        .delay
        .map(|delay| Delayed::start(&runner.floodmark, hosts, up.running.address(), delay));
    let delayed = match delayed.transpose() {
        Ok(delayed) => delayed,
        Err(what) => {
            state.leave_out(trial);
            state.fail(format!("{}: {what}", trial.name))?;
            return Ok(None);
        }
    };
    let address = delayed
        .as_ref()
        .map_or_else(|| up.running.address(), Delayed::address);
    let url = format!("http://{address}{}", trial.sent_to());
    let mut planned = match (runner.planner)(trial, hosts, &url) {
        Ok(planned) => planned,
        Err(what) => {
            state.leave_out(trial);
            state.fail(format!("{}: {what}", trial.place))?;
            return Ok(None);
        }
    };
    // Each process has its own arrivals, the same for all trials.
    let earlier = u64::from(process - 1) * u64::from(trial.load.attempts());
    planned.plan.seed = planned.plan.seed.wrapping_add(earlier);
    let proxy = delayed.as_ref().map(Delayed::pid);
    let failure = attempts(runner, (trial, process), &up, (&planned, proxy), state)?;
    let stands = still_stands(trial, &mut up, state)?;
    if stands && runner.experiment.prove && failure.is_none() {
        let reached = up.standing.as_ref().map(|standing| &*standing.reached);
        let proving = Proving {
            floodmark: &runner.floodmark,
            plan: &planned.plan,
            anchors: &planned.anchors,
            side: &hosts.client,
            server: Some(up.running.pid()),
            store: up.store_pid(),
            beside: None,
            stop: runner.stop,
        };
        proof::prove(runner, trial, (process, hosts, reached), proving, state)?;
    }
    Ok(failure)
}

/// All attempts of one process.
fn attempts<'a>(
    runner: &Runner<'a>,
    (trial, process): (&'a Trial, u32),
    up: &Up<'_>,
    (planned, proxy): (&Planned, Option<u32>),
    state: &mut State<'a, '_>,
) -> Result<Option<WorkerFailure>, LabError> {
    let (hosts, running) = (up.hosts, &*up.running);
    let behind = trial.at.store.as_ref();
    let mut watched = vec![("the server".to_owned(), running.pid())];
    if let Some((pid, behind)) = up.store_pid().zip(behind) {
        watched.push((format!("the store {}", behind.name()), pid));
    }
    let alive = Alive::watch(watched);
    let log = match &trial.server {
        Server::System(system) => {
            let runtime = system.runtime.as_deref();
            let log = ServerLog::from_now(running.log(), &system.errors, runtime);
            Some(RefCell::new(log))
        }
        Server::Own { .. } => None,
    };
    let leases = state.leases.clone();
    let other = trial.client.as_ref().map(|client| Other {
        client,
        load: &trial.load,
        address: running.address(),
        counter: trial.workload.and_then(|workload| workload.counter()),
        side: &hosts.client,
        leases: &leases,
    });
    let measuring = Attempts {
        driver: other.as_ref().map(|other| other as &dyn Driver),
        plan: &planned.plan,
        anchors: &planned.anchors,
        attempts: trial.load.attempts(),
        of: run_id(trial, process),
        notices: &planned.notices,
        side: &hosts.client,
        place: hosts.place.as_ref(),
        proxy,
        watching: Watching::On {
            server_pid: Some(running.pid()),
            store: up
                .standing
                .as_ref()
                .zip(behind)
                .map(|(standing, behind)| standing.watched(behind)),
        },
        alive: Some(&alive),
        log: log.as_ref(),
        stop: runner.stop,
    };
    let watcher = &mut *state.watcher;
    let mut client_failed = None;
    let failure = measuring.measure(state.folder, &mut |event: &Event| {
        if let Event::ClientRan(ran) = event {
            client_failed.clone_from(&ran.failure);
        }
        watcher.on(event);
    })?;
    if let Some(what) = client_failed {
        state.leave_out(trial);
        state.fail(format!("{}: {what}", trial.name))?;
    }
    Ok(failure)
}

/// The name of a process's first attempt.
fn run_id(trial: &Trial, process: u32) -> RunId {
    RunId {
        system: trial.server.name(&trial.name).to_owned(),
        workload: trial
            .workload
            .map_or(trial.path.as_str(), |workload| workload.name())
            .to_owned(),
        trial: Some(trial.name.clone()),
        setting: trial.setting.clone(),
        process,
        attempt: 1,
    }
}

/// Whether server and store outlived the load; what ended is said.
fn still_stands<'a>(
    trial: &'a Trial,
    up: &mut Up<'_>,
    state: &mut State<'a, '_>,
) -> Result<bool, LabError> {
    let mut stands = true;
    if let Some(status) = up.running.ended() {
        stands = false;
        let what = format!(
            "{}: the server ended while it was loaded ({status}){}",
            trial.name,
            up.running.said()
        );
        state.fail(what)?;
    }
    let ended = up
        .standing
        .as_mut()
        .and_then(|standing| standing.ended())
        .zip(trial.at.store.as_ref());
    if let Some((how, behind)) = ended {
        stands = false;
        state.leave_out(trial);
        let what = format!(
            "{}: the store {} ended while it was loaded {how}",
            trial.name,
            behind.name()
        );
        state.fail(what)?;
    }
    Ok(stands)
}
