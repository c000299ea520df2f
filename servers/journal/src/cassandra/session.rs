//! The address of a journal in Cassandra, and a connection that retries statements after temporary
//! errors.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use floodmark_cql::{
    CqlConnection, CqlError, CqlParameter, CqlQuery, CqlResult, CqlValue, ReadConsistency,
};

use crate::error::JournalError;

/// Port of Cassandra's native protocol.
const DEFAULT_PORT: u16 = 9042;
const DEFAULT_KEYSPACE: &str = "floodmark";
/// Cassandra's maximum length of a keyspace name, in characters.
const MAX_KEYSPACE: usize = 48;

const SYNTAX: &str =
    "write HOST, HOST:PORT or HOST:PORT/KEYSPACE; enclose an IPv6 address in brackets";

/// Address of a Cassandra node, and a keyspace: `HOST[:PORT][/KEYSPACE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassandraAddress {
    /// Name or IP address, without brackets.
    pub(super) host: String,
    /// Port. Default: 9042.
    pub(super) port: u16,
    /// Keyspace. Default: `floodmark`.
    pub(super) keyspace: String,
}

impl FromStr for CassandraAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, keyspace) = text.split_once('/').unwrap_or((text, DEFAULT_KEYSPACE));
        let (host, port) = if let Some(rest) = node.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or(SYNTAX)?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(SYNTAX);
            }
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or(SYNTAX)?),
            };
            (host, port)
        } else {
            match node.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (node, None),
            }
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(SYNTAX);
        }
        let port = port.map_or(Ok(DEFAULT_PORT), |port| match port.parse() {
            Ok(0) | Err(_) => Err("the port is not a number from 1 to 65535"),
            Ok(port) => Ok(port),
        })?;
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let starts_well = keyspace.starts_with(|first: char| first.is_ascii_lowercase());
        if !starts_well || keyspace.len() > MAX_KEYSPACE || !keyspace.bytes().all(is_name) {
            return Err(
                "a keyspace name must start with a letter and contain at most 48 lowercase letters, digits and _",
            );
        }
        Ok(CassandraAddress {
            host: host.to_owned(),
            port,
            keyspace: keyspace.to_owned(),
        })
    }
}

impl fmt::Display for CassandraAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CassandraAddress {
            host,
            port,
            keyspace,
        } = self;
        if host.contains(':') {
            write!(f, "cassandra:[{host}]:{port}/{keyspace}")
        } else {
            write!(f, "cassandra:{host}:{port}/{keyspace}")
        }
    }
}

/// Maximum time to establish a TCP connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Statement timeout while the journal opens. Three nodes on two CPUs take seconds to create a
/// table.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Statement timeout once the journal is open. Cassandra's own timeout is 2 s.
const TIMEOUT: Duration = Duration::from_millis(2500);
/// Maximum time to retry a statement after its first failure. The last attempt may exceed this time
/// by up to 0.6 s.
const RETRY_TIME: Duration = Duration::from_secs(3);
/// Minimum timeout of a retry.
const MIN_ATTEMPT: Duration = Duration::from_millis(500);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection to one node.
pub(super) struct JournalSession {
    pub(super) address: CassandraAddress,
    node: SocketAddr,
    /// `None` after a timeout, a failed connection or an invalid response, because a late response
    /// could follow on the same connection.
    connection: Option<CqlConnection>,
    /// Timeout of an attempt.
    timeout: Duration,
    /// Maximum time to retry a statement after its first failure.
    retry_time: Duration,
}

/// The result of a conditional statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionalResult {
    /// The condition was met.
    Applied,
    /// The condition was not met. Contains the current value of the condition's first column, if
    /// any.
    Refused(Option<i64>),
}

