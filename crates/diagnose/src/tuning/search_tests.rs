//! Tests of the search on simulated servers.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::path::{Actor, PathStep, StepKind};
use floodmark_record::tuning::{
    KnobKind, KnobValues, TunedKnob, TuningAction, TuningDescription, TuningGoal, TuningStep,
};
use floodmark_record::verdict::{Confidence, Verdict};
use proptest::prelude::*;

use super::measured::{Measured, MeasuredProcess};
use super::search::{CLOSE, Choice, Search, at_least, between, coarse_step};

/// Number of requests in flight.
const IN_FLIGHT: u64 = 100;

fn knob(name: &str, sizes: KnobKind, default: u64, high: u64) -> TunedKnob {
    TunedKnob {
        name: name.to_owned(),
        sizes,
        default,
        low: 1,
        high,
        values: Vec::new(),
    }
}

pub(super) fn threads(default: u64) -> TunedKnob {
    knob("threads", KnobKind::Threads, default, 200)
}

fn connections(default: u64) -> TunedKnob {
    knob("connections", KnobKind::Connections, default, 200)
}

/// Simulates a server: maps knob values to a figure, a cause, and the number of units in use in the
/// full pool.
type Server<'a> = &'a dyn Fn(&KnobValues) -> (Option<f64>, Cause, f64);

pub(super) fn verdict(cause: Cause, held: f64) -> Verdict {
    let kind = match cause {
        Cause::ConnectionPool => StepKind::Connections,
        _ => StepKind::Threads,
    };
    Verdict {
        cause,
        also: Vec::new(),
        costs: Vec::new(),
        confidence: Confidence::Likely,
        probability: None,
        runner_up: None,
        summary: "a summary".to_owned(),
        path: vec![PathStep::new(kind, Actor::Server, "").with_waiting(held)],
        limit_per_s: None,
        gain: None,
        evidence: Vec::new(),
        ruled_out: Vec::new(),
        next: String::new(),
        tested: Vec::new(),
        unseen: Vec::new(),
        ledger: None,
        ceilings: Vec::new(),
    }
}

/// The measured processes of a simulated tuning run.
struct Simulation {
    tuning: TuningDescription,
    measured: Measured,
    trials: Vec<TuningStep>,
}

impl Simulation {
    fn new(knobs: Vec<TunedKnob>) -> Self {
        Simulation {
            tuning: TuningDescription {
                trial: "t".to_owned(),
                goal: TuningGoal::Throughput,
                knobs,
            },
            measured: BTreeMap::new(),
            trials: Vec::new(),
        }
    }

    /// Runs a search. `noise` returns the factor of the n-th process.
    fn run(&mut self, server: Server<'_>, noise: impl Fn(usize) -> f64) -> Option<Choice> {
        loop {
            let mut search = Search::new(&self.tuning, &self.measured, &|_| false);
            let next = match search.run() {
                Ok(choice) => return choice,
                Err(next) => *next,
            };
            assert!(self.trials.len() < 100, "{:?}", self.trials);
            let (figure, cause, held) = server(&next.values);
            let processes = self.measured.entry(next.values.clone()).or_default();
            assert_eq!(processes.len() + 1, next.process as usize);
            let figure = figure.map(|figure| figure * noise(self.trials.len()));
            processes.push(MeasuredProcess {
                figure,
                throughput_per_s: figure,
                verdict: Some(verdict(cause, held)),
                in_flight: IN_FLIGHT,
                ..MeasuredProcess::default()
            });
            self.trials.push(next);
        }
    }

    /// Returns the settings in the order in which they were first measured.
    fn path(&self) -> Vec<Vec<u64>> {
        let mut path: Vec<Vec<u64>> = Vec::new();
        for trial in &self.trials {
            // Names are in alphabetical order, so threads come last.
            let values = trial.values.values().rev().copied().collect();
            if !path.contains(&values) {
                path.push(values);
            }
        }
        path
    }
}

/// Threads that each take 20 ms per request and hold a connection, and CPUs that serve 2,000/s.
fn pools(values: &KnobValues) -> (Option<f64>, Cause, f64) {
    let threads = values["threads"] as f64;
    let connections = values
        .get("connections")
        .map_or(f64::INFINITY, |n| *n as f64);
    let busy = threads.min(connections).min(IN_FLIGHT as f64);
    let figure = busy * 50.0;
    match () {
        () if figure > 2_000.0 => (Some(2_000.0), Cause::ServerCpu, busy),
        () if connections < threads => (Some(figure), Cause::ConnectionPool, connections),
        () => (Some(figure), Cause::WorkerPool, threads),
    }
}

