//! `cargo xtask scale`: measures the cost per connection with many kept connections in one load
//! process.
//!
//! Each connection is an open file of its server, so the hard limit on open files determines how
//! many servers share the port. The load process keeps its sockets in one io_uring table per
//! thread. The limit on open files also applies to each table, so it determines the number of
//! threads, too.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use floodmark_host::{Child, Signal};
use floodmark_observe::{Root, environment};
use floodmark_record::Run;
use floodmark_record::run::Status;
use floodmark_record::units::{show_bytes, show_count};

use crate::bench::{Bench, Failure};
use crate::table::cell;

/// Number of connections per thread in the run that is the baseline for memory.
const FEW: u32 = 10;

/// Lowest expected number of connections opened per second: a tenth of the usual rate.
const OPENED_PER_S: u32 = 1_000;

/// Options of `cargo xtask scale`.
#[derive(Debug, Args)]
pub struct ScaleOptions {
    /// Number of connections to keep open
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    connections: u32,
    /// Requests per second in total
    #[arg(long, value_name = "PER_S", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Duration of the load, in seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// Measures the cost, prints the results and returns whether all of them are within the limits.
pub fn run(bench: &Bench, options: &ScaleOptions) -> Result<bool, Failure> {
    let servers = SharedPortServers::start(bench, options.connections)?;
    let capacity = servers.capacity;
    let load = |connections: u32| {
        let seconds = options.seconds + connections / OPENED_PER_S;
        let words = format!(
            "{} -c {connections} -t {} --rate {} -d {}s --hold --sources {} --warmup 0s --backend uring",
            servers.url,
            capacity.threads,
            options.rate,
            options.seconds,
            capacity.sources()
        );
        bench.load(&words, seconds)
    };
    let costs = ConnectionCosts {
        few: load(FEW * capacity.threads)?,
        many: load(options.connections)?,
    };
    drop(servers);
    println!("\n{costs}");
    let exceeded = costs.exceeded();
    for line in &exceeded {
        println!("{line}");
    }
    Ok(exceeded.is_empty())
}

/// Number of files that a server opens in addition to its connections (see
/// `docs/decisions/0002-native-servers.md`).
const SERVER_FILES: u64 = 320;

/// Number of standard deviations by which a server's number of connections may exceed the mean.
/// Servers get different numbers of connections, because the kernel uses a hash to distribute them.
const DEVIATIONS: f64 = 6.0;

/// Maximum fraction of an address's ports to use. Finding a free port is slow when few are left.
const MAX_PORT_SHARE: f64 = 0.5;

/// This host's limits on connections.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    /// Hard limit on open files.
    files: u64,
    /// Local ports per source address.
    ports: u64,
}

impl ConnectionLimits {
    /// Reads the limits of this host.
    fn read() -> Result<Self, Failure> {
        let ports = environment::ports(&Root::host())
            .ok_or("/proc/sys/net/ipv4/ip_local_port_range: cannot be read")?;
        Ok(ConnectionLimits {
            files: floodmark_host::open_files().hard,
            ports: ports.usable(),
        })
    }
}

/// Resources needed for a given number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of servers that share the port.
    servers: u32,
    /// Number of load threads.
    pub threads: u32,
    /// Number of source addresses.
    addresses: u32,
}

impl Capacity {
    /// Computes the resources needed for this number of connections.
    fn of(connections: u32, limits: ConnectionLimits) -> Self {
        let room = limits.files.saturating_sub(SERVER_FILES).max(1) as f64;
        let fits = |servers: &u32| {
            let mean = f64::from(connections) / f64::from(*servers);
            mean + DEVIATIONS * mean.sqrt() <= room
        };
        let table = u32::try_from(limits.files.max(1)).unwrap_or(u32::MAX);
        let ports = (limits.ports as f64 * MAX_PORT_SHARE).max(1.0);
        Capacity {
            servers: (1..).find(fits).unwrap_or(u32::MAX),
            threads: connections.div_ceil(table),
            addresses: ((f64::from(connections) / ports).ceil() as u32).max(1),
        }
    }

    /// Returns the source addresses as a range that starts at 127.0.0.2.
    pub fn sources(&self) -> String {
        let last = Ipv4Addr::LOCALHOST.to_bits() + self.addresses;
        format!("127.0.0.2-{}", Ipv4Addr::from_bits(last))
    }
}

