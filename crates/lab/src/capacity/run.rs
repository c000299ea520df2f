//! Runs a search: sends its loads, judges its trials and records them.

use std::time::{Duration, Instant};

use floodmark_diagnose::client_fault;
use floodmark_diagnose::conditions::Objective;
use floodmark_observe::CpuSpeedMonitor;
use floodmark_plan::Planned;
use floodmark_record::Event;
use floodmark_record::capacity::{
    AnsweredRate, CapacityBegan, CapacityEnd, CapacityEnded, CapacityLevel, CapacityPlan,
    CapacityTrial, ObjectiveFigure, TrialFlow, TrialOutcome, TrialPurpose,
};
use floodmark_record::events::RunId;
use floodmark_record::plan::Plan;
use floodmark_record::reason::{Reason, Worded};
use floodmark_record::run::Run;
use floodmark_record::units::show_duration;
use floodmark_stats::capacity::UsualCpuSpeed;
use floodmark_workers::WorkerFailure;

use super::loads::{
    CLOSED, LoadFlow, LoadLengths, MeasuredTrial, OpenTrial, PlannedTrial, closed_load,
    default_connections, idle_load, load_at, probe_load, slow_s, tail_shares, trial_load,
};
use super::planner::TrialPlanner;
use super::{CapacityEvents, EarlierSearch, LevelPlanner};
use crate::attempt::{Attempts, Listener, send_unrecorded};
use crate::attempt_monitor::Monitoring;
use crate::directory::Directory;
use crate::fold::{JoinedRun, test_fault};

/// Minimum length of a search. Shorter searches have time for too few trials.
const SHORTEST_BUDGET: Duration = Duration::from_secs(15);

/// Returns the time limit of a search if the limit is long enough.
///
/// # Errors
/// The limit is shorter than 15 s.
pub fn check_budget(budget: Duration) -> Result<Duration, String> {
    if budget < SHORTEST_BUDGET {
        let least = show_duration(SHORTEST_BUDGET);
        return Err(format!("a search needs at least {least}"));
    }
    Ok(budget)
}

/// Lowest rate to try, as a share of the throughput of the closed model.
const LOWEST_SHARE: f64 = 0.01;

/// Lowest rate to try, as a share of a single connection's throughput, if even a single connection
/// misses an objective.
const LOWEST_IDLE_SHARE: f64 = 0.5;

/// First rate to try, as a share of the throughput of the closed model.
const START_SHARE: f64 = 0.9;

/// Highest rate to try, as a multiple of the throughput of the closed model.
const HIGHEST_FACTOR: f64 = 1e3;

/// Maximum time to wait for the server to warm up, as a share of the budget.
const WARMING_SHARE: f64 = 0.2;

/// Maximum time to wait for the server to recover after a trial that missed the objectives.
const RECOVERY_WAIT: Duration = Duration::from_secs(10);

/// Pause between two checks for the server's recovery.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// A search and its environment.
pub struct CapacityRun<'a> {
    /// Environment of the loads. Its plan uses the open model.
    pub attempts: Attempts<'a>,
    /// Plan that uses the closed model.
    pub closed: &'a Planned,
    /// Objectives that the server must meet.
    pub objectives: &'a [Objective],
    /// Number of CPUs of this host.
    pub cpus: u32,
    /// Number of connections of the open-model loads; `None` for the default.
    pub connections: Option<u32>,
    /// Half-width of the capacity's interval at which the search ends, as a share of the capacity.
    pub precision: f64,
    /// Maximum length of the search, excluding its warm-up; checked by [`check_budget`].
    pub budget: Duration,
}

/// A search that is running.
struct CapacitySession<'s, 'l> {
    run: &'s CapacityRun<'s>,
    directory: &'s mut Directory,
    listener: &'s mut Listener<'l>,
    /// Number of the last attempt.
    attempt: u32,
    /// Next free request number.
    first_number: u64,
    /// Start of the search. If the search was resumed, this is moved back by the time that it took
    /// before the interruption.
    begin: Instant,
    notes: Vec<String>,
    /// Median service time over a single connection, in microseconds.
    idle_us: f64,
    /// Measures the speed of the server's CPUs; `None` if the server is not on this host.
    cpu_speed: Option<CpuSpeedMonitor>,
    usual_cpu_speed: UsualCpuSpeed,
    /// Share of the latest load's time in which the server's CPUs were slow.
    slow_cpu_share: Option<f64>,
}