#[test]
fn follows_full_pools_and_stops_at_the_cpu() {
    let mut simulation = Simulation::new(vec![threads(2), connections(10)]);
    let choice = simulation.run(&pools, |_| 1.0).unwrap();
    let path = simulation.path();
    assert_eq!(path[..3], [[2, 10], [100, 10], [100, 100]], "{path:?}");
    assert_eq!(choice.best.values().max(), Some(&100));
    // 40 threads and connections are enough. Values that differ by less than half are not tried.
    for value in choice.chosen.values() {
        assert!((40..60).contains(value), "{:?}", choice.chosen);
    }
    assert!(path.len() <= 8, "{path:?}");
    assert!(choice.why.starts_with("server-cpu"), "{}", choice.why);
    assert_eq!(choice.irrelevant, Vec::<String>::new());
    let actions: Vec<TuningAction> = simulation.trials.iter().map(|trial| trial.action).collect();
    assert_eq!(actions[1], TuningAction::Raise);
    let confirmed = actions
        .iter()
        .filter(|a| **a == TuningAction::Confirm)
        .count();
    assert_eq!(confirmed, 6, "{actions:?}");
    assert_eq!(choice.ratio.unwrap().confirmed_by, 3);
}

#[test]
fn keeps_the_smallest_value_of_a_knob_that_does_not_matter() {
    let cpu = |_: &KnobValues| (Some(1_000.0), Cause::ServerCpu, 0.0);
    let unknown = |_: &KnobValues| (Some(1_000.0), Cause::Unknown, 0.0);
    for (server, settings) in [(&cpu as Server<'_>, 2), (&unknown, 3)] {
        let mut simulation = Simulation::new(vec![threads(8)]);
        let choice = simulation
            .run(server, |n| [1.0, 0.99, 1.005][n % 3])
            .unwrap();
        assert_eq!(choice.chosen["threads"], 1);
        assert_eq!(choice.irrelevant, ["threads"]);
        assert_eq!(simulation.path().len(), settings, "{:?}", simulation.path());
    }
}

#[test]
fn finds_a_peak_between_the_values_of_a_sweep() {
    // The figure peaks at size 24.
    let peaked = |values: &KnobValues| {
        let n = values["size"] as f64;
        (
            Some(1_000.0 * (n / 24.0).min(24.0 / n)),
            Cause::Unknown,
            0.0,
        )
    };
    let mut simulation = Simulation::new(vec![knob("size", KnobKind::Other, 4, 10_000)]);
    let choice = simulation.run(&peaked, |_| 1.0).unwrap();
    assert!(
        (20..30).contains(&choice.chosen["size"]),
        "{:?}",
        simulation.path()
    );
    assert!(simulation.path().len() <= 9, "{:?}", simulation.path());
}

#[test]
fn avoids_settings_at_which_the_server_fails() {
    let fails_above_50 = |values: &KnobValues| match values["threads"] {
        0..=50 => pools(values),
        _ => (None, Cause::Unknown, 0.0),
    };
    let mut simulation = Simulation::new(vec![threads(2)]);
    let choice = simulation.run(&fails_above_50, |_| 1.0).unwrap();
    let chosen = choice.chosen["threads"];
    assert!((27..=50).contains(&chosen), "{:?}", simulation.path());
    let nothing = |_: &KnobValues| (None, Cause::Unknown, 0.0);
    assert!(
        Simulation::new(vec![threads(2)])
            .run(&nothing, |_| 1.0)
            .is_none()
    );
}

#[test]
fn sweeps_the_other_knob_if_the_verdict_names_one_that_was_raised() {
    // The verdict blames the threads although the connections are the limit.
    let misjudged = |values: &KnobValues| {
        let (figure, cause, _) = pools(values);
        let cause = match cause {
            Cause::ConnectionPool => Cause::WorkerPool,
            cause => cause,
        };
        (figure, cause, values["threads"] as f64)
    };
    let mut simulation = Simulation::new(vec![threads(2), connections(10)]);
    let choice = simulation.run(&misjudged, |_| 1.0).unwrap();
    let (figure, ..) = pools(&choice.chosen);
    assert!(figure >= Some(1_960.0), "{:?}", simulation.path());
}

#[test]
fn rejects_a_choice_that_fresh_processes_contradict() {
    // In the search, 1 thread seems as good as 8. It is 10 % slower.
    let server = |values: &KnobValues| {
        let figure = if values["threads"] < 8 {
            900.0
        } else {
            1_000.0
        };
        (Some(figure), Cause::ServerCpu, 0.0)
    };
    let mut simulation = Simulation::new(vec![threads(8)]);
    let choice = simulation
        .run(&server, |n| if n == 1 { 1.1 } else { 1.0 })
        .unwrap();
    assert_eq!(choice.chosen["threads"], 8);
}

#[test]
fn a_lucky_measurement_is_no_best_setting() {
    // The first process with 100 threads is 50 % too fast.
    let mut simulation = Simulation::new(vec![threads(2)]);
    let choice = simulation
        .run(&pools, |n| if n == 1 { 1.5 } else { 1.0 })
        .unwrap();
    let (figure, ..) = pools(&choice.chosen);
    assert_eq!(figure, Some(2_000.0), "{:?}", simulation.path());
    assert!(simulation.trials[2].action == TuningAction::Repeat);
    // A lucky small value does not win either.
    let peaked = |values: &KnobValues| match values["threads"] {
        8 => (Some(1_000.0), Cause::ServerCpu, 0.0),
        _ => (Some(500.0), Cause::ServerCpu, 0.0),
    };
    let lucky_low = |n: usize| if n == 1 { 2.5 } else { 1.0 };
    let mut simulation = Simulation::new(vec![threads(8)]);
    let choice = simulation.run(&peaked, lucky_low).unwrap();
    assert_eq!(choice.chosen["threads"], 8, "{:?}", simulation.trials);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ends_within_2_percent_of_the_best_under_noise(
        per_thread in 10.0..500.0_f64,
        capacity in 500.0..20_000.0_f64,
        start in 1_u64..100,
        noise in proptest::collection::vec(0.985..1.015_f64, 100),
    ) {
        let server = |values: &KnobValues| {
            let n = (values["threads"].min(IN_FLIGHT)) as f64;
            let cause = if n * per_thread > capacity { Cause::ServerCpu } else { Cause::WorkerPool };
            (Some((n * per_thread).min(capacity)), cause, n)
        };
        let mut simulation = Simulation::new(vec![threads(start)]);
        let choice = simulation.run(&server, |n| noise[n]).unwrap();
        let best = (IN_FLIGHT as f64 * per_thread).min(capacity);
        let figure = (choice.chosen["threads"].min(IN_FLIGHT) as f64 * per_thread).min(capacity);
        // Noise of ± 1.5 % can hide about as much.
        prop_assert!(figure >= 0.95 * best, "{:?} of {best}: {:?}", figure, simulation.path());
        prop_assert!(simulation.path().len() <= 9, "{:?}", simulation.path());
    }
}

fn values_knob(low: u64, high: u64, values: &[u64]) -> TunedKnob {
    TunedKnob {
        name: "threads".to_owned(),
        sizes: KnobKind::Threads,
        default: low,
        low,
        high,
        values: values.to_vec(),
    }
}

#[test]
fn takes_the_middle_on_a_logarithmic_scale() {
    let all = values_knob(1, 200, &[]);
    assert_eq!(between(&all, 1, 100), Some(10));
    assert_eq!(between(&all, 0, 2), Some(1));
    assert_eq!(between(&all, 2, 4), Some(3));
    assert_eq!(between(&all, 20, 29), None, "close values");
    let some = values_knob(1, 64, &[1, 8, 64]);
    assert_eq!(between(&some, 1, 64), Some(8));
    assert_eq!(between(&some, 8, 64), None);
    assert_eq!(at_least(&some, 9), 64);
    assert_eq!(coarse_step(&all, 8, 100), Some(32));
    assert_eq!(coarse_step(&all, 100, 100), None);
}

proptest! {
    #[test]
    fn is_strictly_between(low in 0_u64..500, width in 1_u64..500) {
        let all = values_knob(1, 2_000, &[]);
        let high = low + width;
        match between(&all, low, high) {
            Some(value) => prop_assert!(low < value && value < high),
            None => prop_assert!(width == 1 || high as f64 / low as f64 <= CLOSE),
        }
    }
}
