//! `cargo xtask http2-servers`: sends requests over HTTP/2 to real servers, and compares the record
//! with the servers' access logs.
//!
//! Each directory in `dev/bench/http2` contains a server. `build.sh`, which is optional, builds the
//! server. `start.sh RUN PORT http|https` starts it on 127.0.0.1 with the certificate `cert.pem`
//! and `key.pem` in the directory RUN. The server writes its name and version to `RUN/version`, and
//! the HTTP version and the status of each request to `RUN/access.log`. The log is complete when
//! `start.sh` has exited after SIGTERM. The file `load`, which is optional, contains the path of
//! the requests and flags of `floodmark load`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_host::Child;
use floodmark_record::Run;
use floodmark_record::units::show_count;

use crate::bench::{Bench, Failure, names, read, update};
use crate::conditions::Conditions;
use crate::table::table;

/// Path of the generated page, relative to the repository's root.
const FILE: &str = "docs/http2-servers.md";

/// Directory of the servers, relative to the repository's root.
const DIRECTORY: &str = "dev/bench/http2";

/// Number of requests to each server when the page is generated.
const REQUESTS: u64 = 1_000_000;

/// The load: 10 connections with 32 streams each. Without a warm-up, the figures cover the same
/// requests as the access log.
const LOAD: &str = "--http 2 -c 10 --streams 32 --warmup 0s";

/// Maximum time for all requests to a server, in seconds.
const LOAD_S: u32 = 600;

/// Maximum time to build a server.
const BUILD: Duration = Duration::from_secs(900);

/// Maximum time until a server accepts connections.
const READY: Duration = Duration::from_secs(60);

/// Interval between attempts to connect to a starting server.
const POLL: Duration = Duration::from_millis(50);

/// Maximum time for a server to complete its access log after SIGTERM.
const GRACE: Duration = Duration::from_secs(60);

/// Options of `cargo xtask http2-servers`.
#[derive(Debug, Args)]
pub struct Http2ServersOptions {
    /// Measure only this server, without writing the page (repeatable)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Number of requests to each server. If it differs from the default, the page is not written
    #[arg(long, value_name = "N", default_value_t = REQUESTS, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: u64,
}

/// Whether a server uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// HTTP/2 without TLS, with prior knowledge.
    Plain,
    Tls,
}

impl Transport {
    /// Returns the scheme of URLs.
    fn scheme(self) -> &'static str {
        match self {
            Transport::Plain => "http",
            Transport::Tls => "https",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Plain => "h2c",
            Transport::Tls => "TLS",
        })
    }
}

/// Requests in a server's access log.
#[derive(Debug, Default, PartialEq, Eq)]
struct AccessLog {
    /// Requests over HTTP/2, by status.
    statuses: BTreeMap<u16, u64>,
    /// Other lines.
    others: u64,
}

impl AccessLog {
    /// Reads the lines of an access log.
    ///
    /// # Errors
    /// The log cannot be read or is not UTF-8.
    fn read(lines: impl BufRead) -> Result<Self, Failure> {
        let mut log = AccessLog::default();
        for line in lines.lines() {
            let line = line?;
            let status = line.split_once(' ').and_then(|(version, status)| {
                matches!(version, "HTTP/2" | "HTTP/2.0")
                    .then(|| status.parse().ok())
                    .flatten()
            });
            match status {
                Some(status) => *log.statuses.entry(status).or_default() += 1,
                None => log.others += 1,
            }
        }
        Ok(log)
    }

    /// Returns the number of requests over HTTP/2.
    fn requests(&self) -> u64 {
        self.statuses.values().sum()
    }
}

/// A finished load on a server.
struct ServerResult {
    version: String,
    transport: Transport,
    run: Run,
    log: AccessLog,
}

impl ServerResult {
    /// Returns a line for each count that is not as expected: each of `requests` requests must be
    /// sent, be ok, and be in the access log exactly once.
    fn violations(&self, requests: u64) -> Vec<String> {
        let ServerResult { run, log, .. } = self;
        let mut lines = Vec::new();
        lines.extend(run.requests.balance().err());
        let mut check = |what: &str, count: u64, expected: u64| {
            if count != expected {
                let [count, expected] = [count, expected].map(show_count);
                lines.push(format!("{what}: {count} instead of {expected}"));
            }
        };
        check("requests sent", run.requests.sent, requests);
        check("ok responses", run.requests.ok, requests);
        check("requests in the access log", log.requests(), requests);
        check("other lines in the access log", log.others, 0);
        if log.statuses != run.requests.statuses {
            let (log, record) = (&log.statuses, &run.requests.statuses);
            lines.push(format!("statuses: {record:?} received, {log:?} logged"));
        }
        lines.extend(run.errors.iter().map(|(name, n)| format!("{name}: {n}")));
        lines
    }

