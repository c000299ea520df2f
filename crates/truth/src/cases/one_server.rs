//! T3: Poisson arrivals at one server with exponential service times (M/M/1).

use super::awake::Awake;
use super::environment::Environment;
use super::reference::{self, Sorted};
use super::report::Trial;
use super::way::Way;
use super::{Failure, disturbance};
use crate::choice::exponential_ns;
use crate::scenario::{Scenario, Service};
use crate::server::Server;

/// Mean service time, microseconds.
const SERVICE_US: f64 = 2_000.0;

/// Length of each run, seconds.
const SECONDS: u64 = 15;

/// The client's figures may differ from the server's log by this share or by this many microseconds, whichever is more: the way there and
/// back is within that, or takes its place where it is longer.
const TOLERANCE: f64 = 0.03;
const TOLERANCE_US: f64 = 50.0;

/// Simulated runs, and how many of them are outside the interval on each side: 99 % are within.
const SIMULATIONS: usize = 400;
const OUTSIDE: usize = 2;

pub fn half(environment: &Environment) -> Result<Trial, Failure> {
    loaded_to(environment, 0.5)
}

pub fn four_fifths(environment: &Environment) -> Result<Trial, Failure> {
    loaded_to(environment, 0.8)
}

pub fn nine_tenths(environment: &Environment) -> Result<Trial, Failure> {
    loaded_to(environment, 0.9)
}

fn loaded_to(environment: &Environment, rho: f64) -> Result<Trial, Failure> {
    let _awake = Awake::keep();
    let way = Way::before(reference::service)?;
    let server = Server::start(Scenario {
        service: Service::Exponential {
            mean_us: SERVICE_US,
        },
        ..Scenario::default()
    })?;
    let rate = rho * 1e6 / SERVICE_US;
    let flags = format!("--rate {rate} --arrivals poisson -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;
    let way = way.and_after()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(run.requests.intended, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    let truth = reference::service(&log);
    let (service, response) = (&run.service_time_us, &run.response_time_us);
    // The log begins when a request arrives; what kept it from being sent before is the client's to tell.
    let before = run.blocked_us.mean.unwrap_or(0.0) + run.lateness_us.mean.unwrap_or(0.0);
    for (name, truth, got) in [
        ("service_time_us.mean", truth.mean(), service.mean),
        ("service_time_us.p50", truth.quantile(0.5), service.p50),
        ("service_time_us.p99", truth.quantile(0.99), service.p99),
        (
            "response_time_us.mean, less blocked and lateness",
            truth.mean(),
            response.mean.map(|mean| mean - before),
        ),
        ("response_time_us.p99", truth.quantile(0.99), response.p99),
    ] {
        let tolerance = (truth * TOLERANCE).max(TOLERANCE_US);
        trial.between(name, way.around(truth, tolerance), got);
    }
    trial.note(format!(
        "blocked and lateness {before:.0} µs on average; {way}"
    ));
    let formula = SERVICE_US / (1.0 - rho);
    let (mean, p99) = intervals(rho, run.requests.intended);
    trial.between(
        &format!("response_time_us.mean within the interval of S/(1 − ρ) = {formula:.0}"),
        (
            mean.0 * SERVICE_US,
            way.around(mean.1 * SERVICE_US, TOLERANCE_US).1,
        ),
        run.response_time_us.mean,
    );
    // The time in the system is exponential, so its 99th percentile is ln 100 means.
    let formula = formula * 100f64.ln();
    trial.between(
        &format!("response_time_us.p99 within the interval of 4.6·S/(1 − ρ) = {formula:.0}"),
        (
            p99.0 * SERVICE_US,
            way.around(p99.1 * SERVICE_US, TOLERANCE_US).1,
        ),
        run.response_time_us.p99,
    );
    trial.disturbance = disturbance::found(run, &log).or_else(|| way.disturbance());
    Ok(trial)
}

/// Where the mean and the 99th percentile of `n` times in an M/M/1 system that starts empty lie in 99 % of
/// runs, in mean service times. By simulation of Lindley's recursion, since successive times depend on each
/// other so strongly that no formula for independent ones applies.
fn intervals(rho: f64, n: u64) -> ((f64, f64), (f64, f64)) {
    let (mut means, mut p99s) = (Vec::new(), Vec::new());
    for seed in 0..SIMULATIONS as u64 {
        let draw = |index: u64, mean: f64| exponential_ns(seed, index, mean * 1e9) as f64 / 1e9;
        let mut wait = 0.0;
        let times = (0..n).map(|i| {
            let time = wait + draw(2 * i, 1.0);
            wait = (time - draw(2 * i + 1, 1.0 / rho)).max(0.0);
            time
        });
        let times = Sorted::new(times.collect());
        means.push(times.mean());
        p99s.push(times.quantile(0.99));
    }
    let inner = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        (all[OUTSIDE], all[SIMULATIONS - 1 - OUTSIDE])
    };
    (inner(means), inner(p99s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_intervals_hold_the_closed_formulas_and_no_more() {
        for rho in [0.5, 0.8, 0.9] {
            let (mean, p99) = intervals(rho, 5_000);
            let formula = 1.0 / (1.0 - rho);
            assert!(mean.0 < formula && formula < mean.1, "{rho}: {mean:?}");
            assert!(p99.0 < formula * 100f64.ln() && formula * 100f64.ln() < p99.1);
        }
        let (mean, _) = intervals(0.5, 5_000);
        assert!(mean.1 - mean.0 < 0.6, "{mean:?}");
    }
}
