//! The loads of a capacity search: their plans, their lengths, and the figures collected while they
//! are being sent.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use floodmark_diagnose::conditions::Objective;
use floodmark_observe::LossSample;
use floodmark_record::capacity::{AnsweredRate, TailShare, TrialFlow, TrialPurpose, TrialStart};
use floodmark_record::events::{PartRow, Phase, RunId};
use floodmark_record::plan::{FiguresOf, Length, Model, Plan, RateStep, Schedule, Spacing};
use floodmark_record::run::Run;
use floodmark_record::units::Rate;
use floodmark_record::{Event, SecondRow};
use floodmark_stats::capacity::{
    FlowRow, LATEST_TRIALS, PartLoss, ProofPower, SHORTEST_TRANSIENT_S, SHORTEST_TRIAL_S,
    TrialLength, TrialRow, design_effect, is_rising, part_states, trial_flow, trial_length,
};

use super::usable::UsableParts;
use crate::fold::JoinedRun;

/// Length of the load over a single connection. This load shows the server's response times without
/// queueing.
const IDLE: Duration = Duration::from_secs(1);

/// Length of the closed-model load, which gives a first estimate of the rate that the server can
/// sustain.
const CLOSED: Duration = Duration::from_secs(2);

/// Number of requests that show whether the server has recovered from an overload.
const PROBE_REQUESTS: u64 = 5;

/// Length of an overload in seconds.
pub const OVERLOAD_S: f64 = 0.5;

/// Rate of an overload, as a multiple of the capacity.
pub const OVERLOAD_FACTOR: f64 = 1.5;

/// Minimum mean time between two requests on one connection, for the default number of connections.
/// It also applies if no objective limits response times.
const DEFAULT_REUSE: Duration = Duration::from_millis(100);

/// Minimum number of connections of the open model.
const FEWEST_CONNECTIONS: f64 = 100.0;

/// A trial of a search, and its length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedTrial {
    /// State of the server at the start.
    pub start: TrialStart,
    /// Offered rate in requests per second.
    pub rate_per_s: f64,
    /// Why the trial has this rate.
    pub purpose: TrialPurpose,
    /// Current estimate of the capacity; the rate of the trial if there is none.
    pub capacity_per_s: f64,
    /// Length of the trial.
    pub length: TrialLength,
    /// Judged time that the precision requires, in seconds; 0 if nothing is known about it.
    pub required_s: f64,
}

/// Minimum usable time of a trial that is long enough, as a share of the required time.
const LEAST_OF_REQUIRED: f64 = 0.8;

impl PlannedTrial {
    /// Returns the judged time that the precision requires, in seconds, if the budget shortened the
    /// trial or disturbances left clearly less. `usable_share` is `None` if the whole trial is
    /// judged.
    pub fn unmet_s(&self, usable_share: Option<f64>) -> Option<f64> {
        let judged_s = self.length.judged_s;
        let usable_s = judged_s * usable_share.unwrap_or(1.0);
        let is_limited = self.required_s > judged_s;
        // The shortest trials are longer than the precision requires.
        let is_cut =
            self.required_s > SHORTEST_TRIAL_S && usable_s < LEAST_OF_REQUIRED * self.required_s;
        (is_limited || is_cut).then_some(self.required_s)
    }

    /// Returns the steps of the trial's load. Only the last one is judged.
    pub fn steps(&self) -> Vec<RateStep> {
        let step = |rate_per_s, duration_s| RateStep {
            rate_per_s,
            duration_s,
        };
        let overload = match self.start {
            TrialStart::Idle => None,
            TrialStart::Overload => Some(step(OVERLOAD_FACTOR * self.capacity_per_s, OVERLOAD_S)),
        };
        let TrialLength {
            transient_s,
            judged_s,
        } = self.length;
        let steady = [transient_s, judged_s].map(|s| step(self.rate_per_s, s));
        overload.into_iter().chain(steady).collect()
    }
}

/// Converts a closed-model plan into a load over a single connection.
pub fn idle_load(plan: &Plan) -> Plan {
    let length = Length::Duration(IDLE);
    Plan {
        connections: 1,
        threads: 1,
        ..whole_load(plan, Model::Closed { length })
    }
}

/// Converts a closed-model plan into the load that shows whether the server has recovered from an
/// overload.
pub fn probe_load(plan: &Plan) -> Plan {
    let length = Length::Requests(PROBE_REQUESTS);
    Plan {
        model: Model::Closed { length },
        ..idle_load(plan)
    }
}

/// Converts a closed-model plan into the first load of a search, which has the plan's connections
/// and warm-up.
pub fn closed_load(plan: &Plan) -> Plan {
    let length = Length::Duration(CLOSED);
    Plan {
        model: Model::Closed { length },
        ..plan.clone()
    }
}

