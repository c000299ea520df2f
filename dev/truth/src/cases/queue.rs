//! T3: Poisson arrivals at one server with exponential service times (M/M/1).

use super::reference::{self, Sorted};
use super::{CaseEnvironment, CaseResult};
use crate::choice::exponential_ns;
use crate::scenario::Service;

/// Mean service time, in microseconds.
const SERVICE_US: f64 = 2_000.0;

/// Duration of each run, in seconds.
const SECONDS: u64 = 15;

/// Tolerance for differences from the server's log: a fraction or a number of microseconds,
/// whichever is greater. In the upper bound, a plain client's overhead replaces the tolerance if it
/// is greater.
const TOLERANCE: f64 = 0.03;
const TOLERANCE_US: f64 = 50.0;

/// Number of simulated runs, and how many of them lie beyond each end of a 99 % interval.
const SIMULATIONS: usize = 400;
const RUNS_BEYOND: usize = 2;

/// Offers a load of `rho` times the server's capacity.
pub fn run(environment: &CaseEnvironment, rho: f64) -> CaseResult {
    let mean_us = SERVICE_US;
    let scenario = Service::Exponential {
        mean_us,
        servers: 1,
    }
    .into();
    let rate = rho * 1e6 / SERVICE_US;
    let flags = format!("--rate {rate} --arrivals poisson -d {SECONDS}s");
    let (mut measured, overhead) =
        environment.measure_times(reference::service, scenario, &flags)?;
    measured.check_all_counts(measured.run.requests.intended);
    let (run, findings) = (&measured.run, &mut measured.findings);
    let truth = reference::service(&measured.log);
    let (mean, p50, p99) = (truth.mean(), truth.quantile(0.5), truth.quantile(0.99));
    let (service, response) = (&run.service_time_us, &run.response_time_us);
    // The log's times start when a request arrives. Only the client knows about earlier delays.
    let before = run.blocked_us.mean.unwrap_or(0.0) + run.lateness_us.mean.unwrap_or(0.0);
    let rest = response.mean.map(|mean| mean - before);
    for (name, truth, got) in [
        ("service_time_us.mean", mean, service.mean),
        ("service_time_us.p50", p50, service.p50),
        ("service_time_us.p99", p99, service.p99),
        ("response_time_us.mean − blocked − lateness", mean, rest),
        ("response_time_us.p99", p99, response.p99),
    ] {
        let tolerance = (truth * TOLERANCE).max(TOLERANCE_US);
        findings.between(name, overhead.around(truth, tolerance), got);
    }
    findings.note(format!(
        "mean of blocked time plus lateness {before:.0} µs; {overhead}"
    ));
    let (mean, p99) = intervals(rho, run.requests.intended);
    let formula = SERVICE_US / (1.0 - rho);
    // The time in the system is exponential, so the 99th percentile is the mean times ln 100.
    let formula_p99 = formula * 100f64.ln();
    let mean_name = format!("mean within the interval of S/(1 − ρ) = {formula:.0}");
    let p99_name = format!("p99 within the interval of 4.6·S/(1 − ρ) = {formula_p99:.0}");
    for (name, (low, high), got) in [
        (mean_name, mean, response.mean),
        (p99_name, p99, response.p99),
    ] {
        let high = overhead.around(high * SERVICE_US, TOLERANCE_US).1;
        let name = format!("response_time_us.{name}");
        findings.between(&name, (low * SERVICE_US, high), got);
    }
    Ok(measured.findings)
}

/// Returns 99 % intervals for the mean and the 99th percentile of `n` times in an M/M/1 system that
/// starts empty. The unit is the mean service time.
///
/// The function simulates Lindley's recursion. Successive times are dependent, so formulas for
/// independent times do not apply.
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
        (all[RUNS_BEYOND], all[SIMULATIONS - 1 - RUNS_BEYOND])
    };
    (inner(means), inner(p99s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_contain_the_formulas() {
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
