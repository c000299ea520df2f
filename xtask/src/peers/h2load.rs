//! h2load of nghttp2, here for HTTP/1.1; its rate is one for each connection.

use super::peer::{Origin, Output, Peer, Percentiles, claim_of_client};

/// As it is run here. With `-D` and connections that are closed it does not end (1.52), so a number of requests is given
/// there. At a fixed rate its log is asked for, since its summary has no percentiles, and again a number of requests,
/// since with `-D` it sends more than `--rps` (nghttp2 issue 1584).
pub const PEER: Peer = Peer {
    name: "h2load",
    program: "h2load",
    origin: Origin::Debian("nghttp2-client"),
    kept: &["--h1", "-t1", "-c100", "-D{seconds}", "{url}"],
    fresh: &[
        "--h1",
        "-t1",
        "-c100",
        "-n{requests}",
        "-H",
        "Connection: close",
        "{url}",
    ],
    https: Some(&["--h1", "-t1", "-c100", "-D{seconds}", "{url}"]),
    rate: Some(&[
        "--h1",
        "-t1",
        "-c100",
        "--rps=10",
        "-n{requests}",
        "--log-file={file}",
        "{url}",
    ]),
    claim: |output| claim_of_client("h2load", output),
    percentiles,
    note: "h2load gives a rate to each of its 100 connections; percentiles are worked out from its log of requests.",
};

/// From the third column of its log, µs.
fn percentiles(output: &Output) -> Result<Percentiles, String> {
    let time = |line: &str| line.split('\t').nth(2)?.parse::<f64>().ok();
    let samples: Option<Vec<f64>> = output.file.lines().map(time).collect();
    match samples {
        Some(samples) if !samples.is_empty() => Ok(Percentiles::of(samples)),
        _ => Err("its log has no times in its third column".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = include_str!("fixtures/h2load-kept.txt");

    #[test]
    fn reads_what_it_printed() {
        let fresh = include_str!("fixtures/h2load-fresh.txt");
        for (text, answers, per_s) in [(KEPT, 188_086, 94_043.0), (fresh, 40_000, 18_840.36)] {
            let claim = (PEER.claim)(&Output::of(text)).unwrap();
            assert_eq!((claim.answers, claim.per_s), (answers, per_s));
            assert_eq!(claim.failures, None);
        }
    }

    #[test]
    fn failures_are_named() {
        let bad = KEPT.replace("0 errored", "9 errored");
        let failures = (PEER.claim)(&Output::of(&bad)).unwrap().failures.unwrap();
        assert!(failures == "0 not 2xx or 3xx, 9 failed", "{failures}");
        assert!((PEER.claim)(&Output::of("failed to resolve address")).is_err());
    }

    #[test]
    fn percentiles_are_of_its_log() {
        let log = include_str!("fixtures/h2load-rate.tsv");
        let of = |file: &str| {
            percentiles(&Output {
                stdout: String::new(),
                file: file.to_owned(),
            })
        };
        let p = of(log).unwrap();
        let columns = log.lines().filter_map(|line| line.rsplit('\t').next());
        let mut times: Vec<f64> = columns.map(|time| time.parse().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        assert_eq!(p.p50, Some(times[times.len().div_ceil(2) - 1]));
        assert_eq!(p.p99_9, times.last().copied());
        assert!(of("").is_err());
    }
}
