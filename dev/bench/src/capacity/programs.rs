//! Searches with `floodmark capacity` on small servers in Python, Node.js, Java and Go.
//!
//! The programs are in `dev/bench/servers`. Before the searches, long loads determine what is known
//! about each server. All results are kept in a file, so that an interrupted measurement continues.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_diagnose::conditions::Objective;
use floodmark_host::Child;
use floodmark_record::Run;
use floodmark_record::capacity::{CapacityBound, CapacityResult};
use floodmark_record::reason::joined;
use floodmark_record::run::Status;
use floodmark_record::units::show_rate;
use floodmark_truth::capacity::KnownObjective;
use serde::{Deserialize, Serialize};

use super::budgeted::{LimitedServer, ok_share, pool_capacity_per_s};
use super::real::ServerSearch;
use super::score::{KnownCapacity, LimitedScore, RateRange, half_width};
use super::{LEAST_COVERAGE, median, percent};
use crate::bench::{self, Bench, Failure, word};
use crate::statistics::Proportion;
use crate::table::{cell, table};

/// Default number of searches per server.
pub const SEARCHES: u64 = 40;

/// Maximum median half-width of the intervals of undisturbed searches, as a share of the estimate.
const MOST_HALF_WIDTH: f64 = 0.03;

/// Length of the closed-model load that measures a server's limit, in seconds.
const LIMIT_S: u32 = 30;

/// Length of the load over a single connection, in seconds.
const IDLE_S: u32 = 5;

/// Length of each load that determines whether a rate meets the objective, in seconds.
const RATE_S: u32 = 60;

/// Maximum ratio of the two ends of a range that needs no further narrowing.
const NARROW: f64 = 1.03;

/// First rate to try, as a share of the limit.
const FIRST_SHARE: f64 = 0.8;

/// Error of the model of a pool, as a share of the capacity: times vary slightly, and importance
/// sampling has an error.
const MODEL_ERROR: f64 = 0.005;

/// Mean length of the bursts of the program that takes CPU from a pinned server.
const STOLEN_BURST: &str = "4ms";

/// Directory of the programs.
const SOURCES: &str = "dev/bench/servers";

/// Time allowed for compiling a program.
const BUILD: Duration = Duration::from_secs(120);

/// Time allowed for a server to start.
const START: Duration = Duration::from_secs(30);

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Interval between attempts to connect to a server that starts.
const POLL: Duration = Duration::from_millis(50);

/// How to search.
#[derive(Debug)]
pub struct ProgramSearches<'a> {
    /// Searches per server.
    pub searches: u64,
    /// Only servers whose name contains this text.
    pub only: &'a str,
    /// Maximum duration of a search.
    pub budget: Duration,
    /// Share of one CPU that a program beside every second search uses.
    pub beside: Option<f64>,
    /// Number of searches that run at the same time, each on its own server process.
    pub side_by_side: usize,
    /// File with the results; the default is in cargo's target directory.
    pub results: Option<&'a Path>,
}

