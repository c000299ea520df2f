//! Names of what goes wrong below HTTP; they appear in the record's `errors`.

use std::io;

use crate::tls::Failure;

/// The server closed the connection before the first byte of an answer.
pub const CLOSED_EARLY: &str = "closed_before_answer";
/// A handshake was not over within the timeout.
pub const CONNECT_TIMED_OUT: &str = "connect_timed_out";
/// A TLS handshake was not over within the timeout.
pub const HANDSHAKE_TIMED_OUT: &str = "tls_handshake_timed_out";
/// A server that was to close first did not within the timeout.
pub const NOT_CLOSED: &str = "not_closed_by_server";

/// Why a connect failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectFailure {
    /// Its name in the record.
    pub name: &'static str,
    /// Whether the other side (or the way there) refused; else this side had no means left.
    pub by_server: bool,
    /// Whether another address of the target may do better: this process has what it needs.
    pub of_address: bool,
}

impl ConnectFailure {
    /// A handshake, of TCP or of TLS by its `name`, that was given up.
    #[must_use]
    pub fn timed_out(name: &'static str) -> Self {
        ConnectFailure {
            name,
            by_server: true,
            of_address: true,
        }
    }
}

/// Names the reason of a failed connect.
#[must_use]
pub fn connect(error: &io::Error) -> ConnectFailure {
    if let Some(failure) = Failure::of(error) {
        return ConnectFailure {
            name: failure.name,
            by_server: true,
            of_address: true,
        };
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

/// Why a standing connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Break {
    /// Its name in the record.
    pub name: &'static str,
    /// Whether bytes came that are no valid answer.
    pub garbled: bool,
}

/// Names the reason why a standing connection broke.
#[must_use]
pub fn broken(error: &io::Error) -> Break {
    if let Some(failure) = Failure::of(error) {
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
