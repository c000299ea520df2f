//! The subset of Cassandra's native protocol (version 4) that is needed to read virtual tables. It
//! supports one connection, one query at a time, and rows of numbers and text.
//!
//! All lengths are checked. A damaged frame, or a frame of another protocol, is an error.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

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

/// Maximum length of a response in bytes. A view has a row of a few hundred bytes per table or
/// connection.
const MAX_RESPONSE: usize = 4 << 20;

/// Maximum number of columns.
const MAX_COLUMNS: usize = 64;

/// A value in a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CqlValue {
    Text(String),
    Number(f64),
    /// Null, or a value of a type that floodmark's queries never return.
    Nothing,
}

impl CqlValue {
    /// Returns the number, or 0 if there is no finite number. A percentile without samples has no
    /// number.
    pub(crate) fn number(&self) -> f64 {
        match self {
            CqlValue::Number(number) if number.is_finite() => *number,
            _ => 0.0,
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            CqlValue::Text(text) => text,
            _ => "",
        }
    }
}

/// A connection after the handshake.
#[derive(Debug)]
pub(crate) struct CqlConnection {
    stream: TcpStream,
    /// Maximum wait for a response.
    timeout: Duration,
}

impl CqlConnection {
    /// Performs the handshake.
    ///
    /// # Errors
    /// The peer requires a password, does not support this version, or is not Cassandra.
    pub(crate) fn open(stream: TcpStream, timeout: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(timeout))?;
        let mut connection = Self { stream, timeout };
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
            opcode::AUTHENTICATE => Err(invalid(
                "the store requires a password; floodmark does not support passwords",
            )),
            _ => Err(unexpected(opcode, &body)),
        }
    }

    /// Returns the rows of a query.
    ///
    /// # Errors
    /// Cassandra reports an error, or the response is late, damaged or too large.
    pub(crate) fn rows(&mut self, query: &str) -> io::Result<Vec<Vec<CqlValue>>> {
        /// Consistency level: one replica, because virtual tables belong to the queried node.
        const ONE: [u8; 2] = [0, 1];
        let mut body = Vec::with_capacity(query.len() + 7);
        body.extend((query.len() as u32).to_be_bytes());
        body.extend(query.as_bytes());
        body.extend(ONE);
        // Flags: no values and no paging, so that all rows come in one frame.
        body.push(0);
        let (opcode, body) = self.exchange(opcode::QUERY, &body)?;
        match opcode {
            opcode::RESULT => Body(&body).rows(),
            _ => Err(unexpected(opcode, &body)),
        }
    }

    /// Sends a frame and returns the response's opcode and body, without warnings.
    fn exchange(&mut self, opcode: u8, body: &[u8]) -> io::Result<(u8, Vec<u8>)> {
        let mut frame = vec![REQUEST, 0, 0, 0, opcode];
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame).map_err(timeout_error)?;
        let until = Instant::now() + self.timeout;
        let mut head = [0; 9];
        self.read(&mut head, until)?;
        let (flags, opcode, length) = parse_head(&head)?;
        let mut body = vec![0; length];
        self.read(&mut body, until)?;
        let mut rest = Body(&body);
        if flags & WARNINGS != 0 {
            rest.skip_warnings()?;
        }
        Ok((opcode, rest.0.to_vec()))
    }

    fn read(&mut self, mut into: &mut [u8], until: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            // `set_read_timeout` rejects zero.
            self.stream
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.stream.read(into) {
                Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(n) => into = &mut into[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(timeout_error(error)),
            }
        }
        Ok(())
    }
}

/// Replaces a timeout error with a clear message. Returns other errors unchanged.
fn timeout_error(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "no response within the timeout")
        }
        _ => error,
    }
}

