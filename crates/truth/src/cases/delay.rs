//! T1: fixed delays at a rate that loads nothing.

use super::awake::Awake;
use super::environment::Environment;
use super::reference;
use super::report::Trial;
use super::way::Way;
use super::{Failure, disturbance};
use crate::scenario::{Scenario, Service};
use crate::server::Server;

/// Requests per second and length of each run, seconds.
const RATE: u64 = 200;
const SECONDS: u64 = 4;

pub fn none(environment: &Environment) -> Result<Trial, Failure> {
    delayed(environment, 0)
}

pub fn one(environment: &Environment) -> Result<Trial, Failure> {
    delayed(environment, 1_000)
}

pub fn ten(environment: &Environment) -> Result<Trial, Failure> {
    delayed(environment, 10_000)
}

pub fn hundred(environment: &Environment) -> Result<Trial, Failure> {
    delayed(environment, 100_000)
}

/// What a median may be off by, microseconds.
pub fn tolerance_us(truth_us: f64) -> f64 {
    (truth_us * 0.01).max(50.0)
}

fn delayed(environment: &Environment, delay_us: u64) -> Result<Trial, Failure> {
    let _awake = Awake::keep();
    let way = Way::before(reference::service_with_wake_up)?;
    let server = Server::start(Scenario {
        service: Service::Fixed { delay_us },
        ..Scenario::default()
    })?;
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;
    let way = way.and_after()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(RATE * SECONDS, &mut trial);
    loaded.agree(&log, &mut trial);
    let truth = reference::service(&log).quantile(0.5);
    trial.near(
        "p50 of the server's log, µs, against what was injected",
        delay_us as f64,
        Some(truth),
        tolerance_us(delay_us as f64),
    );
    let truth = reference::service_with_wake_up(&log).quantile(0.5);
    trial.between(
        "service_time_us.p50, against the log and the way of a plain client",
        way.around(truth, tolerance_us(truth)),
        run.service_time_us.p50,
    );
    // The log tells response times but for the lateness that every request had (see `reference::response`),
    // which is at most what the client itself says of its own.
    let truth = reference::response(&log, RATE as f64).quantile(0.5);
    let (tolerance, lateness) = (tolerance_us(truth), run.lateness_us.p50);
    trial.between(
        "response_time_us.p50",
        (
            truth - tolerance,
            way.around(truth, tolerance).1 + lateness.unwrap_or(0.0),
        ),
        run.response_time_us.p50,
    );
    trial.note(format!(
        "lateness p50 {:.0} µs; {way}",
        lateness.unwrap_or(0.0)
    ));
    trial.disturbance = disturbance::found(run, &log).or_else(|| way.disturbance());
    Ok(trial)
}
