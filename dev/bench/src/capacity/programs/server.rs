//! The servers: how they are started, and how their capacities are determined.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use floodmark_host::Child;
use floodmark_truth::capacity::KnownObjective;

use super::super::budgeted::LimitedServer;
use crate::bench::{self, Bench, Failure};

/// Mean burst length of the program that takes CPU time from a pinned server.
const STOLEN_BURST: &str = "4ms";

/// Directory of the programs.
const SOURCES: &str = "dev/bench/servers";

/// Time allowed for compiling a program.
const BUILD: Duration = Duration::from_secs(120);

/// Time allowed for a server to start.
const START: Duration = Duration::from_secs(30);

/// Time between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(5);

/// Interval between attempts to connect to a server that is starting.
const POLL: Duration = Duration::from_millis(50);

/// How a program is started.
#[derive(Debug, Clone, Copy)]
pub enum Program {
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
pub enum CapacitySource {
    /// Requests wait for a permit and hold it for a fixed time. A closed-model load measures the
    /// time, and a model gives the capacity.
    Pool { permits: usize },
    /// Like `Pool`, but an overload turns the server into a pool with the arguments `falling`.
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
pub struct ProgramServer {
    pub name: &'static str,
    pub program: Program,
    /// Arguments after the port.
    pub arguments: Vec<&'static str>,
    /// Share of one CPU that another program takes from the server, which is pinned to that CPU.
    pub stolen: Option<&'static str>,
    pub objective: KnownObjective,
    pub source: CapacitySource,
}

/// Returns the servers on which the searches run.
pub fn servers() -> Vec<ProgramServer> {
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
    pub fn build(self, bench: &Bench) -> Result<(), Failure> {
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
pub fn directory(bench: &Bench) -> Result<PathBuf, Failure> {
    let directory = bench.target.join("capacity");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// A running server, and the program that takes CPU time from it, if any.
pub struct RunningServer {
    server: Child,
    competitor: Option<Child>,
    pub url: String,
}

impl RunningServer {
    /// Starts a program with a free port and `arguments`, and waits until it listens. With
    /// `stolen`, pins it to one CPU and starts another program that takes that share of the CPU.
    pub fn start(
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

    pub fn stop(mut self) -> Result<(), Failure> {
        if let Some(competitor) = &mut self.competitor {
            competitor.stop(GRACE)?;
        }
        self.server.stop(GRACE)?;
        Ok(())
    }
}

impl ProgramServer {
    /// Starts a process of the server.
    pub fn start(&self, bench: &Bench) -> Result<RunningServer, Failure> {
        RunningServer::start(bench, self.program, &self.arguments, self.stolen)
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
            return Err(format!("the server exited: {status}").into());
        }
    }
    Err(format!("the server did not start listening on {address} in time").into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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
        assert!(error.starts_with("the server exited: "), "{error}");
        assert!(error.contains("ValueError"), "{error}");
    }

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = servers().iter().map(|server| server.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
    }
}
