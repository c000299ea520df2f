//! The delay proxy: `floodmark delay` as a child process on the server's host.

use std::io::BufReader;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::{Child, ProcessPlacement};
use floodmark_record::units::show_duration;

use super::TrialHosts;
use floodmark_workers::read_line;

/// Prefix of the proxy's first line. The proxy's address follows the prefix.
pub const LISTENING: &str = "listening on ";

/// Maximum length of the first line, in bytes.
const LINE_LIMIT: usize = 1024;

/// A running proxy. Dropping this value ends the proxy's process.
#[derive(Debug)]
pub struct DelayProxy {
    child: Child,
    /// Address that the proxy listens on.
    pub address: SocketAddr,
}

impl DelayProxy {
    /// Starts a proxy for a server or store in the same network namespace. The proxy is not bound
    /// to the server's CPUs.
    ///
    /// `delay` is added in each direction.
    ///
    /// # Errors
    /// The proxy does not start.
    pub fn start(
        floodmark: &Path,
        hosts: &TrialHosts,
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
            let delay = show_duration(delay);
            format!("the proxy with a delay of {delay} does not start: {why}")
        };
        let on_any_cpu = ProcessPlacement {
            cpus: None,
            ..hosts.server.clone()
        };
        on_any_cpu.place(&mut command);
        let mut child = Child::start(command).map_err(|error| failed(error.to_string()))?;
        let mut line = Vec::new();
        if let Some(stdout) = child.stdout() {
            // If this read fails, parsing the address below fails too.
            let _ = read_line(&mut BufReader::new(stdout), &mut line, LINE_LIMIT);
        }
        let line = String::from_utf8_lossy(&line);
        let address = line
            .strip_prefix(LISTENING)
            .and_then(|rest| rest.parse().ok());
        let address = address.ok_or_else(|| failed("see its messages above".to_owned()))?;
        Ok(DelayProxy { child, address })
    }

    /// Returns the process id of the proxy.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}
