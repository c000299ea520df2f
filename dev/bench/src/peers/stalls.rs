//! Compares the log of a stalling server with the response times that peers report at a fixed rate.

use std::path::Path;

use floodmark_record::units::show_count;
use floodmark_truth::Log;
use floodmark_truth::reference::{self, Sorted};

use super::page::PeersPage;
use super::{MeasuredPeers, RATE, RATE_SECONDS, STALL};
use crate::bench::{Bench, Failure, read};
use crate::samples::PeerSample;
use crate::statistics::{Median, over};
use crate::table::{cell, table};

/// Figures of one run. Each pair contains the median and the 99th percentile, in ms.
#[derive(Debug, Clone)]
pub struct StallSample {
    /// Requests received by the server.
    requests: u64,
    /// Response times reported by the peer.
    reported: [Option<f64>; 2],
    /// Response times of an ideal client with a constant schedule, given the stalls of this run.
    even: [f64; 2],
    /// Time from the due time of a request to the response.
    due: [f64; 2],
    /// Time from the arrival of a request in the server's kernel to the response.
    sent: [f64; 2],
}

/// All runs of one peer.
pub struct StallRounds {
    /// Name of the peer.
    pub peer: &'static str,
    /// One sample per round; `None` for a failed run.
    pub samples: Vec<Option<StallSample>>,
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
/// a file in the experiment's folder.
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

/// Compares the figures that peers reported with their servers' logs, which are in `folder`.
pub fn compare(measured: &MeasuredPeers, folder: &Path) -> Result<Vec<StallRounds>, Failure> {
    let rounds = |(peer, samples): &(&'static super::Peer, super::Rounds)| {
        let text = read(&folder.join(format!("{}.jsonl", peer.name))).unwrap_or_default();
        let logs: Result<Vec<Log>, _> = text.lines().map(serde_json::from_str).collect();
        let pairs = samples.iter().zip(logs?);
        let samples = pairs.map(|(reported, log)| Some(sample(reported.as_ref()?, &log)));
        Ok(StallRounds {
            peer: peer.name,
            samples: samples.collect(),
        })
    };
    measured.rows.iter().map(rounds).collect()
}

fn sample(reported: &PeerSample, log: &Log) -> StallSample {
    let ms = |times: Sorted| QUANTILES.map(|(_, q)| times.quantile(q) / 1e3);
    StallSample {
        requests: log.totals.requests,
        reported: [reported.p50_us, reported.p99_us].map(|us| us.map(|us| us / 1e3)),
        even: ms(reference::even(log, RATE as f64, RATE * RATE_SECONDS)),
        due: ms(reference::response(log, RATE as f64)),
        sent: ms(reference::service_with_wake_up(log)),
    }
}

/// Returns the absolute difference between a peer's 99th percentile and the reference, in ms.
pub fn p99_error(rounds: &StallRounds) -> Option<Median> {
    over(&rounds.samples, |sample| Some(sample.error(1)?.abs()))
}

/// Returns the section of the page, or nothing if no peer has a fixed rate.
pub fn section(page: &PeersPage) -> String {
    let (length_ms, every_ms) = STALL;
    let (rate, requests) = (show_count(RATE), show_count(RATE * RATE_SECONDS));
    let Some(first) = page.stalls.first() else {
        return String::new();
    };
    let rounds = first.samples.len();
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
    let median = |figure| cell(figure, |m: Median| ms(m.median));
    let range = |figure| {
        cell(figure, |m: Median| {
            format!("{} ({} to {})", ms(m.median), ms(m.least), ms(m.most))
        })
    };
    for rounds in &page.stalls {
        let requests = over(&rounds.samples, |sample| Some(sample.requests as f64));
        let requests = cell(requests, |m| show_count(m.median as u64));
        let mut first = [rounds.peer.to_owned(), requests];
        for (i, (quantile, _)) in QUANTILES.into_iter().enumerate() {
            let cells = [
                quantile.to_owned(),
                median(over(&rounds.samples, |s| s.reported[i])),
                median(over(&rounds.samples, |s| Some(s.even[i]))),
                range(over(&rounds.samples, |s| s.error(i))),
                range(over(&rounds.samples, |s| Some(s.error(i)?.abs()))),
                median(over(&rounds.samples, |s| Some(s.due[i]))),
                range(over(&rounds.samples, |s| Some(s.reported[i]? - s.due[i]))),
                median(over(&rounds.samples, |s| Some(s.sent[i]))),
            ];
            rows.push([&first[..], &cells].concat());
            first = [const { String::new() }; 2];
        }
    }
    let heads = "peer | requests | percentile | reported | even | reported − even | absolute error | due | reported − due | sent";
    text.push_str(&table(heads, rows));
    let mut unable: Vec<&str> = page.peers.iter().map(|peer| peer.name).collect();
    unable.retain(|name| page.stalls.iter().all(|rounds| rounds.peer != *name));
    if !unable.is_empty() {
        text.push_str(&format!(
            "\nPeers that cannot send at a fixed rate: {}.\n",
            unable.join(", ")
        ));
    }
    text
}

/// Formats a time or an error with a typographic minus sign.
pub fn ms(ms: f64) -> String {
    format!("{ms:.2}").replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_truth::log::{RequestEntry, StallEntry};

    /// A tenth of the requests wait, and the waits are uniformly distributed between 0 and 100 ms.
    /// Quantile q is 100 ms × (1 − (1 − q) × 10).
    #[test]
    fn computes_the_reference_of_stalls_on_time() {
        let ns = |ms: u64| ms * 1_000_000;
        let stall = |n: u64| StallEntry {
            begin_ns: ns(500 + n * STALL.1),
            end_ns: ns(500 + n * STALL.1 + STALL.0),
        };
        let entry = RequestEntry {
            fault: None,
            readable_ns: 0,
            arrival_ns: 0,
            first_byte_ns: 1,
            departure_ns: 1,
            bytes_in: 1,
            bytes_out: 1,
        };
        let log = Log {
            requests: vec![entry],
            stalls: (0..RATE_SECONDS).map(stall).collect(),
            ..Log::default()
        };
        let sample = sample(&PeerSample::default(), &log);
        assert_eq!(sample.even[0], 0.0);
        assert!((sample.even[1] - 90.0).abs() <= 1.0);
    }

    #[test]
    fn errors_in_both_directions_do_not_cancel() {
        let sample = |reported: f64| {
            Some(StallSample {
                requests: 12_000,
                reported: [None, Some(reported)],
                even: [0.0, 90.0],
                due: [0.0; 2],
                sent: [0.0; 2],
            })
        };
        let rounds = |samples| StallRounds { peer: "x", samples };
        let error = p99_error(&rounds(vec![
            sample(89.0),
            None,
            sample(90.5),
            sample(92.0),
        ]));
        let error = error.unwrap();
        assert_eq!((error.median, error.least, error.most), (1.0, 0.5, 2.0));
        assert_eq!(ms(-1.234), "−1.23");
        assert_eq!(p99_error(&rounds(vec![None])), None);
    }
}
