//! A query, its result and their values.

use crate::error::CqlError;

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

    /// Parses a value. `kind` is the type code of its column (section 4.2.5.2).
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