/// Why a search cannot continue.
enum SearchStopped {
    Interrupted,
    Failed(Option<WorkerFailure>),
}

impl CapacityRun<'_> {
    /// Searches for the capacity and records the events in `directory`. Returns the failure of a
    /// load process, if any.
    pub fn measure(
        &self,
        earlier: Option<EarlierSearch>,
        directory: &mut Directory,
        listener: &mut Listener<'_>,
    ) -> Option<WorkerFailure> {
        let resumed = |of: &EarlierSearch| (of.elapsed_s(), of.last_attempt, of.first_number);
        let (elapsed_s, attempt, first_number) = earlier.as_ref().map_or((0.0, 0, 1), resumed);
        let now = Instant::now();
        let mut session = CapacitySession {
            run: self,
            directory,
            listener,
            attempt,
            first_number,
            begin: now
                .checked_sub(Duration::from_secs_f64(elapsed_s))
                .unwrap_or(now),
            notes: Vec::new(),
            idle_us: 0.0,
            cpu_speed: self.cpu_speed(),
            usual_cpu_speed: UsualCpuSpeed::default(),
            slow_cpu_share: None,
        };
        match session.search(earlier) {
            Ok(()) | Err(SearchStopped::Interrupted) => None,
            Err(SearchStopped::Failed(failure)) => failure,
        }
    }

    /// Starts to measure the speed of the server's CPUs.
    fn cpu_speed(&self) -> Option<CpuSpeedMonitor> {
        let Monitoring::Local(targets) = &self.attempts.monitoring else {
            return None;
        };
        let addresses: Vec<_> = self.closed.plan.target.addresses().collect();
        let start = || CpuSpeedMonitor::of_server(targets, &addresses);
        self.attempts.side.within(start).ok().flatten()
    }
}

impl CapacitySession<'_, '_> {
    fn search(&mut self, earlier: Option<EarlierSearch>) -> Result<(), SearchStopped> {
        // The closed model comes first, because it may include a warm-up.
        let closed_plan = &self.run.closed.plan;
        let (closed, answered) = self.warmed_up(closed_load(closed_plan))?;
        let per_s = closed.throughput_per_s.filter(|per_s| *per_s > 0.0);
        let per_s = per_s.ok_or(SearchStopped::Failed(None))?;
        let idle = self.load(idle_load(closed_plan))?;
        self.idle_us = idle.service_time_us.p50.unwrap_or(0.0);
        if idle.requests.ok == 0 {
            return Err(SearchStopped::Failed(None));
        }
        let deadline = self.run.attempts.planned.plan.deadline;
        let mut objectives = self.run.objectives.iter();
        let is_met_idle = objectives.all(|objective| objective.judge(&idle, deadline).is_met);
        let earlier_effect = earlier.as_ref().and_then(EarlierSearch::design_effect);
        let (objectives, budget) = (self.run.objectives, self.run.budget);
        let mut lengths = LoadLengths::new(objectives, budget, is_met_idle, earlier_effect);
        lengths.add_p90(closed.response_time_us.p90);
        let mut events = match earlier {
            Some(earlier) => earlier.events,
            None => {
                let idle_per_s = idle.throughput_per_s.unwrap_or(per_s);
                let lowest_idle_per_s = LOWEST_IDLE_SHARE * idle_per_s;
                let (lowest_per_s, start_per_s) = if is_met_idle {
                    (LOWEST_SHARE * per_s, START_SHARE * per_s)
                } else {
                    (lowest_idle_per_s, lowest_idle_per_s)
                };
                let settings = CapacityPlan {
                    objectives: self.run.objectives.iter().map(|o| o.text.clone()).collect(),
                    start_per_s,
                    lowest_per_s: lowest_per_s.max(f64::MIN_POSITIVE),
                    highest_per_s: HIGHEST_FACTOR * per_s,
                    precision: self.run.precision,
                    budget_s: self.run.budget.as_secs_f64(),
                    closed: answered,
                };
                let run = RunId {
                    attempt: 0,
                    ..self.run.attempts.run.clone()
                };
                let began = CapacityBegan { run, settings };
                self.record(Event::CapacityBegan(began.clone()));
                CapacityEvents::new(began)
            }
        };
        let budget = self.run.budget + closed_plan.warmup;
        let mut planner = TrialPlanner::new(
            &events.began.settings,
            &events.trials,
            lengths,
            self.can_overload(),
            budget.as_secs_f64(),
        );
        let searched = self.trials(&mut events, &mut planner);
        let searched =
            searched.and_then(|reason| self.levels(&mut events, &planner).map(|()| reason));
        let (reason, ended) = match searched {
            Ok(reason) => (reason, Ok(())),
            Err(SearchStopped::Interrupted) => (CapacityEnd::Interrupted, Ok(())),
            Err(failed) => (CapacityEnd::Failed, Err(failed)),
        };
        let event = CapacityEnded {
            elapsed_s: self.elapsed_s(),
            reason,
            notes: std::mem::take(&mut self.notes),
        };
        self.record(Event::CapacityEnded(event));
        self.directory.sync();
        ended
    }

