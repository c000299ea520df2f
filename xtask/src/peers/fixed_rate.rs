//! The runs at a fixed rate against the known-truth server: what each peer says its users waited, and what they did.

use floodmark_truth::reference::{self, Sorted};
use floodmark_truth::scenario::Stall;
use floodmark_truth::{Log, Scenario, Server};

use super::closed::once;
use super::install::Ready;
use super::peer::{Load, Percentiles};
use crate::error::Error;
use crate::measuring::child::Interrupt;

/// Requests per second, in all.
pub const RATE: u64 = 1_000;
/// Length of a run, seconds: 80 of the requests are the 1 % above the 99th percentile.
pub const SECONDS: u64 = 8;
/// When the server does nothing. With [`RATE`] it is case T2 of `cargo xtask truth`.
pub const STALL: Stall = Stall {
    first_ms: 500,
    every_ms: 1_000,
    length_ms: 100,
};

/// One run of one peer.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Requests that the server got.
    pub requests: u64,
    /// What the peer says, µs.
    pub says: Percentiles,
    /// What a client that sends on time sees at even distances, with the stalls of the log of that run, µs.
    pub even: Percentiles,
    /// From the moment when each request was due to its answer, by the server's log, µs.
    pub due: Percentiles,
    /// From the moment when the server's kernel had each request to its answer, by the server's log, µs.
    pub sent: Percentiles,
}

/// The samples of a peer, one for each round; none where a run failed.
pub type Rounds = Vec<Option<Sample>>;

/// Runs all rounds with the peers that can send at a fixed rate. One entry for each peer, in their order.
pub fn rounds(
    peers: &[&Ready],
    rounds: usize,
    interrupt: &Interrupt,
) -> Result<Vec<Rounds>, Error> {
    let mut samples = vec![Rounds::new(); peers.len()];
    for round in 0..rounds {
        for turn in 0..peers.len() {
            let index = (turn + round) % peers.len();
            let taken = sample(peers[index], interrupt)?;
            let name = peers[index].peer.name;
            let ms = |us: Option<f64>| us.map_or("–".to_owned(), |us| format!("{:.2}", us / 1e3));
            match &taken {
                Ok(taken) => println!(
                    "round {} {RATE}/s {name}: p99 {} ms, truth {} ms",
                    round + 1,
                    ms(taken.says.p99),
                    ms(taken.even.p99)
                ),
                Err(why) => println!("round {} {RATE}/s {name} failed: {why}", round + 1),
            }
            samples[index].push(taken.ok());
        }
    }
    Ok(samples)
}

/// Runs a peer once against a server of its own. The outer error ends the chore, the inner one only this run.
fn sample(ready: &Ready, interrupt: &Interrupt) -> Result<Result<Sample, String>, Error> {
    let failed = |e: floodmark_truth::server::TruthError| Error::Found(vec![e.to_string()]);
    let server = Server::start(Scenario {
        stall: Some(STALL),
        ..Scenario::default()
    })
    .map_err(failed)?;
    let run = once(
        ready,
        Load::Rate,
        server.address(),
        SECONDS,
        RATE * SECONDS,
        interrupt,
    )?;
    let log = server.stop().map_err(failed)?;
    Ok(run.and_then(|(_, output)| {
        let says = (ready.peer.percentiles)(&output)?;
        Ok(compare(says, &log))
    }))
}

fn compare(says: Percentiles, log: &Log) -> Sample {
    let of = |times: Sorted| Percentiles {
        p50: Some(times.quantile(0.5)),
        p99: Some(times.quantile(0.99)),
        p99_9: Some(times.quantile(0.999)),
    };
    Sample {
        requests: log.totals.requests,
        says,
        even: of(reference::even(log, RATE as f64, RATE * SECONDS)),
        due: of(reference::response(log, RATE as f64)),
        sent: of(reference::service_with_wake_up(log)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_truth::log::{Kind, RequestEntry, StallEntry};

    /// A tenth of the requests waits between nothing and 100 ms, evenly: the share q waits at most 100 ms × (1 − (1 − q) × 10).
    #[test]
    fn the_truth_is_the_formula_where_stalls_are_on_time() {
        let ms = 1_000_000;
        let stall = |n: u64| StallEntry {
            begin_ns: (STALL.first_ms + n * STALL.every_ms) * ms,
            end_ns: (STALL.first_ms + n * STALL.every_ms + STALL.length_ms) * ms,
        };
        let entry = RequestEntry {
            connection: 0,
            kind: Kind::Answer,
            readable_ns: 0,
            arrival_ns: 0,
            first_byte_ns: 1,
            departure_ns: 1,
            bytes_in: 1,
            bytes_out: 1,
        };
        let log = Log {
            requests: vec![entry],
            stalls: (0..SECONDS).map(stall).collect(),
            ..Log::default()
        };
        let sample = compare(Percentiles::default(), &log);
        assert_eq!(sample.even.p50, Some(0.0));
        assert!((sample.even.p99.unwrap() - 90_000.0).abs() <= 1_000.0);
        assert!((sample.even.p99_9.unwrap() - 99_000.0).abs() <= 1_000.0);
    }
}
