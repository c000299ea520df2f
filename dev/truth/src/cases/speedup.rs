//! T9: a server that becomes faster during the measurement.

use floodmark_record::run::SteadyClass;

use super::{CaseEnvironment, CaseResult};
use crate::scenario::{Scenario, Service, ServiceChange};

/// Time of the speedup, and duration of the run, in seconds.
const CHANGE_S: u64 = 12;
const SECONDS: u64 = 20;

/// Tolerance for the time of the detected change, in seconds.
const TOLERANCE_S: f64 = 2.0;

pub fn run(environment: &CaseEnvironment) -> CaseResult {
    let scenario = Scenario {
        change: Some(ServiceChange {
            at_ms: CHANGE_S * 1_000,
            service: Service::Fixed { delay_us: 4_000 },
        }),
        ..Service::Fixed { delay_us: 8_000 }.into()
    };
    let flags = format!("-c 4 -d {SECONDS}s --warmup auto");
    let mut measured = environment.measure(scenario, &flags)?;
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
