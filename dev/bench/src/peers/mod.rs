//! `cargo xtask peers`: compares floodmark with other load generators on the same server, and
//! compares their latency figures under known stalls.

mod page;
mod stalls;
mod targets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use floodmark_record::Record;

use crate::bench::{Bench, Failure, update};
use crate::conditions::Conditions;
use crate::experiment::{FRESH, HTTPS, KEPT, NginxLoad, Setup, TrialSetup};
use crate::samples::{self, Rounds};

/// Path of the generated page, relative to the repository's root.
const FILE: &str = "docs/peers.md";
/// Number of connections in every run.
const CONNECTIONS: u64 = 100;
/// Version of oha to build.
const OHA: &str = "1.16.0";
/// Maximum number of rounds at the fixed rate. Results at a fixed rate vary less than in the closed
/// model.
const RATE_ROUNDS: usize = 5;
/// Requests per second at the fixed rate.
const RATE: u64 = 1_000;
/// Duration of a run at the fixed rate, in seconds. In this time, 80 requests are above the 99th
/// percentile.
const RATE_SECONDS: u64 = 8;
/// A fixed rate on kept connections.
const FIXED_RATE: NginxLoad = NginxLoad {
    name: "rate",
    rate: Some(RATE),
    ..KEPT
};
/// Length and period of the truth server's stalls, in ms. Case T2 of `cargo xtask truth` uses the
/// same stalls at the same rate.
const STALL: (u64, u64) = (100, 1_000);
/// Maximum time that a run takes in addition to its duration.
const OVERHEAD: Duration = Duration::from_secs(60);

/// Options of `cargo xtask peers`.
#[derive(Debug, Args)]
pub struct PeersOptions {
    /// Number of rounds; each peer runs once per round
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Duration of each run in the closed model, in seconds
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Run only this peer, such as wrk, without writing the page (repeatable)
    #[arg(long, value_name = "NAME", value_parser = NAMES)]
    only: Vec<String>,
    /// Run one round of 2 s without writing the page
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// Build oha if it is missing (takes several minutes)
    #[arg(long)]
    with_oha: bool,
}

/// Names accepted by `--only`.
#[rustfmt::skip]
const NAMES: [&str; 9] = [
    "floodmark", "floodmark-epoll", "floodmark-uring", "wrk", "ab", "hey", "h2load", "httperf", "oha",
];

/// A load generator.
struct Peer {
    name: &'static str,
    /// Note on how to interpret the load generator's figures; may be empty.
    note: &'static str,
}

#[rustfmt::skip]
const PEERS: [Peer; 8] = [
    Peer { name: "floodmark-epoll", note: "" },
    Peer { name: "floodmark-uring", note: "" },
    Peer { name: "wrk", note: "" },
    Peer { name: "ab", note: "ab uses HTTP/1.0 and reserves memory for `-n` results." },
    Peer {
        name: "hey",
        note: "hey gives each of its 100 workers its own rate, so all of them send at the same time every 100 ms. It prints times in \
               steps of 0.1 ms.",
    },
    Peer {
        name: "h2load",
        note: "h2load gives each of its 100 connections its own rate; its percentiles are computed from its request log.",
    },
    Peer {
        name: "httperf",
        note: "httperf has no closed loop over several fresh connections. At a fixed rate, each request has its own connection, and \
               the percentiles are computed from a histogram with bins of 1 ms.",
    },
    Peer { name: "oha", note: "" },
];

impl Peer {
    /// Returns floodmark's backend if the peer is floodmark.
    fn backend(&self) -> Option<&'static str> {
        self.name.strip_prefix("floodmark-")
    }

    /// Returns whether this value of `--only` selects the peer.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.backend().is_some() && name == "floodmark"
    }

    /// Returns the number of requests to send, for a peer that does not accept a duration.
    fn requests(&self, load: NginxLoad) -> Option<u64> {
        match (self.name, load) {
            ("h2load" | "httperf", FIXED_RATE) => Some(RATE * RATE_SECONDS),
            ("h2load", FRESH) => Some(75_000),
            ("httperf", KEPT) => Some(500_000),
            ("httperf", HTTPS) => Some(250_000),
            _ => None,
        }
    }

    /// Returns the trial in which the peer sends the load, or `None` if the peer cannot send the
    /// load.
    fn trial(&self, bench: &Bench, load: NginxLoad) -> Result<Option<TrialSetup>, Failure> {
        let oha = oha(bench).display().to_string();
        let client = match self.backend() {
            Some(backend) => load.floodmark(bench, backend, ""),
            None => load.client(bench, self.name, &[("{oha}", &oha)]),
        };
        let Some(mut client) = client? else {
            return Ok(None);
        };
        let mut lines = match load {
            FIXED_RATE => {
                client.manifest.insert_str(0, "path = \"/\"\n");
                stalls::server(bench, self.name)
            }
            _ => load.server(),
        };
        if let Some(requests) = self.requests(load) {
            lines.push_str(&format!("\nload = {{ requests = {requests} }}"));
        }
        Ok(Some(TrialSetup {
            name: self.name.to_owned(),
            lines,
            client: Some(client),
        }))
    }
}

