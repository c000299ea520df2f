//! T10: the client's maximum rate, with the server on the same host.

use super::{CaseEnvironment, CaseResult};
use crate::scenario::Scenario;

const SECONDS: u64 = 5;

/// Fraction of the client's maximum rate above which the client may be the limit.
const CLIENT_LIMIT_SHARE: f64 = 0.7;

/// Checks counts and bytes. Reports the maximum rate without a check, because it depends on the
/// host.
pub fn run(environment: &CaseEnvironment) -> CaseResult {
    let flags = format!("-c 50 -d {SECONDS}s");
    let mut measured = environment.measure(Scenario::default(), &flags)?;
    measured.check_all_counts(measured.run.requests.intended);
    let run = &measured.run;
    let per_s = run.throughput_per_s.unwrap_or(0.0);
    measured.findings.note(format!(
        "{per_s:.0} requests/s on {} threads, {:.1} µs client CPU per request, {:?}; above {:.0}/s the client may be the limit",
        run.plan.threads,
        run.client.cpu_us_per_request.unwrap_or(0.0),
        run.validity.status,
        per_s * CLIENT_LIMIT_SHARE,
    ));
    Ok(measured.findings)
}