/// Idle timeout: longer than any run, so that the servers never close a connection.
const IDLE: &str = "3600s";

/// Maximum time for the servers to exit. A server waits up to 5 s for requests in flight.
const GRACE: Duration = Duration::from_secs(15);

/// `floodmark serve hello` processes with one thread each. Dropping the value stops the processes.
pub struct SharedPortServers {
    children: Vec<Child>,
    /// URL of the servers.
    pub url: String,
    /// Resources for the connections.
    pub capacity: Capacity,
}

impl SharedPortServers {
    /// Starts enough servers for this number of connections on one free port of 127.0.0.1.
    pub fn start(bench: &Bench, connections: u32) -> Result<Self, Failure> {
        let mut servers = SharedPortServers {
            children: Vec::new(),
            url: "http://127.0.0.1:0".to_owned(),
            capacity: Capacity::of(connections, ConnectionLimits::read()?),
        };
        for _ in 0..servers.capacity.servers {
            let listen = servers.url.trim_start_matches("http://");
            let mut server = Command::new(&bench.floodmark);
            server.args(["serve", "hello", "--share-port", "--threads", "1"]);
            server.args(["--listen", listen, "--idle", IDLE]);
            server.stdin(Stdio::null()).stdout(Stdio::piped());
            server.stderr(Stdio::null());
            let mut child = Child::start(server)?;
            let mut line = String::new();
            if let Some(stdout) = child.stdout() {
                BufReader::new(stdout).read_line(&mut line)?;
            }
            servers.children.push(child);
            let url = line.trim().strip_prefix("listening on ");
            let url = url.ok_or("floodmark serve hello did not start; run it to see why")?;
            servers.url = url.to_owned();
        }
        Ok(servers)
    }
}

impl Drop for SharedPortServers {
    fn drop(&mut self) {
        for child in &self.children {
            // Signal all servers first, so that they exit in parallel. An error means that the
            // server has already exited.
            let _ = child.signal(Signal::TERM);
        }
        for child in &mut self.children {
            let _ = child.stop(GRACE);
        }
    }
}

/// Maximum memory of the load process per connection, in bytes.
const MAX_BYTES: f64 = 2048.0;

/// Two runs with different numbers of connections.
struct ConnectionCosts {
    /// The run with few connections.
    few: Run,
    /// The run with all connections.
    many: Run,
}

impl ConnectionCosts {
    /// Returns the load process's memory per additional connection, in bytes.
    fn bytes_each(&self) -> Option<f64> {
        let ConnectionCosts { few, many } = self;
        let memory = |run: &Run| run.client.peak_rss_bytes.map(|bytes| bytes as f64);
        let open = |run: &Run| run.connections.peak.map(|n| n as f64);
        let more = open(many)? - open(few)?;
        Some((memory(many)? - memory(few)?) / more.max(1.0))
    }

    /// Returns a line for each exceeded limit.
    fn exceeded(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for run in [&self.few, &self.many] {
            if run.validity.status == Status::Invalid {
                let asked = show_count(run.plan.connections.into());
                lines.push(format!(
                    "failed: the run with {asked} connections is invalid"
                ));
            }
        }
        let (plan, connections) = (&self.many.plan, &self.many.connections);
        let requests = &self.many.requests;
        let standing = connections.held.as_ref().map_or(0, |held| held.standing);
        let held = standing.min(connections.peak.unwrap_or(0));
        for (got, expected, what) in [
            (held, plan.connections.into(), "connections were held"),
            (requests.ok, requests.intended, "requests were ok"),
        ] {
            if got < expected {
                let (got, expected) = (show_count(got), show_count(expected));
                lines.push(format!("failed: only {got} of {expected} {what}"));
            }
        }
        match self.bytes_each() {
            Some(each) if each > MAX_BYTES => lines.push(format!(
                "failed: {each:.0} bytes of client memory per connection, maximum {MAX_BYTES:.0}"
            )),
            Some(_) => {}
            None => lines.push("failed: memory per connection not measured".to_owned()),
        }
        lines
    }
}

