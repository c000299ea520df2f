//! As much of Cassandra's native protocol (version 4) as reading its virtual tables takes: one connection, one query at a time, rows
//! of numbers and names.
//!
//! Whatever comes is looked at with its bounds: a frame that is damaged, or of something else than Cassandra, is an error.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Version 4, as Cassandra 2.2 to 5.0 speak it, in a request and in an answer.
const REQUEST: u8 = 0x04;
const RESPONSE: u8 = 0x84;

/// What a frame is for (`native_protocol_v4.spec`, section 2.4).
mod opcode {
    pub const ERROR: u8 = 0x00;
    pub const STARTUP: u8 = 0x01;
    pub const READY: u8 = 0x02;
    pub const AUTHENTICATE: u8 = 0x03;
    pub const QUERY: u8 = 0x07;
    pub const RESULT: u8 = 0x08;
}

/// What stands before the body where a frame has one of these flags: warnings, custom payload, the id of a trace. The first flag is
/// compression, which we never ask for.
mod flag {
    pub const COMPRESSED: u8 = 0x01;
    pub const TRACED: u8 = 0x02;
    pub const PAYLOAD: u8 = 0x04;
    pub const WARNINGS: u8 = 0x08;
}

/// Bytes of an answer at most: the views have a row for each table or connection, some hundred bytes each.
const LONGEST: usize = 4 << 20;

/// Columns of an answer at most.
const MOST_COLUMNS: usize = 64;

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(f64),
    /// Null, or of a type that nobody here asks for.
    Nothing,
}

impl Value {
    /// The number that it is; 0 where it is none, as a percentile of nothing is null.
    pub(crate) fn number(&self) -> f64 {
        match self {
            Value::Number(number) if number.is_finite() => *number,
            _ => 0.0,
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => "",
        }
    }
}

/// A connection that has been greeted.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// How long an answer may take.
    patience: Duration,
}

impl Connection {
    /// Begins to speak on a connection.
    ///
    /// # Errors
    /// Who is there asks for a password, does not speak this version, or is no Cassandra.
    pub(crate) fn open(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        let mut connection = Self { stream, patience };
        let mut body = Vec::new();
        let options = [
            ("CQL_VERSION", "3.0.0"),
            ("DRIVER_NAME", "floodmark"),
            ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
        ];
        body.extend((options.len() as u16).to_be_bytes());
        for (name, value) in options {
            for text in [name, value] {
                body.extend((text.len() as u16).to_be_bytes());
                body.extend(text.as_bytes());
            }
        }
        let (opcode, body) = connection.ask(opcode::STARTUP, &body)?;
        match opcode {
            opcode::READY => Ok(connection),
            opcode::AUTHENTICATE => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it asks for a password, and floodmark has none",
            )),
            _ => Err(unexpected(opcode, &body)),
        }
    }

    /// The rows of a query.
    ///
    /// # Errors
    /// What Cassandra says is wrong with it; an answer that is late, damaged or too long.
    pub(crate) fn rows(&mut self, query: &str) -> io::Result<Vec<Vec<Value>>> {
        /// One replica: virtual tables are those of the node that is asked.
        const ONE: [u8; 2] = [0, 1];
        let mut body = Vec::with_capacity(query.len() + 7);
        body.extend((query.len() as u32).to_be_bytes());
        body.extend(query.as_bytes());
        body.extend(ONE);
        // No values, no paging: all rows in one frame.
        body.push(0);
        let (opcode, body) = self.ask(opcode::QUERY, &body)?;
        match opcode {
            opcode::RESULT => Body(&body).rows(),
            _ => Err(unexpected(opcode, &body)),
        }
    }

    /// Sends a frame and waits for its answer: opcode and body without what its flags put before it.
    fn ask(&mut self, opcode: u8, body: &[u8]) -> io::Result<(u8, Vec<u8>)> {
        let mut frame = vec![REQUEST, 0, 0, 0, opcode];
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame).map_err(late)?;
        let until = Instant::now() + self.patience;
        let mut head = [0; 9];
        self.read(&mut head, until)?;
        let (flags, opcode, length) = answer(&head)?;
        let mut body = vec![0; length];
        self.read(&mut body, until)?;
        let mut rest = Body(&body);
        rest.skip_what_flags_add(flags)?;
        let skipped = body.len() - rest.0.len();
        body.drain(..skipped);
        Ok((opcode, body))
    }

    fn read(&mut self, mut into: &mut [u8], until: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            // A timeout of zero would mean none.
            self.stream
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.stream.read(into) {
                Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(n) => into = &mut into[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(late(error)),
            }
        }
        Ok(())
    }
}

/// A timeout in words.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        _ => error,
    }
}

