//! wrk 4: a closed loop in C; no fixed rate.

use super::peer::{Origin, Peer, Percentiles, claim_of_client};

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
    claim: |output| claim_of_client("wrk", output),
    percentiles: |_| Ok(Percentiles::default()),
    note: "",
};

#[cfg(test)]
mod tests {
    use super::super::peer::Output;
    use super::*;

    const KEPT: &str = include_str!("fixtures/wrk-kept.txt");

    #[test]
    fn reads_what_it_printed() {
        let claim = (PEER.claim)(&Output::of(KEPT)).unwrap();
        assert_eq!((claim.answers, claim.per_s), (234_394, 116_878.62));
        assert_eq!(claim.failures, None);
    }

    #[test]
    fn failures_are_taken_out_and_named() {
        let bad = KEPT.replace(
            "Requests/sec:",
            "  Socket errors: connect 0, read 5, write 0, timeout 0\n  Non-2xx or 3xx responses: 394\nRequests/sec:",
        );
        let claim = (PEER.claim)(&Output::of(&bad)).unwrap();
        assert_eq!(claim.answers, 234_000);
        assert_eq!(claim.failures.unwrap(), "394 not 2xx or 3xx, 5 failed");
    }

    #[test]
    fn other_output_is_an_error() {
        assert!((PEER.claim)(&Output::of("unable to connect to 127.0.0.1:1")).is_err());
    }
}
