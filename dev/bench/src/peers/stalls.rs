//! Compares the log of a stalling server with the response times that peers report at a fixed rate.

use floodmark_record::Run;
use floodmark_record::units::show_count;
use floodmark_truth::Log;
use floodmark_truth::reference::{self, Sorted};

use super::{MeasuredLoad, Peer, RATE, RATE_SECONDS, STALL};
use crate::bench::{Bench, Failure, read};
use crate::statistics::{Median, estimate};
use crate::table::{cell, table};

/// Figures of one run. Each pair contains the median and the 99th percentile, in ms.
#[derive(Debug, Clone)]
struct StallSample {
    /// Requests received by the server.
    requests: u64,
    /// Response times reported by the peer.
    reported: [Option<f64>; 2],
    /// Response times of an ideal client that sends at even intervals, given the stalls of this
    /// run.
    even: [f64; 2],
    /// Time from the due time of a request to the response.
    due: [f64; 2],
    /// Time from the arrival of a request in the server's kernel to the response.
    sent: [f64; 2],
}

const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

impl StallSample {
    /// Returns the reported time minus the reference, in ms. Index 0 is the median, and index 1 is
    /// the 99th percentile.
    fn error(&self, i: usize) -> Option<f64> {
        Some(self.reported[i]? - self.even[i])
    }
}

/// Returns the manifest lines for the truth server that a peer loads. The server appends its log to
/// a file in the experiment's directory.
pub fn server(bench: &Bench, peer: &str) -> String {
    let (length_ms, every_ms) = STALL;
    let program = bench.floodmark.with_file_name("floodmark-truth");
    let stall = format!(
        r#"{{\"stall\":{{\"first_ms\":500,\"every_ms\":{every_ms},\"length_ms\":{length_ms}}}}}"#
    );
    format!(
        "command = \"{} serve '{stall}' --listen {{host}}:{{port}} --append {peer}.jsonl\"\nready = \"GET /ready\"",
        program.display()
    )
}

/// Reads the server's log of each run, and compares it with the figures that the peer reported.
fn samples(measured: &MeasuredLoad, peer: &Peer) -> Result<Vec<StallSample>, Failure> {
    let file = measured.directory.join(format!("{}.jsonl", peer.name));
    let text = read(&file).unwrap_or_default();
    let logs: Result<Vec<Log>, _> = text.lines().map(serde_json::from_str).collect();
    let logs = logs?;
    let runs = measured.record.runs_of(peer.name);
    let samples = runs.filter_map(|run| Some(sample(run, logs.get(run.process as usize - 1)?)));
    Ok(samples.collect())
}

fn sample(run: &Run, log: &Log) -> StallSample {
    let ms = |times: Sorted| QUANTILES.map(|(_, q)| times.quantile(q) / 1e3);
    let times = &run.response_time_us;
    StallSample {
        requests: log.totals.requests,
        reported: [times.p50, times.p99].map(|us| us.map(|us| us / 1e3)),
        even: ms(reference::even(log, RATE as f64, RATE * RATE_SECONDS)),
        due: ms(reference::response(log, RATE as f64)),
        sent: ms(reference::service_with_wake_up(log)),
    }
}

/// Returns the median and range, across all runs, of the absolute difference between a peer's 99th
/// percentile and the reference, in ms.
fn p99_error(samples: &[StallSample]) -> Option<Median> {
    estimate(
        samples
            .iter()
            .filter_map(|sample| Some(sample.error(1)?.abs())),
    )
}

