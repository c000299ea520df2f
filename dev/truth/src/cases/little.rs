//! T4: Little's law. In the closed model, connections = throughput × response time.

use super::{CaseEnvironment, CaseResult};
use crate::scenario::Service;

/// Maximum accepted value of |N − X·R| / N.
const TOLERANCE: f64 = 0.02;

/// Duration of each run, in seconds.
const SECONDS: u64 = 4;

pub fn run(environment: &CaseEnvironment, n: u64, service: Service) -> CaseResult {
    let mut measured = environment.measure(service.into(), &format!("-c {n} -d {SECONDS}s"))?;
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