/// How a program is started.
#[derive(Debug, Clone, Copy)]
enum Program {
    Python(&'static str),
    Node(&'static str),
    /// Name of the source file without its extension.
    Go(&'static str),
    Java {
        file: &'static str,
        options: &'static [&'static str],
    },
}

/// How a server's capacity is determined.
#[derive(Debug, Clone)]
enum CapacitySource {
    /// Requests wait for a permit and hold it for a fixed time. A closed-model load measures the
    /// time, and a model gives the capacity.
    Pool { permits: usize },
    /// Like `Pool`, but an overload turns the server into a pool with these arguments.
    Hysteresis {
        permits: usize,
        falling: [&'static str; 2],
    },
    /// A formula gives the capacity.
    Bucket(LimitedServer),
    /// Long loads at several rates.
    Loads,
}

/// A server and its objective.
#[derive(Debug, Clone)]
struct ProgramServer {
    name: &'static str,
    program: Program,
    /// Arguments after the port.
    arguments: Vec<&'static str>,
    /// Share of one CPU that another program takes from the server, which is pinned to that CPU.
    stolen: Option<&'static str>,
    objective: KnownObjective,
    source: CapacitySource,
}

/// Returns the servers whose capacities are searched.
fn servers() -> Vec<ProgramServer> {
    const NO_DELAY: &str = "-Dsun.net.httpserver.nodelay=true";
    let p99 = |limit_ms| KnownObjective::ResponseTime {
        percentile: 99.0,
        limit_ms,
    };
    let (python, node) = (Program::Python("pool.py"), Program::Node("pool.js"));
    let (go, java) = (
        Program::Go("pool"),
        Program::Java {
            file: "Pool.java",
            options: &[NO_DELAY],
        },
    );
    let pool = |name, program, permits: &'static str, ms, limit_ms| ProgramServer {
        name,
        program,
        arguments: vec![permits, ms],
        stolen: None,
        objective: p99(limit_ms),
        source: CapacitySource::Pool {
            permits: permits.parse().expect("a number"),
        },
    };
    let cpu = |name, stolen, source| ProgramServer {
        name,
        program: Program::Node("cpu.js"),
        arguments: vec!["3"],
        stolen: Some(stolen),
        objective: p99(100.0),
        source,
    };
    vec![
        pool("python, 1 permit, 5 ms", python, "1", "5", 50.0),
        pool("python, 8 permits, 20 ms", python, "8", "20", 200.0),
        pool("python, 64 permits, 200 ms", python, "64", "200", 2_000.0),
        pool("node, 4 permits, 20 ms", node, "4", "20", 100.0),
        pool("node, 16 permits, 100 ms", node, "16", "100", 500.0),
        pool("node, 64 permits, 50 ms", node, "64", "50", 300.0),
        pool("java, 2 permits, 50 ms", java, "2", "50", 500.0),
        pool("java, 32 permits, 20 ms", java, "32", "20", 100.0),
        pool("java, 64 permits, 200 ms", java, "64", "200", 1_000.0),
        pool("go, 1 permit, 20 ms", go, "1", "20", 200.0),
        pool("go, 16 permits, 5 ms", go, "16", "5", 50.0),
        pool("go, 64 permits, 100 ms", go, "64", "100", 500.0),
        ProgramServer {
            name: "go, token bucket, 400/s",
            program: Program::Go("bucket"),
            arguments: vec!["400", "40"],
            stolen: None,
            objective: KnownObjective::Errors(1.0),
            source: CapacitySource::Bucket(LimitedServer::Bucket {
                per_s: 400.0,
                burst: 40,
            }),
        },
        cpu("node, CPU-bound", "0", CapacitySource::Pool { permits: 1 }),
        cpu("node, CPU-bound, 20 % stolen", "0.2", CapacitySource::Loads),
        cpu("node, CPU-bound, 40 % stolen", "0.4", CapacitySource::Loads),
        ProgramServer {
            name: "java, garbage collection",
            program: Program::Java {
                file: "Garbage.java",
                options: &[NO_DELAY, "-XX:+UseSerialGC", "-Xmx64m"],
            },
            arguments: vec!["15", "2000"],
            stolen: None,
            objective: p99(200.0),
            source: CapacitySource::Loads,
        },
        ProgramServer {
            name: "go, hysteresis",
            program: Program::Go("hysteresis"),
            arguments: vec!["16", "5", "250"],
            stolen: None,
            objective: p99(30.0),
            source: CapacitySource::Hysteresis {
                permits: 16,
                falling: ["16", "6.25"],
            },
        },
    ]
}

impl Program {
    /// Compiles a program in Go.
    fn build(self, bench: &Bench) -> Result<(), Failure> {
        let Program::Go(name) = self else {
            return Ok(());
        };
        let source = bench.root.join(SOURCES).join(name).with_extension("go");
        let mut build = Command::new("go");
        build
            .arg("build")
            .arg("-o")
            .arg(directory(bench)?.join(name));
        build.arg(&source);
        let status = bench.run(build, BUILD)?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("go build {}: {status}", source.display()).into())
        }
    }

