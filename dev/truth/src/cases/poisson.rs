//! T8: arrivals at the server follow the schedule.

use super::awake::Awake;
use super::{CaseEnvironment, CaseResult, anderson};
use crate::scenario::Scenario;

/// Requests per second. A thread wakes up about 10 µs late, so a sleeping client cannot keep gaps
/// of less than 10 µs. At this rate, 10 µs is at most 1 % of the mean gap.
const RATE: f64 = 200.0;
const SECONDS: u64 = 12;

/// Significance level of the test. The corresponding limit is A² = 6.0. Lancet (ATC'19) accepts A²
/// up to 7.7, which is twice the 1 % point.
const SIGNIFICANCE_LEVEL: f64 = 0.001;

pub fn run(environment: &CaseEnvironment) -> CaseResult {
    let _awake = Awake::keep();
    let flags = format!("--rate {RATE} --arrivals poisson -d {SECONDS}s");
    let mut measured = environment.measure(Scenario::default(), &flags)?;
    let arrivals = measured.log.totals.requests;
    measured.check_all_counts(arrivals);
    let findings = &mut measured.findings;
    // The variance of a Poisson count equals its mean. The bounds are four standard deviations from
    // the mean.
    let mean = RATE * SECONDS as f64;
    findings.near("arrivals", mean, Some(arrivals as f64), 4.0 * mean.sqrt());
    let pairs = measured.log.requests.windows(2);
    let gaps = pairs.map(|pair| (pair[1].arrival_ns - pair[0].arrival_ns) as f64);
    let gaps: Vec<f64> = gaps.collect();
    let a2 = anderson::statistic(&gaps, 1e9 / RATE);
    let p = anderson::p_value(a2);
    findings.holds(
        "gaps at the server are exponential (Anderson–Darling)",
        p >= SIGNIFICANCE_LEVEL,
        format!("A² {a2:.2}, p {p:.4}"),
    );
    let lateness = &measured.run.lateness_us;
    let [p50, p99] = [lateness.p50, lateness.p99].map(|us| us.unwrap_or(0.0));
    findings.note(format!("lateness p50 {p50:.0} µs, p99 {p99:.0} µs"));
    Ok(measured.findings)
}
