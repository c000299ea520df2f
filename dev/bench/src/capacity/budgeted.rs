//! Searches of one minute on simulated servers. The code of `floodmark capacity` plans the trials
//! and evaluates the search. The server, the clock, the objective's figures and the disturbances of
//! the host are simulated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use floodmark_diagnose::conditions::Objective;
use floodmark_lab::capacity::{
    CAPACITY_PRECISION, CapacityEvents, LevelPlanner, LoadLengths, PlannedTrial, TrialPlanner,
    slow_s, tail_shares,
};
use floodmark_record::Event;
use floodmark_record::capacity::{
    CapacityBegan, CapacityEnded, CapacityLevel, CapacityPlan, CapacityResult, CapacityTrial,
    ObjectiveFigure, TrialFlow, TrialOutcome, TrialPurpose,
};
use floodmark_record::events::RunId;
use floodmark_stats::capacity::{FlowRow, TrialLength, TrialRow};
use floodmark_truth::capacity::{KnownObjective, capacity_per_s};
use floodmark_truth::scenario::{Scenario, Service};
use floodmark_truth::service::Limiter;

use super::host::{SimulatedHost, Stops};
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

/// A request of a simulated load.
#[derive(Debug, Clone, Copy)]
struct Request {
    arrived_s: f64,
    /// Time between the scheduled and the actual arrival.
    late_s: f64,
    done_s: f64,
    is_ok: bool,
}

/// A server's state within one load.
struct Serving<'a> {
    server: LimitedServer,
    stops: &'a Stops,
    /// Times at which the permits become free, in nanoseconds.
    free_ns: BinaryHeap<Reverse<u64>>,
    tokens: f64,
    filled_s: f64,
}

/// Converts seconds to the nanoseconds of the simulated clock.
fn ns(time_s: f64) -> u64 {
    (time_s * 1e9).round() as u64
}

impl<'a> Serving<'a> {
    fn new(server: LimitedServer, stops: &'a Stops) -> Self {
        let (permits, tokens) = match server {
            LimitedServer::Pool { permits, .. } | LimitedServer::Exponential { permits, .. } => {
                (permits, 0.0)
            }
            LimitedServer::Bucket { burst, .. } => (0, f64::from(burst)),
        };
        Serving {
            server,
            stops,
            free_ns: vec![Reverse(0); permits].into(),
            tokens,
            filled_s: 0.0,
        }
    }

    /// Handles the next request, which is due at `due_s`.
    fn handle(&mut self, due_s: f64, random: &mut Random) -> Request {
        let sent_s = self.stops.client_resumes_s(due_s);
        let request = self.serve(self.stops.server_time_s(sent_s), random);
        let done_s = self.stops.time_s(request.done_s).max(sent_s);
        Request {
            arrived_s: due_s,
            late_s: sent_s - due_s,
            done_s: self.stops.client_resumes_s(done_s),
            ..request
        }
    }