/// Flags, opcode and length of an answer, from its first 9 bytes.
fn answer(head: &[u8; 9]) -> io::Result<(u8, u8, usize)> {
    let [version, flags, _, _, opcode, length @ ..] = *head;
    let length = u32::from_be_bytes(length) as usize;
    if version != RESPONSE {
        return Err(damaged("no answer of version 4 of Cassandra's protocol"));
    }
    if flags & flag::COMPRESSED != 0 {
        return Err(damaged("a compressed answer, which was not asked for"));
    }
    if length > LONGEST {
        return Err(damaged("an answer of more than 4 MiB"));
    }
    Ok((flags, opcode, length))
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// An answer that is none to what was asked; an error says what.
fn unexpected(opcode: u8, body: &[u8]) -> io::Error {
    if opcode != opcode::ERROR {
        return io::Error::new(
            io::ErrorKind::InvalidData,
            format!("an answer of kind {opcode:#04x}"),
        );
    }
    let mut body = Body(body);
    let said = body.int().and_then(|code| Ok((code, body.string()?)));
    match said {
        Ok((code, message)) => {
            let line = message.lines().next().unwrap_or_default();
            io::Error::other(format!("error {code:#06x}: {line}"))
        }
        Err(error) => error,
    }
}

/// How a column's values are to be read.
#[derive(Debug, Clone, Copy)]
enum Type {
    Text,
    Int,
    Bigint,
    Float,
    Double,
    Other,
}

impl Type {
    fn value(self, bytes: &[u8]) -> io::Result<Value> {
        fn of<const N: usize>(bytes: &[u8]) -> io::Result<[u8; N]> {
            bytes
                .try_into()
                .map_err(|_| damaged("a number of the wrong length"))
        }
        Ok(match self {
            Type::Text => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
            Type::Int => Value::Number(i32::from_be_bytes(of(bytes)?).into()),
            Type::Bigint => Value::Number(i64::from_be_bytes(of(bytes)?) as f64),
            Type::Float => Value::Number(f32::from_be_bytes(of(bytes)?).into()),
            Type::Double => Value::Number(f64::from_be_bytes(of(bytes)?)),
            Type::Other => Value::Nothing,
        })
    }
}

/// What is left of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, n: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(n)
            .ok_or_else(|| damaged("an answer that ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?
            .try_into()
            .map_err(|_| damaged("an answer that ends too early"))
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

    /// A value; none where it is null.
    fn bytes(&mut self) -> io::Result<Option<&'a [u8]>> {
        let length = self.int()?;
        usize::try_from(length)
            .ok()
            .map(|length| self.take(length))
            .transpose()
    }

    fn skip_what_flags_add(&mut self, flags: u8) -> io::Result<()> {
        if flags & flag::TRACED != 0 {
            self.take(16)?;
        }
        if flags & flag::WARNINGS != 0 {
            for _ in 0..self.short()? {
                self.string()?;
            }
        }
        if flags & flag::PAYLOAD != 0 {
            for _ in 0..self.short()? {
                self.string()?;
                self.bytes()?;
            }
        }
        Ok(())
    }

    /// The rows of a result; none where it is of another kind.
    fn rows(&mut self) -> io::Result<Vec<Vec<Value>>> {
        const ROWS: i32 = 2;
        if self.int()? != ROWS {
            return Ok(Vec::new());
        }
        let columns = self.columns()?;
        let mut rows = Vec::new();
        for _ in 0..self.int()? {
            let mut row = Vec::with_capacity(columns.len());
            for column in &columns {
                row.push(match self.bytes()? {
                    Some(bytes) => column.value(bytes)?,
                    None => Value::Nothing,
                });
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// The types of a result's columns.
    fn columns(&mut self) -> io::Result<Vec<Type>> {
        const GLOBAL_TABLE: i32 = 1;
        const MORE_PAGES: i32 = 2;
        const NO_METADATA: i32 = 4;
        let flags = self.int()?;
        let count = usize::try_from(self.int()?).unwrap_or(usize::MAX);
        if count == 0 || count > MOST_COLUMNS || flags & NO_METADATA != 0 {
            return Err(damaged("a result without columns, or with more than 64"));
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
            columns.push(self.column_type()?);
        }
        Ok(columns)
    }

    fn column_type(&mut self) -> io::Result<Type> {
        Ok(match self.short()? {
            0x01 | 0x0A | 0x0D => Type::Text,
            0x02 | 0x05 => Type::Bigint,
            0x07 => Type::Double,
            0x08 => Type::Float,
            0x09 => Type::Int,
            // Custom types and collections have parts of their own: no column that is asked for is one.
            0x00 | 0x20.. => return Err(damaged("a column of a type that was not asked for")),
            _ => Type::Other,
        })
    }
}

#[cfg(test)]
#[path = "cql_tests.rs"]
mod tests;