/// Returns this comparison's section of the page. `peers` also contains the peers that cannot send
/// at a fixed rate.
pub fn section(measured: &MeasuredLoad, peers: &[&'static Peer]) -> Result<String, Failure> {
    let (length_ms, every_ms) = STALL;
    let (rate, requests) = (show_count(RATE), show_count(RATE * RATE_SECONDS));
    let rounds = measured.rounds;
    let mut text = format!(
        "\n## Reported times at {rate}/s under stalls\n\n\
The server stalls for {length_ms} ms of every {every_ms} ms and logs each request and stall. In each of \
{rounds} rounds, every peer sends {requests} requests in {RATE_SECONDS} s.\n\n\
**Reference** (fixed before the first measurement): a client that sends exactly {rate}/s at even intervals, starting with the peer's \
first request. According to the server's log of that run, a request that is due during a stall waits until the stall ends; every other \
request is served at once. A peer with this rate should report the percentiles of these waits. The reference does not depend on \
when the peer sent its requests, so sending late or in bursts does not change it.\n\n\
Times are in ms. Each time is the median of the rounds; errors also have their range. For information, the last columns show times of \
the peer's own requests, taken from the server's log:\n\n\
- *due*: from the time when the k-th request was due at an even rate to the k-th response. This time includes the delay of requests \
that the peer sent late, for example in bursts.\n\
- *sent*: from the arrival of a request in the server's kernel to its response.\n\n"
    );
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut errors: Vec<(&Peer, Median)> = Vec::new();
    for peer in &measured.peers {
        let samples = samples(measured, peer)?;
        let of = |figure: &dyn Fn(&StallSample) -> Option<f64>| {
            estimate(samples.iter().filter_map(figure))
        };
        let median =
            |figure: &dyn Fn(&StallSample) -> Option<f64>| cell(of(figure), |m| ms(m.median));
        let range = |figure: &dyn Fn(&StallSample) -> Option<f64>| cell(of(figure), in_ms);
        let requests = cell(of(&|s| Some(s.requests as f64)), |m| {
            show_count(m.median as u64)
        });
        let mut first = [peer.name.to_owned(), requests];
        for (i, (quantile, _)) in QUANTILES.into_iter().enumerate() {
            let cells = [
                quantile.to_owned(),
                median(&|s| s.reported[i]),
                median(&|s| Some(s.even[i])),
                range(&|s| s.error(i)),
                range(&|s| Some(s.error(i)?.abs())),
                median(&|s| Some(s.due[i])),
                range(&|s| Some(s.reported[i]? - s.due[i])),
                median(&|s| Some(s.sent[i])),
            ];
            rows.push([&first[..], &cells].concat());
            first = [const { String::new() }; 2];
        }
        errors.extend(p99_error(&samples).map(|error| (*peer, error)));
    }
    let heads = "peer | requests | percentile | reported | even | reported − even | absolute error | due | reported − due | sent";
    text += &table(heads, rows);
    text += &target(&errors);
    let is_able = |name: &str| measured.peers.iter().any(|peer| peer.name == name);
    let unable = peers.iter().map(|peer| peer.name);
    let unable: Vec<&str> = unable.filter(|name| !is_able(name)).collect();
    if !unable.is_empty() {
        let unable = unable.join(", ");
        text += &format!("\nPeers that cannot send at a fixed rate: {unable}.\n");
    }
    Ok(text)
}

/// Returns a line about the target for each floodmark backend: the backend's absolute error in p99
/// must be lower than that of every other load generator.
fn target(errors: &[(&Peer, Median)]) -> String {
    let (ours, others): (Vec<_>, Vec<_>) = errors
        .iter()
        .partition(|(peer, _)| peer.backend().is_some());
    let by_median =
        |(_, a): &&&(&Peer, Median), (_, b): &&&(&Peer, Median)| a.median.total_cmp(&b.median);
    let Some((best, limit)) = others.iter().min_by(by_median) else {
        return String::new();
    };
    let line = |(peer, error): &&(&Peer, Median)| {
        let is_met = if error.median < limit.median {
            "yes"
        } else {
            "**no**"
        };
        format!(
            "\nTarget for {}: an absolute error of p99 ({}) below that of every other peer \
             (lowest: {}, {}). Met: {is_met}\n",
            peer.name,
            in_ms(*error),
            ms(limit.median),
            best.name
        )
    };
    ours.iter().map(line).collect()
}

/// Formats a median and its range, in ms.
fn in_ms(m: Median) -> String {
    format!("{} ({} to {})", ms(m.median), ms(m.least), ms(m.most))
}

/// Formats a time or an error with a typographic minus sign.
fn ms(ms: f64) -> String {
    format!("{ms:.2}").replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::super::PEERS;
    use super::*;
    use floodmark_truth::log::{RequestEntry, StallEntry};

    /// A tenth of the requests wait, and the waits are uniformly distributed between 0 and 100 ms.
    /// For q above 0.9, quantile q is 100 ms × (1 − (1 − q) × 10).
    #[test]
    fn computes_the_reference_of_stalls_on_time() {
        let ns = |ms: u64| ms * 1_000_000;
        let stall = |n: u64| StallEntry {
            begin_ns: ns(500 + n * STALL.1),
            end_ns: ns(500 + n * STALL.1 + STALL.0),
        };
        let entry = RequestEntry {
            first_byte_ns: 1,
            departure_ns: 1,
            ..RequestEntry::default()
        };
        let log = Log {
            requests: vec![entry],
            stalls: (0..RATE_SECONDS).map(stall).collect(),
            ..Log::default()
        };
        let record = include_str!("../../../../crates/floodmark/tests/records/load-ramp.json");
        let record: floodmark_record::Record = serde_json::from_str(record).unwrap();
        let sample = sample(&record.runs[0], &log);
        assert_eq!(sample.even[0], 0.0);
        assert!((sample.even[1] - 90.0).abs() <= 1.0);
    }

    #[test]
    fn errors_in_both_directions_do_not_cancel() {
        let sample = |reported: f64| StallSample {
            requests: 12_000,
            reported: [None, Some(reported)],
            even: [0.0, 90.0],
            due: [0.0; 2],
            sent: [0.0; 2],
        };
        let error = p99_error(&[89.0, 90.5, 92.0].map(sample)).unwrap();
        assert_eq!((error.median, error.least, error.most), (1.0, 0.5, 2.0));
        assert_eq!(ms(-1.234), "−1.23");
        assert_eq!(in_ms(error), "1.00 (0.50 to 2.00)");
        assert_eq!(p99_error(&[]), None);
        let [own, other] = ["floodmark-uring", "wrk"];
        let peer = |name: &str| PEERS.iter().find(|peer| peer.name == name).unwrap();
        let worse = p99_error(&[sample(92.0)]).unwrap();
        let text = target(&[(peer(own), error), (peer(other), worse)]);
        assert!(text.ends_with("(lowest: 2.00, wrk). Met: yes\n"), "{text}");
        let text = target(&[(peer(own), worse), (peer(other), error)]);
        assert!(
            text.ends_with("(lowest: 1.00, wrk). Met: **no**\n"),
            "{text}"
        );
        assert_eq!(target(&[(peer(own), error)]), "");
    }
}