/// Converts an open-model plan into the load of a trial. Only the last step of the load is judged.
/// Responses that take longer than `deadline` count as slow; `None` stands for the plan's deadline.
pub fn trial_load(plan: &Plan, trial: &PlannedTrial, deadline: Option<Duration>) -> Plan {
    let schedule = Schedule::Steps {
        steps: trial.steps(),
        spacing: spacing(plan),
    };
    Plan {
        deadline: deadline.unwrap_or(plan.deadline),
        ..open_load(plan, schedule)
    }
}

/// Converts an open-model plan into a load at a constant rate. Returns `None` if the rate is 0.
pub fn load_at(plan: &Plan, rate_per_s: f64, length: TrialLength) -> Option<Plan> {
    let schedule = Schedule::Constant {
        rate: Rate::new(rate_per_s)?,
        spacing: spacing(plan),
        length: Length::seconds(length.transient_s + length.judged_s),
    };
    Some(open_load(plan, schedule))
}

fn open_load(plan: &Plan, schedule: Schedule) -> Plan {
    let hold = plan.hold();
    whole_load(plan, Model::Open { schedule, hold })
}

/// Returns a load without a warm-up. Its figures cover the whole load.
fn whole_load(plan: &Plan, model: Model) -> Plan {
    Plan {
        model,
        warmup: Duration::ZERO,
        figures_of: FiguresOf::Whole,
        ..plan.clone()
    }
}

fn spacing(plan: &Plan) -> Spacing {
    match plan.schedule() {
        Some(Schedule::Constant { spacing, .. }) => *spacing,
        _ => Spacing::Poisson,
    }
}

/// Returns the default number of connections of a search: enough for the requests sent in ten times
/// the time limit or in 100 ms, whichever is longer; at least 100, and at most `most`.
pub fn default_connections(start_per_s: f64, limit_s: Option<f64>, most: u32) -> u32 {
    let reuse_s = limit_s
        .map_or(0.0, |limit_s| 10.0 * limit_s)
        .max(DEFAULT_REUSE.as_secs_f64());
    let connections = (start_per_s * reuse_s).max(FEWEST_CONNECTIONS).ceil();
    (connections as u32).min(most)
}

/// Share of the budget that a single trial may use.
const TRIAL_SHARE: f64 = 1.0 / 40.0;

/// Maximum judged time of each load after the search, as a share of the budget.
const LEVEL_SHARE: f64 = 1.0 / 30.0;

/// Minimum value, in seconds, of the limit that [`LEVEL_SHARE`] sets. It applies to small budgets.
const SHORTEST_LEVEL_S: f64 = 0.5;

/// Transient of a proof trial, as a share of its judged time.
const PROOF_TRANSIENT: f64 = 0.1;

/// Minimum response time at which a request can count as slow, as a share of the objective's limit.
/// Variation among much faster responses does not matter.
const NEAR_LIMIT: f64 = 0.7;

/// Chooses the lengths of trials and of the loads after the search, based on the correlation
/// between the requests so far.
pub struct LoadLengths<'a> {
    objectives: &'a [Objective],
    budget: Duration,
    /// Whether a single connection met the objectives.
    is_met_idle: bool,
    /// Parts of the latest trials that passed.
    passed: VecDeque<Vec<TrialRow>>,
    /// Design effect before the search was interrupted.
    earlier_effect: Option<f64>,
    /// Response time above which a request counts as slow. At most about a tenth of the requests
    /// exceed it.
    pub slow: Option<Duration>,
}

impl<'a> LoadLengths<'a> {
    /// Prepares to choose lengths for a new or resumed search. `earlier_effect` is the design
    /// effect before the interruption.
    pub fn new(
        objectives: &'a [Objective],
        budget: Duration,
        is_met_idle: bool,
        earlier_effect: Option<f64>,
    ) -> Self {
        LoadLengths {
            objectives,
            budget,
            is_met_idle,
            passed: VecDeque::new(),
            earlier_effect,
            slow: None,
        }
    }

    /// Adds the 90th percentile of a load's response times, in microseconds. Requests that take
    /// longer count as slow if they also take longer than [`NEAR_LIMIT`] times the objective's
    /// limit.
    pub fn add_p90(&mut self, p90_us: Option<f64>) {
        let limit_s = self.strictest().and_then(Objective::time_limit_s);
        let near_s = limit_s.map_or(0.0, |limit_s| NEAR_LIMIT * limit_s);
        let slow_s = p90_us.map(|p90_us| (p90_us / 1e6).max(near_s));
        self.slow = slow_s.map(Duration::from_secs_f64).or(self.slow);
    }

