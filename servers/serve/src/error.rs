//! Server errors.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use floodmark_journal::JournalError;

use crate::accepting::RESERVED_FILES;
#[cfg(feature = "postgresql")]
use crate::postgresql::PostgresqlError;
use crate::state_file::StateError;
use crate::workload::NativeWorkload;

/// An error while a server starts, runs or stops.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {source}; {}", listen_fix(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The limit on open files is too low for the requested connections.
    #[error(
        "{requested} connections need too many open files: the limit is {limit}, and the server needs {RESERVED_FILES} itself; use at most \
         {} connections, or raise the limit (ulimit -Hn)",
        .limit.saturating_sub(RESERVED_FILES)
    )]
    Connections {
        /// Number of requested connections.
        requested: usize,
        /// Limit on open files.
        limit: usize,
    },
    /// A state file was given for a workload without state.
    #[error("{0} keeps no state; omit --state, or use `floodmark serve dispatcher`")]
    NoState(NativeWorkload),
    /// A journal was given for a workload without a journal.
    #[error("{0} has no journal; omit --journal, or use `floodmark serve scoring`")]
    NoJournal(NativeWorkload),
    /// A store was given for a workload without a store.
    #[error("{0} has no store; omit --store, or use `floodmark serve bars`")]
    NoStore(NativeWorkload),
    /// The `bars` workload was requested without a store.
    #[error(
        "bars needs a store; add --store embedded:PATH, where PATH is a file, or --store postgresql://USER@HOST:PORT/DATABASE"
    )]
    StoreRequired,
    /// A shared port was requested for a workload that keeps state.
    #[error("{0} has state, which servers cannot share; omit --share-port")]
    SharedState(NativeWorkload),
    /// The state file or the file of the store cannot be opened, read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The state file could not be written while the server was running or shutting down.
    #[error("the state file failed while the server was running: {0}")]
    StateFailed(StateError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal failed while the server was running. All later scores were refused.
    #[error("the journal failed while the server was running: {0}")]
    JournalFailed(Arc<JournalError>),
    /// The file is not a database with bars.
    #[error("{}: not a database of bars ({cause}); choose another path, or restore a copy", .path.display())]
    NotBars {
        /// The file.
        path: PathBuf,
        /// The cause, as text.
        cause: String,
    },
    /// The store failed while the server was running. All later bars were refused.
    #[error(
        "{}: the store failed while the server was running: {cause}; check that the store's disk is healthy and has free space, then restart the server",
        .path.display()
    )]
    StoreFailed {
        /// The file.
        path: PathBuf,
        /// The cause, as text.
        cause: String,
    },
    /// The PostgreSQL database cannot be used.
    #[cfg(feature = "postgresql")]
    #[error(transparent)]
    Postgresql(#[from] PostgresqlError),
    /// A server thread or its event loop cannot start.
    #[error(
        "cannot start a server thread: {0}; use fewer threads, or free memory or file descriptors"
    )]
    Thread(io::Error),
    /// A server thread panicked.
    #[error("a server thread panicked; report this bug and include the output")]
    Panicked,
}

fn listen_fix(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "another process uses this port; stop it, or choose another port (0: any free port)"
        }
        io::ErrorKind::PermissionDenied => "choose port 1024 or higher",
        io::ErrorKind::AddrNotAvailable => "choose an address of this host, such as 127.0.0.1",
        _ => "choose another address",
    }
}
