//! Searches of one minute on simulated servers. The code of `floodmark capacity` plans the trials
//! and evaluates the search. The server, the clock and the objective's figures are simulated. The
//! loads after the search are not sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use floodmark_diagnose::conditions::Objective;
use floodmark_lab::capacity::{
    CAPACITY_PRECISION, CapacityEvents, LoadLengths, PlannedTrial, TrialPlanner, UsableParts,
    slow_s, tail_shares, trial_outcome,
};
use floodmark_record::Event;
use floodmark_record::capacity::{
    CapacityBegan, CapacityEnded, CapacityPlan, CapacityResult, CapacityTrial, ObjectiveFigure,
    TrialFlow, TrialOutcome, TrialPurpose,
};
use floodmark_record::events::RunId;
use floodmark_stats::capacity::{FlowRow, PartLoss, TrialLength, TrialRow, part_states};
use floodmark_truth::capacity::{KnownObjective, capacity_per_s};
use floodmark_truth::scenario::{Scenario, Service};
use floodmark_truth::service::Limiter;

use super::quantile;
use super::score::{KnownCapacity, LimitedScore, RateRange};
use super::servers::Random;

/// Length of a search in seconds.
const BUDGET_S: f64 = 60.0;

/// Length of the closed-model load in seconds.
const CLOSED_S: f64 = 2.0;

/// Connections of the closed-model load.
const CONNECTIONS: usize = 50;

/// Length of the load over a single connection in seconds.
const IDLE_S: f64 = 1.0;

/// Time that starting and stopping a client takes, in seconds.
const OVERHEAD_S: f64 = 0.25;

/// Time that the check for the recovery after a miss takes, in seconds.
const RECOVERY_S: f64 = 0.3;

/// First rate to try and lowest rate to try, as shares of the throughput of the closed model.
const START: (f64, f64) = (0.9, 0.01);

/// Length of a part of a trial in seconds.
const PART_S: f64 = 0.1;

/// Shortest and longest burst, as multiples of the mean.
const BURST: (f64, f64) = (0.1, 5.0);

/// Time that a rejected request takes, in seconds.
const REJECTION_S: f64 = 0.002;

/// A server that handles a limited number of requests at once, or per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LimitedServer {
    /// Requests wait for one of the permits and hold it for a fixed time.
    Pool {
        permits: usize,
        /// Time that a request holds its permit, in seconds.
        holds_s: f64,
    },
    /// Requests wait for one of the permits and hold it for an exponentially distributed time.
    Exponential {
        permits: usize,
        /// Mean time that a request holds its permit, in seconds.
        mean_s: f64,
    },
    /// A token bucket; requests without a token are rejected.
    Bucket {
        /// Tokens per second.
        per_s: f64,
        /// Number of tokens that a full bucket holds.
        burst: u32,
    },
}

/// What takes CPU time from a server: at random times, for periods of random length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// Share of the time that is taken, from 0 to 1.
    share: f64,
    /// Mean length in seconds; see [`BURST`].
    mean_s: f64,
    /// Whether floodmark can see them. It cannot see pauses of the server itself.
    is_visible: bool,
}

/// Periods, in ascending order, in which a server gets no CPU time; start and end in seconds.
#[derive(Debug, Clone, Default)]
struct LostTimes(Vec<(f64, f64)>);

impl Bursts {
    /// Returns the bursts within a load.
    fn times(self, length_s: f64, random: &mut Random) -> LostTimes {
        let mut times = Vec::new();
        // The load starts at a random time between two bursts.
        let mut now_s = -2.0 * self.mean_s * random.uniform() / self.share;
        while now_s < length_s {
            let burst_s = self.mean_s * random.exponential().clamp(BURST.0, BURST.1);
            times.push((now_s, now_s + burst_s));
            now_s += burst_s / self.share;
        }
        LostTimes(times)
    }
}

impl LostTimes {
    /// Returns when work that starts at `from_s` and takes `work_s` is done.
    fn after(&self, from_s: f64, work_s: f64) -> f64 {
        let first = self.0.partition_point(|(_, to_s)| *to_s <= from_s);
        let mut done_s = from_s + work_s;
        for (lost_from_s, lost_to_s) in &self.0[first..] {
            if *lost_from_s >= done_s {
                break;
            }
            done_s += lost_to_s - lost_from_s.max(from_s);
        }
        done_s
    }

