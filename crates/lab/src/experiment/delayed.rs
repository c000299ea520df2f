//! The way to a server on which every byte takes longer: `floodmark delay` as a child, beside the server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::Child;
use floodmark_record::units::show_duration;

use super::Hosts;

/// What it says first, before its address.
pub const LISTENING: &str = "listening on ";

/// A running proxy. It ends when this is dropped, or floodmark dies.
#[derive(Debug)]
pub struct Delayed {
    child: Child,
    address: SocketAddr,
}

impl Delayed {
    /// Starts one before a server or store: in its network, on any CPU, so that it takes none that the server was given for itself.
    /// Each byte comes by `delay` later, either way.
    ///
    /// # Errors
    /// It does not start; in words.
    pub fn start(
        floodmark: &Path,
        hosts: &Hosts,
        server: SocketAddr,
        delay: Duration,
    ) -> Result<Self, String> {
        let mut command = Command::new(floodmark);
        command
            .arg("delay")
            .arg(format!("--listen={}:0", server.ip()))
            .arg(format!("--to={server}"))
            .arg(format!("--by={}ns", delay.as_nanos()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let failed = |why: String| {
            format!(
                "the proxy that delays by {} does not start: {why}",
                show_duration(delay)
            )
        };
        let mut child = hosts
            .server
            .on_any_cpu()
            .start(command)
            .map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout() {
            // It speaks at once or ends.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let address = line.trim().strip_prefix(LISTENING);
        let address = address.and_then(|address| address.parse().ok());
        let address = address.ok_or_else(|| failed("its messages are above".to_owned()))?;
        Ok(Delayed { child, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}
