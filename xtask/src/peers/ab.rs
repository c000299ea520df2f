//! ab, ApacheBench: a closed loop in C, HTTP/1.0; no fixed rate.

use super::peer::{Origin, Peer, Percentiles, claim_of_client};

/// As it is run here. `-n` follows `-t`, which would set it to 50,000; it only has to be more than can be sent.
pub const PEER: Peer = Peer {
    name: "ab",
    program: "ab",
    origin: Origin::Debian("apache2-utils"),
    kept: &["-q", "-k", "-c100", "-t{seconds}", "-n10000000", "{url}"],
    fresh: &["-q", "-c100", "-t{seconds}", "-n10000000", "{url}"],
    https: Some(&["-q", "-k", "-c100", "-t{seconds}", "-n10000000", "{url}"]),
    rate: None,
    claim: |output| claim_of_client("ab", output),
    percentiles: |_| Ok(Percentiles::default()),
    note: "ab speaks HTTP/1.0; its memory is reserved for `-n` results and grows with those it keeps.",
};

#[cfg(test)]
mod tests {
    use super::super::peer::Output;
    use super::*;

    #[test]
    fn reads_what_it_printed() {
        for (text, answers, per_s) in [
            (include_str!("fixtures/ab-kept.txt"), 212_616, 106_294.55),
            (include_str!("fixtures/ab-fresh.txt"), 46_140, 23_057.65),
        ] {
            let claim = (PEER.claim)(&Output::of(text)).unwrap();
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
        let claim = (PEER.claim)(&Output::of(&bad)).unwrap();
        assert_eq!(claim.answers, 46_100);
        assert_eq!(claim.failures.unwrap(), "40 not 2xx or 3xx, 7 failed");
        assert!((PEER.claim)(&Output::of("apr_socket_recv: Connection refused (111)")).is_err());
    }
}