    /// Returns the lost time in a period, in seconds.
    fn within(&self, from_s: f64, to_s: f64) -> f64 {
        let first = self.0.partition_point(|(_, end_s)| *end_s <= from_s);
        let times = self.0[first..]
            .iter()
            .take_while(|(start_s, _)| *start_s < to_s);
        let lost = times.map(|(start_s, end_s)| end_s.min(to_s) - start_s.max(from_s));
        lost.sum()
    }
}

/// A server and what takes CPU time from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedHost {
    server: LimitedServer,
    bursts: Option<Bursts>,
}

/// A simulated load: its requests, and when the server got no CPU time.
struct SimulatedLoad {
    requests: Vec<Request>,
    lost: LostTimes,
    /// Whether floodmark can see the lost time.
    is_visible: bool,
}

/// A request of a simulated load.
#[derive(Debug, Clone, Copy)]
struct Request {
    arrived_s: f64,
    done_s: f64,
    is_ok: bool,
}

/// A server's state within one load.
struct Serving {
    server: LimitedServer,
    lost: LostTimes,
    /// Times at which the permits become free, in nanoseconds.
    free_ns: BinaryHeap<Reverse<u64>>,
    tokens: f64,
    filled_s: f64,
}

/// Converts seconds to the nanoseconds of the simulated clock.
fn ns(time_s: f64) -> u64 {
    (time_s * 1e9).round() as u64
}

impl Serving {
    fn new(server: LimitedServer, lost: LostTimes) -> Self {
        let (permits, tokens) = match server {
            LimitedServer::Pool { permits, .. } | LimitedServer::Exponential { permits, .. } => {
                (permits, 0.0)
            }
            LimitedServer::Bucket { burst, .. } => (0, f64::from(burst)),
        };
        Serving {
            server,
            lost,
            free_ns: vec![Reverse(0); permits].into(),
            tokens,
            filled_s: 0.0,
        }
    }

    /// Handles the next request. Requests are handled in order of arrival.
    fn handle(&mut self, arrived_s: f64, random: &mut Random) -> Request {
        let time_s = match self.server {
            LimitedServer::Pool { holds_s, .. } => holds_s,
            LimitedServer::Exponential { mean_s, .. } => mean_s * random.exponential(),
            LimitedServer::Bucket { per_s, burst } => {
                let filled = self.tokens + (arrived_s - self.filled_s) * per_s;
                self.tokens = filled.min(f64::from(burst));
                self.filled_s = arrived_s;
                let is_ok = self.tokens >= 1.0;
                self.tokens -= f64::from(is_ok);
                return Request {
                    arrived_s,
                    done_s: arrived_s + REJECTION_S,
                    is_ok,
                };
            }
        };
        let free_s = self
            .free_ns
            .pop()
            .map_or(0.0, |Reverse(at)| at as f64 / 1e9);
        let done_s = self.lost.after(arrived_s.max(free_s), time_s);
        self.free_ns.push(Reverse(ns(done_s)));
        Request {
            arrived_s,
            done_s,
            is_ok: true,
        }
    }
}

impl LimitedServer {
    /// Returns the highest rate of ok responses in requests per second.
    pub fn limit_per_s(self) -> f64 {
        match self {
            LimitedServer::Pool { permits, holds_s } => permits as f64 / holds_s,
            LimitedServer::Exponential { permits, mean_s } => permits as f64 / mean_s,
            LimitedServer::Bucket { per_s, .. } => per_s,
        }
    }

    /// Returns the highest rate of Poisson arrivals whose long-run figures meet the objective, in
    /// requests per second.
    pub fn capacity_per_s(self, objective: KnownObjective) -> f64 {
        let known = |service: Service| capacity_per_s(&Scenario::from(service), objective, 1.0);
        match self {
            LimitedServer::Pool { permits, holds_s } => {
                pool_capacity_per_s(permits, holds_s, objective)
            }
            LimitedServer::Exponential { permits, mean_s } => known(Service::Exponential {
                mean_us: mean_s * 1e6,
                servers: permits as u32,
            }),
            LimitedServer::Bucket { per_s, burst } => known(Service::Limiter(Limiter {
                rate_per_s: per_s,
                burst,
                delay_us: 0,
            })),
        }
    }
}