    /// Adds the consecutive parts of a trial that passed.
    pub fn add_passed(&mut self, parts: Vec<TrialRow>) {
        self.passed.push_back(parts);
        if self.passed.len() > LATEST_TRIALS {
            self.passed.pop_front();
        }
    }

    /// Returns the design effect of the latest trials that passed. If it is unknown, returns the
    /// design effect before the interruption.
    pub fn design_effect(&self) -> Option<f64> {
        let passed: Vec<_> = self.passed.iter().cloned().collect();
        design_effect(&passed).or(self.earlier_effect)
    }

    /// Returns the answered rate and the growth of the requests in flight over consecutive parts of
    /// 100 ms.
    pub fn flow(&self, rows: &[FlowRow]) -> Option<TrialFlow> {
        flow(rows, needed_share(self.objectives))
    }

    /// Returns the objective that demands the most precise figures.
    pub fn strictest(&self) -> Option<&'a Objective> {
        let objectives = self.objectives.iter();
        objectives.max_by(|a, b| a.quantile().total_cmp(&b.quantile()))
    }

    /// Returns the length of a trial, and the judged time, in seconds, that the required precision
    /// needs. The budget may shorten the trial. `capacity_per_s` is `None` until at least one trial
    /// has met the objectives and at least one has missed them. `usable_share` is the share of the
    /// judged time that disturbances are expected to leave.
    pub fn trial(
        &self,
        rate_per_s: f64,
        start: TrialStart,
        capacity_per_s: Option<f64>,
        usable_share: f64,
    ) -> (TrialLength, f64) {
        if !self.is_met_idle && self.passed.is_empty() {
            // The objectives are probably missed at every rate, so precision does not matter until
            // a trial passes.
            let length = TrialLength {
                transient_s: SHORTEST_TRANSIENT_S,
                judged_s: SHORTEST_TRIAL_S,
            };
            return (length, 0.0);
        }
        // Ignore the design effect until the capacity is known. Far from the capacity, the outcome
        // does not depend on precise figures.
        let effect = self.design_effect().filter(|_| capacity_per_s.is_some());
        let quantile = self.strictest().map_or(0.5, Objective::quantile);
        let required = trial_length(rate_per_s, quantile, effect.unwrap_or(1.0));
        let most_s = (self.budget.as_secs_f64() * TRIAL_SHARE).max(SHORTEST_TRIAL_S);
        let required_s = required.judged_s;
        let mut length = required.limited(most_s).lengthened(usable_share);
        if start == TrialStart::Overload {
            // Give a healthy server enough time to answer the requests sent during the overload.
            let queue_s = (OVERLOAD_FACTOR - 1.0) * OVERLOAD_S;
            let spare = 1.0 - rate_per_s / capacity_per_s.unwrap_or(rate_per_s);
            length.transient_s += 1.5 * queue_s / spare.max(0.05);
        }
        (length, required_s)
    }

    /// Returns the length of a proof trial that takes `available_s` seconds, and its statistical
    /// power. `usable_share` is the share of the judged time that disturbances are expected to
    /// leave.
    pub fn proof(
        &self,
        rate_per_s: f64,
        available_s: f64,
        usable_share: f64,
    ) -> (TrialLength, ProofPower) {
        let effect = self.design_effect().unwrap_or(1.0);
        let judged_s = available_s * (1.0 - PROOF_TRANSIENT);
        let length = TrialLength {
            transient_s: SHORTEST_TRANSIENT_S.max(PROOF_TRANSIENT * judged_s),
            judged_s,
        };
        let power = ProofPower {
            allowed: self.strictest().map_or(0.5, allowed_tail),
            independent: rate_per_s * judged_s * usable_share / effect,
            judged_s: judged_s * usable_share,
        };
        (length, power)
    }

    /// Returns the length of a load after the search.
    pub fn level(&self, rate_per_s: f64, capacity_per_s: f64) -> TrialLength {
        let (mut length, _) = self.trial(rate_per_s, TrialStart::Idle, Some(capacity_per_s), 1.0);
        let most_s = self.budget.as_secs_f64() * LEVEL_SHARE;
        length.judged_s = length.judged_s.min(most_s.max(SHORTEST_LEVEL_S));
        length
    }
}

/// Returns the minimum share of ok responses that the strictest objective requires, or `None` if no
/// objective on all requests limits errors or goodput.
fn needed_share(objectives: &[Objective]) -> Option<f64> {
    let shares = objectives
        .iter()
        .filter(|objective| objective.group.is_none() && objective.time_limit_s().is_none());
    shares.map(Objective::quantile).reduce(f64::max)
}

