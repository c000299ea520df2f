//! A query and its result.

use crate::value::{CqlParameter, CqlValue};

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
