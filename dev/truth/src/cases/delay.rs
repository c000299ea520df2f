//! T1: fixed delays at a low rate.

use super::reference;
use super::{CaseEnvironment, CaseResult};
use crate::scenario::Service;

/// Rate in requests per second, and duration of each run in seconds.
const RATE: u64 = 200;
const SECONDS: u64 = 4;

/// Returns the tolerance for a median, in microseconds.
pub fn tolerance_us(truth_us: f64) -> f64 {
    (truth_us * 0.01).max(50.0)
}

pub fn run(environment: &CaseEnvironment, delay_us: u64) -> CaseResult {
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