/// Returns the flow of the requests in a part.
fn flow_row(part: &PartRow, needed_share: Option<f64>) -> FlowRow {
    let counts = &part.sums.counts;
    FlowRow {
        arrived: counts.intended,
        ended: counts.ended() + counts.connect_failed,
        answered: match needed_share {
            Some(_) => counts.ok,
            None => counts.ok + counts.wrong,
        },
    }
}

fn flow(rows: &[FlowRow], needed_share: Option<f64>) -> Option<TrialFlow> {
    trial_flow(rows, PART_S, needed_share.unwrap_or(1.0))
}

/// Returns the response time, in seconds, above which a request counts as slow in a proof trial:
/// the midpoint between the response time without a queue and the objective's limit. Returns `None`
/// if the objective does not limit a time.
pub fn slow_s(objective: &Objective, idle_s: f64) -> Option<f64> {
    let limit_s = objective.time_limit_s()?;
    Some(0.5 * (idle_s.min(limit_s) + limit_s))
}

/// Returns the maximum share of requests beyond the midpoint, or of failed requests.
fn allowed_tail(objective: &Objective) -> f64 {
    let allowed = 1.0 - objective.quantile();
    match objective.time_limit_s() {
        Some(_) => allowed.sqrt(),
        None => allowed,
    }
}

/// Returns the tail shares of a proof trial. `parts` count requests beyond the midpoint, or failed
/// requests. `beyond_limit` is the share beyond the time limit, if there is one.
pub fn tail_shares(
    objective: &Objective,
    parts: &[TrialRow],
    beyond_limit: Option<f64>,
) -> Vec<TailShare> {
    let requests: u64 = parts.iter().map(|part| part.requests).sum();
    let slow: u64 = parts.iter().map(|part| part.slow).sum();
    if requests == 0 {
        return Vec::new();
    }
    // Requests beyond the limit are at most as correlated as those beyond the midpoint.
    let effect = design_effect(&[parts.to_vec()]).unwrap_or(1.0);
    let tail = |share: f64, allowed| TailShare {
        share,
        error: (share * (1.0 - share) * effect / requests as f64).sqrt(),
        allowed,
    };
    let middle = tail(slow as f64 / requests as f64, allowed_tail(objective));
    let limit = beyond_limit.map(|share| tail(share, 1.0 - objective.quantile()));
    [middle].into_iter().chain(limit).collect()
}

/// The parts of a closed-model load.
pub struct ClosedFlow {
    needed_share: Option<f64>,
    clock: PhaseClock,
    parts: Vec<PartRow>,
}

impl ClosedFlow {
    /// Returns a load that has just started.
    pub fn new(objectives: &[Objective]) -> Self {
        ClosedFlow {
            needed_share: needed_share(objectives),
            clock: PhaseClock::default(),
            parts: Vec::new(),
        }
    }

    /// Adds an event of the load.
    pub fn take(&mut self, event: &Event) {
        self.clock.take(event);
        if let Event::Part(part) = event
            && part.phase == Phase::Measure
            && u128::from(part.to_ns) <= CLOSED.as_nanos()
            && is_whole(part)
        {
            self.parts.push(part.clone());
        }
    }

    /// Returns whether the server became faster during the load.
    pub fn is_rising(&self) -> bool {
        let row = |part| flow_row(part, self.needed_share);
        is_rising(&self.parts.iter().map(row).collect::<Vec<_>>())
    }

    /// Returns the losses of the parts.
    pub fn losses(&self, losses: &[LossSample]) -> Vec<PartLoss> {
        self.clock.losses(&self.parts, losses)
    }

    /// Returns the rate that the server answered in the undisturbed parts, or in all parts if there
    /// are too few.
    pub fn answered(&self, losses: &[PartLoss]) -> Option<AnsweredRate> {
        let row = |part| flow_row(part, self.needed_share);
        let states = part_states(losses, |_| 1.0);
        let usable = UsableParts::new(losses, states, 0..self.parts.len());
        let shows = |of: &(usize, &PartRow)| losses.is_empty() || usable.shows_flow(of.0);
        let undisturbed = self.parts.iter().enumerate().filter(shows);
        let undisturbed: Vec<FlowRow> = undisturbed.map(|(_, part)| row(part)).collect();
        let all = || self.parts.iter().map(row).collect::<Vec<_>>();
        let flow = flow(&undisturbed, self.needed_share);
        let flow = flow.or_else(|| trial_flow(&all(), PART_S, self.needed_share.unwrap_or(1.0)));
        flow.map(|flow| flow.answered)
    }
}

