//! The loads of a capacity search: their plans, their lengths, and the figures collected while they
//! are being sent.

use std::collections::VecDeque;
use std::time::Duration;

use floodmark_diagnose::conditions::Objective;
use floodmark_record::Event;
use floodmark_record::capacity::{TailShare, TrialFlow, TrialPurpose, TrialStart};
use floodmark_record::events::{PartRow, Phase, RunId};
use floodmark_record::plan::{FiguresOf, Length, Model, Plan, RateStep, Schedule, Spacing};
use floodmark_record::run::Run;
use floodmark_record::units::Rate;
use floodmark_stats::capacity::{
    FlowRow, LATEST_TRIALS, ProofPower, SHORTEST_TRANSIENT_S, SHORTEST_TRIAL_S, TrialLength,
    TrialRow, design_effect, is_rising, trial_flow, trial_length,
};

use crate::fold::JoinedRun;

/// Length of the load over a single connection. This load shows the server's response times without
/// queueing.
const IDLE: Duration = Duration::from_secs(1);

/// Length of the closed-model load, which gives a first estimate of the rate that the server can
/// sustain.
pub const CLOSED: Duration = Duration::from_secs(2);

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
    /// Judged time that the precision requires, in seconds, if the trial is shorter.
    pub required_s: Option<f64>,
}

impl PlannedTrial {
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

/// Converts a closed-model plan into a load with one request in flight.
pub fn idle_load(plan: &Plan) -> Plan {
    let length = Length::Duration(IDLE);
    Plan {
        http: plan.http.with_one_stream(),
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

/// Returns the default number of connections of a search. They carry the requests sent in ten times
/// the time limit or in 100 ms, whichever is longer; at least 100. `plan` has the maximum number.
pub fn default_connections(start_per_s: f64, limit_s: Option<f64>, plan: &Plan) -> u32 {
    let reuse_s = limit_s
        .map_or(0.0, |limit_s| 10.0 * limit_s)
        .max(DEFAULT_REUSE.as_secs_f64());
    let in_flight = (start_per_s * reuse_s).max(FEWEST_CONNECTIONS).ceil() as u32;
    plan.connections_for(in_flight)
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

    /// Returns the length of a trial. If the budget shortens the trial, also returns the judged
    /// time, in seconds, that would be needed for the required precision. `capacity_per_s` is
    /// `None` until at least one trial has met the objectives and at least one has missed them.
    pub fn trial(
        &self,
        rate_per_s: f64,
        start: TrialStart,
        capacity_per_s: Option<f64>,
    ) -> (TrialLength, Option<f64>) {
        if !self.is_met_idle && self.passed.is_empty() {
            // The objectives are probably missed at every rate, so precision does not matter until
            // a trial passes.
            let length = TrialLength {
                transient_s: SHORTEST_TRANSIENT_S,
                judged_s: SHORTEST_TRIAL_S,
            };
            return (length, None);
        }
        // Ignore the design effect until the capacity is known. Far from the capacity, the outcome
        // does not depend on precise figures.
        let effect = self.design_effect().filter(|_| capacity_per_s.is_some());
        let quantile = self.strictest().map_or(0.5, Objective::quantile);
        let required = trial_length(rate_per_s, quantile, effect.unwrap_or(1.0));
        let most_s = (self.budget.as_secs_f64() * TRIAL_SHARE).max(SHORTEST_TRIAL_S);
        let required_s = (required.judged_s > most_s).then_some(required.judged_s);
        let mut length = required.limited(most_s);
        if start == TrialStart::Overload {
            // Give a healthy server enough time to answer the requests sent during the overload.
            let queue_s = (OVERLOAD_FACTOR - 1.0) * OVERLOAD_S;
            let spare = 1.0 - rate_per_s / capacity_per_s.unwrap_or(rate_per_s);
            length.transient_s += 1.5 * queue_s / spare.max(0.05);
        }
        (length, required_s)
    }

    /// Returns the length of a proof trial that takes `available_s` seconds, and its statistical
    /// power.
    pub fn proof(&self, rate_per_s: f64, available_s: f64) -> (TrialLength, ProofPower) {
        let effect = self.design_effect().unwrap_or(1.0);
        let judged_s = available_s * (1.0 - PROOF_TRANSIENT);
        let length = TrialLength {
            transient_s: SHORTEST_TRANSIENT_S.max(PROOF_TRANSIENT * judged_s),
            judged_s,
        };
        let power = ProofPower {
            allowed: self.strictest().map_or(0.5, allowed_tail),
            independent: rate_per_s * judged_s / effect,
            judged_s,
        };
        (length, power)
    }

    /// Returns the length of a load after the search.
    pub fn level(&self, rate_per_s: f64, capacity_per_s: f64) -> TrialLength {
        let (mut length, _) = self.trial(rate_per_s, TrialStart::Idle, Some(capacity_per_s));
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

/// The request flow of a load at a constant rate or in the closed model.
pub struct LoadFlow {
    needed_share: Option<f64>,
    length: Duration,
    rows: Vec<FlowRow>,
}

impl LoadFlow {
    /// Returns the flow of a load that has just started. `length` excludes the warm-up.
    pub fn new(objectives: &[Objective], length: Duration) -> Self {
        LoadFlow {
            needed_share: needed_share(objectives),
            length,
            rows: Vec::new(),
        }
    }

    /// Adds an event of the load.
    pub fn take(&mut self, event: &Event) {
        if let Event::Part(part) = event
            && part.phase == Phase::Measure
            && u128::from(part.to_ns) <= self.length.as_nanos()
            && is_whole(part)
        {
            self.rows.push(flow_row(part, self.needed_share));
        }
    }

    /// Returns whether the server became faster during the load.
    pub fn is_rising(&self) -> bool {
        is_rising(&self.rows)
    }

    /// Returns the answered rate and the growth of the requests in flight; `None` if the load is too
    /// short.
    pub fn measured(&self) -> Option<TrialFlow> {
        flow(&self.rows, self.needed_share)
    }
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
    run: JoinedRun,
    parts: Vec<TrialRow>,
    flow: Vec<FlowRow>,
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
    /// The judged part as a run.
    pub run: Run,
    /// Parts of 100 ms. If the strictest objective limits failures rather than times, failed
    /// requests count as slow. Otherwise, ok responses after the plan's deadline count as slow.
    pub parts: Vec<TrialRow>,
    /// Answered rate and growth of the requests in flight; `None` if the judged part is too short.
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
            run: JoinedRun::new(id, plan.clone()),
            parts: Vec::new(),
            flow: Vec::new(),
            needed_share: needed_share(objectives),
            judged_from_ns: ns(&steps[..before]),
            judged_to_ns: ns(steps),
            failures_matter,
            server: None,
        }
    }

    /// Adds an event of the trial.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Part(part) => {
                let (from, to) = (self.judged_from_ns, self.judged_to_ns);
                if part.from_ns >= from && part.to_ns <= to {
                    let counts = &part.sums.counts;
                    let failed = counts.ended() - counts.ok + counts.connect_failed;
                    let (requests, slow) = if self.failures_matter {
                        (counts.ok + failed, failed)
                    } else {
                        (counts.ok, counts.ok.saturating_sub(part.sums.good))
                    };
                    self.parts.push(TrialRow { requests, slow });
                    if is_whole(part) {
                        self.flow.push(flow_row(part, self.needed_share));
                    }
                }
            }
            Event::Second(row) if row.from_ns < self.judged_from_ns => {}
            Event::ServerUsed(used) => {
                let (cpu_s, over_s) = self.server.unwrap_or_default();
                let used_s = used.user_s + used.system_s;
                self.server = Some((cpu_s + used_s, over_s + used.over_s));
            }
            event => self.run.take(event),
        }
    }

