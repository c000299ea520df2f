//! T1, T3, T4, T9, T10: servers without faults. The figures must agree with the server's log and
//! with formulas.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use floodmark_record::run::SteadyClass;

use super::reference::{self, Sorted};
use super::request_log::{self, LoggedRequest};
use super::{CaseEnvironment, CaseError, CaseResult};
use crate::scenario::{Scenario, Service, ServiceChange, exponential_ns};

/// Returns the tolerance for a median, in microseconds.
pub fn tolerance_us(truth_us: f64) -> f64 {
    (truth_us * 0.01).max(50.0)
}

/// T1: fixed delays at a low rate.
pub fn fixed_delay(environment: &CaseEnvironment<'_>, delay_us: u64) -> CaseResult {
    const RATE: u64 = 200;
    const SECONDS: u64 = 4;
    let scenario = Service::Fixed { delay_us }.into();
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let truth = reference::service_with_wake_up;
    let (mut measured, overhead) = environment.measure_times(truth, scenario, &flags)?;
    measured.check_all_ok(RATE * SECONDS);
    let (run, log, findings) = (&measured.run, &measured.log, &mut measured.findings);
    let delay = delay_us as f64;
    let what = "p50 in the server's log, µs, compared with the injected delay";
    let logged = reference::service(log).quantile(0.5);
    findings.near(what, delay, Some(logged), tolerance_us(delay));
    let what = "service_time_us.p50, compared with the log plus a plain client's overhead";
    let service = truth(log).quantile(0.5);
    let bounds = overhead.around(service, tolerance_us(service));
    findings.between(what, bounds, run.service_time_us.p50);
    // The log's response times exclude the lateness that all requests share (see
    // `reference::response`). The shared lateness is at most the client's lateness.
    let response = reference::response(log, RATE as f64).quantile(0.5);
    let (tolerance, lateness) = (tolerance_us(response), run.lateness_us.p50.unwrap_or(0.0));
    let high = overhead.around(response, tolerance).1 + lateness;
    let bounds = (response - tolerance, high);
    findings.between("response_time_us.p50", bounds, run.response_time_us.p50);
    findings.note(format!("lateness p50 {lateness:.0} µs; {overhead}"));
    Ok(measured.findings)
}

/// Mean service time of the queue, in microseconds.
const SERVICE_US: f64 = 2_000.0;

/// Tolerance for differences between the queue's figures and the server's log: a fraction or a
/// number of microseconds, whichever is greater. In the upper bound, a plain client's overhead
/// replaces the tolerance if the overhead is greater.
const QUEUE_TOLERANCE: f64 = 0.03;
const QUEUE_TOLERANCE_US: f64 = 50.0;

/// Number of simulated runs, and the number of them beyond each end of a 99 % interval.
const SIMULATIONS: usize = 400;
const RUNS_BEYOND: usize = 2;

/// T3: Poisson arrivals at one server with exponential service times (M/M/1). The load is `rho`
/// times the server's capacity.
pub fn queue(environment: &CaseEnvironment<'_>, rho: f64) -> CaseResult {
    const SECONDS: u64 = 15;
    let mean_us = SERVICE_US;
    let scenario = Service::Exponential {
        mean_us,
        servers: 1,
    }
    .into();
    let rate = rho * 1e6 / SERVICE_US;
    let mut flags = format!("--rate {rate} --arrivals poisson -d {SECONDS}s");
    let directory = tempfile::tempdir().map_err(CaseError::run("a temporary directory"))?;
    let requests = directory.path().join("requests.csv");
    // Agents write no request log.
    let has_requests = environment.options.agents.is_none();
    if has_requests {
        let _ = write!(flags, " --request-log {}", requests.display());
    }
    let (mut measured, overhead) =
        environment.measure_times(reference::service, scenario, &flags)?;
    measured.check_all_counts(measured.run.requests.intended);
    let (run, findings) = (&measured.run, &mut measured.findings);
    let truth = reference::service(&measured.log);
    let (mean, p50, p99) = (truth.mean(), truth.quantile(0.5), truth.quantile(0.99));
    let (service, response) = (&run.service_time_us, &run.response_time_us);
    // The server's log starts at the arrival of a request. Only the client knows about earlier
    // delays.
    let before = run.blocked_us.mean.unwrap_or(0.0) + run.lateness_us.mean.unwrap_or(0.0);
    let with_delays = if has_requests {
        let delays = client_delays(&requests).map_err(CaseError::run("the request log"))?;
        reference::delayed_service(&measured.log, &delays)
    } else {
        truth
    };
    let rest = response.mean.map(|mean| mean - before);
    for (name, truth, got) in [
        ("service_time_us.mean", mean, service.mean),
        ("service_time_us.p50", p50, service.p50),
        ("service_time_us.p99", p99, service.p99),
        ("response_time_us.mean − blocked − lateness", mean, rest),
        (
            "response_time_us.p99",
            with_delays.quantile(0.99),
            response.p99,
        ),
    ] {
        let tolerance = (truth * QUEUE_TOLERANCE).max(QUEUE_TOLERANCE_US);
        findings.between(name, overhead.around(truth, tolerance), got);
    }
    findings.note(format!(
        "mean of blocked time plus lateness {before:.0} µs; {overhead}"
    ));
    let (mean, p99) = intervals(rho, run.requests.intended);
    let formula = SERVICE_US / (1.0 - rho);
    // The time in the system is exponentially distributed, so p99 is the mean times ln 100.
    let formula_p99 = formula * 100f64.ln();
    let mean_name = format!("mean within the interval of S/(1 − ρ) = {formula:.0}");
    let p99_name = format!("p99 within the interval of 4.6·S/(1 − ρ) = {formula_p99:.0}");
    for (name, (low, high), got) in [
        (mean_name, mean, response.mean),
        (p99_name, p99, response.p99),
    ] {
        let high = overhead.around(high * SERVICE_US, QUEUE_TOLERANCE_US).1;
        let name = format!("response_time_us.{name}");
        findings.between(&name, (low * SERVICE_US, high), got);
    }
    Ok(measured.findings)
}