/// Parses flags, opcode and length from the 9-byte header of a response.
fn parse_head(head: &[u8; 9]) -> io::Result<(u8, u8, usize)> {
    let [version, flags, _, _, opcode, length @ ..] = *head;
    let length = u32::from_be_bytes(length) as usize;
    if version != RESPONSE {
        return Err(invalid(
            "the peer does not speak version 4 of Cassandra's native protocol",
        ));
    }
    if flags & !WARNINGS != 0 {
        return Err(invalid("unexpected compressed or extended response"));
    }
    if length > MAX_RESPONSE {
        return Err(invalid("the response exceeds 4 MiB"));
    }
    Ok((flags, opcode, length))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Returns Cassandra's error message, or an error with the unexpected opcode.
fn unexpected(opcode: u8, body: &[u8]) -> io::Error {
    if opcode != opcode::ERROR {
        return io::Error::other(format!("unexpected response opcode {opcode:#04x}"));
    }
    let mut body = Body(body);
    let parsed = body.int().and_then(|code| Ok((code, body.string()?)));
    match parsed {
        Ok((code, message)) => {
            let line = message.lines().next().unwrap_or_default();
            io::Error::other(format!("error {code:#06x}: {line}"))
        }
        Err(error) => error,
    }
}

/// Parses a value by the type code of its column (`native_protocol_v4.spec`, section 4.2.5.2).
fn parse_value(kind: u16, bytes: &[u8]) -> io::Result<CqlValue> {
    fn of<const N: usize>(bytes: &[u8]) -> io::Result<[u8; N]> {
        let wrong = |_| invalid("a number has an unexpected length");
        bytes.try_into().map_err(wrong)
    }
    Ok(match kind {
        // ascii, text and varchar
        0x01 | 0x0A | 0x0D => CqlValue::Text(String::from_utf8_lossy(bytes).into_owned()),
        // bigint and counter
        0x02 | 0x05 => CqlValue::Number(i64::from_be_bytes(of(bytes)?) as f64),
        // double
        0x07 => CqlValue::Number(f64::from_be_bytes(of(bytes)?)),
        // float
        0x08 => CqlValue::Number(f32::from_be_bytes(of(bytes)?).into()),
        // int
        0x09 => CqlValue::Number(i32::from_be_bytes(of(bytes)?).into()),
        _ => CqlValue::Nothing,
    })
}

/// The part of a body that has not been parsed yet.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, n: usize) -> io::Result<&'a [u8]> {
        let parts = self.0.split_at_checked(n);
        let (taken, rest) = parts.ok_or_else(|| invalid("the response is truncated"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn int(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn short(&mut self) -> io::Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn string(&mut self) -> io::Result<String> {
        let length = self.short()?;
        Ok(String::from_utf8_lossy(self.take(length.into())?).into_owned())
    }

    /// Reads a value; `None` for null.
    fn bytes(&mut self) -> io::Result<Option<&'a [u8]>> {
        let length = usize::try_from(self.int()?).ok();
        length.map(|length| self.take(length)).transpose()
    }

    fn skip_warnings(&mut self) -> io::Result<()> {
        for _ in 0..self.short()? {
            self.string()?;
        }
        Ok(())
    }

    /// Parses the rows of a result. Other kinds of results have no rows.
    fn rows(&mut self) -> io::Result<Vec<Vec<CqlValue>>> {
        const ROWS: i32 = 2;
        if self.int()? != ROWS {
            return Ok(Vec::new());
        }
        let columns = self.columns()?;
        let mut rows = Vec::new();
        for _ in 0..self.int()? {
            let row = columns.iter().map(|kind| {
                let value = self.bytes()?.map(|bytes| parse_value(*kind, bytes));
                value.unwrap_or(Ok(CqlValue::Nothing))
            });
            rows.push(row.collect::<io::Result<_>>()?);
        }
        Ok(rows)
    }

    /// Parses the type codes of a result's columns.
    fn columns(&mut self) -> io::Result<Vec<u16>> {
        const GLOBAL_TABLE: i32 = 1;
        const MORE_PAGES: i32 = 2;
        const NO_METADATA: i32 = 4;
        let flags = self.int()?;
        let count = usize::try_from(self.int()?).unwrap_or(usize::MAX);
        if count == 0 || count > MAX_COLUMNS || flags & NO_METADATA != 0 {
            return Err(invalid(
                "the number of result columns is not between 1 and 64",
            ));
        }
        if flags & MORE_PAGES != 0 {
            self.bytes()?;
        }
        let table = |body: &mut Self| body.string().and_then(|_| body.string());
        if flags & GLOBAL_TABLE != 0 {
            table(self)?;
        }
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            if flags & GLOBAL_TABLE == 0 {
                table(self)?;
            }
            self.string()?;
            let kind = self.short()?;
            // Custom types and collections have more fields. floodmark's queries never return them.
            if kind == 0 || kind >= 0x20 {
                return Err(invalid("a column has an unexpected type"));
            }
            columns.push(kind);
        }
        Ok(columns)
    }
}

#[cfg(test)]
#[path = "cql_tests.rs"]
mod tests;