/// Measured runs of one load.
struct MeasuredPeers {
    load: NginxLoad,
    record: Record,
    /// Samples of each peer, with one sample per round.
    rows: Vec<(&'static Peer, Rounds)>,
}

/// Measures the selected peers, and writes the page after a complete comparison.
pub fn run(bench: &Bench, options: &PeersOptions) -> Result<(), Failure> {
    let mut peers = select(&options.only);
    let oha = oha(bench);
    if options.with_oha && !oha.is_file() {
        // Use the build profile of oha's releases, but without profile-guided optimization.
        let root = bench.target.join("peers").join(OHA);
        let flags = format!(
            "--version {OHA} --profile release-ci --root {}",
            root.display()
        );
        bench.cargo(&format!("install oha --locked {flags}"))?;
    }
    peers.retain(|peer| peer.name != "oha" || oha.is_file());
    let (rounds, seconds) = if options.quick {
        (1, 2)
    } else {
        (options.rounds as usize, u64::from(options.seconds))
    };
    let conditions = Conditions::read(bench)?;
    let folder = tempfile::tempdir()?;
    let measure = |load: NginxLoad, rounds: usize, seconds: u64| {
        let folder = folder.path().join(load.name);
        measure(bench, &peers, load, rounds, seconds, &folder)
    };
    let closed = [KEPT, FRESH, HTTPS].map(|load| measure(load, rounds, seconds));
    let closed = closed.into_iter().filter_map(Result::transpose);
    let closed: Vec<_> = closed.collect::<Result<_, Failure>>()?;
    let rate = measure(FIXED_RATE, rounds.min(RATE_ROUNDS), RATE_SECONDS)?;
    let rate_folder = folder.path().join(FIXED_RATE.name);
    let stalls = rate.map(|rate| stalls::compare(&rate, &rate_folder));
    let page = page::PeersPage {
        rounds,
        seconds,
        conditions: &conditions,
        peers: &peers,
        stalls: stalls.transpose()?.unwrap_or_default(),
        closed,
    };
    let page = page.markdown();
    println!("\n{page}");
    if options.quick || !options.only.is_empty() {
        println!("{FILE} not written: this comparison is incomplete");
        return Ok(());
    }
    update(&bench.root, FILE, &page)
}

/// Runs a load in rounds with all peers that support the load. Returns `None` if no peer supports
/// the load.
fn measure(
    bench: &Bench,
    peers: &[&'static Peer],
    load: NginxLoad,
    rounds: usize,
    seconds: u64,
    folder: &Path,
) -> Result<Option<MeasuredPeers>, Failure> {
    let (mut able, mut trials) = (Vec::new(), Vec::new());
    for &peer in peers {
        if let Some(trial) = peer.trial(bench, load)? {
            able.push(peer);
            trials.push(trial);
        }
    }
    if able.is_empty() {
        return Ok(None);
    }
    let keys = load.keys().join("\n");
    let setup = Setup {
        question: "How much CPU does each load generator use per request?",
        sections: format!(
            "[load]\nconnections = {CONNECTIONS}\nduration = \"{seconds}s\"\n{keys}\n[place]\nprocesses = {rounds}"
        ),
        trials,
    };
    let limit = OVERHEAD * u32::try_from(rounds * able.len())?;
    let record = setup.run(bench, folder, &[], limit)?;
    for line in &record.skipped {
        println!("skipped: {line}");
    }
    let result = folder.join("result");
    let rows = able.into_iter().map(|peer| {
        let samples = samples::of(&record, peer.name, rounds, &result);
        (peer, samples)
    });
    Ok(Some(MeasuredPeers {
        load,
        rows: rows.collect(),
        record,
    }))
}

/// Returns the named peers, or all peers if no name is given. The name `floodmark` selects both
/// backends.
fn select(only: &[String]) -> Vec<&'static Peer> {
    let is_named = |peer: &&Peer| only.iter().any(|name| peer.is_called(name));
    let selected = PEERS.iter();
    selected
        .filter(|peer| only.is_empty() || is_named(peer))
        .collect()
}

/// Returns the path of the oha binary.
fn oha(bench: &Bench) -> PathBuf {
    bench.target.join("peers").join(OHA).join("bin/oha")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_by_row_or_program() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            let peers = select(&only).into_iter();
            peers.map(|peer| peer.name).collect::<Vec<_>>()
        };
        let ours = ["floodmark-epoll", "floodmark-uring"];
        assert_eq!(names(&["floodmark"]), ours);
        let some = names(&["wrk", "floodmark-epoll"]);
        assert_eq!(some, ["floodmark-epoll", "wrk"]);
        assert_eq!(names(&[]), NAMES[1..]);
    }
}
