//! Native servers that share one port.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::Child;

use super::capacity::{Capacity, ConnectionLimits};
use crate::bench::{Bench, Failure};

/// Idle timeout. The timeout is longer than any run, so that the servers never close a connection.
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
            let _ = child.signal(floodmark_host::Signal::TERM);
        }
        for child in &mut self.children {
            let _ = child.stop(GRACE);
        }
    }
}
