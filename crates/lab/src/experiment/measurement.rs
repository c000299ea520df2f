//! Measures one server process of a trial, and checks that server, store and client keep running.

use std::cell::RefCell;
use std::time::Duration;

use floodmark_host::Cpus;
use floodmark_observe::{MonitorTargets, Root, cpu};
use floodmark_plan::spec::Warmup;
use floodmark_plan::{PlanSpec, Planned};
use floodmark_record::Event;
use floodmark_record::events::RunId;
use floodmark_record::plan::Spacing;
use floodmark_record::units::Rate;

use super::client::ExternalClient;
use super::delay_proxy::DelayProxy;
use super::program::RunningProgram;
use super::store::StoreInstance;
use super::{ExperimentRunner, ExperimentState, TrialHosts, plan_spec, plan_trial, proof};
use crate::attempt::{Attempts, Monitoring};
use crate::capacity::{CAPACITY_PRECISION, CapacityRun};
use crate::exit_monitor::ExitMonitor;
use crate::manifest::{CapacitySearchPlan, Trial};
use crate::readback::{SetFault, check_set};
use crate::server_log::ServerLog;
use floodmark_workers::{AgentsSetting, WorkerFailure};

/// The running processes of a trial.
pub(super) struct TrialProcess<'a, 'b> {
    pub(super) trial: &'a Trial,
    /// Number of the process, from 1.
    pub(super) process: u32,
    pub(super) hosts: &'b TrialHosts,
    pub(super) server: RunningProgram,
    pub(super) store: Option<StoreInstance>,
}

impl TrialProcess<'_, '_> {
    pub(super) fn store_pid(&self) -> Option<u32> {
        self.store.as_ref().and_then(StoreInstance::pid)
    }

    /// Name of the first attempt.
    fn run_id(&self) -> RunId {
        let trial = self.trial;
        let workload = trial.workload.map(|workload| workload.name());
        RunId {
            system: trial.server.name.clone(),
            workload: workload.unwrap_or(&trial.path).to_owned(),
            trial: Some(trial.name.clone()),
            setting: trial.setting.clone(),
            process: self.process,
            attempt: 1,
        }
    }
}

/// Measures one process of a trial, and then perturbs it if the experiment requests proof.
pub(super) fn measure<'a>(
    runner: &ExperimentRunner<'a>,
    process: &mut TrialProcess<'a, '_>,
    state: &mut ExperimentState<'a, '_>,
) -> Option<WorkerFailure> {
    let (trial, hosts) = (process.trial, process.hosts);
    let server = process.server.address;
    let proxy = trial
        .at
        .delay
        .map(|delay| DelayProxy::start(&runner.floodmark, hosts, server, delay));
    let proxy = match proxy.transpose() {
        Ok(proxy) => proxy,
        Err(what) => {
            state.fail_trial(trial, format!("{}: {what}", trial.name));
            return None;
        }
    };
    let address = proxy.as_ref().map_or(server, |proxy| proxy.address);
    let url = format!("http://{address}{}", trial.sent_to());
    let mut planned = match plan_trial(trial, hosts, &url) {
        Ok(planned) => planned,
        Err(what) => {
            state.fail_trial(trial, format!("{}: {what}", trial.place));
            return None;
        }
    };
    // The arrivals differ between processes, but are the same in all trials.
    let earlier = u64::from(process.process - 1) * u64::from(trial.load.attempt_count());
    planned.plan.seed = planned.plan.seed.wrapping_add(earlier);
    match check_set(&hosts.client, &planned.plan, runner.stop) {
        Ok(()) => {}
        Err(SetFault::Interrupted) => return None,
        Err(SetFault::NotEmpty(what) | SetFault::Unreadable(what)) => {
            state.fail_trial(trial, format!("{}: {what}", trial.name));
            return None;
        }
    }
    let proxy = proxy.as_ref().map(DelayProxy::pid);
    let open = runner.experiment.capacity.as_ref().map(|search| {
        let spec = open_spec(trial.spec(hosts.client.cpus.as_ref().map(Cpus::count)));
        plan_spec(&spec, hosts, &url).map(|open| (search, open))
    });
    let failure = match open.transpose() {
        Ok(search) => run_attempts(runner, process, (&planned, search.as_ref()), proxy, state),
        Err(what) => {
            state.fail_trial(trial, format!("{}: {what}", trial.place));
            return None;
        }
    };
    let survived = check_survivors(process, state);
    if survived && runner.experiment.prove && failure.is_none() {
        proof::prove(runner, process, &planned, state);
    }
    failure
}

