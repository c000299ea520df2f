//! Measures one server process of a trial, checks that the server, the store and the client keep
//! running, and tests the diagnosed limit of the trial.

use std::cell::RefCell;
use std::time::Duration;

use floodmark_diagnose::why::proof;
use floodmark_host::Cpus;
use floodmark_observe::{MonitorTargets, Root, cpu};
use floodmark_plan::spec::Warmup;
use floodmark_plan::{PlanSpec, Planned};
use floodmark_record::events::RunId;
use floodmark_record::plan::Spacing;
use floodmark_record::run::Run;
use floodmark_record::units::Rate;
use floodmark_record::{Event, Record};

use super::client::ExternalClient;
use super::program::{RunningProgram, StartOrder};
use super::server::{self, DelayProxy, StoreInstance};
use super::{RunningExperiment, StepError, TrialHosts, plan_spec, plan_trial};
use crate::attempt::Attempts;
use crate::attempt_monitor::{ExitMonitor, Monitoring};
use crate::capacity::{CAPACITY_PRECISION, CapacityRun};
use crate::fold::fold_with;
use crate::manifest::{CapacitySearchPlan, Trial};
use crate::perturbation::{PerturbationTest, ProofOutcome};
use crate::readback::{SetFault, check_set};
use crate::server_log::ServerLog;
use floodmark_workers::{AgentsSetting, WorkerFailure};

/// The running processes of a trial.
pub(super) struct TrialProcess<'b> {
    pub(super) trial: &'b Trial,
    /// Number of the process, from 1.
    pub(super) process: u32,
    pub(super) hosts: &'b TrialHosts,
    pub(super) server: RunningProgram,
    pub(super) store: Option<StoreInstance>,
}