    /// Sends the closed-model load, and repeats it while the server is warming up. Returns the last
    /// run and the rate that the server answered.
    fn warmed_up(&mut self, plan: Plan) -> Result<(Run, Option<AnsweredRate>), SearchStopped> {
        let until = self.run.budget.mul_f64(WARMING_SHARE) + plan.warmup;
        let mut next = plan;
        loop {
            let (run, flow) = self.with_flow(next.clone(), CLOSED)?;
            if !flow.is_rising() || self.begin.elapsed() > until {
                return Ok((run, flow.measured().map(|flow| flow.answered)));
            }
            next.warmup = Duration::ZERO;
        }
    }

    /// Sends a load that is recorded as a run. `length` excludes its warm-up. Returns the run and its
    /// flow.
    fn with_flow(
        &mut self,
        plan: Plan,
        length: Duration,
    ) -> Result<(Run, LoadFlow), SearchStopped> {
        let mut run = JoinedRun::new(self.next_id(), plan.clone());
        let mut flow = LoadFlow::new(self.run.objectives, length);
        self.send(plan, |event| {
            flow.take(event);
            run.take(event);
        })?;
        Ok((run.finish(), flow))
    }

    /// Runs trials until the result is precise or the budget is used up.
    fn trials(
        &mut self,
        events: &mut CapacityEvents,
        planner: &mut TrialPlanner<'_>,
    ) -> Result<CapacityEnd, SearchStopped> {
        let last = events.trials.last();
        let mut is_after_miss = last.is_some_and(|trial| trial.outcome == TrialOutcome::Miss);
        loop {
            let planned = match planner.next(self.elapsed_s()) {
                Ok(planned) => planned,
                Err(end) => return Ok(end),
            };
            if is_after_miss {
                self.await_recovery()?;
            }
            let trial = self.trial(&planned, planner)?;
            is_after_miss = trial.outcome == TrialOutcome::Miss;
            planner.record(&trial);
            events.trials.push(trial.clone());
            self.record(Event::CapacityTrial(trial));
            self.directory.sync();
        }
    }

