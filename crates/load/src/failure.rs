//! Names for failures below the HTTP level, as used in the record's `errors`.

use std::io;

use crate::tls::TlsFailure;

/// The server closed the connection before the first byte of a response.
pub const CLOSED_EARLY: &str = "closed_before_answer";
/// A TCP handshake exceeded the timeout.
pub const CONNECT_TIMED_OUT: &str = "connect_timed_out";
/// A TLS handshake exceeded the timeout, or was still unfinished after a second when the run ended.
pub const HANDSHAKE_TIMED_OUT: &str = "tls_handshake_timed_out";
/// The server should have closed the connection after a response, but did not do so in time.
pub const NOT_CLOSED: &str = "not_closed_by_server";

/// The reason why a connect failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectFailure {
    /// Name in the record.
    pub name: &'static str,
    /// Whether the server or the network caused the failure. Otherwise this process lacked
    /// resources.
    pub by_server: bool,
    /// Whether another of the target's addresses may work. This is not the case if this process
    /// lacked file descriptors or memory.
    pub of_address: bool,
}

impl ConnectFailure {
    /// Creates the failure `name`, which the server or the network caused.
    #[must_use]
    pub fn by_server(name: &'static str) -> Self {
        ConnectFailure {
            name,
            by_server: true,
            of_address: true,
        }
    }
}

/// Classifies a failed connect.
#[must_use]
pub fn connect(error: &io::Error) -> ConnectFailure {
    if let Some(failure) = TlsFailure::of(error) {
        return ConnectFailure::by_server(failure.name);
    }
    let (name, by_server) = match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => ("ports_exhausted", false),
        Some(libc::EMFILE | libc::ENFILE) => ("fds_exhausted", false),
        Some(libc::ENOBUFS | libc::ENOMEM) => ("no_memory_for_socket", false),
        Some(libc::EACCES | libc::EPERM) => ("connect_not_permitted", false),
        Some(libc::ECONNREFUSED) => ("connect_refused", true),
        Some(libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE) => ("connect_reset", true),
        Some(libc::ETIMEDOUT) => (CONNECT_TIMED_OUT, true),
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => ("unreachable", true),
        _ => ("connect_failed", true),
    };
    let ours = matches!(name, "fds_exhausted" | "no_memory_for_socket");
    ConnectFailure {
        name,
        by_server,
        of_address: !ours,
    }
}

/// The reason why a connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Break {
    /// Name in the record.
    pub name: &'static str,
    /// Whether invalid bytes arrived.
    pub garbled: bool,
}

/// Classifies a failure of an established connection.
#[must_use]
pub fn broken(error: &io::Error) -> Break {
    if let Some(failure) = TlsFailure::of(error) {
        return Break {
            name: failure.name,
            garbled: failure.garbled,
        };
    }
    let name = match error.raw_os_error() {
        Some(libc::ECONNRESET) => "connection_reset",
        Some(libc::EPIPE) => CLOSED_EARLY,
        Some(libc::ETIMEDOUT) => "connection_timed_out",
        _ => "connection_failed",
    };
    Break {
        name,
        garbled: false,
    }
}
