//! `cargo xtask peers`: compares floodmark with other load generators on the same server, and
//! compares their latency figures under known stalls.
//!
//! Each load is an experiment with one trial per peer. The targets are claims about these trials.

mod stalls;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use floodmark_diagnose::comparing;
use floodmark_record::client::ExternalRun;
use floodmark_record::comparison::{Agreement, ComparedMetric};
use floodmark_record::experiment::PublishedClaim;
use floodmark_record::plan;
use floodmark_record::reason::joined;
use floodmark_record::run::Status;
use floodmark_record::units::show_count;
use floodmark_record::{Record, Run};
use floodmark_report::tables::ResultTables;

use crate::bench::{Bench, Failure, update};
use crate::conditions::{Conditions, version};
use crate::experiment::{FRESH, HTTPS, KEPT, NginxLoad, Setup, TrialSetup, own_run};
use crate::statistics::{Median, estimate};
use crate::table::{cell, table};

/// Path of the generated page, relative to the repository's root.
const FILE: &str = "docs/peers.md";
/// Number of connections in every run, except with several streams per connection.
const CONNECTIONS: u64 = 100;
/// Number of connections with several streams per connection.
const SHARED_CONNECTIONS: u64 = 10;
/// Streams per connection in the loads that use several.
const STREAMS: u32 = 32;
/// Version of oha to build.
const OHA: &str = "1.16.0";
/// Maximum number of rounds at the fixed rate. Fewer rounds are enough, because results vary less
/// than in the closed model.
const RATE_ROUNDS: usize = 5;
/// Requests per second at the fixed rate.
const RATE: u64 = 1_000;
/// Duration of a run at the fixed rate, in seconds. In a run of 8,000 requests, 80 are above the
/// 99th percentile.
const RATE_SECONDS: u64 = 8;
/// A fixed rate on kept connections.
const FIXED_RATE: NginxLoad = NginxLoad {
    name: "rate",
    rate: Some(RATE),
    ..KEPT
};
/// HTTP/2 without TLS, with one stream per connection.
const H2C: NginxLoad = NginxLoad {
    name: "h2c",
    streams: Some(1),
    ..KEPT
};
/// HTTP/2 without TLS, with several streams per connection.
const H2C_SHARED: NginxLoad = NginxLoad {
    name: "h2c shared",
    streams: Some(STREAMS),
    ..KEPT
};
/// HTTP/2 over TLS, with one stream per connection.
const H2: NginxLoad = NginxLoad {
    name: "h2",
    streams: Some(1),
    ..HTTPS
};
/// HTTP/2 over TLS, with several streams per connection.
const H2_SHARED: NginxLoad = NginxLoad {
    name: "h2 shared",
    streams: Some(STREAMS),
    ..HTTPS
};
/// Loads in the closed model.
const CLOSED: [NginxLoad; 7] = [KEPT, FRESH, HTTPS, H2C, H2C_SHARED, H2, H2_SHARED];
/// Length and period of the truth server's stalls, in ms. Case T2 of `cargo xtask truth` uses the
/// same stalls at the same rate.
const STALL: (u64, u64) = (100, 1_000);
/// Time allowed per run, including its duration.
const OVERHEAD: Duration = Duration::from_secs(60);