    /// Runs one trial.
    fn trial(
        &mut self,
        planned: &PlannedTrial,
        planner: &mut TrialPlanner<'_>,
    ) -> Result<CapacityTrial, SearchStopped> {
        let at_s = self.elapsed_s();
        let open = &self.run.attempts.planned.plan;
        let lengths = planner.lengths();
        let strictest = lengths.strictest();
        let limit = strictest.and_then(Objective::time_limit_s);
        let proves = planned.purpose == TrialPurpose::Prove;
        let of_proof = strictest.and_then(|objective| slow_s(objective, self.idle_us / 1e6));
        let of_proof = of_proof.filter(|_| proves);
        let slow = of_proof.map(Duration::from_secs_f64).or(lengths.slow);
        let plan = trial_load(open, planned, slow);
        let plan = self.connected(plan, planned.rate_per_s);
        let objectives = self.run.objectives;
        let mut open = OpenTrial::new(self.next_id(), &plan, objectives, limit.is_none());
        self.send(plan, |event| open.take(event))?;
        let MeasuredTrial {
            run,
            parts,
            flow,
            server_cpus,
        } = open.finish();
        let (figures, outcome, fault) =
            self.judge(&run, planned.rate_per_s, flow.as_ref(), planner);
        let counts_all = |of: &&Objective| proves && of.group.is_none();
        let tail = strictest
            .filter(counts_all)
            .map(|objective| tail_shares(objective, &parts, objective.share_beyond(&run)));
        if outcome == TrialOutcome::Pass && !proves {
            planner.learn(run.response_time_us.p90, parts);
        }
        let counts = &run.requests;
        let due = counts.intended.saturating_sub(counts.in_flight_at_end);
        Ok(CapacityTrial {
            rate_per_s: planned.rate_per_s,
            purpose: planned.purpose,
            start: planned.start,
            at_s,
            transient_s: planned.length.transient_s,
            judged_s: planned.length.judged_s,
            required_s: planned.required_s,
            outcome,
            flow,
            tail: tail.unwrap_or_default(),
            fault: fault.map(Worded::Fact),
            figures,
            throughput_per_s: run.throughput_per_s,
            error_share: (due > 0).then(|| due.saturating_sub(counts.ok) as f64 / due as f64),
            p50_us: run.response_time_us.p50,
            p99_us: run.response_time_us.p99,
            design_effect: planner.lengths().design_effect(),
            server_cpus,
            slow_cpu_share: self.slow_cpu_share,
        })
    }

    /// Judges a load at `rate_per_s`. Returns the figure of each objective, the outcome of the
    /// load, and the reason why the client could not send it as planned, if any.
    fn judge(
        &self,
        run: &Run,
        rate_per_s: f64,
        flow: Option<&TrialFlow>,
        planner: &TrialPlanner<'_>,
    ) -> (Vec<ObjectiveFigure>, TrialOutcome, Option<Reason>) {
        let deadline = self.run.attempts.planned.plan.deadline;
        let objectives = self.run.objectives.iter();
        let figures: Vec<_> = objectives.map(|of| of.judge(run, deadline)).collect();
        let sustains = |flow| planner.sustains(rate_per_s, flow);
        let is_met = figures.iter().all(|figure| figure.is_met) && flow.is_none_or(sustains);
        // If the response times meet the objectives in spite of late requests, the load is valid.
        let cpus = run.client_cpus(self.run.cpus);
        let fault = test_fault(client_fault(run, cpus, is_met));
        let outcome = match &fault {
            Some(_) => TrialOutcome::Void,
            None if is_met => TrialOutcome::Pass,
            None => TrialOutcome::Miss,
        };
        (figures, outcome, fault)
    }

    /// Waits until the server responds as fast as before the search.
    fn await_recovery(&mut self) -> Result<(), SearchStopped> {
        let since = Instant::now();
        let mut responded = false;
        while since.elapsed() < RECOVERY_WAIT {
            let run = self.probe()?;
            responded |= run.requests.ok > 0;
            let is_fast = |us: f64| us <= 2.0 * self.idle_us + 500.0;
            if run.service_time_us.p50.is_some_and(is_fast) {
                return Ok(());
            }
            std::thread::sleep(PROBE_PAUSE);
        }
        if !responded {
            // Send a load that is recorded as a run, so that the record shows what happened.
            self.load(idle_load(&self.run.closed.plan))?;
            return Err(SearchStopped::Failed(None));
        }
        let wait_s = RECOVERY_WAIT.as_secs();
        let note = format!("the server did not recover within {wait_s} s after an overload");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        Ok(())
    }

    /// Sends a few requests over one connection, without recording them.
    fn probe(&mut self) -> Result<Run, SearchStopped> {
        let CapacityRun {
            attempts, closed, ..
        } = self.run;
        let load = (attempts.run.clone(), probe_load(&closed.plan));
        let number = &mut self.first_number;
        let sent = send_unrecorded(
            load,
            &closed.credentials,
            attempts.side,
            number,
            attempts.stop,
        );
        match sent {
            _ if attempts.stop.is_set() => Err(SearchStopped::Interrupted),
            sent => sent.map_err(|failure| SearchStopped::Failed(Some(failure))),
        }
    }

