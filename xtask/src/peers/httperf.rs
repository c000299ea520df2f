//! httperf 0.9: one thread around select(2), made for open loads.

use super::peer::{Claim, Origin, Output, Peer, Percentiles, after};

/// As it is run here. It has no length in time, only numbers of connections and calls.
pub const PEER: Peer = Peer {
    name: "httperf",
    program: "httperf",
    origin: Origin::Debian("httperf"),
    kept: &[
        "--hog",
        "--server={host}",
        "--port={port}",
        "--uri=/",
        "--num-conns=100",
        "--rate=100000",
        "--num-calls={each}",
    ],
    fresh: &[
        "--hog",
        "--server={host}",
        "--port={port}",
        "--uri=/",
        "--num-calls=1",
        "--add-header=Connection: close\\n",
        "--num-conns={requests}",
    ],
    https: Some(&[
        "--hog",
        "--ssl",
        "--server={host}",
        "--port={port}",
        "--uri=/",
        "--num-conns=100",
        "--rate=100000",
        "--num-calls={each}",
    ]),
    rate: Some(&[
        "--hog",
        "--server={host}",
        "--port={port}",
        "--uri=/",
        "--num-calls=1",
        "--rate=1000",
        "--num-conns={requests}",
        "-v",
        "-v",
    ]),
    claim,
    percentiles,
    note: "httperf has no closed loop of several fresh connections: in the fresh runs it has one at a time. At a fixed rate each request has a connection of its own, and percentiles are worked out from its histogram of connection lifetimes, which has bins of 1 ms.",
};

fn claim(output: &Output) -> Result<Claim, String> {
    let text = &output.stdout;
    let errors = after(text, "Errors: total")?;
    let (_, statuses) = text
        .split_once("Reply status:")
        .ok_or("no `Reply status:` in its output")?;
    let line = |label: &str| text.lines().find(|line| line.starts_with(label));
    Ok(Claim {
        answers: after(statuses, "2xx=")? as u64,
        per_s: after(text, "Request rate:")?,
        own_cpu_us: None,
        failures: (errors > 0.0).then(|| line("Errors: total").unwrap_or_default().to_owned()),
    })
}

/// From lines of a bin's middle in ms and its count; `:` stands for empty bins.
fn percentiles(output: &Output) -> Result<Percentiles, String> {
    let (_, bins) = output
        .stdout
        .split_once("Connection lifetime histogram (time in ms):\n")
        .ok_or("no `Connection lifetime histogram` in its output")?;
    let lines = bins.lines().map(str::trim).take_while(|l| !l.is_empty());
    let mut samples = Vec::new();
    for line in lines.filter(|line| *line != ":") {
        let bin = line.split_once(char::is_whitespace);
        let bin = bin.and_then(|(ms, n)| Some((ms.parse::<f64>().ok()?, n.trim().parse().ok()?)));
        let (ms, count): (f64, usize) = bin.ok_or_else(|| format!("no bin: `{line}`"))?;
        samples.extend(std::iter::repeat_n(ms * 1e3, count));
    }
    Ok(Percentiles::of(samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_printed() {
        let output = Output::of(include_str!("fixtures/httperf-kept.txt"));
        let claim = claim(&output).unwrap();
        assert_eq!((claim.answers, claim.per_s), (50_000, 119_243.8));
        assert_eq!(claim.failures, None);
        assert!(percentiles(&output).is_err());
        let bad = output.stdout.replace("Errors: total 0", "Errors: total 3");
        let failures = super::claim(&Output::of(&bad)).unwrap().failures.unwrap();
        assert!(
            failures.starts_with("Errors: total 3 client-timo"),
            "{failures}"
        );
    }

    #[test]
    fn reads_its_histogram() {
        let p = percentiles(&Output::of(include_str!("fixtures/httperf-rate.txt"))).unwrap();
        assert_eq!(
            (p.p50, p.p99, p.p99_9),
            (Some(500.0), Some(500.0), Some(3_500.0))
        );
    }
}
