//! T8/ramp, T8/steps: rates that change arrive at the server as the integral of the rate says, and each step has its own figures.

use floodmark_record::run::Saturation;

use super::awake::Awake;
use super::environment::Environment;
use super::reference::Sorted;
use super::report::Trial;
use super::{Failure, disturbance};
use crate::log::Log;
use crate::scenario::{Scenario, Service};
use crate::server::Server;

/// The ramp: from nothing to this rate, over this time.
const HIGHEST: f64 = 1_000.0;
const SECONDS: u64 = 10;

/// The steps: rates, each for an equal part of the time; the parts do not end on whole seconds.
const STEPS: [f64; 3] = [200.0, 1_000.0, 500.0];

/// Service time of the server in the case of steps, microseconds.
const DELAY_US: u64 = 2_000;

/// How late one arrival in a hundred may be, microseconds: what a quiet machine takes to wake a sleeper is a tenth of it.
const LATE_US: f64 = 1_000.0;

pub fn ramp(environment: &Environment) -> Result<Trial, Failure> {
    let _awake = Awake::keep();
    let server = Server::start(Scenario::default())?;
    let flags = format!("--ramp 0-{HIGHEST} -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;

    let mut trial = Trial::default();
    let length = SECONDS as f64;
    let n = (HIGHEST * length / 2.0) as u64;
    loaded.all_ok(n, &mut trial);
    loaded.agree(&log, &mut trial);
    // As many arrivals by t as the triangle below the ramp holds: k = HIGHEST · t² / (2 · length).
    let due = |k: u64| (2.0 * length * k as f64 / HIGHEST).sqrt();
    on_time(&log, &(0..n).map(due).collect::<Vec<_>>(), &mut trial);
    trial.holds(
        "a server that keeps up is not said to fall behind",
        matches!(loaded.run.saturation, Some(Saturation::KeptUp { .. })),
        format!("{:?}", loaded.run.saturation),
    );
    trial.disturbance = disturbance::found(&loaded.run, &log);
    Ok(trial)
}

pub fn steps(environment: &Environment) -> Result<Trial, Failure> {
    let _awake = Awake::keep();
    let server = Server::start(Scenario {
        service: Service::Fixed { delay_us: DELAY_US },
        ..Scenario::default()
    })?;
    let rates = STEPS.map(|rate| rate.to_string()).join(",");
    let flags = format!("--steps {rates} -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;

    let mut trial = Trial::default();
    let each = SECONDS as f64 / STEPS.len() as f64;
    let mut due = Vec::new();
    // Arrivals before the step; their fraction is carried over into it.
    let mut before = 0.0f64;
    for (i, rate) in STEPS.iter().enumerate() {
        let after = before + rate * each;
        let numbers = (before - 1e-9).ceil() as u64..(after - 1e-9).ceil() as u64;
        due.extend(numbers.map(|k| i as f64 * each + (k as f64 - before) / rate));
        before = after;
    }
    loaded.all_ok(due.len() as u64, &mut trial);
    loaded.agree(&log, &mut trial);
    on_time(&log, &due, &mut trial);
    trial.exactly(
        "steps in the record",
        STEPS.len() as u64,
        loaded.run.steps.len() as u64,
    );
    for (step, rate) in loaded.run.steps.iter().zip(STEPS) {
        let what = format!("step of {rate}/s: throughput_per_s");
        // What is out at its ends: the rates' difference times the service time, and a request for chance.
        let ends = HIGHEST * DELAY_US as f64 / 1e6 + 2.0;
        trial.near(&what, rate, Some(step.throughput_per_s), ends / each);
        let what = format!("step of {rate}/s: response_time_us.p50");
        let truth = DELAY_US as f64;
        trial.between(&what, (truth, truth + LATE_US), step.response_time_us.p50);
    }
    trial.disturbance = disturbance::found(&loaded.run, &log);
    Ok(trial)
}

/// Arrivals at the server less the times they were due, seconds. The server does not know when the run began; it is taken as
/// the latest moment at which none would have come early.
fn on_time(log: &Log, due: &[f64], trial: &mut Trial) {
    let mut arrivals: Vec<u64> = log.requests.iter().map(|r| r.readable_ns).collect();
    arrivals.sort_unstable();
    let base = arrivals.first().copied().unwrap_or(0);
    let after: Vec<f64> = arrivals
        .iter()
        .zip(due)
        .map(|(at, due)| (at - base) as f64 / 1e3 - due * 1e6)
        .collect();
    let start = after.iter().copied().fold(f64::INFINITY, f64::min);
    let late = Sorted::new(after.iter().map(|at| at - start).collect());
    trial.between(
        "arrival − its place in the schedule, µs: p99",
        (0.0, LATE_US),
        Some(late.quantile(0.99)),
    );
    trial.note(format!(
        "arrival − its place in the schedule: p50 {:.0} µs, largest {:.0} µs",
        late.quantile(0.5),
        late.quantile(1.0)
    ));
}