/// When the measurement started, on the clocks of a worker on this host.
#[derive(Debug, Default)]
struct PhaseClock {
    /// Start of the worker's clock on the host's monotonic clock, in ns.
    origin_ns: Option<u64>,
    /// Start of the measurement on the worker's clock, in ns.
    begin_ns: Option<u64>,
}

impl PhaseClock {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Ready(ready) => self.origin_ns = ready.clock_origin_ns,
            Event::Began {
                phase: Phase::Measure,
                at_ns,
            } => self.begin_ns = Some(*at_ns),
            _ => {}
        }
    }

    /// Returns the loss of each part. A part without samples has an unknown loss.
    fn losses(&self, parts: &[PartRow], losses: &[LossSample]) -> Vec<PartLoss> {
        let start = self.origin_ns.zip(self.begin_ns);
        let start_ns = start.map(|(origin_ns, begin_ns)| origin_ns + begin_ns);
        let loss = |part: &PartRow| {
            let at = |ns: u64| start_ns.map(|start_ns| start_ns + ns);
            PartLoss {
                seconds: (part.to_ns - part.from_ns) as f64 / 1e9,
                lost_s: at(part.from_ns)
                    .zip(at(part.to_ns))
                    .and_then(|period| lost_s(period, losses)),
            }
        };
        parts.iter().map(loss).collect()
    }
}

/// Minimum share of a part that samples must cover.
const LEAST_COVERED: f64 = 0.9;

/// Returns the lost time in a period on the host's monotonic clock, in seconds, or `None` if
/// samples do not cover the period. Within a sample, the loss counts as evenly distributed.
fn lost_s((from_ns, to_ns): (u64, u64), losses: &[LossSample]) -> Option<f64> {
    let (mut covered_ns, mut lost_s) = (0, 0.0);
    for loss in losses {
        let from = loss.from_ns.max(from_ns);
        let overlap_ns = loss.to_ns.min(to_ns).saturating_sub(from);
        if overlap_ns > 0 {
            covered_ns += overlap_ns;
            lost_s += loss.lost_s * overlap_ns as f64 / (loss.to_ns - loss.from_ns) as f64;
        }
    }
    let is_covered = covered_ns as f64 >= LEAST_COVERED * (to_ns - from_ns) as f64;
    is_covered.then_some(lost_s)
}

/// Length of a part in seconds.
const PART_S: f64 = 0.1;

/// Returns whether a part has its full length. The parts of the drain can be shorter.
fn is_whole(part: &PartRow) -> bool {
    let length_s = (part.to_ns - part.from_ns) as f64 / 1e9;
    (length_s / PART_S - 1.0).abs() < 0.01
}

/// A trial whose load is being sent.
pub struct OpenTrial {
    id: RunId,
    plan: Plan,
    /// All events except those of the parts, and of the seconds before the judged period.
    events: Vec<Event>,
    clock: PhaseClock,
    /// All parts, from the start of the load to the end of its drain.
    parts: Vec<PartRow>,
    needed_share: Option<f64>,
    judged_from_ns: u64,
    judged_to_ns: u64,
    /// Whether an objective limits failures more strictly than times.
    failures_matter: bool,
    /// CPU time of the server, and length of the period in which it was used, both in seconds.
    server: Option<(f64, f64)>,
}

/// The judged part of a trial.
pub struct MeasuredTrial {
    /// The usable parts as a run.
    pub run: Run,
    /// Usable parts of 100 ms. If the strictest objective limits failures rather than times, failed
    /// requests count as slow. Otherwise, ok responses after the plan's deadline count as slow.
    pub parts: Vec<TrialRow>,
    /// Answered rate and growth of the requests in flight; `None` if the undisturbed parts are too
    /// short.
    pub flow: Option<TrialFlow>,
    /// Mean number of CPUs that the server used; `None` if unknown.
    pub server_cpus: Option<f64>,
}

impl OpenTrial {
    /// Returns a trial that has just started. The last step of the plan is judged. If
    /// `failures_matter` is true, failed requests count as slow. Otherwise, ok responses after the
    /// deadline count as slow.
    pub fn new(id: RunId, plan: &Plan, objectives: &[Objective], failures_matter: bool) -> Self {
        let steps = plan.steps().unwrap_or_default();
        let ns = |steps: &[RateStep]| {
            let length_s: f64 = steps.iter().map(|step| step.duration_s).sum();
            (length_s * 1e9).round() as u64
        };
        let before = steps.len().saturating_sub(1);
        OpenTrial {
            id,
            plan: plan.clone(),
            events: Vec::new(),
            clock: PhaseClock::default(),
            parts: Vec::new(),
            needed_share: needed_share(objectives),
            judged_from_ns: ns(&steps[..before]),
            judged_to_ns: ns(steps),
            failures_matter,
            server: None,
        }
    }

