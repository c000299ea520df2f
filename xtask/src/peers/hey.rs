//! hey: goroutines with net/http; its rate is one for each worker.

use super::peer::{Origin, Output, Peer, Percentiles, claim_of_client, number};

/// The words of a run, and what else it is asked for.
macro_rules! words {
    ($($more:literal),*) => {
        &[
            "-cpus", "1", "-disable-compression", $($more,)* "-c", "100", "-z", "{seconds}s", "{url}",
        ]
    };
}

/// As it is run here. At a fixed rate its samples are asked for, since its summary has no 99.9th percentile.
pub const PEER: Peer = Peer {
    name: "hey",
    program: "hey",
    origin: Origin::Debian("hey"),
    kept: words!(),
    fresh: words!("-disable-keepalive"),
    https: Some(words!()),
    rate: Some(words!("-q", "10", "-o", "csv")),
    claim: |output| claim_of_client("hey", output),
    percentiles,
    note: "hey gives a rate to each of its 100 workers, which all send at once every 100 ms; percentiles are worked out from the samples it writes, which are rounded to 0.1 ms.",
};

/// From the first column of `response-time,DNS+dialup,…`, seconds.
fn percentiles(output: &Output) -> Result<Percentiles, String> {
    let mut lines = output.stdout.lines();
    let head = lines.next().unwrap_or_default();
    if !head.starts_with("response-time,") {
        return Err(format!("its samples begin with `{head}`"));
    }
    let samples = lines.map(|line| number(line).map(|s| s * 1e6).ok_or(line));
    let samples: Result<Vec<f64>, &str> = samples.collect();
    Ok(Percentiles::of(samples.map_err(|line| {
        format!("a sample without a time: `{line}`")
    })?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = include_str!("fixtures/hey-kept.txt");

    #[test]
    fn reads_what_it_printed() {
        let claim = (PEER.claim)(&Output::of(KEPT)).unwrap();
        assert_eq!((claim.answers, claim.per_s), (62_880, 31_363.699_7));
        assert_eq!(claim.failures, None);
    }

    #[test]
    fn failures_are_named() {
        let bad = KEPT.replace(
            "  [200]\t62880 responses",
            "  [200]\t60000 responses\n  [503]\t2880 responses\n\nError distribution:\n  [12]\tGet: connection reset",
        );
        let claim = (PEER.claim)(&Output::of(&bad)).unwrap();
        assert_eq!(claim.answers, 60_000);
        assert_eq!(claim.failures.unwrap(), "2880 not 2xx or 3xx, 12 failed");
    }

    #[test]
    fn percentiles_are_of_its_samples() {
        let samples = include_str!("fixtures/hey-rate.csv");
        let p = percentiles(&Output::of(samples)).unwrap();
        let mut times: Vec<&str> = samples.lines().skip(1).map(|line| &line[..6]).collect();
        times.sort_unstable();
        let us = |text: &str| text.parse::<f64>().ok().map(|s| s * 1e6);
        assert_eq!(p.p50, us(times[times.len().div_ceil(2) - 1]));
        assert_eq!(p.p99_9, us(times[times.len() - 1]));
        assert!(percentiles(&Output::of(KEPT)).is_err());
    }
}
