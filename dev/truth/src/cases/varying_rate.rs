//! T8/ramp, T8/steps: a changing rate. Arrivals must follow the integral of the rate, and each step
//! must have its own figures.

use floodmark_record::run::Saturation;

use super::awake::Awake;
use super::measured::CaseMeasurement;
use super::reference::Sorted;
use super::{CaseEnvironment, CaseResult};
use crate::scenario::{Scenario, Service};

/// Final rate of the ramp, in requests per second, and duration of each case, in seconds.
const MAX_RATE: f64 = 1_000.0;
const SECONDS: u64 = 10;

/// Rates of the steps, in requests per second. The steps have equal durations and do not end on
/// whole seconds.
const STEPS: [f64; 3] = [200.0, 1_000.0, 500.0];

/// Service time during the steps, in microseconds.
const DELAY_US: u64 = 2_000;

/// Maximum p99 of the arrivals' lateness, in microseconds: ten times a thread's wake-up time on an
/// idle host.
const MAX_LATENESS_US: f64 = 1_000.0;

pub fn ramp(environment: &CaseEnvironment) -> CaseResult {
    let _awake = Awake::keep();
    let flags = format!("--ramp 0-{MAX_RATE} -d {SECONDS}s");
    let mut measured = environment.measure(Scenario::default(), &flags)?;
    let length = SECONDS as f64;
    let n = (MAX_RATE * length / 2.0) as u64;
    measured.check_all_ok(n);
    // The number of arrivals by t is the area under the ramp: k = MAX_RATE · t² / (2 · length).
    let due = |k: u64| (2.0 * length * k as f64 / MAX_RATE).sqrt();
    on_time(&mut measured, &(0..n).map(due).collect::<Vec<_>>());
    let saturation = &measured.run.saturation;
    measured.findings.holds(
        "the server is not reported as saturated",
        matches!(saturation, Some(Saturation::KeptUp { .. })),
        format!("{saturation:?}"),
    );
    Ok(measured.findings)
}

pub fn steps(environment: &CaseEnvironment) -> CaseResult {
    let _awake = Awake::keep();
    let scenario = Service::Fixed { delay_us: DELAY_US }.into();
    let rates = STEPS.map(|rate| rate.to_string()).join(",");
    let flags = format!("--steps {rates} -d {SECONDS}s");
    let mut measured = environment.measure(scenario, &flags)?;
    let each = SECONDS as f64 / STEPS.len() as f64;
    let mut due = Vec::new();
    // Count the arrivals before the step. A fraction of an arrival carries over into the step.
    let mut before = 0.0f64;
    for (i, rate) in STEPS.iter().enumerate() {
        let after = before + rate * each;
        let numbers = (before - 1e-9).ceil() as u64..(after - 1e-9).ceil() as u64;
        due.extend(numbers.map(|k| i as f64 * each + (k as f64 - before) / rate));
        before = after;
    }
    measured.check_all_ok(due.len() as u64);
    on_time(&mut measured, &due);
    let (steps, findings) = (&measured.run.steps, &mut measured.findings);
    findings.equal("steps in the record", STEPS.len(), steps.len());
    for (step, rate) in steps.iter().zip(STEPS) {
        // The counts may differ by the requests in flight at both ends of the step. That difference
        // is at most the maximum rate times the service time, plus one per end for rounding.
        let ends = MAX_RATE * DELAY_US as f64 / 1e6 + 2.0;
        let what = format!("step of {rate}/s: throughput_per_s");
        findings.near(&what, rate, Some(step.throughput_per_s), ends / each);
        let truth = DELAY_US as f64;
        let what = format!("step of {rate}/s: response_time_us.p50");
        findings.between(
            &what,
            (truth, truth + MAX_LATENESS_US),
            step.response_time_us.p50,
        );
    }
    Ok(measured.findings)
}

/// Compares arrivals with their due times, in seconds. The server does not know the start of the
/// schedule. The function uses the latest start for which no arrival is early.
fn on_time(measured: &mut CaseMeasurement, due: &[f64]) {
    let requests = measured.log.requests.iter();
    let mut arrivals: Vec<u64> = requests.map(|r| r.readable_ns).collect();
    arrivals.sort_unstable();
    let base = arrivals.first().copied().unwrap_or(0);
    let pairs = arrivals.iter().zip(due);
    let after: Vec<f64> = pairs
        .map(|(at, due)| (at - base) as f64 / 1e3 - due * 1e6)
        .collect();
    let start = after.iter().copied().fold(f64::INFINITY, f64::min);
    let late = Sorted::new(after.iter().map(|at| at - start).collect());
    let findings = &mut measured.findings;
    let [p50, p99, maximum] = [0.5, 0.99, 1.0].map(|q| late.quantile(q));
    findings.between(
        "lateness of arrivals, µs: p99",
        (0.0, MAX_LATENESS_US),
        Some(p99),
    );
    findings.note(format!(
        "lateness of arrivals: p50 {p50:.0} µs, maximum {maximum:.0} µs"
    ));
}
