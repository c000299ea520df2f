//! The server: one thread with one epoll instance.

mod connection;
mod event_loop;
mod http2;
mod responses;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floodmark_host::{Stop, raise_open_files};
use rustix::thread::set_current_timer_slack;
use socket2::{Domain, Socket, Type};

use crate::log::Log;
use crate::scenario::Scenario;
use crate::sys;
use event_loop::EventLoop;

/// Length of the accept queue. The queue must hold all connections that arrive during a stall.
const BACKLOG: i32 = 4096;

/// Maximum time to wait until all connections are closed.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between two reads of the socket table.
const SETTLE_POLL: Duration = Duration::from_millis(5);

/// States of open sockets (include/net/tcp_states.h): ESTABLISHED, SYN_RECV, CLOSE_WAIT.
const OPEN_STATES: [&str; 3] = ["01", "03", "08"];

/// An error that occurs while a server starts or runs.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// The scenario is invalid.
    #[error("scenario: {0}")]
    Scenario(String),
    /// A system call failed.
    #[error("truth server: {0}")]
    Io(#[from] io::Error),
    /// The server thread panicked, which is a bug in this crate.
    #[error("truth server: the server thread panicked")]
    Panicked,
}

/// A running server. Its log is lost unless [`TruthServer::stop`] is called.
#[derive(Debug)]
pub struct TruthServer {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<io::Result<Log>>>,
}

impl TruthServer {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// The scenario is invalid, or no port, file descriptor or thread is available.
    pub fn start(scenario: Scenario) -> Result<TruthServer, TruthError> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), scenario)
    }

    /// Starts a server on an address.
    ///
    /// # Errors
    /// The scenario is invalid, the port is in use, or no file descriptor or thread is available.
    pub fn start_at(address: SocketAddr, scenario: Scenario) -> Result<TruthServer, TruthError> {
        scenario.check().map_err(TruthError::Scenario)?;
        // If this fails, the server can still serve a smaller number of connections.
        let _ = raise_open_files(u64::MAX);
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let stop = Stop::new();
        let mut event_loop = EventLoop::new(listener, scenario, stop.clone())?;
        let thread = std::thread::Builder::new()
            .name("truth".to_owned())
            .spawn(move || {
                // The default timer slack of 50 µs would delay every response.
                set_current_timer_slack(NonZeroU64::new(1))?;
                event_loop.run()?;
                Ok(event_loop.into_log())
            })?;
        Ok(TruthServer {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until all connections to the server are closed.
    ///
    /// # Errors
    /// A connection is still open after 30 s, or the kernel's socket table cannot be read.
    pub fn settle(&self) -> io::Result<()> {
        let port = self.address.port();
        let end = Instant::now() + SETTLE_TIMEOUT;
        while is_open(&fs::read_to_string("/proc/net/tcp")?, port) {
            if Instant::now() >= end {
                let text = format!("a connection to port {port} is still open");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(SETTLE_POLL);
        }
        Ok(())
    }

    /// Stops the server, closes its connections and returns its log.
    ///
    /// # Errors
    /// An epoll call failed.
    pub fn stop(mut self) -> Result<Log, TruthError> {
        self.stop.set();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(log)) => Ok(log?),
            _ => Err(TruthError::Panicked),
        }
    }
}

impl Drop for TruthServer {
    fn drop(&mut self) {
        self.stop.set();
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    sys::stamp_arrivals(socket.as_fd())?;
    Ok(socket.into())
}

/// Returns whether `/proc/net/tcp` lists an open socket with this local port. The columns of a line
/// are `sl local_address rem_address st …`; addresses, ports and states are hexadecimal.
fn is_open(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        local.is_some_and(|local| local.ends_with(&port))
            && state.is_some_and(|state| OPEN_STATES.contains(&state))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_open_sockets_of_the_port() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let of = |row: &str| is_open(&format!("{head}{row}"), 8080);
        for (row, open) in [
            ("0: 0100007F:1F90 0100007F:C001 01 00000000:00000000", true),
            ("0: 0100007F:1F90 0100007F:C001 08 00000000:00000000", true),
            ("0: 0100007F:1F90 00000000:0000 0A 00000000:00000000", false),
            ("0: 0100007F:1F90 0100007F:C001 06 00000000:00000000", false),
            ("0: 0100007F:C001 0100007F:1F90 01 00000000:00000000", false),
        ] {
            assert_eq!(of(row), open, "{row}");
        }
        assert!(!of(""));
    }
}