    /// Sends the loads after the search.
    fn levels(
        &mut self,
        events: &mut CapacityEvents,
        planner: &TrialPlanner<'_>,
    ) -> Result<(), SearchStopped> {
        let levels = LevelPlanner::new(&events.result());
        while let Some(rate_per_s) = levels.next(&events.levels) {
            let length = planner.lengths().level(rate_per_s, levels.capacity_per_s());
            let open = &self.run.attempts.planned.plan;
            let Some(plan) = load_at(open, rate_per_s, length) else {
                break;
            };
            let plan = self.connected(plan, rate_per_s);
            let seconds = Duration::from_secs_f64(length.transient_s + length.judged_s);
            let (run, flow) = self.with_flow(plan, seconds)?;
            let flow = flow.measured();
            let (_, outcome, _) = self.judge(&run, rate_per_s, flow.as_ref(), planner);
            let level = Event::CapacityLevel(CapacityLevel {
                attempt: self.attempt,
                rate_per_s,
                outcome,
            });
            events.take(&level);
            self.record(level);
        }
        Ok(())
    }

    /// Returns whether trials after an overload can be judged. This is impossible if an objective
    /// applies to one request of a mix, because the figures of such a request cover the whole load,
    /// including the overload.
    fn can_overload(&self) -> bool {
        self.run.objectives.iter().all(|o| o.group.is_none())
    }

    /// Sets the number of connections of an open-model plan.
    fn connected(&self, plan: Plan, rate_per_s: f64) -> Plan {
        let limits = self
            .run
            .objectives
            .iter()
            .filter_map(Objective::time_limit_s);
        let limit_s = limits.reduce(f64::max);
        let plan = Plan {
            connections: self.run.attempts.planned.max_connections,
            ..plan
        };
        let default = || default_connections(rate_per_s, limit_s, &plan);
        Plan {
            connections: self.run.connections.unwrap_or_else(default),
            ..plan
        }
    }

    fn next_id(&self) -> RunId {
        RunId {
            attempt: self.attempt + 1,
            ..self.run.attempts.run.clone()
        }
    }

    /// Sends a load that is recorded as a run.
    fn load(&mut self, plan: Plan) -> Result<Run, SearchStopped> {
        let mut run = JoinedRun::new(self.next_id(), plan.clone());
        self.send(plan, |event| run.take(event))?;
        Ok(run.finish())
    }

    /// Sends a load and records its events.
    fn send(&mut self, plan: Plan, mut on_event: impl FnMut(&Event)) -> Result<(), SearchStopped> {
        let run = self.next_id();
        self.attempt += 1;
        let planned = Planned {
            plan,
            origin: self.run.closed.origin,
            credentials: self.run.closed.credentials.clone(),
            sizes_connections: false,
            max_connections: self.run.attempts.planned.max_connections,
            remarks: Vec::new(),
            notices: self.run.closed.notices.clone(),
        };
        let attempts = Attempts {
            planned: &planned,
            attempts: 1,
            run,
            ..self.run.attempts.clone()
        };
        if let Some(monitor) = &self.cpu_speed {
            // Samples from the pause before the load do not count.
            let _ = monitor.take();
        }
        let listener = &mut *self.listener;
        let mut on_event = |event: &Event| {
            on_event(event);
            listener(event);
        };
        let failure = attempts.measure(&mut self.first_number, self.directory, &mut on_event);
        let samples = self.cpu_speed.iter().flat_map(CpuSpeedMonitor::take);
        let times = samples.map(|sample| (sample.cpu, sample.work_ns as f64));
        self.slow_cpu_share = self.usual_cpu_speed.add(times);
        if self.run.attempts.stop.is_set() {
            return Err(SearchStopped::Interrupted);
        }
        match failure {
            None if self.directory.failure().is_none() => Ok(()),
            failure => Err(SearchStopped::Failed(failure)),
        }
    }

    fn record(&mut self, event: Event) {
        self.directory.append(&event);
        (self.listener)(&event);
    }

    fn elapsed_s(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }
}
