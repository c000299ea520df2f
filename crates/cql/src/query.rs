//! A query and its result.

use crate::value::{CqlParameter, CqlValue};

/// How many replicas must respond to a query. A conditional write always needs a majority, and its
/// serial consistency is `SERIAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadConsistency {
    /// One replica.
    One,
    /// A majority of the replicas.
    Quorum,
}

/// A query.
#[derive(Debug, Clone, Copy)]
pub struct CqlQuery<'a> {
    /// Text of the query. Each `?` stands for a value.
    pub text: &'a str,
    /// The values, at most 65,535.
    pub values: &'a [CqlParameter<'a>],
    /// How many replicas must respond.
    pub consistency: ReadConsistency,
}

/// The result of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum CqlResult {
    /// The query has been executed and returns nothing.
    Done,
    /// The query has changed the schema.
    SchemaChanged,
    /// All rows of the result.
    Rows(Vec<Vec<CqlValue>>),
}