    /// Adds an event of the trial.
    pub fn take(&mut self, event: &Event) {
        self.clock.take(event);
        match event {
            Event::Part(part) => self.parts.push(part.clone()),
            Event::Second(row) if row.from_ns < self.judged_from_ns => {}
            Event::ServerUsed(used) => {
                let (cpu_s, over_s) = self.server.unwrap_or_default();
                let used_s = used.user_s + used.system_s;
                self.server = Some((cpu_s + used_s, over_s + used.over_s));
            }
            event => self.events.push(event.clone()),
        }
    }

    /// Returns the losses of all parts.
    pub fn losses(&self, losses: &[LossSample]) -> Vec<PartLoss> {
        self.clock.losses(&self.parts, losses)
    }

    /// Returns the indices of the judged parts.
    pub fn judged(&self) -> Range<usize> {
        let parts = &self.parts;
        let first = parts.partition_point(|part| part.from_ns < self.judged_from_ns);
        let end = parts.partition_point(|part| part.to_ns <= self.judged_to_ns);
        first..end.max(first)
    }

    /// Returns the judged parts with their indices.
    fn judged_parts(&self) -> impl Iterator<Item = (usize, &PartRow)> {
        let judged = self.judged();
        let parts = self.parts.iter().enumerate();
        parts.take(judged.end).skip(judged.start)
    }

    /// Returns the flow of the undisturbed judged parts, or of all judged parts if `usable` is
    /// `None`.
    pub fn flow(&self, usable: Option<&UsableParts>) -> Option<TrialFlow> {
        let shows_flow = |part| usable.is_none_or(|usable| usable.shows_flow(part));
        let parts = self.judged_parts();
        let parts = parts.filter(|(i, part)| shows_flow(*i) && is_whole(part));
        let rows = parts.map(|(_, part)| flow_row(part, self.needed_share));
        flow(&rows.collect::<Vec<_>>(), self.needed_share)
    }

    /// Returns the judged part. `usable` says which parts count; `None` if all do.
    pub fn measured(&self, usable: Option<&UsableParts>) -> MeasuredTrial {
        let is_usable = |part: usize| usable.is_none_or(|usable| usable.is_usable(part));
        let rows = self.judged_parts().filter(|(i, _)| is_usable(*i));
        let rows = rows.map(|(_, part)| trial_row(part, self.failures_matter));
        let mut run = JoinedRun::new(self.id.clone(), self.plan.clone());
        if usable.is_none_or(UsableParts::is_whole) {
            self.events.iter().for_each(|event| run.take(event));
        } else {
            let mut seconds: Vec<Event> = usable_seconds(&self.parts, is_usable).collect();
            for event in &self.events {
                match event {
                    // The parts replace the seconds, and precede the end of the load.
                    Event::Second(_) => seconds.drain(..).for_each(|event| run.take(&event)),
                    event => run.take(event),
                }
            }
        }
        MeasuredTrial {
            run: run.finish_from(self.judged_from_ns),
            parts: rows.collect(),
            flow: self.flow(usable),
            server_cpus: self.server.map(|(cpu_s, over_s)| cpu_s / over_s),
        }
    }
}

/// Counts all requests and the slow ones in a part.
fn trial_row(part: &PartRow, failures_matter: bool) -> TrialRow {
    let counts = &part.sums.counts;
    let failed = counts.ended() - counts.ok + counts.connect_failed;
    let (requests, slow) = if failures_matter {
        (counts.ok + failed, failed)
    } else {
        (counts.ok, counts.ok.saturating_sub(part.sums.good))
    };
    TrialRow { requests, slow }
}

/// Returns the usable parts as seconds. A request belongs to the part in which it ended, so
/// requests that were due in a usable part but ended in another one are left out.
fn usable_seconds(
    parts: &[PartRow],
    is_usable: impl Fn(usize) -> bool,
) -> impl Iterator<Item = Event> {
    let usable = parts.iter().enumerate().filter(move |(i, _)| is_usable(*i));
    usable.filter_map(|(i, part)| {
        let mut row = SecondRow::of_parts(std::slice::from_ref(part), i as u64)?;
        let counts = &mut row.counts;
        counts.sent = counts.ended();
        counts.intended = counts.sent + counts.connect_failed + counts.unsent;
        counts.in_flight_at_end = 0;
        row.histograms = part.histograms.clone();
        Some(Event::Second(row))
    })
}

#[cfg(test)]
mod tests {
    use floodmark_record::TimeKind;
    use floodmark_stats::Histogram;