    /// Returns the cells of this server's row in the page's table.
    fn row(&self) -> Vec<String> {
        let (requests, http2) = (
            &self.run.requests,
            self.run.http2.clone().unwrap_or_default(),
        );
        let logged = self.log.requests();
        let counts = [
            requests.sent,
            requests.ok,
            logged,
            logged.abs_diff(requests.ok),
            self.run.connections.opened,
            http2.go_aways,
            requests.reconnects,
        ];
        let names = [self.version.clone(), self.transport.to_string()];
        names.into_iter().chain(counts.map(show_count)).collect()
    }
}

/// Sends requests to each server and returns whether all counts agree. Writes the page if they do,
/// unless options select servers or change the number of requests.
pub fn run(bench: &Bench, options: &Http2ServersOptions) -> Result<bool, Failure> {
    let conditions = Conditions::read(bench)?;
    let servers = bench.root.join(DIRECTORY);
    let mut all = names(&servers)?;
    all.retain(|name| servers.join(name).is_dir());
    if let Some(unknown) = options.only.iter().find(|name| !all.contains(name)) {
        let known = all.join(", ");
        return Err(format!("--only {unknown}: unknown server; known servers: {known}").into());
    }
    all.retain(|name| options.only.is_empty() || options.only.contains(name));
    let (mut rows, mut failures, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for name in &all {
        let directory = servers.join(name);
        if let Err(error) = build(bench, &directory) {
            bench.check_interrupt()?;
            skipped.push(format!("{name}: {error}"));
            continue;
        }
        for transport in [Transport::Plain, Transport::Tls] {
            match measure(bench, &directory, transport, options.requests) {
                Ok(result) => {
                    rows.push(result.row());
                    let lines = result.violations(options.requests).into_iter();
                    failures.extend(lines.map(|line| format!("{name}, {transport}: {line}")));
                }
                Err(error) => {
                    bench.check_interrupt()?;
                    failures.push(format!("{name}, {transport}: {error}"));
                }
            }
        }
    }
    let heads = "server | transport | sent | ok | in the access log | difference | connections | GOAWAY | sent again";
    let mut page = format!(
        include_str!("http2_servers.md"),
        load = LOAD,
        table = table(heads, rows),
        conditions = table("what | value", conditions.rows([])),
    );
    for line in &skipped {
        page += &format!("\nNot run: {line}.\n");
    }
    println!("\n{page}");
    for line in &failures {
        println!("failed: {line}");
    }
    let is_limited = options.requests != REQUESTS || !options.only.is_empty();
    if is_limited || !failures.is_empty() {
        println!("{FILE} not written: this comparison is incomplete");
    } else {
        update(&bench.root, FILE, &page)?;
    }
    Ok(failures.is_empty())
}

/// Builds a server, if it has a build script.
fn build(bench: &Bench, directory: &Path) -> Result<(), Failure> {
    let script = directory.join("build.sh");
    if !script.is_file() {
        return Ok(());
    }
    let mut build = Command::new("sh");
    // `Bench::run` sets the working directory.
    build.args(["-c", "cd \"$0\" && exec sh build.sh"]);
    build.arg(directory);
    let status = bench.run(build, BUILD)?;
    if !status.success() {
        return Err(format!("build.sh: {status}").into());
    }
    Ok(())
}

/// Starts a server, sends requests, and stops the server.
fn measure(
    bench: &Bench,
    directory: &Path,
    transport: Transport,
    requests: u64,
) -> Result<ServerResult, Failure> {
    let run = tempfile::tempdir()?;
    let run = run.path();
    create_certificate(run)?;
    let address = free_address()?;
    let mut start = Command::new("sh");
    start
        .arg("start.sh")
        .arg(run)
        .arg(address.port().to_string());
    start.arg(transport.scheme()).current_dir(directory);
    let output = run.join("output");
    let mut server = Child::start_logged(start, &output)?;
    let loaded = wait_until_ready(bench, &mut server, address)
        .and_then(|()| load(bench, directory, run, address, transport, requests));
    server.stop(GRACE)?;
    let loaded = loaded.map_err(|error| {
        let output = fs::read_to_string(&output).unwrap_or_default();
        format!("{error}; server output: {output:?}")
    })?;
    let log =
        fs::File::open(run.join("access.log")).map_err(|error| format!("access.log: {error}"))?;
    Ok(ServerResult {
        version: read(&run.join("version"))?.trim().to_owned(),
        transport,
        run: loaded,
        log: AccessLog::read(BufReader::new(log))?,
    })
}

/// Creates a self-signed certificate for localhost, and its key.
fn create_certificate(directory: &Path) -> Result<(), Failure> {
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(' '));
    openssl.args("-subj /CN=localhost -addext subjectAltName=DNS:localhost".split(' '));
    openssl.args("-keyout key.pem -out cert.pem".split(' '));
    let output = openssl.current_dir(directory).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("openssl: {}: {text}", output.status).into())
}

