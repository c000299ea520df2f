//! oha: hyper on tokio.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::peer::{Claim, Origin, Output, Peer, Percentiles};

/// The version that is built.
pub const VERSION: &str = "1.16.0";

/// The words of a run, and what else it is asked for. Without its live view it takes its faster path.
macro_rules! words {
    ($($more:literal),*) => {
        &[
            "--no-tui", "--worker-threads=1", "--disable-compression", "--output-format=json", $($more,)*
            "-c100", "-z{seconds}s", "{url}",
        ]
    };
}

/// As it is run here.
pub const PEER: Peer = Peer {
    name: "oha",
    program: "oha",
    origin: Origin::Crate(VERSION),
    kept: words!(),
    fresh: words!("--disable-keepalive"),
    https: Some(words!("--insecure")),
    rate: Some(words!("-q1000", "--latency-correction", "-w")),
    claim,
    percentiles,
    note: "",
};

/// The parts of its JSON that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    summary: Summary,
    latency_percentiles: BTreeMap<String, f64>,
    status_code_distribution: BTreeMap<String, u64>,
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    requests_per_sec: f64,
}

/// What it says of the requests that the end of the run cut off: no failures.
const CUT_OFF: &str = "aborted due to deadline";

fn report(output: &Output) -> Result<Report, String> {
    serde_json::from_str(&output.stdout).map_err(|e| format!("its JSON: {e}"))
}

fn claim(output: &Output) -> Result<Claim, String> {
    let report = report(output)?;
    let other = report
        .status_code_distribution
        .iter()
        .filter(|(s, _)| *s != "200");
    let errors = report
        .error_distribution
        .iter()
        .filter(|(e, _)| *e != CUT_OFF);
    let failures: Vec<String> = other
        .chain(errors)
        .map(|(what, count)| format!("{count} × {what}"))
        .collect();
    let answers = report.status_code_distribution.get("200");
    Ok(Claim {
        answers: answers.copied().unwrap_or(0),
        per_s: report.summary.requests_per_sec,
        own_cpu_us: None,
        failures: (!failures.is_empty()).then(|| failures.join("; ")),
    })
}

/// In its JSON they are seconds.
fn percentiles(output: &Output) -> Result<Percentiles, String> {
    let report = report(output)?;
    let at = |name| report.latency_percentiles.get(name).map(|s| s * 1e6);
    Ok(Percentiles {
        p50: at("p50"),
        p99: at("p99"),
        p99_9: at("p99.9"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = include_str!("fixtures/oha-kept.json");

    #[test]
    fn reads_what_it_printed() {
        let claim = claim(&Output::of(KEPT)).unwrap();
        assert_eq!(claim.answers, 179_081);
        assert!((claim.per_s - 89_158.20).abs() < 0.01);
        // What the end of the run cut off is no failure.
        assert_eq!(claim.failures, None);
        assert!(super::claim(&Output::of("Error: 1")).is_err());
    }

    #[test]
    fn failures_are_named() {
        let bad = KEPT.replace(r#""200": 179081"#, r#""200": 179000, "503": 81"#);
        let claim = claim(&Output::of(&bad)).unwrap();
        assert_eq!(claim.answers, 179_000);
        assert_eq!(claim.failures.unwrap(), "81 × 503");
    }

    #[test]
    fn its_seconds_become_microseconds() {
        let p = percentiles(&Output::of(include_str!("fixtures/oha-rate.json"))).unwrap();
        let near = |us: Option<f64>, wanted: f64| (us.unwrap() - wanted).abs() < 0.001;
        assert!(
            near(p.p50, 105.192) && near(p.p99, 2959.978) && near(p.p99_9, 4304.933),
            "{p:?}"
        );
    }
}
