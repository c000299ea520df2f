//! Errors of connections and queries.

use std::io;

/// The reason why a handshake or a query failed.
#[derive(Debug, thiserror::Error)]
pub enum CqlError {
    /// The connection failed.
    #[error(transparent)]
    Io(io::Error),
    /// The peer did not read the request or did not respond within the timeout.
    #[error("no response within the timeout")]
    Timeout,
    /// The response is damaged or belongs to another protocol.
    #[error("{0}")]
    Invalid(&'static str),
    /// The peer requires a password.
    #[error("the store requires a password; floodmark does not support passwords")]
    Password,
    /// The response's opcode is not valid for the request.
    #[error("unexpected response opcode {0:#04x}")]
    Opcode(u8),
    /// Cassandra reported an error.
    #[error("error {code:#06x}: {message}")]
    Server {
        /// Error code (`native_protocol_v4.spec`, section 9).
        code: i32,
        /// First line of Cassandra's message.
        message: String,
    },
}

impl From<io::Error> for CqlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => CqlError::Timeout,
            _ => CqlError::Io(error),
        }
    }
}

impl From<CqlError> for io::Error {
    fn from(error: CqlError) -> Self {
        let kind = match error {
            CqlError::Io(error) => return error,
            CqlError::Timeout => io::ErrorKind::TimedOut,
            CqlError::Invalid(_) | CqlError::Password => io::ErrorKind::InvalidData,
            CqlError::Opcode(_) | CqlError::Server { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
