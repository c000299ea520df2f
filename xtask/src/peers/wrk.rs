//! wrk 4: a closed loop in C; no fixed rate.

use super::peer::{Claim, Origin, Output, Peer, Percentiles, after};

/// As it is run here.
pub const PEER: Peer = Peer {
    name: "wrk",
    program: "wrk",
    origin: Origin::Debian("wrk"),
    kept: &["-t1", "-c100", "-d{seconds}s", "{url}"],
    fresh: &[
        "-t1",
        "-c100",
        "-d{seconds}s",
        "-H",
        "Connection: close",
        "{url}",
    ],
    https: Some(&["-t1", "-c100", "-d{seconds}s", "{url}"]),
    rate: None,
    claim,
    percentiles: |_| Ok(Percentiles::default()),
    note: "",
};

fn claim(output: &Output) -> Result<Claim, String> {
    let text = &output.stdout;
    let (before, _) = text
        .split_once(" requests in ")
        .ok_or("no ` requests in ` in its output")?;
    let count = before.rsplit_once('\n').map_or(before, |(_, line)| line);
    let all: u64 = count
        .trim()
        .parse()
        .map_err(|_| "no number before ` requests in `")?;
    let label = |label: &str| text.lines().find(|line| line.contains(label));
    let bad = label("Non-2xx or 3xx responses:");
    let refused = bad.map_or(Ok(0.0), |line| after(line, "responses:"))?;
    let failures = [label("Socket errors:"), bad].into_iter().flatten();
    let failures: Vec<&str> = failures.map(str::trim).collect();
    Ok(Claim {
        answers: all.saturating_sub(refused as u64),
        per_s: after(text, "Requests/sec:")?,
        own_cpu_us: None,
        failures: (!failures.is_empty()).then(|| failures.join("; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = include_str!("fixtures/wrk-kept.txt");

    #[test]
    fn reads_what_it_printed() {
        let claim = claim(&Output::of(KEPT)).unwrap();
        assert_eq!((claim.answers, claim.per_s), (234_394, 116_878.62));
        assert_eq!(claim.failures, None);
    }

    #[test]
    fn failures_are_taken_out_and_named() {
        let bad = KEPT.replace(
            "Requests/sec:",
            "  Socket errors: connect 0, read 5, write 0, timeout 0\n  Non-2xx or 3xx responses: 394\nRequests/sec:",
        );
        let claim = claim(&Output::of(&bad)).unwrap();
        assert_eq!(claim.answers, 234_000);
        assert_eq!(
            claim.failures.unwrap(),
            "Socket errors: connect 0, read 5, write 0, timeout 0; Non-2xx or 3xx responses: 394"
        );
    }

    #[test]
    fn other_output_is_an_error() {
        assert!(claim(&Output::of("unable to connect to 127.0.0.1:1")).is_err());
    }
}