/// Returns the settings of an open-model load at a nominal rate, for a load of the closed model.
fn open_spec(mut spec: PlanSpec) -> PlanSpec {
    spec.load.rate = Rate::new(1.0);
    spec.load.arrivals = Some(Spacing::Poisson);
    spec.load.warmup = Some(Warmup::Before(Duration::ZERO));
    spec
}

fn run_attempts<'a>(
    runner: &ExperimentRunner<'a>,
    process: &TrialProcess<'a, '_>,
    (planned, search): (&Planned, Option<&(&CapacitySearchPlan, Planned)>),
    proxy: Option<u32>,
    state: &mut ExperimentState<'a, '_>,
) -> Option<WorkerFailure> {
    let (trial, hosts, server) = (process.trial, process.hosts, &process.server);
    let behind = trial.at.store.as_ref();
    let mut processes = vec![("the server".to_owned(), server.pid())];
    if let Some((pid, behind)) = process.store_pid().zip(behind) {
        processes.push((format!("the store {}", behind.name()), pid));
    }
    let exits = ExitMonitor::start(processes);
    let runtime = trial.server.runtime.as_deref();
    let log = ServerLog::from_now(&server.log, &trial.server.errors, runtime);
    let log = RefCell::new(log);
    let client = trial.client.as_ref().map(|client| ExternalClient {
        client,
        load: &trial.load,
        address: server.address,
        counter: trial.workload.and_then(|workload| workload.counter()),
        side: &hosts.client,
        leases: &state.leases,
    });
    let store = process.store.as_ref().zip(behind);
    let agents = trial.at.agents.as_ref().map(|place| AgentsSetting {
        place: place.clone(),
        min_agents: place.count,
        copy: false,
        anyway: false,
        side: &hosts.client,
    });
    let attempts = Attempts {
        agents: agents.as_ref(),
        expected: &runner.experiment.description.expected_causes,
        client: client.as_ref(),
        planned,
        attempts: trial.load.attempt_count(),
        run: process.run_id(),
        side: &hosts.client,
        place: hosts.place.as_ref(),
        proxy,
        monitoring: Monitoring::Local(MonitorTargets {
            server_pid: Some(server.pid()),
            store: store.map(|(store, behind)| store.watched(behind)),
            ..MonitorTargets::default()
        }),
        exits: Some(&exits),
        log: Some(&log),
        stop: runner.stop,
    };
    let listener = &mut *state.listener;
    if let Some((search, open)) = search {
        let search = CapacityRun {
            attempts: Attempts {
                planned: open,
                ..attempts.clone()
            },
            closed: planned,
            objectives: &search.objectives,
            cpus: cpu::allowed(&Root::host()),
            connections: trial.load.connections.map(|_| open.plan.connections),
            precision: CAPACITY_PRECISION,
            budget: search.budget,
        };
        return search.measure(None, state.folder, &mut |event: &Event| {
            listener.on_event(event)
        });
    }
    let mut client_failure = None;
    let failure = attempts.measure(state.folder, &mut |event: &Event| {
        if let Event::ClientRan(ran) = event {
            client_failure.clone_from(&ran.failure);
        }
        listener.on_event(event);
    });
    if let Some(what) = client_failure {
        state.fail_trial(trial, format!("{}: {what}", trial.name));
    }
    failure
}

/// Records a failure if server or store exited under load. Returns whether both are still running.
pub(super) fn check_survivors<'a>(
    process: &mut TrialProcess<'a, '_>,
    state: &mut ExperimentState<'a, '_>,
) -> bool {
    let trial = process.trial;
    let mut survived = true;
    if let Some(status) = process.server.exit_status() {
        survived = false;
        let last_words = process.server.last_words();
        state.fail(format!(
            "{}: the server ended during the load ({status}){last_words}",
            trial.name
        ));
    }
    let exit = process.store.as_mut().and_then(StoreInstance::exit);
    if let Some((exit, behind)) = exit.zip(trial.at.store.as_ref()) {
        survived = false;
        let what = format!(
            "{}: the store {} ended during the load {exit}",
            trial.name,
            behind.name()
        );
        state.fail_trial(trial, what);
    }
    survived
}
