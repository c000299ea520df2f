//! floodmark itself, a row for each backend that it has.

use floodmark_record::run::Status;
use floodmark_record::{Record, Run};

use super::peer::{Claim, Origin, Output, Peer, Percentiles};

/// The rows, `floodmark/epoll` first.
pub const PEERS: [Peer; 2] = [EPOLL, URING];

/// The words of a run of `seconds` on one thread with a backend, and what else it is asked for.
macro_rules! load {
    ($backend:literal $(, $more:literal)*) => {
        &[
            "load", "{url}", "-t", "1", $($more,)* "-d", "{seconds}s", "--backend", $backend, "--warmup", "0s",
            "--quiet", "--json", "-", "--out", "{folder}",
        ]
    };
}

/// A row of a backend.
macro_rules! row {
    ($name:literal, $backend:literal) => {
        Peer {
            name: $name,
            program: "floodmark",
            origin: Origin::Ours,
            kept: load!($backend, "-c", "100"),
            fresh: load!($backend, "-c", "100", "--fresh"),
            https: Some(load!($backend, "-c", "100", "--insecure")),
            rate: Some(load!($backend, "--rate", "1000")),
            claim,
            percentiles,
            note: "",
        }
    };
}

const EPOLL: Peer = row!("floodmark/epoll", "epoll");

const URING: Peer = row!("floodmark/uring", "uring");

/// Whether its `load --help` lists a backend: `- uring: …` among the values of `--backend`.
pub fn has_backend(help: &str, peer: &Peer) -> bool {
    let backend = peer.name.rsplit('/').next().unwrap_or_default();
    help.contains(&format!("- {backend}:"))
}

fn run(output: &Output) -> Result<Run, String> {
    let record: Record =
        serde_json::from_str(&output.stdout).map_err(|e| format!("its record: {e}"))?;
    let run = record.runs.into_iter().next();
    run.ok_or_else(|| "its record holds no run".to_owned())
}

/// What is wrong with a run, so that its figures prove nothing.
fn failures(run: &Run) -> Option<String> {
    let requests = &run.requests;
    let bad = requests.sent - requests.ok + requests.connect_failed + requests.unsent;
    let mut failures = Vec::new();
    if bad > 0 {
        failures.push(format!("{bad} requests not ok"));
    }
    if run.validity.status == Status::Invalid {
        failures.push(format!("invalid: {}", run.validity.reasons.join("; ")));
    }
    (!failures.is_empty()).then(|| failures.join("; "))
}

fn claim(output: &Output) -> Result<Claim, String> {
    let run = run(output)?;
    Ok(Claim {
        answers: run.requests.ok,
        per_s: run.throughput_per_s.ok_or("it gives no throughput")?,
        own_cpu_us: run.client.cpu_us_per_request,
        failures: failures(&run),
    })
}

/// A run with failures gives none.
fn percentiles(output: &Output) -> Result<Percentiles, String> {
    let run = run(output)?;
    if let Some(failures) = failures(&run) {
        return Err(failures);
    }
    let times = run.response_time_us;
    Ok(Percentiles {
        p50: times.p50,
        p99: times.p99,
        p99_9: times.p99_9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = include_str!("fixtures/floodmark.json");

    #[test]
    fn reads_its_record() {
        let output = Output::of(RECORD);
        let claim = claim(&output).unwrap();
        assert_eq!(claim.answers, 34_653);
        assert!((claim.per_s - 115_476.67).abs() < 0.01);
        assert!((claim.own_cpu_us.unwrap() - 3.125_8).abs() < 1e-4);
        assert_eq!(claim.failures, None);
        let p = percentiles(&output).unwrap();
        assert_eq!(
            (p.p50, p.p99, p.p99_9),
            (Some(64.799), Some(127.359), Some(4_853.759))
        );
    }

    #[test]
    fn an_invalid_run_is_named() {
        let bad = RECORD.replace(r#""status": "valid""#, r#""status": "invalid""#);
        let failures = claim(&Output::of(&bad)).unwrap().failures.unwrap();
        assert!(failures.starts_with("invalid: "), "{failures}");
        assert_eq!(percentiles(&Output::of(&bad)), Err(failures));
        assert!(claim(&Output::of("")).is_err());
    }

    #[test]
    fn a_backend_shows_in_the_help() {
        let help = "          - auto:  The best\n          - epoll: epoll and plain calls\n";
        assert!(has_backend(help, &EPOLL));
        assert!(!has_backend(help, &URING));
    }
}