impl SimulatedHost {
    /// Returns a server at the start of a load of `length_s` seconds.
    fn serving(self, length_s: f64, random: &mut Random) -> Serving {
        // A load ends after its drain.
        let most_s = 2.0 * length_s + 10.0;
        let lost = self.bursts.map(|bursts| bursts.times(most_s, random));
        Serving::new(self.server, lost.unwrap_or_default())
    }

    fn load(self, requests: Vec<Request>, serving: Serving) -> SimulatedLoad {
        SimulatedLoad {
            requests,
            lost: serving.lost,
            is_visible: self.bursts.is_some_and(|bursts| bursts.is_visible),
        }
    }

    /// Returns the highest rate of Poisson arrivals at which long loads meet an objective on a
    /// response time, in requests per second. The standard error is about 0.5 %.
    fn simulated_capacity_per_s(self, objective: KnownObjective) -> f64 {
        const LOADS: u64 = 5;
        const LENGTH_S: f64 = 2_000.0;
        let KnownObjective::ResponseTime { limit_ms, .. } = objective else {
            return 0.0;
        };
        let is_met = |rate_per_s: f64| {
            let (mut requests, mut slow) = (0, 0);
            for seed in 0..LOADS {
                let load = self.open(&[(rate_per_s, LENGTH_S)], &mut Random::new(seed));
                let is_slow = |r: &&Request| (r.done_s - r.arrived_s) * 1e3 >= limit_ms;
                requests += load.requests.len();
                slow += load.requests.iter().filter(is_slow).count();
            }
            slow as f64 <= objective.allowed_share() * requests as f64
        };
        let (mut low, mut high) = (0.0, self.server.limit_per_s());
        for _ in 0..9 {
            let middle = 0.5 * (low + high);
            if is_met(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        0.5 * (low + high)
    }

    /// Simulates Poisson arrivals at a server that is idle at first. Each step consists of a rate
    /// and a length in seconds.
    fn open(self, steps: &[(f64, f64)], random: &mut Random) -> SimulatedLoad {
        let length_s = steps.iter().map(|(_, length_s)| length_s).sum();
        let mut serving = self.serving(length_s, random);
        let mut requests = Vec::new();
        let mut from_s = 0.0;
        for (rate_per_s, length_s) in steps {
            let to_s = from_s + length_s;
            let mut now_s = from_s + random.exponential() / rate_per_s;
            while now_s <= to_s {
                requests.push(serving.handle(now_s, random));
                now_s += random.exponential() / rate_per_s;
            }
            from_s = to_s;
        }
        self.load(requests, serving)
    }

    /// Simulates connections each of which sends its next request after a response.
    fn closed(self, connections: usize, length_s: f64, random: &mut Random) -> SimulatedLoad {
        let mut serving = self.serving(length_s, random);
        let mut next = BinaryHeap::from(vec![Reverse(0); connections]);
        let mut requests = Vec::new();
        while let Some(Reverse(at)) = next.pop() {
            let at_s = at as f64 / 1e9;
            if at_s > length_s {
                break;
            }
            let request = serving.handle(at_s, random);
            next.push(Reverse(ns(request.done_s)));
            requests.push(request);
        }
        self.load(requests, serving)
    }
}

/// Returns the capacity of a pool with fixed times, in requests per second.
///
/// Each permit serves every c-th request, where c is the number of permits, so a request waits as
/// long as in an E_c/D/1 queue. It waits longer than t with the probability that a random walk ever
/// exceeds t. Importance sampling gives this probability (Siegmund 1976, "Importance sampling in
/// the Monte Carlo study of sequential tests").
pub fn pool_capacity_per_s(permits: usize, holds_s: f64, objective: KnownObjective) -> f64 {
    let KnownObjective::ResponseTime { limit_ms, .. } = objective else {
        return permits as f64 / holds_s;
    };
    let most_wait_s = limit_ms / 1e3 - holds_s;
    let limit_per_s = permits as f64 / holds_s;
    let (mut low, mut high) = (0.0, limit_per_s);
    for _ in 0..14 {
        let middle = 0.5 * (low + high);
        if share_waiting(permits, holds_s, middle, most_wait_s) <= objective.allowed_share() {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the share of requests that wait for a permit for longer than `longer_s`.
fn share_waiting(permits: usize, holds_s: f64, rate_per_s: f64, longer_s: f64) -> f64 {
    /// Number of walks. The standard error of the share is about 1 %.
    const WALKS: u32 = 1_000;
    let shape = permits as f64;
    // The positive root of the moment equation: E exp(θ (time − gap)) = 1.
    let log_moment = |theta: f64| theta * holds_s - shape * (theta / rate_per_s).ln_1p();
    let mut high = 1.0 / holds_s;
    while log_moment(high) < 0.0 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if log_moment(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let theta = high;
    let mut random = Random::new(7);
    let walk = |_| {
        let mut sum_s = 0.0;
        while sum_s <= longer_s {
            sum_s += holds_s - random.gamma(shape) / (rate_per_s + theta);
        }
        (-theta * sum_s).exp()
    };
    (0..WALKS).map(walk).sum::<f64>() / f64::from(WALKS)
}

/// Returns the minimum share of ok responses with which an objective is met.
pub fn ok_share(objective: KnownObjective) -> f64 {
    match objective {
        KnownObjective::Errors(percent) => 1.0 - percent / 100.0,
        KnownObjective::ResponseTime { .. } => 1.0,
    }
}

/// Searches for the capacity of a server.
pub fn search(server: SimulatedHost, objective: KnownObjective, seed: u64) -> CapacityResult {
    let mut random = Random::new(seed);
    let parsed: Objective = objective
        .to_string()
        .parse()
        .expect("a known objective is valid");
    let objectives = [parsed];
    let closed = server.closed(CONNECTIONS, CLOSED_S, &mut random);
    let idle = server.closed(1, IDLE_S, &mut random);
    let per_s = |requests: &[Request], length_s: f64| {
        let in_time = requests.iter().filter(|r| r.is_ok && r.done_s <= length_s);
        in_time.count() as f64 / length_s
    };
    let idle_s = response_quantile(&idle.requests, 0.5).unwrap_or(0.0);
    let is_met_idle = judge(&idle.requests, objective).1;
    let mut lengths = LoadLengths::new(
        &objectives,
        std::time::Duration::from_secs_f64(BUDGET_S),
        is_met_idle,
        None,
    );
    lengths.add_p90(response_quantile(&closed.requests, 0.9).map(|s| s * 1e6));
    let closed_per_s = per_s(&closed.requests, CLOSED_S);
    let (start_per_s, lowest_per_s) = if is_met_idle {
        (START.0 * closed_per_s, START.1 * closed_per_s)
    } else {
        let idle_per_s = 0.5 * per_s(&idle.requests, IDLE_S);
        (idle_per_s, idle_per_s)
    };
    let closed_parts = closed.parts(0.0, CLOSED_S, CLOSED_S);
    let states = part_states(&closed_parts, |_| 1.0);
    let usable = UsableParts::new(&closed_parts, states, 0..closed_parts.len());
    let flow = flow_rows(&closed.requests, 0.0, CLOSED_S);
    let undisturbed = lengths.flow(&chosen(&flow, |part| usable.shows_flow(part)));
    let closed_flow = undisturbed.or_else(|| lengths.flow(&flow));
    let settings = CapacityPlan {
        objectives: vec![objectives[0].text.clone()],
        start_per_s,
        lowest_per_s,
        highest_per_s: 1e3 * closed_per_s,
        precision: CAPACITY_PRECISION,
        budget_s: BUDGET_S,
        closed: closed_flow.map(|flow| flow.answered),
    };
    let mut events = CapacityEvents::new(CapacityBegan {
        run: RunId {
            system: String::new(),
            workload: String::new(),
            trial: None,
            setting: std::collections::BTreeMap::new(),
            process: 1,
            attempt: 0,
        },
        settings: settings.clone(),
    });
    let mut elapsed_s = CLOSED_S + IDLE_S + 2.0 * OVERHEAD_S;
    let mut planner = TrialPlanner::new(&settings, &[], lengths, true, BUDGET_S);
    planner.add_parts(&closed_parts);
    planner.add_parts(&idle.parts(0.0, IDLE_S, IDLE_S));
    let mut is_after_miss = false;
    let reason = loop {
        let planned = match planner.next(elapsed_s) {
            Ok(planned) => planned,
            Err(end) => break end,
        };
        elapsed_s += OVERHEAD_S + if is_after_miss { RECOVERY_S } else { 0.0 };
        let trial = run_trial(
            (server, objective, idle_s),
            &planned,
            &mut planner,
            &mut elapsed_s,
            &mut random,
        );
        is_after_miss = trial.outcome == TrialOutcome::Miss;
        planner.record(&trial);
        events.take(&Event::CapacityTrial(trial));
    };
    events.take(&Event::CapacityEnded(CapacityEnded {
        elapsed_s,
        reason,
        notes: Vec::new(),
    }));
    events.result()
}

/// Simulates a trial and judges it like `floodmark capacity`.
fn run_trial(
    (server, objective, idle_s): (SimulatedHost, KnownObjective, f64),
    planned: &PlannedTrial,
    planner: &mut TrialPlanner<'_>,
    elapsed_s: &mut f64,
    random: &mut Random,
) -> CapacityTrial {
    let TrialLength {
        transient_s,
        judged_s,
    } = planned.length;
    let steps = planned.steps();
    let steps: Vec<(f64, f64)> = steps
        .iter()
        .map(|step| (step.rate_per_s, step.duration_s))
        .collect();
    let end_s: f64 = steps.iter().map(|(_, length_s)| length_s).sum();
    let from_s = end_s - judged_s;
    let load = server.open(&steps, random);
    let at_s = *elapsed_s;
    let last_s = load.requests.iter().map(|r| r.done_s).fold(end_s, f64::max);
    *elapsed_s += last_s;
    let includes_disturbances = planner.is_always_disturbed();
    let load = SimulatedLoad {
        is_visible: load.is_visible && !includes_disturbances,
        ..load
    };
    let all = &load.requests;
    let parts = load.parts(from_s, end_s, last_s);
    let first = (from_s / PART_S + 1e-6) as usize;
    let (judged_parts, part) = parts_of(from_s, end_s);
    let states = planner.part_states(planned, first, &parts);
    if !includes_disturbances {
        planner.add_parts(&parts);
    }
    let usable = UsableParts::new(&parts, states, first..first + judged_parts);
    let rows = flow_rows(all, from_s, end_s);
    let is_usable = |at_s: f64| at_s >= from_s && usable.is_usable(first + part(at_s));
    let judged = all.iter().copied();
    let judged = judged.filter(|r| r.arrived_s >= from_s && is_usable(r.done_s));
    let judged: Vec<Request> = judged.collect();
    let (value, is_met) = judge(&judged, objective);
    let flow = planner
        .lengths()
        .flow(&chosen(&rows, |part| usable.shows_flow(first + part)));
    let unexplained = planner.lengths().flow(&rows);
    let unexplained = unexplained.map(|all| usable.without_losses(planned.rate_per_s, all));
    let sustains = |flow: &TrialFlow| planner.sustains(planned.rate_per_s, flow);
    let is_sustained = flow.as_ref().or(unexplained.as_ref()).is_none_or(sustains);
    let outcome = trial_outcome(is_sustained, is_met, usable.is_enough());
    let proves = planned.purpose == TrialPurpose::Prove;
    let strictest = planner.lengths().strictest().cloned();
    let limit_s = strictest.as_ref().and_then(|of| slow_s(of, idle_s));
    let slow_s = match limit_s {
        Some(limit_s) if proves => limit_s,
        _ => planner
            .lengths()
            .slow
            .map_or(f64::INFINITY, |slow| slow.as_secs_f64()),
    };
    let parts = trial_rows(&judged, (from_s, end_s), limit_s.map(|_| slow_s));
    let parts = chosen(&parts, |part| usable.is_usable(first + part));
    let p90_us = response_quantile(&judged, 0.9).map(|s| s * 1e6);
    let tail = strictest.filter(|_| proves);
    let beyond_limit = tail
        .as_ref()
        .and_then(Objective::time_limit_s)
        .map(|limit_s| {
            let ok = judged.iter().filter(|r| r.is_ok);
            let beyond = ok.filter(|r| r.done_s - r.arrived_s > limit_s).count();
            beyond as f64 / judged.len().max(1) as f64
        });
    let tail = tail.map(|objective| tail_shares(&objective, &parts, beyond_limit));
    if outcome == TrialOutcome::Pass && !proves {
        planner.learn(p90_us, parts);
    }
    let ok = judged.iter().filter(|r| r.is_ok).count() as f64;
    CapacityTrial {
        rate_per_s: planned.rate_per_s,
        purpose: planned.purpose,
        start: planned.start,
        at_s,
        transient_s,
        judged_s,
        usable_share: load.is_visible.then(|| usable.share()),
        required_s: planned.unmet_s(load.is_visible.then(|| usable.share())),
        outcome,
        flow,
        tail: tail.unwrap_or_default(),
        fault: None,
        figures: vec![ObjectiveFigure {
            objective: objective.to_string(),
            figure: String::new(),
            value,
            limit_us: None,
            is_met,
        }],
        throughput_per_s: Some(ok / (usable.share() * judged_s)),
        error_share: Some(1.0 - ok / judged.len().max(1) as f64),
        p50_us: None,
        p99_us: None,
        design_effect: planner.lengths().design_effect(),
        server_cpus: None,
        slow_cpu_share: None,
    }
}

/// Returns the figure that an objective limits, and whether the objective is met.
fn judge(requests: &[Request], objective: KnownObjective) -> (Option<f64>, bool) {
    let ok = requests.iter().filter(|r| r.is_ok).count();
    match objective {
        KnownObjective::ResponseTime {
            percentile,
            limit_ms,
        } => {
            let value = response_quantile(requests, percentile / 100.0);
            let is_met = value.is_some_and(|value_s| value_s * 1e3 < limit_ms);
            (value.map(|value_s| value_s * 1e6), is_met)
        }
        KnownObjective::Errors(percent) => {
            let share = 1.0 - ok as f64 / requests.len().max(1) as f64;
            (Some(share), ok > 0 && share < percent / 100.0)
        }
    }
}

/// Returns a quantile of the response times of ok responses, in seconds.
fn response_quantile(requests: &[Request], p: f64) -> Option<f64> {
    let ok = requests.iter().filter(|r| r.is_ok);
    let times: Vec<f64> = ok.map(|r| r.done_s - r.arrived_s).collect();
    quantile(&times, p)
}

/// Returns the rows of the chosen parts.
fn chosen<T: Copy>(rows: &[T], is_chosen: impl Fn(usize) -> bool) -> Vec<T> {
    let rows = rows.iter().enumerate();
    let chosen = rows.filter(|(part, _)| is_chosen(*part));
    chosen.map(|(_, row)| *row).collect()
}

impl SimulatedLoad {
    /// Returns the parts of a load, from its start to `last_s`. A part starts at `from_s`.
    fn parts(&self, from_s: f64, to_s: f64, last_s: f64) -> Vec<PartLoss> {
        let before = (from_s / PART_S + 1e-6) as usize;
        let begin_s = from_s - before as f64 * PART_S;
        let count = ((last_s.max(to_s) - begin_s) / PART_S).ceil() as usize;
        let part = |i| {
            let part_s = begin_s + i as f64 * PART_S;
            let lost_s = self.lost.within(part_s, part_s + PART_S);
            PartLoss {
                seconds: PART_S,
                lost_s: Some(if self.is_visible { lost_s } else { 0.0 }),
            }
        };
        (0..count).map(part).collect()
    }
}

/// Returns the number of whole parts in a period, and a function from a time to the index of its
/// part.
fn parts_of(from_s: f64, to_s: f64) -> (usize, impl Fn(f64) -> usize) {
    let count = ((to_s - from_s) / PART_S + 1e-6) as usize;
    let part = move |at_s: f64| {
        if at_s < from_s {
            usize::MAX
        } else {
            ((at_s - from_s) / PART_S) as usize
        }
    };
    (count, part)
}

/// Counts the requests that arrived and that ended in each part of a period.
fn flow_rows(requests: &[Request], from_s: f64, to_s: f64) -> Vec<FlowRow> {
    let (count, part) = parts_of(from_s, to_s);
    let mut rows = vec![FlowRow::default(); count];
    for request in requests {
        if let Some(row) = rows.get_mut(part(request.arrived_s)) {
            row.arrived += 1;
        }
        if let Some(row) = rows.get_mut(part(request.done_s)) {
            row.ended += 1;
            row.answered += u64::from(request.is_ok);
        }
    }
    rows
}

/// Counts all requests and slow requests in each part of a period. If `slow_s` is `None`, failed
/// requests count as slow.
fn trial_rows(
    requests: &[Request],
    (from_s, to_s): (f64, f64),
    slow_s: Option<f64>,
) -> Vec<TrialRow> {
    let (count, part) = parts_of(from_s, to_s);
    let none = TrialRow {
        requests: 0,
        slow: 0,
    };
    let mut rows = vec![none; count];
    for request in requests {
        if let Some(row) = rows.get_mut(part(request.done_s)) {
            row.requests += 1;
            row.slow += u64::from(match slow_s {
                Some(slow_s) => request.done_s - request.arrived_s > slow_s,
                None => !request.is_ok,
            });
        }
    }
    rows
}

/// A row of the table: a server and its objective.
#[derive(Debug, Clone)]
pub struct LimitedRow {
    pub name: String,
    host: SimulatedHost,
    objective: KnownObjective,
}

/// Returns the servers of the table.
pub fn servers() -> Vec<LimitedRow> {
    let pool = |permits, holds_ms: f64, limit_ms| {
        let holds_s = holds_ms / 1e3;
        let server = LimitedServer::Pool { permits, holds_s };
        row(
            &format!("{permits} permits, {holds_ms:.0} ms"),
            server,
            limit_ms,
        )
    };
    let exponential = |permits, mean_ms: f64, limit_ms| {
        let mean_s = mean_ms / 1e3;
        let server = LimitedServer::Exponential { permits, mean_s };
        row(
            &format!("{permits} permits, exponential {mean_ms:.0} ms"),
            server,
            limit_ms,
        )
    };
    let bucket = LimitedServer::Bucket {
        per_s: 400.0,
        burst: 40,
    };
    let cpu = LimitedServer::Pool {
        permits: 1,
        holds_s: 0.003,
    };
    vec![
        pool(1, 5.0, 50.0),
        pool(1, 20.0, 200.0),
        pool(2, 50.0, 500.0),
        pool(4, 200.0, 1_000.0),
        pool(8, 20.0, 30.0),
        pool(8, 20.0, 200.0),
        pool(16, 100.0, 500.0),
        pool(64, 5.0, 50.0),
        pool(64, 200.0, 2_000.0),
        exponential(1, 5.0, 100.0),
        exponential(8, 20.0, 200.0),
        LimitedRow {
            name: "token bucket, 400/s".to_owned(),
            host: quiet(bucket),
            objective: KnownObjective::Errors(1.0),
        },
        disturbed(cpu, 0.1, 100.0),
        disturbed(cpu, 0.2, 100.0),
        disturbed(cpu, 0.4, 100.0),
        LimitedRow {
            name: "garbage collection, p99 < 100ms".to_owned(),
            host: SimulatedHost {
                server: cpu,
                bursts: Some(Bursts {
                    share: 0.05,
                    mean_s: 0.02,
                    is_visible: false,
                }),
            },
            objective: KnownObjective::ResponseTime {
                percentile: 99.0,
                limit_ms: 100.0,
            },
        },
    ]
}

fn quiet(server: LimitedServer) -> SimulatedHost {
    let bursts = None;
    SimulatedHost { server, bursts }
}

fn disturbed(server: LimitedServer, share: f64, limit_ms: f64) -> LimitedRow {
    let percent = 100.0 * share;
    let name = format!("CPU-bound, {percent:.0} % stolen");
    let bursts = Bursts {
        share,
        mean_s: 0.1,
        is_visible: true,
    };
    let mut row = row(&name, server, limit_ms);
    row.host.bursts = Some(bursts);
    row
}

fn row(name: &str, server: LimitedServer, limit_ms: f64) -> LimitedRow {
    let objective = KnownObjective::ResponseTime {
        percentile: 99.0,
        limit_ms,
    };
    LimitedRow {
        name: format!("{name}, {objective}"),
        host: quiet(server),
        objective,
    }
}

impl LimitedRow {
    /// Returns the known capacity in requests per second.
    pub fn truth_per_s(&self) -> f64 {
        match self.host.bursts {
            // The server's own pauses lower its capacity. Disturbances do not.
            Some(bursts) if !bursts.is_visible => {
                self.host.simulated_capacity_per_s(self.objective)
            }
            _ => self.host.server.capacity_per_s(self.objective),
        }
    }

    /// Runs `searches` searches, each with a different seed.
    pub fn score(&self, searches: u64) -> LimitedScore {
        let limit_per_s = self.host.server.limit_per_s() / ok_share(self.objective);
        // With exponential service times, the rate within one second may exceed the mean rate.
        let is_limited = !matches!(self.host.server, LimitedServer::Exponential { .. });
        let known = KnownCapacity {
            rising: RateRange::exactly(self.truth_per_s()),
            falling: None,
            limit_per_s: is_limited.then_some(limit_per_s),
        };
        let mut score = LimitedScore::default();
        for seed in 0..searches {
            score.add(&known, &search(self.host, self.objective, seed));
        }
        score
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::capacity::{CapacityBound, TrialStart};

    use super::*;

    /// Returns the contradictions in a result.
    fn contradictions(result: &CapacityResult) -> Vec<&'static str> {
        let answered = result.answered_per_s.unwrap_or(0.0);
        let (rate, low, high) = (result.rate_per_s, result.low, result.high);
        // The upper end may exceed the answered rate by its counting error.
        let rates = [rate, low, high.map(|high| high / 1.02), result.last_per_s];
        let falling = result.falling.iter().map(|of| Some(of.rate_per_s));
        let is_above = |rate: Option<f64>| rate.is_some_and(|rate| rate > answered);
        let idle = || result.trials.iter().filter(|t| t.start == TrialStart::Idle);
        let passed =
            |rate: f64| idle().any(|t| t.outcome == TrialOutcome::Pass && t.rate_per_s >= rate);
        let lower = match result.bound {
            Some(CapacityBound::Lower) => rate,
            _ => low,
        };
        let proofs = || idle().filter(|t| t.purpose == TrialPurpose::Prove);
        let fails = |t: &&CapacityTrial| t.outcome == TrialOutcome::Miss;
        let is_ordered = match (low, rate, high) {
            (Some(low), Some(rate), Some(high)) => low <= rate && rate <= high,
            (None, _, None) => true,
            _ => false,
        };
        let has_interval = low.is_some();
        [
            (
                "a rate is above the answered rate",
                rates.into_iter().chain(falling).any(is_above),
            ),
            ("the estimate is outside its interval", !is_ordered),
            (
                "an interval has a bound",
                has_interval && result.bound.is_some(),
            ),
            (
                "no trial passed the lower bound",
                lower.is_some_and(|rate| !passed(rate)),
            ),
            (
                "a long trial failed below the lower bound",
                lower.is_some_and(|low| proofs().filter(fails).any(|t| t.rate_per_s < low)),
            ),
            (
                "no trial missed, but there is an upper bound",
                result.bound == Some(CapacityBound::Upper) && !idle().any(|t| fails(&t)),
            ),
            (
                "the lower bound is not proved",
                has_interval
                    && idle().any(|t| t.required_s.is_some())
                    && result.proved_per_s.is_none(),
            ),
        ]
        .into_iter()
        .filter_map(|(statement, holds)| holds.then_some(statement))
        .collect()
    }

    #[test]
    fn answers_are_possible_and_do_not_contradict_themselves() {
        for row in servers() {
            for seed in 0..3 {
                let result = search(row.host, row.objective, seed);
                let name = &row.name;
                assert_eq!(
                    contradictions(&result),
                    [""; 0],
                    "{name}, seed {seed}: {result:#?}"
                );
            }
            let score = row.score(3);
            assert_eq!(score.impossible, 0, "{}", row.name);
        }
    }

    #[test]
    fn a_pool_of_8_permits_has_no_capacity_above_its_limit() {
        let reported = LimitedServer::Pool {
            permits: 8,
            holds_s: 0.02,
        };
        let row = row("reported", reported, 200.0);
        let truth = row.truth_per_s();
        assert!((380.0..400.0).contains(&truth), "{truth}");
        let score = row.score(10);
        assert!(score.right.value() >= 0.8, "{}", score.right);
    }

    #[test]
    fn importance_sampling_agrees_with_the_formula_for_one_permit() {
        let objective = KnownObjective::ResponseTime {
            percentile: 99.0,
            limit_ms: 100.0,
        };
        let known = capacity_per_s(
            &Scenario::from(Service::Deterministic {
                time_us: 10_000.0,
                pauses: None,
            }),
            objective,
            1.0,
        );
        let sampled = pool_capacity_per_s(1, 0.01, objective);
        assert!((sampled / known - 1.0).abs() < 0.003, "{sampled} {known}");
    }
}
