//! The server: one thread, one epoll, on a loopback port of its own.

mod answers;
mod connection;
mod event_loop;
mod request;
mod settle;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use socket2::{Domain, Socket, Type};

use crate::log::Log;
use crate::scenario::{Scenario, ScenarioError};
use crate::sys;
use event_loop::EventLoop;

/// Connections that the kernel holds until they are accepted; a stall must not lose any.
const BACKLOG: i32 = 4096;

/// Why a server could not be started or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// A scenario that makes no sense.
    #[error("scenario: {0}")]
    Scenario(#[from] ScenarioError),
    /// A system call failed.
    #[error("truth server: {0}")]
    Io(#[from] io::Error),
    /// A bug in this crate.
    #[error("truth server: its thread panicked")]
    Panicked,
}

/// A running server. Dropped without [`Server::stop`], it ends soon and its log is lost.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Log>>>,
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// An impossible scenario; no port, descriptor or thread left.
    pub fn start(scenario: Scenario) -> Result<Server, TruthError> {
        scenario.check()?;
        sys::raise_open_files();
        let listener = listen()?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut event_loop = EventLoop::new(listener, scenario, Arc::clone(&stop))?;
        let thread = std::thread::Builder::new()
            .name("truth".to_owned())
            .spawn(move || {
                sys::finest_timer_slack();
                event_loop.run()?;
                Ok(event_loop.into_log())
            })?;
        Ok(Server {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has seen the end of every connection that a client closed, or that it closed itself.
    ///
    /// # Errors
    /// One was still open after 30 s, or the kernel's table of sockets cannot be read.
    pub fn settle(&self) -> io::Result<()> {
        settle::settle(self.address.port())
    }

    /// Ends it and returns what it did. Connections that are open are closed.
    ///
    /// # Errors
    /// Its epoll failed.
    pub fn stop(mut self) -> Result<Log, TruthError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(log)) => Ok(log?),
            _ => Err(TruthError::Panicked),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn listen() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    sys::stamp_arrivals(socket.as_fd())?;
    Ok(socket.into())
}