    /// Returns the command without the server's arguments.
    fn command(self, bench: &Bench) -> Result<Command, Failure> {
        let sources = bench.root.join(SOURCES);
        let interpreted = |interpreter, file| {
            let mut command = Command::new(interpreter);
            command.arg(sources.join(file));
            command
        };
        Ok(match self {
            Program::Python(file) => interpreted("python3", file),
            Program::Node(file) => interpreted("node", file),
            Program::Java { file, options } => {
                let mut command = Command::new("java");
                command.args(options).arg(sources.join(file));
                command
            }
            Program::Go(name) => Command::new(directory(bench)?.join(name)),
        })
    }
}

/// Returns the directory for compiled programs and results.
fn directory(bench: &Bench) -> Result<PathBuf, Failure> {
    let directory = bench.target.join("capacity");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// A running server, and the program that takes its CPU.
struct RunningServer {
    server: Child,
    competitor: Option<Child>,
    url: String,
}

impl RunningServer {
    /// Starts a program with a free port and `arguments`, and waits until it listens. With
    /// `stolen`, pins it to one CPU and starts another program that takes that share of the CPU.
    fn start(
        bench: &Bench,
        program: Program,
        arguments: &[&str],
        stolen: Option<&str>,
    ) -> Result<Self, Failure> {
        const PINNED: [&str; 2] = ["-c", "0"];
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let plain = program.command(bench)?;
        let mut command = match stolen {
            Some(_) => {
                let mut pinned = Command::new("taskset");
                pinned.args(PINNED);
                pinned.arg(plain.get_program()).args(plain.get_args());
                pinned
            }
            None => plain,
        };
        command.arg(address.port().to_string()).args(arguments);
        let log = directory(bench)?.join(format!("{}.log", address.port()));
        let mut server = Child::start_logged(command, &log)?;
        let ready = wait_until_ready(&mut server, address, bench);
        let text = bench::read(&log)?;
        fs::remove_file(&log)?;
        ready.map_err(|error| format!("{error}: {text}"))?;
        let mut competitor = None;
        if let Some(share) = stolen.filter(|share| *share != "0") {
            let mut command = Command::new("taskset");
            command.args(PINNED).arg(std::env::current_exe()?);
            command.args(["burn", "--share", share, "--burst", STOLEN_BURST]);
            competitor = Some(Child::start(command)?);
        }
        let url = format!("http://{address}/");
        Ok(RunningServer {
            server,
            competitor,
            url,
        })
    }

    fn stop(mut self) -> Result<(), Failure> {
        if let Some(competitor) = &mut self.competitor {
            competitor.stop(GRACE)?;
        }
        self.server.stop(GRACE)?;
        Ok(())
    }
}

/// Waits until a server accepts connections.
fn wait_until_ready(server: &mut Child, address: SocketAddr, bench: &Bench) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < START {
        bench.check_interrupt()?;
        if TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        if let Some(status) = server.wait(POLL)? {
            return Err(format!("the server ended: {status}").into());
        }
    }
    Err(format!("the server does not listen on {address}").into())
}

impl ProgramServer {
    fn start(&self, bench: &Bench) -> Result<RunningServer, Failure> {
        RunningServer::start(bench, self.program, &self.arguments, self.stolen)
    }

    /// Determines the server's capacity with long loads.
    fn measure(&self, bench: &Bench) -> Result<KnownCapacity, Failure> {
        let server = self.start(bench)?;
        let objective = self.objective;
        let known = match &self.source {
            CapacitySource::Bucket(bucket) => KnownCapacity {
                rising: RateRange::exactly(bucket.capacity_per_s(objective)),
                falling: None,
                limit_per_s: Some(bucket.limit_per_s() / ok_share(objective)),
            },
            CapacitySource::Pool { permits } => self.measure_pool(bench, &server, *permits)?,
            CapacitySource::Hysteresis { permits, falling } => {
                let pool = Program::Go("pool");
                pool.build(bench)?;
                let slow = RunningServer::start(bench, pool, falling, None)?;
                let falling = self.measure_pool(bench, &slow, *permits)?.rising;
                slow.stop()?;
                KnownCapacity {
                    falling: Some(falling),
                    ..self.measure_pool(bench, &server, *permits)?
                }
            }
            CapacitySource::Loads => {
                let limit = limit(bench, &server.url, 1)?;
                let is_met = |rate_per_s, seed| self.meets(bench, &server.url, rate_per_s, seed);
                KnownCapacity {
                    rising: narrow(limit.high, is_met)?,
                    falling: None,
                    limit_per_s: Some(limit.high),
                }
            }
        };
        server.stop()?;
        Ok(known)
    }

