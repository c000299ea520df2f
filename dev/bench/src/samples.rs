//! Figures of a peer's runs.

use std::path::Path;

use floodmark_record::reason::joined;
use floodmark_record::run::Status;
use floodmark_record::{Record, Run};

use crate::bench::read;

/// Figures of a single run.
#[derive(Debug, Clone, Default)]
pub struct PeerSample {
    /// Successful responses per second, as reported by the peer.
    pub per_s: f64,
    /// CPU time of the peer's process tree per request, in µs.
    pub cpu_us: f64,
    /// CPU time per request as reported by the peer, in µs.
    pub own_cpu_us: Option<f64>,
    /// Peak memory of the peer's largest process, in bytes.
    pub peak_bytes: u64,
    /// Median response time, in µs.
    pub p50_us: Option<f64>,
    /// 99th percentile of the response time, in µs.
    pub p99_us: Option<f64>,
    /// Failures reported by the peer.
    pub failures: Option<String>,
}

/// One sample per round; `None` for a failed run.
pub type Rounds = Vec<Option<PeerSample>>;

/// Returns a peer's samples from the record.
pub fn of(record: &Record, peer: &str, rounds: usize, result: &Path) -> Rounds {
    let run = |round| {
        let mut runs = record.runs_of(peer);
        runs.find(|run| run.process as usize == round)
    };
    (1..=rounds)
        .map(|round| sample(run(round)?, result))
        .collect()
}

fn sample(run: &Run, result: &Path) -> Option<PeerSample> {
    let client = &run.client;
    let own = own_run(result, &client.tool.as_ref()?.log);
    let requests = &run.requests;
    let failures = match &own {
        Some(own) => failures(own),
        None if requests.ok == requests.sent => None,
        None => Some(format!(
            "{} of {}",
            requests.sent - requests.ok,
            requests.sent
        )),
    };
    Some(PeerSample {
        per_s: run.throughput_per_s?,
        cpu_us: client.cpu_us_per_request?,
        own_cpu_us: own.and_then(|own| own.client.cpu_us_per_request),
        peak_bytes: client.peak_rss_bytes?,
        p50_us: run.response_time_us.p50,
        p99_us: run.response_time_us.p99,
        failures,
    })
}

/// Returns the run that floodmark recorded as the external client and printed to the file `log`.
pub fn own_run(result: &Path, log: &str) -> Option<Run> {
    let text = read(&result.join(log)).ok()?;
    let record = text.get(text.find('{')?..=text.rfind('}')?)?;
    let record: Record = serde_json::from_str(record).ok()?;
    record.runs.into_iter().next()
}

/// Describes the failures that floodmark recorded in its own run, if any.
fn failures(run: &Run) -> Option<String> {
    let requests = &run.requests;
    let failed = requests.sent - requests.ok + requests.connect_failed + requests.unsent;
    let mut failures = Vec::new();
    if failed > 0 {
        failures.push(format!("{failed} requests were not ok"));
    }
    if run.validity.status == Status::Invalid {
        failures.push(format!("invalid: {}", joined(&run.validity.reasons)));
    }
    (!failures.is_empty()).then(|| failures.join("; "))
}
