//! Queries and their results, and the parser for response bodies.

use std::io;

/// Number of replicas that must respond to a query. A conditional write always needs a majority:
/// its serial consistency is `SERIAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadConsistency {
    /// One replica.
    One,
    /// A majority of the replicas.
    Quorum,
}

/// A CQL statement and its values.
#[derive(Debug, Clone, Copy)]
pub struct CqlQuery<'a> {
    /// Text of the statement. Each `?` stands for a value.
    pub text: &'a str,
    /// The values, at most 65,535.
    pub values: &'a [CqlParameter<'a>],
    /// Number of replicas that must respond.
    pub consistency: ReadConsistency,
}

/// The result of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum CqlResult {
    /// The query was executed and returned nothing.
    Done,
    /// The query changed the schema.
    SchemaChanged,
    /// All rows of the result.
    Rows(Vec<Vec<CqlValue>>),
}

/// A value in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum CqlValue {
    /// Text of type ascii, text or varchar.
    Text(String),
    /// An integer of type bigint, counter or int.
    Integer(i64),
    /// A number of type double or float.
    Number(f64),
    /// A boolean.
    Flag(bool),
    /// A blob.
    Blob(Vec<u8>),
    /// Null, or a value of a type that floodmark's queries never return.
    Nothing,
}

impl CqlValue {
    /// Returns the number, or 0 if the value is not a finite number, such as a percentile without
    /// samples.
    #[must_use]
    pub fn number(&self) -> f64 {
        match self {
            CqlValue::Integer(number) => *number as f64,
            CqlValue::Number(number) if number.is_finite() => *number,
            _ => 0.0,
        }
    }

    /// Returns the text, or an empty string if the value is not text.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            CqlValue::Text(text) => text,
            _ => "",
        }
    }

    /// Parses a value. `kind` is the type code of the value's column (`native_protocol_v4.spec`,
    /// section 4.2.5.2).
    pub(crate) fn parse(kind: u16, bytes: &[u8]) -> Result<Self, CqlError> {
        fn of<const N: usize>(bytes: &[u8]) -> Result<[u8; N], CqlError> {
            let wrong = |_| CqlError::Invalid("a value has an unexpected length");
            bytes.try_into().map_err(wrong)
        }
        Ok(match kind {
            // ascii, text and varchar
            0x01 | 0x0A | 0x0D => CqlValue::Text(String::from_utf8_lossy(bytes).into_owned()),
            // bigint and counter
            0x02 | 0x05 => CqlValue::Integer(i64::from_be_bytes(of(bytes)?)),
            0x03 => CqlValue::Blob(bytes.to_vec()),
            0x04 => CqlValue::Flag(of(bytes)? != [0]),
            // double
            0x07 => CqlValue::Number(f64::from_be_bytes(of(bytes)?)),
            // float
            0x08 => CqlValue::Number(f32::from_be_bytes(of(bytes)?).into()),
            // int
            0x09 => CqlValue::Integer(i32::from_be_bytes(of(bytes)?).into()),
            _ => CqlValue::Nothing,
        })
    }
}

/// A value for a `?` in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqlParameter<'a> {
    /// A bigint.
    Integer(i64),
    /// A blob, shorter than 2 GiB.
    Blob(&'a [u8]),
    /// Text.
    Text(&'a str),
}

impl CqlParameter<'_> {
    /// Appends the value, preceded by its length.
    pub(crate) fn write(&self, body: &mut Vec<u8>) {
        let integer;
        let bytes: &[u8] = match self {
            CqlParameter::Integer(number) => {
                integer = number.to_be_bytes();
                &integer
            }
            CqlParameter::Blob(bytes) => bytes,
            CqlParameter::Text(text) => text.as_bytes(),
        };
        body.extend((bytes.len() as u32).to_be_bytes());
        body.extend(bytes);
    }
}

const MAX_COLUMNS: usize = 64;

type Parsed<T> = Result<T, CqlError>;

/// The part of a body that has not been parsed yet.
pub(crate) struct ResponseBody<'a>(pub(crate) &'a [u8]);

impl<'a> ResponseBody<'a> {
    fn take(&mut self, n: usize) -> Parsed<&'a [u8]> {
        let parts = self.0.split_at_checked(n);
        let (taken, rest) = parts.ok_or(CqlError::Invalid("the response is truncated"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn int(&mut self) -> Parsed<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn short(&mut self) -> Parsed<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn string(&mut self) -> Parsed<String> {
        let length = self.short()?;
        Ok(String::from_utf8_lossy(self.take(length.into())?).into_owned())
    }

    /// Reads a value. Returns `None` for null.
    fn bytes(&mut self) -> Parsed<Option<&'a [u8]>> {
        let length = usize::try_from(self.int()?).ok();
        length.map(|length| self.take(length)).transpose()
    }

    /// Skips the warnings at the start of the body.
    pub(crate) fn skip_warnings(&mut self) -> Parsed<()> {
        for _ in 0..self.short()? {
            self.string()?;
        }
        Ok(())
    }

    /// Parses the result of a query.
    pub(crate) fn result(&mut self) -> Parsed<CqlResult> {
        const ROWS: i32 = 2;
        const SCHEMA_CHANGE: i32 = 5;
        match self.int()? {
            ROWS => self.rows().map(CqlResult::Rows),
            SCHEMA_CHANGE => Ok(CqlResult::SchemaChanged),
            _ => Ok(CqlResult::Done),
        }
    }

    fn rows(&mut self) -> Parsed<Vec<Vec<CqlValue>>> {
        let columns = self.columns()?;
        let mut rows = Vec::new();
        for _ in 0..self.int()? {
            let row = columns.iter().map(|kind| {
                let value = self.bytes()?.map(|bytes| CqlValue::parse(*kind, bytes));
                value.unwrap_or(Ok(CqlValue::Nothing))
            });
            rows.push(row.collect::<Parsed<_>>()?);
        }
        Ok(rows)
    }

    /// Parses a server error.
    pub(crate) fn error(&mut self) -> Parsed<CqlError> {
        let code = self.int()?;
        let message = self.string()?;
        let message = message.lines().next().unwrap_or_default().to_owned();
        Ok(CqlError::Server { code, message })
    }

    /// Parses the column metadata. Returns the columns' type codes.
    fn columns(&mut self) -> Parsed<Vec<u16>> {
        const GLOBAL_TABLE: i32 = 1;
        const MORE_PAGES: i32 = 2;
        const NO_METADATA: i32 = 4;
        let flags = self.int()?;
        let count = usize::try_from(self.int()?).unwrap_or(usize::MAX);
        if count == 0 || count > MAX_COLUMNS || flags & NO_METADATA != 0 {
            return Err(CqlError::Invalid(
                "expected a result with metadata for 1 to 64 columns",
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
            // Custom and collection types have additional fields. floodmark's queries never return
            // such columns.
            if kind == 0 || kind >= 0x20 {
                return Err(CqlError::Invalid("a column has an unexpected type"));
            }
            columns.push(kind);
        }
        Ok(columns)
    }
}

/// The reason for a failed handshake or query.
#[derive(Debug, thiserror::Error)]
pub enum CqlError {
    /// The connection failed.
    #[error(transparent)]
    Io(io::Error),
    /// The peer did not read the request or did not respond within the timeout.
    #[error("no response within the timeout")]
    Timeout,
    /// The response is damaged, or belongs to another protocol or request.
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
