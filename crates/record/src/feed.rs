//! Values for the requests of a mix, from a data file (`[[feed]]`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::body::RequestBody;

/// A data file whose rows provide values for the requests of a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Feed {
    /// File name without its directory.
    pub file: String,
    /// Rule that selects a request's row.
    pub take: RowChoice,
    /// Number of rows, at least 1.
    pub rows: u64,
    /// Columns that requests use. A column that is used both in a path and elsewhere occurs twice.
    pub columns: Vec<FeedColumn>,
    /// Values of these columns, row by row. Each value follows its length in bytes, a little-endian
    /// 32-bit integer. The record contains only their hash, because values can be secret.
    pub values: RequestBody,
}

/// A column of a data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeedColumn {
    /// Name in the first line of the file.
    pub name: String,
    /// Whether the values are percent-encoded, for use in a path.
    pub is_encoded: bool,
}

/// Rule that selects a request's row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowChoice {
    /// Request n takes row n; after the last row, the first row follows.
    #[default]
    InTurn,
    /// Each request takes a random row, which depends on the seed and the request's number.
    Random,
    /// Request n takes row n. The load ends when all rows have been used.
    Unique,
}