impl fmt::Display for ConnectionCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = |run: &Run| cell(run.connections.peak, show_count);
        let memory = |run: &Run| cell(run.client.peak_rss_bytes, show_bytes);
        let monitoring = |run: &Run| {
            let share = run.watcher.map(|watcher| watcher.cpu_s / watcher.wall_s);
            cell(share, |share| format!("{:.1} %", 100.0 * share))
        };
        let each = cell(self.bytes_each(), |each| format!("{each:.0}"));
        let ConnectionCosts { few, many } = self;
        let [few_open, many_open] = [few, many].map(open);
        writeln!(
            f,
            "memory       {each} bytes of client memory per connection: {} with {many_open} connections, {} with {few_open}",
            memory(many),
            memory(few)
        )?;
        writeln!(
            f,
            "monitoring   {} of one CPU with {many_open} connections, {} with {few_open}",
            monitoring(many),
            monitoring(few)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use floodmark_record::Record;
    use floodmark_record::events::HeldConnections;

    #[test]
    fn spreads_many_connections_under_a_low_limit() {
        let limits = ConnectionLimits {
            files: 20_000,
            ports: 28_232,
        };
        let capacity = Capacity::of(100_000, limits);
        let Capacity {
            servers,
            threads,
            addresses,
        } = capacity;
        assert_eq!((servers, threads, addresses), (6, 5, 8));
        assert_eq!(capacity.sources(), "127.0.0.2-127.0.0.9");
    }

    #[test]
    fn needs_one_of_each_under_a_high_limit() {
        let limits = ConnectionLimits {
            files: 1 << 20,
            ports: 64_512,
        };
        let capacity = Capacity::of(10_000, limits);
        let Capacity {
            servers,
            threads,
            addresses,
        } = capacity;
        assert_eq!((servers, threads, addresses), (1, 1, 1));
        assert_eq!(capacity.sources(), "127.0.0.2-127.0.0.2");
    }

    #[test]
    fn reads_the_limits_of_this_host() {
        let limits = ConnectionLimits::read().unwrap();
        assert!(limits.files > 0 && limits.ports > 0, "{limits:?}");
    }

    const RECORD: &str = include_str!("../../../crates/floodmark/tests/records/load-ramp.json");

    /// Returns a run that held all connections and got an ok response to every request.
    fn run(connections: u32, memory: u64) -> Run {
        let record: Record = serde_json::from_str(RECORD).unwrap();
        let mut run = record.runs[0].clone();
        run.plan.connections = connections;
        run.connections.peak = Some(connections.into());
        run.connections.held = Some(HeldConnections {
            standing: connections.into(),
            failed: 0,
            reasons: BTreeMap::new(),
            lost: 0,
            reopened: 0,
            opening_ns: 0,
        });
        (run.requests.intended, run.requests.ok) = (100_000, 100_000);
        run.client.peak_rss_bytes = Some(memory);
        run.validity.status = Status::Bound;
        run
    }

    fn costs() -> ConnectionCosts {
        ConnectionCosts {
            few: run(50, 60_000_000),
            many: run(100_050, 60_000_000 + 100_000 * 2048),
        }
    }

    #[test]
    fn accepts_exact_limits() {
        assert_eq!(costs().bytes_each(), Some(2048.0));
        assert_eq!(costs().exceeded(), [""; 0]);
    }

    #[test]
    fn each_limit_can_be_exceeded() {
        let exceeded = |change: fn(&mut ConnectionCosts)| {
            let mut costs = costs();
            change(&mut costs);
            costs.exceeded().join("\n")
        };
        let held = exceeded(|costs| costs.many.connections.held.as_mut().unwrap().standing -= 1);
        assert!(held.contains("100,049 of 100,050"), "{held}");
        let peak = exceeded(|costs| costs.many.connections.peak = Some(100_049));
        assert!(peak.contains("were held"), "{peak}");
        let ok = exceeded(|costs| costs.many.requests.ok -= 1);
        assert!(ok.contains("99,999 of 100,000 requests"), "{ok}");
        let memory = exceeded(|costs| costs.few.client.peak_rss_bytes = Some(60_000_000 - 100_000));
        assert!(memory.contains("2049 bytes"), "{memory}");
        let many = exceeded(|costs| costs.many.validity.status = Status::Invalid);
        assert!(many.contains("100,050 connections is invalid"), "{many}");
        let few = exceeded(|costs| costs.few.validity.status = Status::Invalid);
        assert!(few.contains("with 50 connections is invalid"), "{few}");
        let none = exceeded(|costs| costs.many.client.peak_rss_bytes = None);
        assert!(none.contains("not measured"), "{none}");
    }
}