/// Returns sent − intended of every request in floodmark's request log, in µs and in the order of
/// sending.
fn client_delays(path: &Path) -> io::Result<Vec<f64>> {
    let mut requests = request_log::read(path)?;
    requests.sort_by_key(|request| request.sent_ns);
    let delay_us = |r: &LoggedRequest| (r.sent_ns as f64 - r.intended_ns as f64) / 1e3;
    Ok(requests.iter().map(delay_us).collect())
}

/// Returns 99 % intervals for the mean and the 99th percentile of `n` response times in an M/M/1
/// system that starts empty. The unit is the mean service time.
///
/// The function simulates Lindley's recursion. Successive response times are correlated, so
/// formulas for independent times do not apply.
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

/// T4: Little's law. In the closed model, connections = throughput × response time.
pub fn little(environment: &CaseEnvironment<'_>, n: u64, service: Service) -> CaseResult {
    /// Maximum accepted value of |N − X·R| / N.
    const TOLERANCE: f64 = 0.02;
    let mut measured = environment.measure(service.into(), &format!("-c {n} -d 4s"))?;
    measured.check_all_counts(measured.run.requests.intended);
    let run = &measured.run;
    let product = run.throughput_per_s.zip(run.response_time_us.mean);
    // Use thousandths, because findings show only one decimal place.
    let thousandths = n as f64 * 1e3;
    let what = "X·R in thousandths of a connection";
    let tolerance = thousandths * TOLERANCE;
    let product = product.map(|(x, us)| x * us / 1e3);
    measured
        .findings
        .near(what, thousandths, product, tolerance);
    Ok(measured.findings)
}

/// T9: a server that becomes faster during the measurement.
pub fn speedup(environment: &CaseEnvironment<'_>) -> CaseResult {
    /// Time of the speedup, in seconds.
    const CHANGE_S: u64 = 12;
    /// Tolerance for the time of the detected change, in seconds.
    const TOLERANCE_S: f64 = 2.0;
    let scenario = Scenario {
        change: Some(ServiceChange {
            at_ms: CHANGE_S * 1_000,
            service: Service::Fixed { delay_us: 4_000 },
        }),
        ..Service::Fixed { delay_us: 8_000 }.into()
    };
    let mut measured = environment.measure(scenario, "-c 4 -d 20s --warmup auto")?;
    measured.check_all_counts(measured.run.requests.intended);
    let (run, findings) = (&measured.run, &mut measured.findings);
    let change = CHANGE_S as f64;
    let changes = &run.steady.changes_s;
    let distance = |at: &f64| (at - change).abs();
    let all = changes.iter().copied();
    let nearest = all.min_by(|a, b| distance(a).total_cmp(&distance(b)));
    findings.near("nearest of steady.changes_s", change, nearest, TOLERANCE_S);
    // Changes are detected statistically, so noise on the host may look like a change.
    findings.equal("number of changes", 1, changes.len());
    findings.equal("steady.class", SteadyClass::Warming, run.steady.class);
    let from_s = Some(run.window.from_s);
    findings.near("window.from_s", change, from_s, TOLERANCE_S);
    // Each of four connections takes 4 ms per request, plus the overhead.
    let what = "throughput_per_s of the faster part";
    findings.between(what, (850.0, 1_000.0), run.throughput_per_s);
    Ok(measured.findings)
}

/// T10: the client's maximum rate, with the server on the same host. Checks the counts and bytes.
/// Reports the maximum rate but does not check it, because it depends on the host.
pub fn maximum_rate(environment: &CaseEnvironment<'_>) -> CaseResult {
    /// Fraction of the client's maximum rate above which the client may be the bottleneck.
    const CLIENT_LIMIT_SHARE: f64 = 0.7;
    let mut measured = environment.measure(Scenario::default(), "-c 50 -d 5s")?;
    measured.check_all_counts(measured.run.requests.intended);
    let run = &measured.run;
    let per_s = run.throughput_per_s.unwrap_or(0.0);
    measured.findings.note(format!(
        "{per_s:.0} requests/s on {} threads, {:.1} µs client CPU per request, {:?}; above {:.0}/s, the client may be the bottleneck",
        run.plan.threads,
        run.client.cpu_us_per_request.unwrap_or(0.0),
        run.validity.status,
        per_s * CLIENT_LIMIT_SHARE,
    ));
    Ok(measured.findings)
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