    /// Serves the next request. Times count only while the server runs. Requests are served in
    /// order of arrival.
    fn serve(&mut self, arrived_s: f64, random: &mut Random) -> Request {
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
                    late_s: 0.0,
                    done_s: arrived_s + REJECTION_S,
                    is_ok,
                };
            }
        };
        let free_s = self
            .free_ns
            .pop()
            .map_or(0.0, |Reverse(at)| at as f64 / 1e9);
        let done_s = arrived_s.max(free_s) + time_s;
        self.free_ns.push(Reverse(ns(done_s)));
        Request {
            arrived_s,
            late_s: 0.0,
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

    /// Simulates Poisson arrivals at a server that is idle at first. Each step consists of a rate
    /// and a length in seconds.
    fn open(self, steps: &[(f64, f64)], stops: &Stops, random: &mut Random) -> Vec<Request> {
        let mut serving = Serving::new(self, stops);
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
        requests
    }

    /// Simulates connections each of which sends its next request after a response.
    fn closed(
        self,
        connections: usize,
        length_s: f64,
        stops: &Stops,
        random: &mut Random,
    ) -> Vec<Request> {
        let mut serving = Serving::new(self, stops);
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
        requests
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

/// A server, its objective and its host.
#[derive(Debug, Clone, Copy)]
struct Searched {
    server: LimitedServer,
    objective: KnownObjective,
    host: SimulatedHost,
    /// Response time without a queue, in seconds.
    idle_s: f64,
}

/// Searches for the capacity of a server, and sends the loads after the search.
pub fn search(
    (server, objective): (LimitedServer, KnownObjective),
    host: SimulatedHost,
    seed: u64,
) -> CapacityResult {
    let mut random = Random::new(seed);
    // Disturbances use a separate random number generator so that the loads are the same as on a
    // quiet host.
    let mut disturbances = Random::new(seed + 1_000_000);
    let parsed: Objective = objective
        .to_string()
        .parse()
        .expect("a known objective is valid");
    let objectives = [parsed];
    let stops = host.stops(CLOSED_S, &mut disturbances);
    let closed = server.closed(CONNECTIONS, CLOSED_S, &stops, &mut random);
    let idle = server.closed(1, IDLE_S, &Stops::default(), &mut random);
    let per_s = |requests: &[Request], length_s: f64| {
        let in_time = requests.iter().filter(|r| r.is_ok && r.done_s <= length_s);
        in_time.count() as f64 / length_s
    };
    let idle_s = response_quantile(&idle, 0.5).unwrap_or(0.0);
    let is_met_idle = judge(&idle, objective).1;
    let mut lengths = LoadLengths::new(
        &objectives,
        std::time::Duration::from_secs_f64(BUDGET_S),
        is_met_idle,
        None,
    );
    lengths.add_p90(response_quantile(&closed, 0.9).map(|s| s * 1e6));
    let closed_per_s = per_s(&closed, CLOSED_S);
    let (start_per_s, lowest_per_s) = if is_met_idle {
        (START.0 * closed_per_s, START.1 * closed_per_s)
    } else {
        let idle_per_s = 0.5 * per_s(&idle, IDLE_S);
        (idle_per_s, idle_per_s)
    };
    let flow = flow_rows(&closed, 0.0, CLOSED_S);
    let settings = CapacityPlan {
        objectives: vec![objectives[0].text.clone()],
        start_per_s,
        lowest_per_s,
        highest_per_s: 1e3 * closed_per_s,
        precision: CAPACITY_PRECISION,
        budget_s: BUDGET_S,
        closed: lengths.flow(&flow).map(|flow| flow.answered),
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
    let searched = Searched {
        server,
        objective,
        host,
        idle_s,
    };
    let mut elapsed_s = CLOSED_S + IDLE_S + 2.0 * OVERHEAD_S;
    let mut planner = TrialPlanner::new(&settings, &[], lengths, true, BUDGET_S);
    let mut is_after_miss = false;
    let reason = loop {
        let planned = match planner.next(elapsed_s) {
            Ok(planned) => planned,
            Err(end) => break end,
        };
        elapsed_s += OVERHEAD_S + if is_after_miss { RECOVERY_S } else { 0.0 };
        let trial = run_trial(
            &searched,
            &planned,
            &mut planner,
            &mut elapsed_s,
            (&mut random, &mut disturbances),
        );
        is_after_miss = trial.outcome == TrialOutcome::Miss;
        planner.record(&trial);
        events.take(&Event::CapacityTrial(trial));
    };
    send_levels(
        &searched,
        &planner,
        &mut events,
        (&mut random, &mut disturbances),
    );
    events.take(&Event::CapacityEnded(CapacityEnded {
        elapsed_s,
        reason,
        notes: Vec::new(),
    }));
    events.result()
}

/// Sends the loads after a search.
fn send_levels(
    searched: &Searched,
    planner: &TrialPlanner<'_>,
    events: &mut CapacityEvents,
    (random, disturbances): (&mut Random, &mut Random),
) {
    let levels = LevelPlanner::new(&events.result());
    while let Some(rate_per_s) = levels.next(&events.levels) {
        let length = planner.lengths().level(rate_per_s, levels.capacity_per_s());
        let load = Load::new(
            searched,
            &[(rate_per_s, length.transient_s + length.judged_s)],
            0.0,
            (&mut *random, &mut *disturbances),
        );
        let (_, outcome, _) = load.judge(searched, rate_per_s, planner);
        events.take(&Event::CapacityLevel(CapacityLevel {
            attempt: events.levels.len() as u32 + 1,
            rate_per_s,
            outcome,
        }));
    }
}

/// A simulated open-model load.
struct Load {
    requests: Vec<Request>,
    stops: Stops,
    /// Start and end of the judged time in seconds.
    judged: (f64, f64),
    /// Time of the last response in seconds.
    last_s: f64,
}

impl Load {
    fn new(
        searched: &Searched,
        steps: &[(f64, f64)],
        from_s: f64,
        (random, disturbances): (&mut Random, &mut Random),
    ) -> Self {
        let end_s: f64 = steps.iter().map(|(_, length_s)| length_s).sum();
        let stops = searched.host.stops(end_s, disturbances);
        let requests = searched.server.open(steps, &stops, random);
        let last_s = requests.iter().map(|r| r.done_s).fold(end_s, f64::max);
        Load {
            requests,
            stops,
            judged: (from_s, end_s),
            last_s,
        }
    }

    /// Returns the requests that arrived in the judged time.
    fn judged(&self) -> Vec<Request> {
        let requests = self.requests.iter().copied();
        requests.filter(|r| r.arrived_s >= self.judged.0).collect()
    }

    /// Judges the load like `floodmark capacity`. Returns the figure that the objective limits and
    /// whether the objective is met, the outcome, and the flow.
    fn judge(
        &self,
        searched: &Searched,
        rate_per_s: f64,
        planner: &TrialPlanner<'_>,
    ) -> ((Option<f64>, bool), TrialOutcome, Option<TrialFlow>) {
        let judged = self.judged();
        let (value, is_met) = judge(&judged, searched.objective);
        let rows = flow_rows(&self.requests, self.judged.0, self.judged.1);
        let flow = planner.lengths().flow(&rows);
        let sustains = |flow| planner.sustains(rate_per_s, flow);
        let outcome = if is_met && flow.as_ref().is_none_or(sustains) {
            TrialOutcome::Pass
        } else if is_late(&judged) {
            TrialOutcome::Void
        } else {
            TrialOutcome::Miss
        };
        ((value, is_met), outcome, flow)
    }
}

/// Returns whether the client was too late for meaningful response times.
fn is_late(judged: &[Request]) -> bool {
    /// Limits of `floodmark load` for the 99th percentile of the lateness: in seconds, and as a
    /// share of the 99th percentile of the response times.
    const MOST: (f64, f64) = (0.001, 0.1);
    let times = |of: fn(&Request) -> f64| {
        let times: Vec<f64> = judged.iter().map(of).collect();
        quantile(&times, 0.99).unwrap_or(0.0)
    };
    let late_s = times(|r| r.late_s);
    late_s > MOST.0 && late_s > MOST.1 * times(|r| r.done_s - r.arrived_s)
}

/// Simulates a trial and judges it like `floodmark capacity`.
fn run_trial(
    searched: &Searched,
    planned: &PlannedTrial,
    planner: &mut TrialPlanner<'_>,
    elapsed_s: &mut f64,
    random: (&mut Random, &mut Random),
) -> CapacityTrial {
    let objective = searched.objective;
    let TrialLength {
        transient_s,
        judged_s,
    } = planned.length;
    let steps = planned.steps();
    let steps: Vec<(f64, f64)> = steps
        .iter()
        .map(|step| (step.rate_per_s, step.duration_s))
        .collect();
    let length_s: f64 = steps.iter().map(|(_, length_s)| length_s).sum();
    let load = Load::new(searched, &steps, length_s - judged_s, random);
    let at_s = *elapsed_s;
    *elapsed_s += load.last_s;
    let judged = load.judged();
    let ((value, is_met), outcome, flow) = load.judge(searched, planned.rate_per_s, planner);
    let proves = planned.purpose == TrialPurpose::Prove;
    let strictest = planner.lengths().strictest().cloned();
    let limit_s = strictest
        .as_ref()
        .and_then(|of| slow_s(of, searched.idle_s));
    let slow_s = match limit_s {
        Some(limit_s) if proves => limit_s,
        _ => planner
            .lengths()
            .slow
            .map_or(f64::INFINITY, |slow| slow.as_secs_f64()),
    };
    let parts = trial_rows(&judged, load.judged, limit_s.map(|_| slow_s));
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
        required_s: planned.required_s,
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
        throughput_per_s: Some(ok / judged_s),
        error_share: Some(1.0 - ok / judged.len().max(1) as f64),
        p50_us: None,
        p99_us: None,
        design_effect: planner.lengths().design_effect(),
        server_cpus: None,
        slow_cpu_share: load.stops.slow_share(length_s),
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
    server: LimitedServer,
    objective: KnownObjective,
    host: SimulatedHost,
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
            server: bucket,
            objective: KnownObjective::Errors(1.0),
            host: SimulatedHost::QUIET,
        },
    ]
    .into_iter()
    .chain(disturbed(&pool(8, 20.0, 200.0)))
    .chain(disturbed(&pool(8, 20.0, 30.0)))
    .collect()
}

/// Returns a server on disturbed hosts.
fn disturbed(quiet: &LimitedRow) -> impl Iterator<Item = LimitedRow> {
    SimulatedHost::disturbed().map(move |host| LimitedRow {
        name: format!("{}, {host}", quiet.name),
        host,
        ..quiet.clone()
    })
}

fn row(name: &str, server: LimitedServer, limit_ms: f64) -> LimitedRow {
    let objective = KnownObjective::ResponseTime {
        percentile: 99.0,
        limit_ms,
    };
    LimitedRow {
        name: format!("{name}, {objective}"),
        server,
        objective,
        host: SimulatedHost::QUIET,
    }
}

impl LimitedRow {
    /// Returns the known capacity in requests per second.
    pub fn truth_per_s(&self) -> f64 {
        self.server.capacity_per_s(self.objective)
    }

    /// Returns whether the host is not disturbed.
    pub fn is_quiet(&self) -> bool {
        self.host == SimulatedHost::QUIET
    }

    /// Returns what is known about the server.
    fn known(&self) -> KnownCapacity {
        let limit_per_s = self.server.limit_per_s() / ok_share(self.objective);
        // With exponential service times, the rate within one second may exceed the mean rate.
        let is_limited = !matches!(self.server, LimitedServer::Exponential { .. });
        KnownCapacity {
            rising: RateRange::exactly(self.truth_per_s()),
            falling: None,
            limit_per_s: is_limited.then_some(limit_per_s),
        }
    }

    /// Runs `searches` searches, each with a different seed.
    pub fn score(&self, searches: u64) -> LimitedScore {
        let known = self.known();
        let mut score = LimitedScore::default();
        for seed in 0..searches {
            let result = search((self.server, self.objective), self.host, seed);
            score.add(&known, &result);
        }
        score
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::Record;
    use floodmark_record::capacity::{CapacityBound, TrialStart};
    use floodmark_record::cause::Cause;
    use floodmark_record::plan::{Model, Schedule};
    use floodmark_record::run::Run;
    use floodmark_record::units::Rate;
    use floodmark_record::verdict::Gain;
    use floodmark_report::Style;

    use super::*;
    use crate::bench::repository;
    use crate::golden::{each_result, pack_path};

    /// Returns the outcomes and rates of the trials that started from idle.
    fn idle(result: &CapacityResult) -> impl Iterator<Item = (TrialOutcome, f64)> {
        let trials = result.trials.iter();
        let idle = trials.filter(|trial| trial.start == TrialStart::Idle);
        idle.map(|trial| (trial.outcome, trial.rate_per_s))
    }

    /// Returns the contradictions in a result.
    fn contradictions(result: &CapacityResult) -> Vec<&'static str> {
        let answered = result.answered_per_s.unwrap_or(0.0);
        let (rate, low, high) = (result.rate_per_s, result.low, result.high);
        // The upper end may exceed the answered rate by its counting error.
        let rates = [rate, low, high.map(|high| high / 1.02), result.last_per_s];
        let falling = result.falling.iter().map(|of| Some(of.rate_per_s));
        let is_above = |rate: Option<f64>| rate.is_some_and(|rate| rate > answered);
        let passed = |rate: f64| {
            let levels = result.levels.iter().map(|of| (of.outcome, of.rate_per_s));
            let mut all = idle(result).chain(levels);
            all.any(|(outcome, per_s)| outcome == TrialOutcome::Pass && per_s >= rate)
        };
        let lower = match result.bound {
            Some(CapacityBound::Lower) => rate,
            _ => low,
        };
        let is_ordered = match (low, rate, high) {
            (Some(low), Some(rate), Some(high)) => low <= rate && rate <= high,
            (None, _, None) => true,
            _ => false,
        };
        let is_failed_proof = |trial: &CapacityTrial| {
            trial.purpose == TrialPurpose::Prove && trial.outcome == TrialOutcome::Miss
        };
        let failed = |low: f64| {
            let mut proofs = result.trials.iter().filter(|trial| is_failed_proof(trial));
            proofs.any(|trial| trial.rate_per_s < low && !trial.is_disturbed())
        };
        let missed = result.missed_level_per_s();
        let has_interval = low.is_some();
        let is_upper = result.bound == Some(CapacityBound::Upper);
        [
            (
                "a rate is above the answered rate",
                rates.into_iter().chain(falling).any(is_above),
            ),
            (
                "a load missed twice below the capacity",
                !is_upper && missed.zip(rate).is_some_and(|(missed, rate)| missed < rate),
            ),
            (
                "a load missed twice at the lower bound",
                missed.zip(lower).is_some_and(|(missed, low)| missed <= low),
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
                lower.is_some_and(failed),
            ),
            (
                "a proved rate is not the lower bound",
                result.proved_per_s.is_some() && result.proved_per_s != low,
            ),
            (
                "the lower bound is not proved",
                has_interval
                    && result.trials.iter().any(|trial| trial.required_s.is_some())
                    && result.proved_per_s.is_none()
                    && missed.is_none(),
            ),
        ]
        .into_iter()
        .filter_map(|(statement, holds)| holds.then_some(statement))
        .collect()
    }

    /// Returns a stored search with loads around its capacity.
    fn stored_search() -> Record {
        let mut found = None;
        let pack = pack_path(&repository().unwrap(), "capacity");
        let search = |name: &str, record| {
            found = (name == "errors").then_some(record).or(found.take());
            Ok(())
        };
        each_result(&pack, search).unwrap();
        found.unwrap()
    }

    /// Returns the text of a result, with a run for each load after the search. The server's limit
    /// is `bound` times the highest answered rate. Loads below the capacity do not reach the limit.
    fn rendered(stored: &Record, result: &CapacityResult, bound: f64) -> String {
        let answered_per_s = result.answered_per_s.unwrap_or(0.0);
        let load = stored.runs.iter().find(|run| run.plan.is_open()).unwrap();
        let run = |level: &CapacityLevel| {
            let mut run = Run {
                attempt: level.attempt,
                throughput_per_s: Some(level.rate_per_s.min(answered_per_s)),
                ..load.clone()
            };
            if let Model::Open { schedule, .. } = &mut run.plan.model
                && let Schedule::Constant { rate, .. } = schedule
            {
                *rate = Rate::new(level.rate_per_s).unwrap();
            }
            let verdict = run.verdict.as_mut().unwrap();
            if level.rate_per_s < 0.98 * answered_per_s {
                verdict.cause = Cause::None;
                verdict.summary = "the server's capacity was not reached".to_owned();
                (verdict.limit_per_s, verdict.gain) = (None, None);
            } else {
                verdict.cause = Cause::WorkerPool;
                verdict.summary = "all 8 threads are busy".to_owned();
                verdict.limit_per_s = Some(bound * answered_per_s);
                verdict.gain = Some(Gain {
                    requests: 16,
                    low_per_s: bound * answered_per_s,
                    high_per_s: 2.0 * bound * answered_per_s,
                    basis: "16 threads".to_owned(),
                });
            }
            run
        };
        let record = Record {
            runs: result.levels.iter().map(run).collect(),
            capacity: Some(CapacityResult {
                trial: load.trial.clone(),
                process: load.process,
                ..result.clone()
            }),
            ..stored.clone()
        };
        let style = Style {
            color: false,
            width: 250,
        };
        floodmark_report::terminal::result(&record, None, style).replace('\u{a0}', " ")
    }

    /// Returns the number that follows `words` in a line, ignoring thousands separators.
    fn number_after(line: &str, words: &str) -> Option<f64> {
        let (_, text) = line.split_once(words)?;
        let start = text.find(|c: char| c.is_ascii_digit())?;
        let is_number = |c: &char| c.is_ascii_digit() || *c == '.' || *c == ',';
        let number: String = text[start..].chars().take_while(is_number).collect();
        number
            .trim_end_matches(['.', ','])
            .replace(',', "")
            .parse()
            .ok()
    }

    /// Maximum ratio of a rate to the printed rate. Rates are printed with three digits or more.
    const ROUNDED: f64 = 1.005;

    /// Returns the lines of a text that contradict the result.
    fn contradictory_lines(text: &str, result: &CapacityResult) -> Vec<String> {
        let rate = result.rate_per_s.unwrap_or(0.0);
        let (low, high) = (result.low.unwrap_or(rate), result.high.unwrap_or(rate));
        let reached = result.answered_per_s.unwrap_or(0.0).max(high);
        let is_upper = result.bound == Some(CapacityBound::Upper);
        let is_lower = result.bound == Some(CapacityBound::Lower);
        let levels = || {
            text.lines().filter_map(|line| {
                // A load is named by its share of the capacity, such as `95 %`.
                let share: f64 = line.split('%').next()?.trim().parse().ok()?;
                Some((share, line))
            })
        };
        let most_met = |near: f64| {
            let near = idle(result).filter(|(_, rate)| (rate / near - 1.0).abs() < 0.05);
            let judged = near.filter(|(outcome, _)| *outcome != TrialOutcome::Void);
            let (met, missed): (Vec<_>, Vec<_>) =
                judged.partition(|(outcome, _)| *outcome == TrialOutcome::Pass);
            met.len() >= missed.len()
        };
        let wrong_level = levels().filter(|(share, line)| {
            let has = |word| levels().any(|other| other.0 == *share && other.1.contains(word));
            if line.contains("missed once") {
                !has("met")
            } else {
                // A miss does not count if the repeated loads are void.
                let counts = !is_upper && !has("void");
                line.contains("missed") && *share < 100.0 && counts
            }
        });
        let mut wrong: Vec<String> = wrong_level.map(|(_, line)| line.to_owned()).collect();
        let is_wrong = |line: &&str| {
            let fails = number_after(line, "fails first").and(number_after(line, " at "));
            let within = number_after(line, " at ")
                .filter(|_| line.contains("within the interval of the capacity"));
            let by_chance = number_after(line, " at ")
                .filter(|_| line.contains("most trials near this rate met"));
            let limit = number_after(line, "upper bound with this limit");
            let gain = number_after(line, "predicted without this limit");
            let proved = number_after(line, "proves");
            fails.is_some_and(|of| !is_upper && of <= rate / ROUNDED)
                || within.is_some_and(|of| of < low / ROUNDED || of > high * ROUNDED)
                || by_chance.is_some_and(|of| !most_met(of))
                || limit.is_some_and(|of| of * ROUNDED < reached)
                || gain.is_some_and(|of| of * ROUNDED < reached)
                || proved.is_some_and(|of| of > low * ROUNDED)
                || line.contains("capacity was not reached") && !is_lower
        };
        wrong.extend(text.lines().filter(is_wrong).map(str::to_owned));
        wrong
    }

    #[test]
    fn answers_are_possible_and_do_not_contradict_themselves() {
        let stored = stored_search();
        let (mut estimates, mut limits, mut voids, mut repeated) = (0, 0, 0, 0);
        for row in servers() {
            let known = row.known();
            for seed in 0..3 {
                let result = search((row.server, row.objective), row.host, seed);
                let name = &row.name;
                assert_eq!(
                    contradictions(&result),
                    [""; 0],
                    "{name}, seed {seed}: {result:#?}"
                );
                assert!(!known.is_exceeded(&result), "{name}, seed {seed}");
                estimates += usize::from(result.bound.is_none() && result.rate_per_s.is_some());
                let trials = result.trials.iter();
                voids += trials.filter(|t| t.outcome == TrialOutcome::Void).count();
                let levels = result.levels.iter();
                repeated += levels.filter(|level| result.is_refuted(level)).count();
                for bound in [0.97, 1.0, 1.05] {
                    let text = rendered(&stored, &result, bound);
                    limits += usize::from(text.contains("upper bound with this limit"));
                    assert_eq!(
                        contradictory_lines(&text, &result),
                        [""; 0],
                        "{name}, seed {seed}: {text}"
                    );
                }
            }
        }
        let counts = [estimates, limits, voids, repeated];
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
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
