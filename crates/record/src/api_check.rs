//! A check of any API: how a plan's requests write and read values, and how to read back the items
//! of a set.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::operation::OperationKind;
use crate::pointer::{JsonPointer, PointedValue};

/// A check of an API that a file describes (`--check FILE`).
///
/// The plan's mix contains the requests: first the write, then the read, if any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiCheck {
    /// Property that the check verifies.
    pub kind: ApiCheckKind,
    /// Number of keys. `{key}` in a request stands for a number from 1 to this number.
    pub keys: u64,
    /// Location of the new value in the response to an increment; null if these responses contain
    /// no value.
    pub write_value: Option<JsonPointer>,
    /// Location of the value in the response to a read; null without reads.
    pub read_value: Option<JsonPointer>,
    /// How to read all items of a set; null for other checks.
    pub readback: Option<Readback>,
    /// The keys in the check file that locate the values, such as
    /// `items.toml:5: read.value "/data"`. Empty in records from earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value_places: Vec<String>,
}

crate::names::named! {
    /// Property that a check of an API verifies.
    ApiCheckKind {
        /// At the end, every acknowledged item is found exactly once, and no unexpected item is
        /// found.
        Set = "set",
        /// Reads and writes of each key are linearizable.
        Register = "register",
        /// Each counter counts every acknowledged increment exactly once.
        Counter = "counter",
    }
}

/// How to read all items of a set after an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readback {
    /// Path and query. `{page}` stands for the number of the page, from 1.
    pub path: String,
    /// Headers given for all requests (`-H`).
    pub headers: Vec<(String, String)>,
    /// Location of the array of items.
    pub items: JsonPointer,
    /// Location of the value in each item.
    pub value: JsonPointer,
}

/// Items that were read back after an attempt, and stored in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemsFile {
    /// Name of the file in the result directory. The file contains one little-endian 64-bit integer
    /// per item.
    pub file: String,
    /// Number of items in the file.
    pub count: u64,
    /// Number of items in which no integer was found. The file does not contain these items.
    pub unreadable: u64,
    /// Number of items that existed before the first attempt. Results of earlier versions can
    /// contain a number above 0; later versions require an empty set.
    pub before: u64,
    /// Why the items could not be read; null on success.
    pub failure: Option<String>,
    /// Whether the readback was interrupted.
    #[serde(default)]
    pub interrupted: bool,
}

/// The part of an [`ApiCheck`] that concerns the responses to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRule {
    /// Whether the request writes.
    pub is_write: bool,
    /// Location of the value in the response; `None` if the value is not needed.
    pub value: Option<JsonPointer>,
}

/// Status with which a server responds to a read of a key that has no value.
const NOT_FOUND: u16 = 404;

impl ApiCheck {
    /// Returns the rules for the requests of the plan's mix, in order.
    #[must_use]
    pub fn rules(&self) -> Vec<OperationRule> {
        let write = OperationRule {
            is_write: true,
            value: self.write_value.clone(),
        };
        let read = self.read_value.clone().map(|value| OperationRule {
            is_write: false,
            value: Some(value),
        });
        [write].into_iter().chain(read).collect()
    }

    /// Returns text that names the keys in the check file that locate the values.
    #[must_use]
    pub fn show_value_places(&self) -> String {
        match self.value_places[..] {
            [] => "`value` in the check file".to_owned(),
            _ => self.value_places.join(" or "),
        }
    }
}

impl OperationRule {
    /// Classifies a complete response.
    /// Returns the kind of the operation, and the value in the response, if any.
    /// Returns `None` for a read whose result is unknown, which no check needs.
    #[must_use]
    pub fn classify(&self, status: u16, body: &[u8]) -> Option<(OperationKind, Option<u64>)> {
        let is_ok = (200..400).contains(&status);
        let value = || match &self.value {
            Some(place) if is_ok => Some(place.number(body)),
            _ => None,
        };
        if !self.is_write {
            return match value() {
                Some(PointedValue::Number(value)) => Some((OperationKind::Read, Some(value))),
                Some(PointedValue::Null) => Some((OperationKind::ReadNothing, None)),
                Some(PointedValue::Other) => None,
                None => (status == NOT_FOUND).then_some((OperationKind::ReadNothing, None)),
            };
        }
        Some(match value() {
            Some(PointedValue::Number(value)) => (OperationKind::Acknowledged, Some(value)),
            // The server reports success but no usable value, so the write's place in the order is
            // unknown.
            Some(_) => (OperationKind::Unknown, None),
            None if is_ok => (OperationKind::Acknowledged, None),
            None if (400..500).contains(&status) => (OperationKind::Refused, None),
            None => (OperationKind::Unknown, None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OperationKind::{Acknowledged, Read, ReadNothing, Refused, Unknown};

    fn rule(is_write: bool, value: Option<&str>) -> OperationRule {
        let value = value.map(|text| JsonPointer::try_from(text.to_owned()).unwrap());
        OperationRule { is_write, value }
    }

    #[test]
    fn the_status_tells_whether_a_write_was_executed() {
        let write = rule(true, None);
        for (status, kind) in [
            (200, Acknowledged),
            (303, Acknowledged),
            (404, Refused),
            (429, Refused),
            (500, Unknown),
            (503, Unknown),
        ] {
            assert_eq!(
                write.classify(status, b"17"),
                Some((kind, None)),
                "{status}"
            );
        }
    }

    #[test]
    fn reads_the_values_of_responses() {
        let read = rule(false, Some("/v"));
        assert_eq!(read.classify(200, br#"{"v":17}"#), Some((Read, Some(17))));
        assert_eq!(
            read.classify(200, br#"{"v":null}"#),
            Some((ReadNothing, None))
        );
        assert_eq!(
            read.classify(404, br#"{"v":17}"#),
            Some((ReadNothing, None))
        );
        assert_eq!(read.classify(200, b"{}"), None);
        assert_eq!(read.classify(500, br#"{"v":17}"#), None);
        let increment = rule(true, Some(""));
        assert_eq!(increment.classify(200, b"5"), Some((Acknowledged, Some(5))));
        assert_eq!(increment.classify(200, b"ok"), Some((Unknown, None)));
        assert_eq!(increment.classify(409, b"5"), Some((Refused, None)));
    }
}