    /// Measures a pool's limit and its response time without a queue.
    fn measure_pool(
        &self,
        bench: &Bench,
        server: &RunningServer,
        permits: usize,
    ) -> Result<KnownCapacity, Failure> {
        let limit = limit(bench, &server.url, permits)?;
        let words = format!(
            "{} --connections 1 --duration {IDLE_S}s --quiet",
            server.url
        );
        let idle = bench.load(&words, IDLE_S)?;
        let idle_us = idle.response_time_us.p50.ok_or("no response")?;
        Ok(KnownCapacity {
            rising: pool_capacity(permits, limit, idle_us / 1e6, self.objective),
            falling: None,
            limit_per_s: Some(limit.high),
        })
    }

    /// Returns whether a load at a fixed rate meets the objective.
    fn meets(&self, bench: &Bench, url: &str, rate_per_s: f64, seed: u64) -> Result<bool, Failure> {
        let connections = (2.0 * rate_per_s).clamp(50.0, 2_000.0).round();
        let words = format!(
            "{url} --rate {rate_per_s:.3} --arrivals poisson --connections {connections} \
             --duration {RATE_S}s --seed {seed} --quiet"
        );
        let run = bench.load(&words, RATE_S)?;
        let objective: Objective = self.objective.to_string().parse()?;
        let is_met = objective.judge(&run, Duration::MAX).is_met;
        // Response times include delays of the client, so an invalid load can show only that a rate
        // meets the objective.
        if !is_met && run.validity.status == Status::Invalid {
            let reasons = joined(&run.validity.reasons);
            return Err(format!("{rate_per_s:.0}/s: {reasons}; measure on an idle host").into());
        }
        Ok(is_met)
    }

    /// Searches for the capacity of a fresh server process.
    fn search(
        &self,
        bench: &Bench,
        seed: u64,
        budget: Duration,
    ) -> Result<CapacityResult, Failure> {
        let server = self.start(bench)?;
        let search = ServerSearch {
            url: &server.url,
            objective: self.objective,
            seed,
            budget,
        };
        let capacity = search.run(bench)?;
        server.stop()?;
        Ok(serde_json::from_value(capacity)?)
    }
}

/// Measures the throughput of a server whose permits are all in use.
fn limit(bench: &Bench, url: &str, permits: usize) -> Result<RateRange, Failure> {
    let connections = (4 * permits).max(16);
    let words =
        format!("{url} --connections {connections} --warmup 3s --duration {LIMIT_S}s --quiet");
    let run: Run = bench.load(&words, LIMIT_S)?;
    let interval = run
        .throughput_interval
        .ok_or("the throughput has no interval; measure on an idle host")?;
    Ok(RateRange {
        low: interval.low,
        high: interval.high,
    })
}

/// Returns the capacity of a pool from its limit, and from its response time without a queue, in
/// seconds. Time in which a request holds no permit reduces the time that it may wait.
fn pool_capacity(
    permits: usize,
    limit: RateRange,
    idle_s: f64,
    objective: KnownObjective,
) -> RateRange {
    let capacity = |limit_per_s: f64| {
        let holds_s = permits as f64 / limit_per_s;
        let objective = match objective {
            KnownObjective::ResponseTime {
                percentile,
                limit_ms,
            } => KnownObjective::ResponseTime {
                percentile,
                limit_ms: limit_ms - 1e3 * (idle_s - holds_s).max(0.0),
            },
            KnownObjective::Errors(_) => objective,
        };
        pool_capacity_per_s(permits, holds_s, objective)
    };
    RateRange {
        low: (1.0 - MODEL_ERROR) * capacity(limit.low),
        high: (1.0 + MODEL_ERROR) * capacity(limit.high),
    }
}