    use super::*;

    /// Returns parts of 1 s with 1,000 requests each. In every tenth part, all requests are slow.
    fn bursts() -> Vec<TrialRow> {
        let row = |i| TrialRow {
            requests: 1_000,
            slow: if i % 10 == 0 { 1_000 } else { 0 },
        };
        (0..100).map(row).collect()
    }

    #[test]
    fn only_clear_cuts_make_a_trial_short() {
        let trial = |required_s, judged_s| PlannedTrial {
            start: TrialStart::Idle,
            rate_per_s: 100.0,
            purpose: TrialPurpose::Bracket,
            capacity_per_s: 100.0,
            length: TrialLength {
                transient_s: 0.2,
                judged_s,
            },
            required_s,
        };
        assert_eq!(
            trial(1.0, 1.0).unmet_s(Some(0.6)),
            None,
            "the shortest trial"
        );
        assert_eq!(trial(4.0, 4.0).unmet_s(None), None);
        assert_eq!(trial(4.0, 4.0).unmet_s(Some(0.9)), None);
        assert_eq!(trial(4.0, 4.0).unmet_s(Some(0.7)), Some(4.0));
        assert_eq!(trial(4.0, 8.0).unmet_s(Some(0.5)), None, "lengthened");
        assert_eq!(trial(4.0, 3.0).unmet_s(None), Some(4.0), "the budget");
        assert_eq!(trial(0.0, 3.0).unmet_s(Some(0.1)), None, "no requirement");
    }