/// A target: load, text, metric, baseline and required ratio. The ratio is floodmark's figure
/// divided by the baseline's figure.
type Target = (NginxLoad, &'static str, ComparedMetric, Baseline, Required);

/// What a target compares floodmark with.
#[derive(Debug, Clone, Copy)]
enum Baseline {
    /// Another load generator.
    Other(&'static str),
    /// The same backend of floodmark over HTTP/1.1.
    OwnHttp1,
}

use Baseline::{Other, OwnHttp1};

/// Whether the required ratio is a minimum or a maximum, and the ratio.
type Required = (Agreement, f64);

#[rustfmt::skip]
const TARGETS: [Target; 12] = [
    (KEPT, "CPU per request ÷ wrk's", ComparedMetric::CpuPerRequest, Other("wrk"), (Agreement::AtMost, 0.85)),
    (KEPT, "CPU per request ÷ oha's", ComparedMetric::CpuPerRequest, Other("oha"), (Agreement::AtMost, 0.55)),
    (KEPT, "requests/s ÷ wrk's", ComparedMetric::Throughput, Other("wrk"), (Agreement::AtLeast, 1.0)),
    (FRESH, "CPU per connection ÷ wrk's", ComparedMetric::CpuPerRequest, Other("wrk"), (Agreement::AtMost, 0.75)),
    (FRESH, "requests/s ÷ wrk's", ComparedMetric::Throughput, Other("wrk"), (Agreement::AtLeast, 1.2)),
    (HTTPS, "CPU per request ÷ wrk's", ComparedMetric::CpuPerRequest, Other("wrk"), (Agreement::AtMost, 0.85)),
    (H2C, "CPU per request ÷ the same backend's over HTTP/1.1", ComparedMetric::CpuPerRequest, OwnHttp1, (Agreement::AtMost, 1.1)),
    (H2C_SHARED, "CPU per request ÷ h2load's", ComparedMetric::CpuPerRequest, Other("h2load"), (Agreement::AtMost, 0.5)),
    (H2C_SHARED, "requests/s ÷ h2load's", ComparedMetric::Throughput, Other("h2load"), (Agreement::AtLeast, 1.0)),
    (H2, "CPU per request ÷ the same backend's over HTTP/1.1", ComparedMetric::CpuPerRequest, OwnHttp1, (Agreement::AtMost, 1.1)),
    (H2_SHARED, "CPU per request ÷ h2load's", ComparedMetric::CpuPerRequest, Other("h2load"), (Agreement::AtMost, 0.5)),
    (H2_SHARED, "requests/s ÷ h2load's", ComparedMetric::Throughput, Other("h2load"), (Agreement::AtLeast, 1.0)),
];

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
const NAMES: [&str; 11] = [
    "floodmark", "floodmark-epoll", "floodmark-uring", "floodmark-epoll-http1", "floodmark-uring-http1", "wrk", "ab", "hey", "h2load", "httperf", "oha",
];

/// Suffix of a peer that sends HTTP/1.1 to the same server as the HTTP/2 load.
const HTTP1: &str = "-http1";

/// A load generator.
struct Peer {
    name: &'static str,
    /// Note on how to interpret the load generator's figures; may be empty.
    note: &'static str,
}

#[rustfmt::skip]
const PEERS: [Peer; 10] = [
    Peer { name: "floodmark-epoll", note: "" },
    Peer { name: "floodmark-uring", note: "" },
    Peer { name: "floodmark-epoll-http1", note: "" },
    Peer { name: "floodmark-uring-http1", note: "" },
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
        let name = self.name.strip_suffix(HTTP1).unwrap_or(self.name);
        name.strip_prefix("floodmark-")
    }

    /// Returns the load that the peer sends in a comparison of `load`, if any. HTTP/1.1 as a
    /// baseline is only part of comparisons with one stream per connection.
    fn load(&self, load: NginxLoad) -> Option<NginxLoad> {
        if !self.name.ends_with(HTTP1) {
            return Some(load);
        }
        let streams = None;
        (load.streams == Some(1)).then_some(NginxLoad { streams, ..load })
    }

    /// Returns whether this value of `--only` selects the peer.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.backend().is_some() && name == "floodmark"
    }

    /// Returns the number of requests to send if the peer cannot limit this load by its duration.
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
        let Some(sent) = self.load(load) else {
            return Ok(None);
        };
        let client = match self.backend() {
            Some(backend) => sent.floodmark(bench, backend, ""),
            None => sent.client(bench, self.name, &[("{oha}", &oha)]),
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

/// The result of one load.
struct MeasuredLoad {
    load: NginxLoad,
    record: Record,
    /// Peers that can send the load.
    peers: Vec<&'static Peer>,
    rounds: usize,
    /// Directory of the experiment.
    directory: PathBuf,
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
    let directory = tempfile::tempdir()?;
    let measure = |load: NginxLoad, rounds: usize, seconds: u64| {
        let directory = directory.path().join(load.name);
        measure(bench, &peers, load, rounds, seconds, &directory)
    };
    let closed = CLOSED.map(|load| measure(load, rounds, seconds));
    let closed: Vec<MeasuredLoad> = closed
        .into_iter()
        .filter_map(Result::transpose)
        .collect::<Result<_, Failure>>()?;
    let rate = measure(FIXED_RATE, rounds.min(RATE_ROUNDS), RATE_SECONDS)?;
    let mut page = format!(
        "# floodmark and its peers\n\nWritten by `cargo xtask peers --rounds {rounds} --seconds {seconds}`. No figure is typed by hand.\n"
    );
    let shared = closed.iter().filter(|of| of.load == H2C_SHARED);
    let shared_runs = first_runs(&peers, shared);
    let first_runs = first_runs(&peers, closed.iter().filter(|of| of.load.streams.is_none()));
    let server = format!(
        "{}, 1 worker; h2c: floodmark serve hello, 1 thread",
        version(&["nginx", "-v"])
    );
    let tls = "1.3, X25519, TLS_AES_256_GCM_SHA384 for every peer".to_owned();
    let mut others = vec![("server", server), ("TLS", tls)];
    others.extend(first_runs.iter().map(|(name, run, _)| {
        let version = run.version.clone();
        (*name, cell(version, |version| version))
    }));
    if peers.iter().any(|peer| peer.name == "oha") {
        others.push(("oha (profile release-ci)", OHA.to_owned()));
    }
    let table = table("what | value", conditions.rows(others));
    page += &format!("\n## Conditions\n\n{table}");
    let skipped = closed.iter().flat_map(|load| &load.record.skipped);
    for line in skipped.collect::<BTreeSet<_>>() {
        page += &format!("\nSkipped: {line}.\n");
    }
    for measured in &closed {
        page += &measured.section()?;
    }
    if let Some(rate) = &rate {
        peers.retain(|peer| !peer.name.ends_with(HTTP1));
        page += &stalls::section(rate, &peers)?;
    }
    let notes = peers.iter().map(|peer| peer.note);
    let notes = notes.filter(|note| !note.is_empty());
    page += &format!(
        include_str!("notes.md"),
        rounds = rounds,
        seconds = seconds,
        notes = notes.map(|note| format!("- {note}\n")).collect::<String>(),
        connections = CONNECTIONS,
        shared_connections = SHARED_CONNECTIONS,
        streams = STREAMS,
        cpus = conditions.cpus,
    );
    page += "\n## Commands\n";
    for (heading, runs) in [
        ("With kept connections", first_runs),
        ("Over h2c", shared_runs),
    ] {
        let commands = runs.iter();
        let commands = commands.map(|(_, run, target)| shown_command(run, target) + "\n");
        let commands: String = commands.collect();
        page += &format!("\n{heading}:\n\n```text\n{commands}```\n");
    }
    page += "\nThe servers are `systems/nginx`, `systems/native` and `dev/bench/systems/nginx-tls`; the other commands are in `clients/` \
             and `dev/bench/clients/`.\n";
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
    directory: &Path,
) -> Result<Option<MeasuredLoad>, Failure> {
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
    let connections = if load.streams == Some(STREAMS) {
        SHARED_CONNECTIONS
    } else {
        CONNECTIONS
    };
    let setup = Setup {
        question: "How much CPU does each load generator use per request?",
        sections: format!(
            "[load]\nconnections = {connections}\nduration = \"{seconds}s\"\n{keys}\n[place]\nprocesses = {rounds}"
        ),
        trials,
    };
    let limit = OVERHEAD * u32::try_from(rounds * able.len())?;
    let record = setup.run(bench, directory, &[], limit)?;
    for line in &record.skipped {
        println!("skipped: {line}");
    }
    Ok(Some(MeasuredLoad {
        load,
        record,
        peers: able,
        rounds,
        directory: directory.to_owned(),
    }))
}

impl MeasuredLoad {
    /// Returns the load's section of the page: figures, failures, ratios and targets.
    fn section(&self) -> Result<String, Failure> {
        let heading = match self.load {
            load if load.fresh => {
                "Fresh connections\n\nClosed model, one connection per request.".to_owned()
            }
            NginxLoad {
                tls,
                streams: Some(streams),
                ..
            } => {
                let layer = if tls { "HTTP/2 over TLS" } else { "h2c" };
                format!(
                    "{layer}, requests in flight per connection: {streams}\n\nClosed model, kept connections."
                )
            }
            load if load.tls => {
                "HTTPS, kept connections\n\nClosed model, kept connections, TLS 1.3.".to_owned()
            }
            _ => "Kept connections\n\n\
                 Closed model: each connection sends its next request after the response."
                .to_owned(),
        };
        let own: BTreeMap<(&str, u32), Run> = (self.record.runs.iter())
            .filter_map(|run| {
                let key = (run.trial.as_deref()?, run.process);
                Some((key, own_run(&self.directory.join("result"), run)?))
            })
            .collect();
        let (ratios, failed) = self.compare(&own)?;
        let figures = self.figures(&own);
        Ok(format!("\n## {heading}\n\n{figures}{failed}\n{ratios}"))
    }

    /// Returns a table with a row per peer: the median, and the range in parentheses. `own`
    /// contains the runs as recorded by floodmark itself.
    fn figures(&self, own: &BTreeMap<(&str, u32), Run>) -> String {
        let rows = self.peers.iter().map(|peer| {
            let median = |of: &dyn Fn(&Run) -> Option<f64>| {
                estimate(self.record.runs_of(peer.name).filter_map(of))
            };
            let range = |m: Median, number: &dyn Fn(f64) -> String| {
                let [median, least, most] = [m.median, m.least, m.most].map(number);
                format!("{median} ({least}–{most})")
            };
            let cpu = |us: f64| format!("{us:.2}");
            let own_cpu = own.iter().filter(|((name, _), _)| *name == peer.name);
            let own_cpu = own_cpu.filter_map(|(_, run)| run.client.cpu_us_per_request);
            let mib = |run: &Run| Some(run.client.peak_rss_bytes? as f64 / f64::from(1 << 20));
            vec![
                peer.name.to_owned(),
                cell(median(&|run| run.throughput_per_s), |m| {
                    range(m, &|n| show_count(n as u64))
                }),
                cell(median(&|run| run.client.cpu_us_per_request), |m| {
                    range(m, &cpu)
                }),
                cell(estimate(own_cpu), |m| cpu(m.median)),
                cell(median(&mib), |m| format!("{:.1}", m.median)),
            ]
        });
        let heads = "peer | requests/s | CPU µs/request | reported by the peer | peak MiB";
        table(heads, rows)
    }

    /// Compares each peer with wrk (over HTTP/2: h2load) and with each floodmark backend, and judges
    /// the targets. Returns the tables, and one line per peer and kind of failure. Excludes rounds
    /// in which a floodmark run has failures.
    fn compare(&self, own: &BTreeMap<(&str, u32), Run>) -> Result<(String, String), Failure> {
        let mut record = self.record.clone();
        let mut failed = String::new();
        for peer in &self.peers {
            let runs = self.record.runs_of(peer.name);
            let failures = runs.filter_map(|run| match own.get(&(peer.name, run.process)) {
                Some(own) => failures(own).map(|what| (run.process, what)),
                None => {
                    let (sent, ok) = (run.requests.sent, run.requests.ok);
                    (sent > ok).then(|| (run.process, format!("{} of {sent}", sent - ok)))
                }
            });
            let failures: Vec<(u32, String)> = failures.collect();
            let runs = self.record.runs_of(peer.name);
            let gaps = self.rounds - runs.filter(|run| run.throughput_per_s.is_some()).count();
            if gaps > 0 {
                let (name, of) = (peer.name, self.rounds);
                failed += &format!("\n{name}: {gaps} of {of} runs failed.\n");
            }
            if let Some((_, last)) = failures.last() {
                let (name, runs) = (peer.name, failures.len());
                failed += &format!(
                    "\n{name} reports failures; runs with failures: {runs}; last failure: {last}\n"
                );
            }
            if peer.backend().is_some() {
                let has_failed = |process| failures.iter().any(|(of, _)| *of == process);
                record.runs.retain(|run| !has_failed(run.process));
            }
        }
        let ours = self.peers.iter();
        let ours = ours.filter(|peer| peer.backend().is_some() && !peer.name.ends_with(HTTP1));
        let ours: Vec<&str> = ours.map(|peer| peer.name).collect();
        let claims = TARGETS.iter().filter(|target| target.0 == self.load);
        let claims = claims.flat_map(|(_, text, metric, baseline, (agreement, published))| {
            ours.iter().map(|our| {
                let baseline = match baseline {
                    Other(peer) => (*peer).to_owned(),
                    OwnHttp1 => format!("{our}{HTTP1}"),
                };
                PublishedClaim {
                    text: (*text).to_owned(),
                    source: None,
                    metric: Some(*metric),
                    ratio: vec![(*our).to_owned(), baseline],
                    trial: None,
                    published: Some(*published),
                    agreement: Some(*agreement),
                }
            })
        });
        let experiment = record.experiment.as_mut();
        experiment.ok_or("the record has no experiment")?.claims = claims.collect();
        let groups = comparing::run_groups(&record);
        let baseline = self.load.streams.map_or("wrk", |_| "h2load");
        let mut comparisons = Vec::new();
        for group in &groups {
            let mut add = |a: &str, b: &str, metric| {
                let find = |name: &str| groups.iter().find(|group| group.name == name);
                let pair = find(a).zip(find(b)).filter(|_| a != b);
                comparisons.extend(pair.map(|(a, b)| comparing::compare(a, b, metric)));
            };
            add(&group.name, baseline, ComparedMetric::Throughput);
            add(&group.name, baseline, ComparedMetric::CpuPerRequest);
            for our in &ours {
                add(our, &group.name, ComparedMetric::CpuPerRequest);
            }
        }
        record.comparisons = comparisons;
        record.claims = comparing::claims(&record);
        let tables = ["ratios", "claims"]
            .into_iter()
            .filter_map(|name| ResultTables::of_record(&record).only(name))
            .map(|table| table.markdown());
        Ok((tables.collect::<Vec<_>>().join("\n"), failed))
    }
}

/// Returns the first run of each peer and its target.
fn first_runs<'a>(
    peers: &[&'static Peer],
    loads: impl Iterator<Item = &'a MeasuredLoad> + Clone,
) -> Vec<(&'static str, &'a ExternalRun, &'a plan::Target)> {
    let first = |peer: &&'static Peer| {
        let mut runs = loads.clone().flat_map(|of| of.record.runs_of(peer.name));
        let with_target = |run: &'a Run| Some((run.client.tool.as_ref()?, &run.plan.target));
        let (run, target) = runs.find_map(with_target)?;
        Some((peer.name, run, target))
    };
    peers.iter().filter_map(first).collect()
}

/// Returns the command of a run, with the name of its program instead of the path, and `PORT`
/// instead of the target's port.
fn shown_command(run: &ExternalRun, target: &plan::Target) -> String {
    let mut words = run.command.clone();
    if let Some(program) = words.first_mut() {
        let name = Path::new(&*program).file_name();
        *program = name.unwrap_or_default().to_string_lossy().into_owned();
    }
    let port = target.ip_addresses().next().map(|address| address.port());
    if let Some(port) = port.map(|port| port.to_string()) {
        let shown = |word: &mut String| *word = word.replace(&port, "PORT");
        words.iter_mut().skip(1).for_each(shown);
    }
    words.join(" ")
}

/// Describes the failures that floodmark recorded in its own run, if any.
fn failures(run: &Run) -> Option<String> {
    let requests = &run.requests;
    let failed = requests.sent - requests.ok + requests.connect_failed + requests.unsent;
    let mut failures = Vec::new();
    if failed > 0 {
        failures.push(format!("requests that were not ok: {failed}"));
    }
    if run.validity.status == Status::Invalid {
        failures.push(format!("invalid: {}", joined(&run.validity.reasons)));
    }
    (!failures.is_empty()).then(|| failures.join("; "))
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
    use floodmark_record::client::PrintedFigures;
    use floodmark_record::experiment::ExperimentDescription;

    use super::*;

    #[test]
    fn selects_by_row_or_program() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            let peers = select(&only).into_iter();
            peers.map(|peer| peer.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["floodmark"]), NAMES[1..5]);
        let some = names(&["wrk", "floodmark-epoll"]);
        assert_eq!(some, ["floodmark-epoll", "wrk"]);
        assert_eq!(names(&[]), NAMES[1..]);
    }

    #[test]
    fn commands_contain_neither_paths_nor_ports() {
        let record = include_str!("../../../../crates/floodmark/tests/records/load-ramp.json");
        let mut record: Record = serde_json::from_str(record).unwrap();
        let target = record.runs.remove(0).plan.target;
        let port = target.ip_addresses().next().unwrap().port();
        let url = format!("http://127.0.0.1:{port}/");
        let run = ExternalRun {
            version: None,
            command: ["/opt/target/bin/oha", "-c100", &url]
                .map(str::to_owned)
                .to_vec(),
            log: String::new(),
            wall_s: 2.0,
            said: PrintedFigures::default(),
            counter: None,
        };
        let shown = shown_command(&run, &target);
        assert_eq!(shown, "oha -c100 http://127.0.0.1:PORT/");
    }

    #[test]
    fn judges_targets_without_rounds_that_failed() {
        let record = include_str!("../../../../crates/floodmark/tests/records/load-ramp.json");
        let mut record: Record = serde_json::from_str(record).unwrap();
        let run = record.runs.remove(0);
        for process in 1..=3 {
            // In round 2, floodmark's run is invalid, so wrk's run does not count either.
            let [wrk, ours] = if process == 2 {
                [1.0, 80.0]
            } else {
                [10.0, 8.0]
            };
            for (name, cpu_us) in [("wrk", wrk), ("floodmark-uring", ours)] {
                let mut run = run.clone();
                (run.trial, run.process) = (Some(name.to_owned()), process);
                run.validity.status = Status::Valid;
                run.client.cpu_us_per_request = Some(cpu_us + 0.01 * f64::from(process));
                record.runs.push(run);
            }
        }
        record.experiment = Some(ExperimentDescription::default());
        let mut invalid = run.clone();
        invalid.validity.status = Status::Invalid;
        let own = BTreeMap::from([(("floodmark-uring", 2), invalid)]);
        let measured = MeasuredLoad {
            load: KEPT,
            record,
            peers: select(&["wrk".to_owned(), "floodmark-uring".to_owned()]),
            rounds: 3,
            directory: PathBuf::new(),
        };
        let (tables, failed) = measured.compare(&own).unwrap();
        let expected = "floodmark-uring reports failures; runs with failures: 1; last failure: ";
        assert!(failed.contains(expected), "{failed}");
        let target = |text: &str| tables.lines().find(|line| line.contains(text));
        let met = target("CPU per request ÷ wrk's").unwrap();
        assert!(met.contains("at most 0.85") && met.contains("yes"), "{met}");
        let unmeasured = target("CPU per request ÷ oha's").unwrap();
        assert!(unmeasured.contains("inconclusive"), "{unmeasured}");
    }
}