/// Returns a range between a rate that meets the objective and a rate that misses it. Two loads
/// with different seeds test each rate. If they disagree, the rate is too close to the
/// capacity, and only the rates halfway to each end are still tried.
fn narrow(
    limit_per_s: f64,
    mut is_met: impl FnMut(f64, u64) -> Result<bool, Failure>,
) -> Result<RateRange, Failure> {
    let mut both = |rate_per_s| Ok::<_, Failure>([is_met(rate_per_s, 1)?, is_met(rate_per_s, 2)?]);
    let mut range = RateRange {
        low: 0.0,
        high: limit_per_s,
    };
    let mut rate_per_s = FIRST_SHARE * limit_per_s;
    while range.high > NARROW * range.low {
        match both(rate_per_s)? {
            [true, true] => range.low = rate_per_s,
            [false, false] => range.high = rate_per_s,
            _ => {
                let low = 0.5 * (range.low + rate_per_s);
                let high = 0.5 * (range.high + rate_per_s);
                if both(low)? == [true, true] {
                    range.low = low;
                }
                if both(high)? == [false, false] {
                    range.high = high;
                }
                break;
            }
        }
        rate_per_s = if range.low > 0.0 {
            0.5 * (range.low + range.high)
        } else {
            FIRST_SHARE * range.high
        };
    }
    Ok(range)
}

/// A line of the file with results.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StoredLine {
    /// What is known about a server.
    Known {
        server: String,
        known: KnownCapacity,
    },
    /// A search.
    Search(StoredSearch),
}

/// A search and its result.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredSearch {
    server: String,
    seed: u64,
    /// Maximum duration of the search.
    budget: Duration,
    /// Share of one CPU that another program used during the search.
    beside: Option<f64>,
    result: Box<CapacityResult>,
}

/// The file with results.
struct ResultFile {
    path: PathBuf,
    lines: Vec<StoredLine>,
}

impl ResultFile {
    fn read(path: PathBuf) -> Result<Self, Failure> {
        let text = if path.exists() {
            bench::read(&path)?
        } else {
            String::new()
        };
        let parse = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                let (path, line) = (path.display(), index + 1);
                format!("{path}:{line}: {error}; delete the line, or name another file")
            })
        };
        let lines = text.lines().enumerate().map(parse);
        let lines = lines.collect::<Result<_, _>>()?;
        Ok(ResultFile { path, lines })
    }

    fn add(&mut self, line: StoredLine) -> Result<(), Failure> {
        let failed = |error| format!("{}: {error}", self.path.display());
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .append(true)
            .open(&self.path)
            .map_err(failed)?;
        let text = serde_json::to_string(&line)? + "\n";
        file.write_all(text.as_bytes()).map_err(failed)?;
        self.lines.push(line);
        Ok(())
    }

    fn known(&self, server: &str) -> Option<KnownCapacity> {
        self.lines.iter().find_map(|line| match line {
            StoredLine::Known { server: of, known } if of == server => Some(*known),
            _ => None,
        })
    }

    /// Returns a server's searches with this budget and this CPU share of the program beside them.
    fn searches(
        &self,
        server: &str,
        budget: Duration,
        beside: Option<f64>,
    ) -> impl Iterator<Item = &StoredSearch> {
        self.lines.iter().filter_map(move |line| match line {
            StoredLine::Search(search)
                if search.server == server
                    && search.budget == budget
                    && search.beside == beside =>
            {
                Some(search)
            }
            _ => None,
        })
    }
}

