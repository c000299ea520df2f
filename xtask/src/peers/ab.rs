//! ab, ApacheBench: a closed loop in C, HTTP/1.0; no fixed rate.

use super::peer::{Claim, Origin, Output, Peer, Percentiles, after};

/// As it is run here. `-n` follows `-t`, which would set it to 50,000; it only has to be more than can be sent.
pub const PEER: Peer = Peer {
    name: "ab",
    program: "ab",
    origin: Origin::Debian("apache2-utils"),
    kept: &["-q", "-k", "-c100", "-t{seconds}", "-n10000000", "{url}"],
    fresh: &["-q", "-c100", "-t{seconds}", "-n10000000", "{url}"],
    https: Some(&["-q", "-k", "-c100", "-t{seconds}", "-n10000000", "{url}"]),
    rate: None,
    claim,
    percentiles: |_| Ok(Percentiles::default()),
    note: "ab speaks HTTP/1.0; its memory is reserved for `-n` results and grows with those it keeps.",
};

fn claim(output: &Output) -> Result<Claim, String> {
    let text = &output.stdout;
    let complete = after(text, "Complete requests:")?;
    let failed = after(text, "Failed requests:")?;
    let refused = match text.contains("Non-2xx responses:") {
        true => after(text, "Non-2xx responses:")?,
        false => 0.0,
    };
    let failures = failed > 0.0 || refused > 0.0;
    Ok(Claim {
        answers: (complete - refused) as u64,
        per_s: after(text, "Requests per second:")?,
        own_cpu_us: None,
        failures: failures.then(|| format!("{failed} failed, {refused} not 2xx")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_printed() {
        for (text, answers, per_s) in [
            (include_str!("fixtures/ab-kept.txt"), 212_616, 106_294.55),
            (include_str!("fixtures/ab-fresh.txt"), 46_140, 23_057.65),
        ] {
            let claim = claim(&Output::of(text)).unwrap();
            assert_eq!((claim.answers, claim.per_s), (answers, per_s));
            assert_eq!(claim.failures, None);
        }
    }

    #[test]
    fn failures_are_taken_out_and_named() {
        let bad = include_str!("fixtures/ab-fresh.txt").replace(
            "Failed requests:        0",
            "Failed requests:        7\nNon-2xx responses:      40",
        );
        let claim = claim(&Output::of(&bad)).unwrap();
        assert_eq!(claim.answers, 46_100);
        assert_eq!(claim.failures.unwrap(), "7 failed, 40 not 2xx");
        assert!(super::claim(&Output::of("apr_socket_recv: Connection refused (111)")).is_err());
    }
}
