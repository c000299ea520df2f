//! Conversion of values to and from JSON, for files and for messages between processes.
//!
//! These functions are not generic, so the code for each type is compiled once, in this crate.

use crate::result::Record;
use crate::stream::Event;
use crate::watch::ObserverLine;

impl Record {
    /// Returns the record as indented JSON.
    ///
    /// # Errors
    /// A path is not UTF-8.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }

    /// Reads a record. Converts the fields of earlier schema versions.
    ///
    /// # Errors
    /// The text is not valid JSON for a record.
    pub fn from_json(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }
}

macro_rules! lines {
    ($($of:ty),*) => {$(
        impl $of {
            /// Returns the value as a line of JSON, including the line feed.
            ///
            /// # Errors
            /// A path is not UTF-8.
            pub fn to_line(&self) -> serde_json::Result<Vec<u8>> {
                let mut line = serde_json::to_vec(self)?;
                line.push(b'\n');
                Ok(line)
            }

            /// Reads a line of JSON, with or without its line feed.
            ///
            /// # Errors
            /// The line is not valid JSON for this type.
            pub fn from_line(line: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(line)
            }
        }
    )*};
}

lines!(Event, ObserverLine);