/// Finds each server's capacity with `floodmark capacity` and prints a table. Returns whether
/// the targets were met.
///
/// # Errors
/// A server does not start, a search leaves no record, the file with the results cannot be read or
/// written, or the user interrupts the measurement.
pub fn run(bench: &Bench, options: &ProgramSearches<'_>) -> Result<bool, Failure> {
    let path = match options.results {
        Some(path) => path.to_owned(),
        None => directory(bench)?.join("programs.jsonl"),
    };
    let mut file = ResultFile::read(path)?;
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    let is_chosen = |server: &ProgramServer| server.name.contains(options.only);
    for server in servers().into_iter().filter(is_chosen) {
        let failure = |error| format!("{}: {error}", server.name);
        server.program.build(bench).map_err(failure)?;
        let known = match file.known(server.name) {
            Some(known) => known,
            None => {
                let known = server.measure(bench).map_err(failure)?;
                file.add(StoredLine::Known {
                    server: server.name.to_owned(),
                    known,
                })?;
                known
            }
        };
        println!("{}: capacity {}", server.name, describe_known(&known));
        search_missing(bench, options, &server, &known, &mut file).map_err(failure)?;
        let score = |beside| {
            let mut score = LimitedScore::default();
            for search in file.searches(server.name, options.budget, beside) {
                score.add(&known, &search.result);
            }
            score
        };
        let alone = score(None);
        let beside = options.beside.map(|share| score(Some(share)));
        let scores = ServerScores { alone, beside };
        if !scores.meets_targets() {
            failed.push(server.name);
        }
        rows.push(scores.row(&server, &known));
    }
    let heads = "server | objective | capacity | limit | right, alone | right, beside | \
                 lower only | upper only | impossible | half-width, alone | half-width, beside";
    print!("{}", table(heads, rows));
    println!(
        "right: the interval contains the capacity, or the lower bound is true; impossible: above \
         the server's limit; half-width: median"
    );
    if let Some(share) = options.beside {
        let share = percent(share);
        println!("beside: while another program used {share} of one CPU in random bursts");
    }
    if options.side_by_side > 1 {
        let count = options.side_by_side;
        println!("{count} searches ran at the same time, each on its own server process");
    }
    let (least, most) = (percent(LEAST_COVERAGE), percent(MOST_HALF_WIDTH));
    println!(
        "targets: at least {least} right, none impossible, half-width alone at most {most}: {}",
        word(failed.is_empty())
    );
    for name in &failed {
        println!("  {name}");
    }
    println!("results: {}", file.path.display());
    Ok(failed.is_empty())
}

/// Runs the searches that the file does not contain, and adds them to the file.
fn search_missing(
    bench: &Bench,
    options: &ProgramSearches<'_>,
    server: &ProgramServer,
    known: &KnownCapacity,
    file: &mut ResultFile,
) -> Result<(), Failure> {
    let missing = |beside: Option<f64>| -> Vec<u64> {
        let stored = file.searches(server.name, options.budget, beside);
        let stored: Vec<u64> = stored.map(|search| search.seed).collect();
        seeds(options.searches, options.beside.is_some(), beside.is_some())
            .filter(|seed| !stored.contains(seed))
            .collect()
    };
    let alone = missing(None);
    let beside = options
        .beside
        .map_or(Vec::new(), |_| missing(options.beside));
    let mut groups = [
        (None, alone.chunks(options.side_by_side)),
        (options.beside, beside.chunks(options.side_by_side)),
    ];
    loop {
        let mut is_done = true;
        for (share, chunks) in &mut groups {
            let Some(seeds) = chunks.next() else { continue };
            is_done = false;
            let results = search_together(bench, options, server, seeds, *share)?;
            let mut failure = None;
            for (seed, result) in seeds.iter().zip(results) {
                match result {
                    Ok(result) => {
                        let search = StoredSearch {
                            server: server.name.to_owned(),
                            seed: *seed,
                            budget: options.budget,
                            beside: *share,
                            result: Box::new(result),
                        };
                        println!("{}", describe_search(known, &search));
                        file.add(StoredLine::Search(search))?;
                    }
                    Err(error) => failure = Some(format!("search {seed}: {error}")),
                }
            }
            if let Some(failure) = failure {
                return Err(failure.into());
            }
        }
        if is_done {
            return Ok(());
        }
    }
}

