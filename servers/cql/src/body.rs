//! Parses response bodies.

use crate::error::CqlError;
use crate::query::{CqlResult, CqlValue};

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
            // Custom and collection types have more fields. floodmark's queries never return such
            // columns.
            if kind == 0 || kind >= 0x20 {
                return Err(CqlError::Invalid("a column has an unexpected type"));
            }
            columns.push(kind);
        }
        Ok(columns)
    }
}