impl JournalSession {
    /// Connects to a node.
    ///
    /// # Errors
    /// No address of the host accepts a connection, or the peer is not a usable Cassandra node.
    pub(super) fn connect(address: &CassandraAddress) -> Result<Self, JournalError> {
        let failed = |source| failed(address, "connect", source);
        let nodes = (address.host.as_str(), address.port).to_socket_addrs();
        let mut last = CqlError::Io(io::Error::other("the host has no address"));
        for node in nodes.map_err(|error| failed(CqlError::Io(error)))? {
            match connect(node, Instant::now() + OPEN_TIMEOUT) {
                Ok(connection) => {
                    return Ok(JournalSession {
                        address: address.clone(),
                        node,
                        connection: Some(connection),
                        timeout: OPEN_TIMEOUT,
                        retry_time: Duration::ZERO,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Shortens the timeout and enables retries after temporary errors.
    pub(super) fn serve(&mut self) {
        self.timeout = TIMEOUT;
        self.retry_time = RETRY_TIME;
    }

    /// Executes a statement. `doing` describes the operation in errors.
    pub(super) fn execute(
        &mut self,
        doing: &'static str,
        text: &str,
        values: &[CqlParameter<'_>],
    ) -> Result<CqlResult, JournalError> {
        let query = CqlQuery {
            text,
            values,
            consistency: ReadConsistency::Quorum,
        };
        let mut timeout = self.timeout;
        let mut retry_until = None;
        loop {
            let error = match self.attempt(&query, Instant::now() + timeout) {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let retry_until = *retry_until.get_or_insert(Instant::now() + self.retry_time);
            if !is_temporary(&error) || time_left(retry_until).is_zero() {
                return Err(failed(&self.address, doing, error));
            }
            thread::sleep(RETRY_PAUSE);
            timeout = timeout.min(time_left(retry_until)).max(MIN_ATTEMPT);
        }
    }

    /// Executes a statement whose condition compares integers.
    pub(super) fn execute_if(
        &mut self,
        doing: &'static str,
        text: &str,
        values: &[CqlParameter<'_>],
    ) -> Result<ConditionalResult, JournalError> {
        let result = self.execute(doing, text, values)?;
        let rows = match &result {
            CqlResult::Rows(rows) => rows.as_slice(),
            CqlResult::Done | CqlResult::SchemaChanged => &[],
        };
        match rows.first().map(Vec::as_slice) {
            Some([CqlValue::Flag(true), ..]) => Ok(ConditionalResult::Applied),
            Some([CqlValue::Flag(false), CqlValue::Integer(found), ..]) => {
                Ok(ConditionalResult::Refused(Some(*found)))
            }
            Some([CqlValue::Flag(false), ..]) => Ok(ConditionalResult::Refused(None)),
            _ => Err(self.unexpected(doing)),
        }
    }

    /// Returns the error for a result that does not match the statement.
    pub(super) fn unexpected(&self, doing: &'static str) -> JournalError {
        let source = CqlError::Invalid("the result has unexpected columns");
        failed(&self.address, doing, source)
    }

    fn attempt(&mut self, query: &CqlQuery<'_>, until: Instant) -> Result<CqlResult, CqlError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(self.node, until)?,
        };
        connection.set_timeout(time_left(until));
        let result = connection.execute(query);
        if matches!(result, Ok(_) | Err(CqlError::Server { .. })) {
            self.connection = Some(connection);
        }
        result
    }
}

fn failed(address: &CassandraAddress, doing: &'static str, source: CqlError) -> JournalError {
    JournalError::Cassandra {
        place: address.to_string(),
        doing,
        source,
    }
}

fn connect(node: SocketAddr, until: Instant) -> Result<CqlConnection, CqlError> {
    let stream = TcpStream::connect_timeout(&node, CONNECT_TIMEOUT.min(time_left(until)))?;
    CqlConnection::open(stream, time_left(until))
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Returns whether a retry can succeed.
fn is_temporary(error: &CqlError) -> bool {
    /// Error codes (`native_protocol_v4.spec`, section 9).
    const UNAVAILABLE: i32 = 0x1000;
    const OVERLOADED: i32 = 0x1001;
    const BOOTSTRAPPING: i32 = 0x1002;
    const WRITE_TIMEOUT: i32 = 0x1100;
    const READ_TIMEOUT: i32 = 0x1200;
    match error {
        CqlError::Io(_) | CqlError::Timeout => true,
        CqlError::Invalid(_) | CqlError::Password | CqlError::Opcode(_) => false,
        CqlError::Server { code, .. } => matches!(
            *code,
            UNAVAILABLE | OVERLOADED | BOOTSTRAPPING | WRITE_TIMEOUT | READ_TIMEOUT
        ),
    }
}

/// Suggests a fix for an error.
pub(crate) fn cassandra_fix(error: &CqlError) -> &'static str {
    const UNAUTHORIZED: i32 = 0x2100;
    match error {
        CqlError::Io(_) | CqlError::Timeout => "start Cassandra, or check the host and port",
        CqlError::Invalid(_) | CqlError::Opcode(_) => {
            "check that the host and port belong to a Cassandra node (version 2.2 or later)"
        }
        CqlError::Password => "use a node with AllowAllAuthenticator",
        CqlError::Server { .. } if is_temporary(error) => {
            "check that enough Cassandra nodes are up and not overloaded"
        }
        CqlError::Server { code, .. } if *code == UNAUTHORIZED => {
            "use a node with AllowAllAuthorizer"
        }
        CqlError::Server { .. } => "check Cassandra's log, or choose another keyspace",
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