    #[test]
    fn the_budget_limits_trials_of_correlated_requests() {
        let objectives = ["p99 < 5ms".parse().unwrap()];
        let mut lengths = LoadLengths::new(&objectives, Duration::from_secs(120), true, None);
        let of = |lengths: &LoadLengths<'_>, capacity| {
            lengths.trial(1_000.0, TrialStart::Idle, capacity, 1.0)
        };
        let (length, required_s) = of(&lengths, Some(1_000.0));
        assert_eq!(length.judged_s, required_s, "nothing is known");
        lengths.add_passed(bursts());
        assert!(lengths.design_effect().unwrap() > 100.0);
        let (length, required_s) = of(&lengths, Some(1_000.0));
        assert_eq!(length.judged_s, 3.0, "a fortieth of the budget");
        assert!(required_s > 100.0);
        assert!(length.transient_s <= 1.0);
        let (length_far, required_s) = of(&lengths, None);
        assert_eq!(length_far.judged_s, required_s, "far from the capacity");
        assert!(lengths.level(500.0, 1_000.0).judged_s <= 4.0);
        let overload = lengths
            .trial(900.0, TrialStart::Overload, Some(1_000.0), 1.0)
            .0;
        assert!(overload.transient_s > length.transient_s + 2.0);
    }

    #[test]
    fn trials_are_short_if_no_rate_meets_the_objectives() {
        let objectives = ["p99.9 < 5ms".parse().unwrap()];
        let lengths = LoadLengths::new(&objectives, Duration::from_secs(600), false, Some(500.0));
        let (length, required_s) = lengths.trial(1_000.0, TrialStart::Idle, Some(1_000.0), 1.0);
        assert_eq!((length.judged_s, required_s), (SHORTEST_TRIAL_S, 0.0));
    }

    const PART_NS: u64 = 100_000_000;

    /// Returns a sample of 100 ms that starts at `part`, in parts since the start of the load.
    fn sample(part: u64, lost_s: f64) -> LossSample {
        LossSample {
            from_ns: START_NS + part * PART_NS,
            to_ns: START_NS + (part + 1) * PART_NS,
            lost_s,
        }
    }

    /// Start of the load on the host's monotonic clock, in ns.
    const START_NS: u64 = 5_000_000_000;

    /// Returns a trial of 1 s after a transient of 200 ms, and a drain of 200 ms. In each part, 10
    /// requests arrive. `of` returns the number of responses of a part, their time and the lateness
    /// of their requests in ms.
    fn trial(of: impl Fn(u64) -> (u64, u64, u64)) -> OpenTrial {
        let objectives = ["p99 < 5ms".parse().unwrap()];
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let planned = PlannedTrial {
            start: TrialStart::Idle,
            rate_per_s: 100.0,
            purpose: TrialPurpose::Narrow,
            capacity_per_s: 100.0,
            length: TrialLength {
                transient_s: 0.2,
                judged_s: 1.0,
            },
            required_s: 1.0,
        };
        let plan = trial_load(&Plan::of(address.into()), &planned, None);
        let id = RunId {
            system: String::new(),
            workload: String::new(),
            trial: None,
            setting: std::collections::BTreeMap::new(),
            process: 1,
            attempt: 1,
        };
        let mut trial = OpenTrial::new(id, &plan, &objectives, false);
        trial.clock = PhaseClock {
            origin_ns: Some(START_NS),
            begin_ns: Some(0),
        };
        for part in 0..14 {
            let (ok, response_ms, late_ms) = of(part);
            let mut sums = floodmark_record::events::GroupRow::default();
            sums.counts.intended = if part < 12 { 10 } else { 0 };
            (sums.counts.sent, sums.counts.ok) = (sums.counts.intended, ok);
            let times = |ms: u64| {
                let mut histogram = Histogram::new();
                (0..ok).for_each(|_| histogram.record(ms * 1_000_000));
                histogram.encode()
            };
            let histograms = [
                (TimeKind::Response, times(response_ms)),
                (TimeKind::Lateness, times(late_ms)),
            ];
            trial.take(&Event::Part(PartRow {
                phase: Phase::Measure,
                from_ns: part * PART_NS,
                to_ns: (part + 1) * PART_NS,
                sums,
                groups: Vec::new(),
                histograms: histograms.into(),
            }));
        }
        let seconds = trial.parts.clone();
        let mut seconds = usable_seconds(&seconds, |part| part >= 2);
        trial.take(&seconds.next().unwrap());
        trial
    }

    /// Returns what the usable parts of a trial show. The utilization is 2/3.
    fn measured(trial: OpenTrial, losses: &[LossSample]) -> (UsableParts, MeasuredTrial) {
        let losses = trial.losses(losses);
        let states = part_states(&losses, |_| 2.0 / 3.0 - 1e-9);
        let usable = UsableParts::new(&losses, states, trial.judged());
        let measured = trial.measured(Some(&usable));
        (usable, measured)
    }

    #[test]
    fn requests_that_a_disturbance_delayed_do_not_count() {
        // Part 5 is disturbed, and the responses of parts 5 to 7 are slow and sent late.
        let slow = |part| (5..8).contains(&part);
        let of = |part| if slow(part) { (10, 80, 60) } else { (10, 2, 0) };
        let losses: Vec<_> = (0..14)
            .map(|i| sample(i, if i == 5 { 0.1 } else { 0.0 }))
            .collect();
        let (usable, found) = measured(trial(of), &losses);
        assert!((usable.share() - 0.7).abs() < 1e-9);
        assert!(found.run.response_time_us.p99.unwrap() < 2_100.0);
        assert!(found.run.lateness_us.p99.unwrap() < 10.0);
        assert_eq!(found.run.requests.ok, 70 + 20, "with the drain");
        assert_eq!(found.parts.len(), 7);
        // Lateness without a disturbance counts as before.
        let quiet: Vec<_> = (0..14).map(|i| sample(i, 0.0)).collect();
        let (usable, found) = measured(trial(|_| (10, 80, 60)), &quiet);
        assert!(usable.is_whole());
        let late_us = found.run.lateness_us.p99.unwrap();
        assert!(late_us > 50_000.0, "{late_us}");
    }

    #[test]
    fn a_disturbance_at_the_end_hides_no_overload() {
        // The server answers 5 of 10 requests in each part. The last part and the drain are
        // disturbed.
        let losses: Vec<_> = (0..14)
            .map(|i| sample(i, if i >= 11 { 0.1 } else { 0.0 }))
            .collect();
        let (usable, found) = measured(trial(|_| (5, 2, 0)), &losses);
        assert!(usable.is_enough());
        let flow = found.flow.unwrap();
        assert!((flow.answered.per_s - 50.0).abs() < 1.0, "{flow:?}");
        assert!((flow.growth_per_s - 50.0).abs() < 1.0, "{flow:?}");
    }

    #[test]
    fn parts_without_samples_are_unknown() {
        let all: Vec<LossSample> = (0..14).map(|i| sample(i, 0.0)).collect();
        let of = |losses: &[LossSample]| {
            let parts = trial(|_| (10, 2, 0)).losses(losses);
            parts.iter().map(|part| part.lost_s).collect::<Vec<_>>()
        };
        assert_eq!(of(&all), [Some(0.0); 14]);
        let known = of(&all[3..]);
        assert_eq!(known[..3], [None; 3]);
        assert_eq!(known[3..], [Some(0.0); 11]);
        // A sample of 200 ms covers two parts.
        let long = LossSample {
            to_ns: START_NS + 2 * PART_NS,
            ..sample(0, 0.05)
        };
        assert_eq!(of(&[long])[..3], [Some(0.025), Some(0.025), None]);
    }
}
