//! A connection: frames, handshake and queries.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::query::{CqlError, CqlQuery, CqlResult, CqlValue, ReadConsistency, ResponseBody};

/// Protocol version 4 (Cassandra 2.2 to 5.0), as sent in requests and in responses.
const REQUEST: u8 = 0x04;
const RESPONSE: u8 = 0x84;

/// Opcodes (`native_protocol_v4.spec`, section 2.4).
mod opcode {
    pub const ERROR: u8 = 0x00;
    pub const STARTUP: u8 = 0x01;
    pub const READY: u8 = 0x02;
    pub const AUTHENTICATE: u8 = 0x03;
    pub const QUERY: u8 = 0x07;
    pub const RESULT: u8 = 0x08;
}

/// Flag of a response whose body starts with warnings. The server sets other flags only on request.
const WARNINGS: u8 = 0x08;

/// Maximum length of a response, in bytes. The largest virtual table that floodmark reads has a row
/// of a few hundred bytes per table or connection. The journal reads up to 5 MiB.
const MAX_RESPONSE: usize = 8 << 20;

/// A connection after the handshake.
#[derive(Debug)]
pub struct CqlConnection {
    stream: TcpStream,
    /// Maximum time to send a query and receive its response.
    timeout: Duration,
    /// Stream ID of the last request. A response with another ID is a late response to an earlier
    /// request.
    last: u16,
}

impl CqlConnection {
    /// Performs the handshake. `timeout` limits the handshake, and each later query including its
    /// response.
    ///
    /// # Errors
    /// The connection fails, or the peer responds late, requires a password, does not support this
    /// protocol version, or is not Cassandra.
    pub fn open(stream: TcpStream, timeout: Duration) -> Result<Self, CqlError> {
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            timeout,
            last: 0,
        };
        let options = [
            ("CQL_VERSION", "3.0.0"),
            ("DRIVER_NAME", "floodmark"),
            ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
        ];
        let mut body = (options.len() as u16).to_be_bytes().to_vec();
        for text in options.into_iter().flat_map(<[&str; 2]>::from) {
            body.extend((text.len() as u16).to_be_bytes());
            body.extend(text.as_bytes());
        }
        let (opcode, body) = connection.exchange(opcode::STARTUP, &body)?;
        match opcode {
            opcode::READY => Ok(connection),
            opcode::AUTHENTICATE => Err(CqlError::Password),
            _ => Err(unexpected(opcode, &body)),
        }
    }

    /// Sets the timeout for later queries.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the rows of a query that one replica can answer, such as a query on a virtual
    /// table.
    ///
    /// # Errors
    /// The connection fails, Cassandra reports an error, or the response is late, damaged or too
    /// large.
    pub fn rows(&mut self, query: &str) -> Result<Vec<Vec<CqlValue>>, CqlError> {
        let result = self.execute(&CqlQuery {
            text: query,
            values: &[],
            consistency: ReadConsistency::One,
        })?;
        Ok(match result {
            CqlResult::Rows(rows) => rows,
            CqlResult::Done | CqlResult::SchemaChanged => Vec::new(),
        })
    }

    /// Executes a query. Cassandra returns all rows in one response.
    ///
    /// # Errors
    /// The connection fails, Cassandra reports an error, or the response is late, damaged or too
    /// large. Unless Cassandra reports that it refused the query, the query may have been executed,
    /// or may be executed later.
    pub fn execute(&mut self, query: &CqlQuery<'_>) -> Result<CqlResult, CqlError> {
        let (opcode, body) = self.exchange(opcode::QUERY, &query.encode())?;
        match opcode {
            opcode::RESULT => ResponseBody(&body).result(),
            _ => Err(unexpected(opcode, &body)),
        }
    }

    /// Sends a frame and returns the response's opcode and body, without warnings.
    fn exchange(&mut self, opcode: u8, body: &[u8]) -> Result<(u8, Vec<u8>), CqlError> {
        // The stream IDs of clients range from 0 to 32,767.
        self.last = (self.last + 1) & 0x7FFF;
        let mut frame = vec![REQUEST, 0];
        frame.extend(self.last.to_be_bytes());
        frame.push(opcode);
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        let until = Instant::now() + self.timeout;
        self.write(&frame, until)?;
        let mut head = [0; 9];
        self.read(&mut head, until)?;
        let head = ResponseHead::parse(&head)?;
        if head.stream != self.last {
            return Err(CqlError::Invalid("the response belongs to another request"));
        }
        let mut body = vec![0; head.length];
        self.read(&mut body, until)?;
        let mut rest = ResponseBody(&body);
        if head.has_warnings {
            rest.skip_warnings()?;
        }
        Ok((head.opcode, rest.0.to_vec()))
    }

    fn write(&mut self, mut bytes: &[u8], until: Instant) -> Result<(), CqlError> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(time_left(until)?))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(CqlError::Io(io::ErrorKind::WriteZero.into())),
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&mut self, mut into: &mut [u8], until: Instant) -> Result<(), CqlError> {
        while !into.is_empty() {
            self.stream.set_read_timeout(Some(time_left(until)?))?;
            match self.stream.read(into) {
                Ok(0) => return Err(CqlError::Io(io::ErrorKind::ConnectionAborted.into())),
                Ok(n) => into = &mut into[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Returns the time left until a deadline. After the deadline, returns an error, because zero is
/// not a valid socket timeout.
fn time_left(until: Instant) -> Result<Duration, CqlError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(CqlError::Timeout)
    } else {
        Ok(left)
    }
}

impl CqlQuery<'_> {
    /// Encodes the request body (`native_protocol_v4.spec`, section 4.1.4).
    fn encode(&self) -> Vec<u8> {
        /// Set for a query with values. The flag for paging is never set, so Cassandra returns all
        /// rows in one response.
        const VALUES: u8 = 0x01;
        let mut body = (self.text.len() as u32).to_be_bytes().to_vec();
        body.extend(self.text.as_bytes());
        let consistency: u16 = match self.consistency {
            ReadConsistency::One => 1,
            ReadConsistency::Quorum => 4,
        };
        body.extend(consistency.to_be_bytes());
        if self.values.is_empty() {
            body.push(0);
            return body;
        }
        body.push(VALUES);
        body.extend((self.values.len() as u16).to_be_bytes());
        self.values.iter().for_each(|value| value.write(&mut body));
        body
    }
}

/// The header of a response.
#[derive(Debug, PartialEq, Eq)]
struct ResponseHead {
    has_warnings: bool,
    stream: u16,
    opcode: u8,
    /// Length of the body, in bytes.
    length: usize,
}

impl ResponseHead {
    fn parse(head: &[u8; 9]) -> Result<Self, CqlError> {
        let [version, flags, high, low, opcode, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if version != RESPONSE {
            return Err(CqlError::Invalid(
                "the peer does not speak version 4 of Cassandra's native protocol",
            ));
        }
        if flags & !WARNINGS != 0 {
            let reason = "unexpected compressed or extended response";
            return Err(CqlError::Invalid(reason));
        }
        if length > MAX_RESPONSE {
            return Err(CqlError::Invalid("the response exceeds 8 MiB"));
        }
        Ok(ResponseHead {
            has_warnings: flags & WARNINGS != 0,
            stream: u16::from_be_bytes([high, low]),
            opcode,
            length,
        })
    }
}

/// Returns Cassandra's error, or an error that names the unexpected opcode.
fn unexpected(opcode: u8, body: &[u8]) -> CqlError {
    match opcode {
        opcode::ERROR => ResponseBody(body).error().unwrap_or_else(|error| error),
        _ => CqlError::Opcode(opcode),
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