/// Returns a loopback address with a free port.
fn free_address() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}

/// Waits until a server accepts connections. The connection attempts send no request.
fn wait_until_ready(bench: &Bench, server: &mut Child, address: SocketAddr) -> Result<(), Failure> {
    let begin = Instant::now();
    while TcpStream::connect(address).is_err() {
        bench.check_interrupt()?;
        if let Some(status) = server.wait(POLL)? {
            return Err(format!("the server ended: {status}").into());
        }
        if begin.elapsed() > READY {
            return Err(format!(
                "no server accepts connections on {address} after {} s",
                READY.as_secs()
            )
            .into());
        }
    }
    Ok(())
}

/// Sends the requests.
fn load(
    bench: &Bench,
    directory: &Path,
    run: &Path,
    address: SocketAddr,
    transport: Transport,
    requests: u64,
) -> Result<Run, Failure> {
    let file = directory.join("load");
    let own = if file.is_file() {
        read(&file)?
    } else {
        "/".to_owned()
    };
    let origin = format!("{}://localhost:{}", transport.scheme(), address.port());
    let mut words = format!("{origin}{} {LOAD} -n {requests} --quiet", own.trim());
    if transport == Transport::Tls {
        words += &format!(" --cacert {}", run.join("cert.pem").display());
    }
    bench.load(&words, LOAD_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> AccessLog {
        AccessLog::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn counts_requests_over_http2_by_status() {
        let log = log("HTTP/2.0 200\nHTTP/2 200\nHTTP/2.0 503\nHTTP/1.1 200\nHTTP/2.0 -\n\n");
        assert_eq!(log.statuses, BTreeMap::from([(200, 2), (503, 1)]));
        assert_eq!((log.requests(), log.others), (3, 3));
    }

    /// Returns the result of a load with three ok responses.
    fn result() -> ServerResult {
        let record = include_str!("../../../crates/floodmark/tests/records/load-ramp.json");
        let record: floodmark_record::Record = serde_json::from_str(record).unwrap();
        let mut run = record.runs.into_iter().next().unwrap();
        run.errors.clear();
        run.requests = floodmark_record::Counts {
            intended: 3,
            sent: 3,
            ok: 3,
            statuses: BTreeMap::from([(200, 3)]),
            ..Default::default()
        };
        ServerResult {
            version: "nginx/1".to_owned(),
            transport: Transport::Plain,
            run,
            log: log("HTTP/2 200\nHTTP/2 200\nHTTP/2 200\n"),
        }
    }

    #[test]
    fn finds_each_count_that_differs() {
        assert_eq!(result().violations(3), [""; 0]);
        assert_ne!(result().violations(4), [""; 0]);
        let violations = |change: fn(&mut ServerResult)| {
            let mut result = result();
            change(&mut result);
            result.violations(3).join("\n")
        };
        let logged = violations(|result| *result.log.statuses.get_mut(&200).unwrap() += 1);
        assert!(logged.contains("access log: 4 instead of 3"), "{logged}");
        let other = violations(|result| result.log.others = 1);
        assert!(other.contains("other lines"), "{other}");
        let unbalanced = violations(|result| result.run.requests.ok = 2);
        assert!(unbalanced.contains("add up"), "{unbalanced}");
        let status = violations(|result| result.log.statuses = [(200, 2), (204, 1)].into());
        assert!(status.contains("logged"), "{status}");
        let errors = violations(|result| {
            result.run.errors.insert("go_away".to_owned(), 2);
        });
        assert_eq!(errors, "go_away: 2");
    }
}
