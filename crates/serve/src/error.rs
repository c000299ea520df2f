//! Why a server could not start, or not end well.

use std::io;
use std::net::SocketAddr;

use crate::state_file::StateError;
use crate::workload::Workload;

/// Why a server could not start, or not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {}", listen_mend(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// More connections are asked for than files may be open.
    #[error(
        "{asked} connections do not fit: this process may open {limit} files, of which the server needs {reserve}; \
         ask for at most {}, or raise the limit (ulimit -Hn)",
        .limit.saturating_sub(*.reserve)
    )]
    Connections {
        /// Connections asked for.
        asked: usize,
        /// Files this process may have open.
        limit: usize,
        /// Files that the server needs besides.
        reserve: usize,
    },
    /// A state file for a workload that keeps no state.
    #[error("{0} keeps no state; leave the state file out, or serve dispatcher")]
    NoState(Workload),
    /// A port to be shared by servers of a workload that has one state.
    #[error("{0} has one state, which several servers cannot share; leave --share-port out")]
    SharedState(Workload),
    /// The state file cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A thread or its event loop could not be had.
    #[error("cannot start a server thread: {0}; ask for fewer threads, or free memory or files")]
    Thread(io::Error),
    /// A server thread ended by a panic: a defect of this server.
    #[error("a server thread ended by a panic; please report what it printed")]
    Panicked,
}

fn listen_mend(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "another process has this port; stop it, or choose another port (0: any)"
        }
        io::ErrorKind::PermissionDenied => "choose a port of 1024 or above",
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine, such as 127.0.0.1",
        _ => "choose another address",
    }
}