impl TrialProcess<'_> {
    fn store_pid(&self) -> Option<u32> {
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

/// A running server with one setting doubled.
struct DoubledProcess {
    server: RunningProgram,
    setting: String,
    planned: Planned,
}

impl RunningExperiment<'_> {
    /// Measures one process of a trial, and then perturbs it if the experiment requests a proof.
    pub(super) fn measure(&mut self, process: &mut TrialProcess<'_>) -> Option<WorkerFailure> {
        match self.try_measure(process) {
            Ok(failure) => failure,
            Err(StepError::Interrupted) => None,
            Err(StepError::Failed(what)) => {
                self.fail_trial(process.trial, what);
                None
            }
        }
    }

    fn try_measure(
        &mut self,
        process: &mut TrialProcess<'_>,
    ) -> Result<Option<WorkerFailure>, StepError> {
        let (trial, hosts, server) = (process.trial, process.hosts, process.server.address);
        let at_trial = |what| format!("{}: {what}", trial.name);
        let at_line = |what| format!("{}: {what}", trial.place);
        let proxy = trial
            .at
            .delay
            .map(|delay| DelayProxy::start(&self.runner.floodmark, hosts, server, delay));
        let proxy = proxy.transpose().map_err(at_trial)?;
        let address = proxy.as_ref().map_or(server, |proxy| proxy.address);
        let mut planned = plan_trial(trial, hosts, address).map_err(at_line)?;
        // The arrivals differ between processes, but are the same in all trials.
        let earlier = u64::from(process.process - 1) * u64::from(trial.load.attempt_count());
        planned.plan.seed = planned.plan.seed.wrapping_add(earlier);
        check_set(&hosts.client, &planned, self.runner.stop).map_err(|fault| match fault {
            SetFault::Interrupted => StepError::Interrupted,
            SetFault::NotEmpty(what) | SetFault::Unreadable(what) => {
                StepError::Failed(at_trial(what))
            }
        })?;
        let proxy = proxy.as_ref().map(DelayProxy::pid);
        let search = self.runner.experiment.capacity.as_ref().map(|search| {
            let spec = open_spec(trial.spec(hosts.client.cpus.as_ref().map(Cpus::count)));
            plan_spec(&spec, hosts, &trial.url(address)).map(|open| (search, open))
        });
        let search = search.transpose().map_err(at_line)?;
        let failure = self.run_attempts(process, (&planned, search.as_ref()), proxy);
        let survived = self.check_survivors(process);
        if survived && self.runner.experiment.prove && failure.is_none() {
            self.prove(process, &planned);
        }
        Ok(failure)
    }

    fn run_attempts(
        &mut self,
        process: &TrialProcess<'_>,
        (planned, search): (&Planned, Option<&(&CapacitySearchPlan, Planned)>),
        proxy: Option<u32>,
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
            leases: &self.leases,
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
            expected: &self.runner.experiment.description.expected_causes,
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
            stop: self.runner.stop,
            abort_if: &self.runner.experiment.abort_if,
            request_log: None,
            rates: None,
        };
        let listener = &mut *self.listener;
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
            return search.measure(None, self.directory, &mut |event: &Event| {
                listener.on_event(event)
            });
        }
        let mut client_failure = None;
        let failure = attempts.measure(&mut 1, self.directory, &mut |event: &Event| {
            if let Event::ClientRan(ran) = event {
                client_failure.clone_from(&ran.failure);
            }
            listener.on_event(event);
        });
        if let Some(what) = client_failure {
            self.fail_trial(trial, format!("{}: {what}", trial.name));
        }
        failure
    }

    /// Records a failure if the server or the store exited under load. Returns whether both are
    /// still running.
    pub(super) fn check_survivors(&mut self, process: &mut TrialProcess<'_>) -> bool {
        let trial = process.trial;
        let mut survived = true;
        if let Some(status) = process.server.exit_status() {
            survived = false;
            let last_words = process.server.last_words();
            self.fail(format!(
                "{}: the server ended during the load ({status}){last_words}",
                trial.name
            ));
        }
        let exit = process.store.as_mut().and_then(StoreInstance::exit);
        if let Some((exit, behind)) = exit.zip(trial.at.store.as_ref()) {
            survived = false;
            let (name, store) = (&trial.name, behind.name());
            let what = format!("{name}: the store {store} ended during the load {exit}");
            self.fail_trial(trial, what);
        }
        survived
    }

    /// Perturbs a measured process and records the result. Skips processes for which no
    /// perturbation can distinguish the cause from others.
    fn prove(&mut self, process: &TrialProcess<'_>, planned: &Planned) {
        let (runner, trial) = (self.runner, process.trial);
        let record = match fold_with(self.directory.path(), self.directory.unsaved()) {
            Ok(record) => record,
            Err(error) => return self.listener.on_problem(&error.to_string()),
        };
        let is_run =
            |run: &&Run| run.trial.as_ref() == Some(&trial.name) && run.process == process.process;
        let run = record.runs.iter().rfind(is_run);
        let Some(run) = run.filter(|_| !runner.stop.is_set()) else {
            return;
        };
        let doubled = match self.start_doubled(process, &record, run) {
            Ok(doubled) => doubled,
            Err(StepError::Interrupted) => return,
            Err(StepError::Failed(what)) => {
                self.listener.on_problem(&what);
                None
            }
        };
        let test = PerturbationTest {
            floodmark: &runner.floodmark,
            plan: &planned.plan,
            credentials: &planned.credentials,
            side: &process.hosts.client,
            server: Some(process.server.pid()),
            store: process.store_pid(),
            doubled: doubled
                .as_ref()
                .map(|doubled| (&*doubled.setting, &doubled.planned.plan)),
            stop: runner.stop,
        };
        let listener = &mut self.listener;
        let mut announce =
            |progress: &str| listener.on_step(&format!("{}: {progress}", trial.name));
        let outcome = test.run(run, self.directory, &mut announce);
        let killed =
            doubled.and_then(|doubled| doubled.server.stop("the second server", runner.stop));
        let failed = match outcome {
            ProofOutcome::Failed(what) => Some(format!("the verdict is not proven: {what}")),
            ProofOutcome::Measured | ProofOutcome::NothingToChange => None,
        };
        for what in failed.into_iter().chain(killed) {
            self.listener.on_problem(&format!("{}: {what}", trial.name));
        }
    }

    /// Starts a second server with a doubled pool setting, if the server has a pool setting.
    fn start_doubled(
        &mut self,
        process: &TrialProcess<'_>,
        record: &Record,
        run: &Run,
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
        self.listener.on_step(&step);
        let name = format!("{}-{}-changed", trial.name, process.process);
        let store = process.store.as_ref().map(|store| &*store.reached);
        let tls = server::tls(&trial, hosts)?;
        let server = self
            .start_server(
                &trial,
                (hosts, tls.as_ref()),
                store,
                &name,
                StartOrder::First,
            )
            .map_err(|error| error.of(&step))?;
        let planned = plan_trial(&trial, hosts, server.address).map_err(StepError::Failed)?;
        Ok(Some(DoubledProcess {
            server,
            setting,
            planned,
        }))
    }
}

/// Converts the settings of a closed-model load to those of an open-model load at a nominal rate.
fn open_spec(mut spec: PlanSpec) -> PlanSpec {
    spec.load.rate = Rate::new(1.0);
    spec.load.arrivals = Some(Spacing::Poisson);
    spec.load.warmup = Some(Warmup::Before(Duration::ZERO));
    spec
}
