//! T8: what arrives at the server is what was scheduled.

use super::awake::Awake;
use super::environment::Environment;
use super::report::Trial;
use super::{Failure, anderson, disturbance};
use crate::scenario::Scenario;
use crate::server::Server;

/// A sleeper wakes some ten microseconds late, so that distances of that order are not to be had from any
/// client that sleeps; they are a hundredth of the mean distance at this rate.
const RATE: f64 = 200.0;
const SECONDS: u64 = 12;

/// Exponential distances fail this often by chance. Lancet (ATC'19) accepts an A² of up to twice the 1 %
/// point, 7.7; this is stricter: an A² of 6.0.
const BY_CHANCE: f64 = 0.001;

pub fn run(environment: &Environment) -> Result<Trial, Failure> {
    let _awake = Awake::keep();
    let server = Server::start(Scenario::default())?;
    let flags = format!("--rate {RATE} --arrivals poisson -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(log.totals.requests, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    // A Poisson count has its mean as variance; four standard deviations.
    let mean = RATE * SECONDS as f64;
    trial.near(
        "arrivals",
        mean,
        Some(log.totals.requests as f64),
        4.0 * mean.sqrt(),
    );
    let distances: Vec<f64> = log
        .requests
        .windows(2)
        .map(|two| (two[1].arrival_ns - two[0].arrival_ns) as f64)
        .collect();
    let a2 = anderson::statistic(&distances, 1e9 / RATE);
    let p = anderson::p_value(a2);
    trial.holds(
        "distances at the server are exponential (Anderson–Darling)",
        p >= BY_CHANCE,
        format!("A² {a2:.2}, p {p:.4}"),
    );
    let lateness = &run.lateness_us;
    trial.note(format!(
        "lateness p50 {:.0} µs, p99 {:.0} µs",
        lateness.p50.unwrap_or(0.0),
        lateness.p99.unwrap_or(0.0)
    ));
    trial.disturbance = disturbance::found(run, &log);
    Ok(trial)
}