/// Returns the seeds of the searches alone or beside a program, of which every second one is beside
/// a program if `is_shared`.
fn seeds(searches: u64, is_shared: bool, is_beside: bool) -> impl Iterator<Item = u64> {
    (1..=searches).filter(move |seed| !is_shared || seed.is_multiple_of(2) == is_beside)
}

/// Runs searches at the same time, each on its own server process, beside a program that uses a
/// share of one CPU.
fn search_together(
    bench: &Bench,
    options: &ProgramSearches<'_>,
    server: &ProgramServer,
    seeds: &[u64],
    beside: Option<f64>,
) -> Result<Vec<Result<CapacityResult, String>>, Failure> {
    let mut burner = match beside {
        Some(share) => {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["burn", "--share", &share.to_string()]);
            command.args(["--seed", &seeds[0].to_string()]);
            command.stdout(Stdio::null());
            Some(Child::start(command)?)
        }
        None => None,
    };
    let results = thread::scope(|scope| {
        let search = |seed| {
            let result = server.search(bench, seed, options.budget);
            result.map_err(|error| error.to_string())
        };
        let start = |seed: &u64| {
            let seed = *seed;
            scope.spawn(move || search(seed))
        };
        let threads: Vec<_> = seeds.iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("panicked".to_owned()))
        };
        threads.into_iter().map(join).collect()
    });
    if let Some(burner) = &mut burner {
        burner.stop(GRACE)?;
    }
    Ok(results)
}

/// Figures of one server.
struct ServerScores {
    alone: LimitedScore,
    /// Searches beside a program that uses CPU.
    beside: Option<LimitedScore>,
}

impl ServerScores {
    fn all(&self) -> impl Iterator<Item = &LimitedScore> {
        std::iter::once(&self.alone).chain(&self.beside)
    }

    fn sum(&self, count: impl Fn(&LimitedScore) -> usize) -> usize {
        self.all().map(count).sum()
    }

    fn meets_targets(&self) -> bool {
        let right = Proportion {
            count: self.sum(|score| score.right.count),
            total: self.sum(|score| score.right.total),
        };
        right.value() >= LEAST_COVERAGE
            && self.sum(|score| score.impossible) == 0
            && median(&self.alone.half_widths).is_some_and(|half| half <= MOST_HALF_WIDTH)
    }

    fn row(&self, server: &ProgramServer, known: &KnownCapacity) -> Vec<String> {
        let half_width = |score: &LimitedScore| cell(median(&score.half_widths), percent);
        let beside = self.beside.as_ref();
        vec![
            server.name.to_owned(),
            server.objective.to_string(),
            describe_known(known),
            cell(known.limit_per_s, |limit| format!("{}/s", show_rate(limit))),
            self.alone.right.to_string(),
            cell(beside, |score| score.right.to_string()),
            self.sum(|score| score.lower_only).to_string(),
            self.sum(|score| score.upper_only).to_string(),
            self.sum(|score| score.impossible).to_string(),
            half_width(&self.alone),
            cell(beside, half_width),
        ]
    }
}

fn describe_range(range: RateRange) -> String {
    let [low, high] = [range.low, range.high].map(show_rate);
    if low == high {
        format!("{low}/s")
    } else {
        format!("{low} – {high}/s")
    }
}

fn describe_known(known: &KnownCapacity) -> String {
    let rising = describe_range(known.rising);
    match known.falling {
        Some(falling) => format!("{rising}; after an overload: {}", describe_range(falling)),
        None => rising,
    }
}