    /// Returns the judged part.
    pub fn finish(self) -> MeasuredTrial {
        MeasuredTrial {
            run: self.run.finish_from(self.judged_from_ns),
            parts: self.parts,
            flow: flow(&self.flow, self.needed_share),
            server_cpus: self.server.map(|(cpu_s, over_s)| cpu_s / over_s),
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn the_budget_limits_trials_of_correlated_requests() {
        let objectives = ["p99 < 5ms".parse().unwrap()];
        let mut lengths = LoadLengths::new(&objectives, Duration::from_secs(120), true, None);
        let of = |lengths: &LoadLengths<'_>, capacity| {
            lengths.trial(1_000.0, TrialStart::Idle, capacity)
        };
        assert_eq!(of(&lengths, Some(1_000.0)).1, None, "nothing is known");
        lengths.add_passed(bursts());
        assert!(lengths.design_effect().unwrap() > 100.0);
        let (length, required_s) = of(&lengths, Some(1_000.0));
        assert_eq!(length.judged_s, 3.0, "a fortieth of the budget");
        assert!(required_s.unwrap() > 100.0);
        assert!(length.transient_s <= 1.0);
        assert_eq!(of(&lengths, None).1, None, "far from the capacity");
        assert!(lengths.level(500.0, 1_000.0).judged_s <= 4.0);
        let overload = lengths.trial(900.0, TrialStart::Overload, Some(1_000.0)).0;
        assert!(overload.transient_s > length.transient_s + 2.0);
    }

    #[test]
    fn trials_are_short_if_no_rate_meets_the_objectives() {
        let objectives = ["p99.9 < 5ms".parse().unwrap()];
        let lengths = LoadLengths::new(&objectives, Duration::from_secs(600), false, Some(500.0));
        let (length, required_s) = lengths.trial(1_000.0, TrialStart::Idle, Some(1_000.0));
        assert_eq!((length.judged_s, required_s), (SHORTEST_TRIAL_S, None));
    }
}