fn describe_search(known: &KnownCapacity, search: &StoredSearch) -> String {
    let StoredSearch {
        server,
        seed,
        beside,
        result,
        ..
    } = search;
    let place = beside.map_or("alone".to_owned(), |share| {
        format!("beside {}", percent(share))
    });
    let rate = cell(result.rate_per_s, |rate| format!("{}/s", show_rate(rate)));
    let found = match (result.low, result.high, result.bound) {
        (Some(low), Some(high), _) => {
            format!("{rate} ({})", describe_range(RateRange { low, high }))
        }
        (_, _, Some(CapacityBound::Lower)) => format!("at least {rate}"),
        (_, _, Some(CapacityBound::Upper)) => format!("below {rate}"),
        _ => format!("no interval, {rate}"),
    };
    let falling = result.falling.as_ref().map_or(String::new(), |falling| {
        format!("; after an overload: {}/s", show_rate(falling.rate_per_s))
    });
    let half_width = cell(half_width(result), percent);
    let right = if known.agrees(result) {
        "right"
    } else {
        "WRONG"
    };
    let impossible = if known.is_exceeded(result) {
        ", above the limit"
    } else {
        ""
    };
    format!(
        "{server}, search {seed} {place}: {found}{falling}, half-width {half_width}, {right}{impossible}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_starts_and_responds() {
        let target = tempfile::tempdir().unwrap();
        let bench = Bench {
            root: bench::repository().unwrap(),
            target: target.path().to_owned(),
            floodmark: PathBuf::new(),
            stop: floodmark_host::Stop::new(),
        };
        let program = Program::Python("pool.py");
        let server = RunningServer::start(&bench, program, &["1", "5"], None).unwrap();
        let address = server.url.trim_start_matches("http://").trim_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let response = std::io::read_to_string(stream).unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("\r\nok\n"), "{response}");
        server.stop().unwrap();

        let error = RunningServer::start(&bench, program, &["0", "5"], None);
        let error = error.err().unwrap().to_string();
        assert!(error.starts_with("the server ended: "), "{error}");
        assert!(error.contains("ValueError"), "{error}");
    }

    #[test]
    fn the_file_with_results_continues() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let known = KnownCapacity {
            rising: RateRange::exactly(100.0),
            falling: None,
            limit_per_s: None,
        };
        let line = StoredLine::Known {
            server: "go".to_owned(),
            known,
        };
        ResultFile::read(path.clone()).unwrap().add(line).unwrap();
        let file = ResultFile::read(path.clone()).unwrap();
        assert_eq!((file.known("go"), file.known("java")), (Some(known), None));
        bench::write(&path, "{").unwrap();
        let error = ResultFile::read(path).err().unwrap().to_string();
        assert!(error.contains("results.jsonl:1: "), "{error}");
        assert!(
            error.ends_with("; delete the line, or name another file"),
            "{error}"
        );
    }

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = servers().iter().map(|server| server.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
    }

    #[test]
    fn long_loads_narrow_the_capacity() {
        // Rates within 1 % of the capacity meet the objective with one of the two seeds.
        for capacity in [20.0, 55.0, 79.0, 93.0, 99.5] {
            let is_met = |rate: f64, seed| {
                let error = if seed == 1 { 0.01 } else { -0.01 };
                Ok(rate <= capacity * (1.0 + error))
            };
            let range = narrow(100.0, is_met).unwrap();
            assert!(range.low <= 1.01 * capacity && range.high >= 0.99 * capacity);
            assert!(range.high <= 1.15 * range.low, "{capacity}: {range:?}");
        }
    }

    #[test]
    fn the_capacity_of_a_pool_allows_for_its_errors() {
        let objective = KnownObjective::ResponseTime {
            percentile: 99.0,
            limit_ms: 200.0,
        };
        let limit = RateRange {
            low: 396.0,
            high: 400.0,
        };
        let exact = pool_capacity_per_s(8, 0.02, objective);
        let range = pool_capacity(8, limit, 0.02, objective);
        assert!(range.low < exact && exact < range.high, "{exact} {range:?}");
        assert!(range.high < limit.high, "{range:?}");
        // A response time of 100 ms without a queue leaves half of the time for waiting.
        let slow = pool_capacity(8, limit, 0.1, objective);
        assert!(slow.high < range.high, "{slow:?}");
    }

    #[test]
    fn every_second_search_is_beside_a_program() {
        let list = |is_shared, is_beside| seeds(5, is_shared, is_beside).collect::<Vec<u64>>();
        assert_eq!(list(true, false), [1, 3, 5]);
        assert_eq!(list(true, true), [2, 4]);
        assert_eq!(list(false, false), [1, 2, 3, 4, 5]);
    }
}
