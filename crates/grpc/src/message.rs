//! Encodes JSON as messages (the JSON mapping of Protocol Buffers).

use floodmark_wire::grpc::frame;
use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value;
use serde_path_to_error::{Deserializer, Path, Segment, Track};

use crate::Method;

/// Package of the messages whose JSON form is not an object with the message's fields.
const WELL_KNOWN: &str = "google.protobuf";

/// The reason why JSON cannot be encoded as a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The text is not JSON.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// A message has no field with this name.
    #[error("{message} has no field \"{name}\"")]
    UnknownField {
        /// Name of the message.
        message: String,
        /// Name of the field.
        name: String,
        /// Names of the message's fields.
        known: Vec<String>,
    },
    /// A value does not fit.
    #[error("{place}: expected {expected} ({reason})")]
    Value {
        /// The field, or the message.
        place: String,
        /// The type that the description requires.
        expected: String,
        /// The problem.
        reason: String,
    },
    /// The message has 4 GiB or more.
    #[error("the message is longer than 4 GiB")]
    TooLong,
}

impl Method {
    /// Encodes a request that is given as JSON. The result includes the prefix.
    ///
    /// # Errors
    /// The text is not JSON, or does not match the request message.
    pub fn request(&self, json: &[u8]) -> Result<Vec<u8>, MessageError> {
        let value: Value =
            serde_json::from_slice(json).map_err(|error| MessageError::Json(error.to_string()))?;
        let input = self.0.input();
        check_fields(&value, &input)?;
        let mut track = Track::new();
        let options = DeserializeOptions::new();
        let deserializer = Deserializer::new(&value, &mut track);
        let message =
            DynamicMessage::deserialize_with_options(input.clone(), deserializer, &options);
        let message = message.map_err(|error| value_error(&input, &track.path(), &error))?;
        frame(&message.encode_to_vec()).ok_or(MessageError::TooLong)
    }
}

/// Checks that all fields of a message exist.
fn check_fields(value: &Value, message: &MessageDescriptor) -> Result<(), MessageError> {
    let Value::Object(fields) = value else {
        return Ok(());
    };
    if message.package_name() == WELL_KNOWN {
        return Ok(());
    }
    for (name, value) in fields {
        // A name in brackets is an extension, which has no nearest name.
        let Some(field) = field(message, name) else {
            if name.starts_with('[') {
                continue;
            }
            let known = message.fields().map(|field| field.json_name().to_owned());
            return Err(MessageError::UnknownField {
                message: message.full_name().to_owned(),
                name: name.clone(),
                known: known.collect(),
            });
        };
        let Kind::Message(inner) = element_kind(&field) else {
            continue;
        };
        match value {
            Value::Array(items) if field.is_list() => {
                items
                    .iter()
                    .try_for_each(|item| check_fields(item, &inner))?;
            }
            Value::Object(entries) if field.is_map() => {
                entries
                    .values()
                    .try_for_each(|item| check_fields(item, &inner))?;
            }
            value => check_fields(value, &inner)?,
        }
    }
    Ok(())
}

fn field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    let by_json_name = message.get_field_by_json_name(name);
    by_json_name.or_else(|| message.get_field_by_name(name))
}

/// Returns the kind of a field's value, of the elements of a list, or of the values of a map.
fn element_kind(field: &FieldDescriptor) -> Kind {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}

/// Returns the error for an invalid value at this path.
fn value_error(
    message: &MessageDescriptor,
    path: &Path,
    error: &serde_json::Error,
) -> MessageError {
    let mut expected = format!("a JSON object with the fields of {}", message.full_name());
    let mut message = Some(message.clone());
    let mut current: Option<FieldDescriptor> = None;
    for segment in path.iter() {
        match (segment, &current, &message) {
            (Segment::Map { key }, None, Some(of)) => {
                let Some(found) = field(of, key) else {
                    break;
                };
                expected = whole(&found);
                message = match found.kind() {
                    Kind::Message(inner) if !found.is_list() && !found.is_map() => Some(inner),
                    _ => None,
                };
                current = message.is_none().then_some(found);
            }
            (Segment::Map { .. } | Segment::Seq { .. }, Some(field), _) => {
                let kind = element_kind(field);
                expected = one(&kind);
                message = match kind {
                    Kind::Message(inner) => Some(inner),
                    _ => None,
                };
                current = None;
            }
            _ => break,
        }
    }
    let place = match path.iter().next() {
        Some(_) => format!("field \"{path}\""),
        None => "the message".to_owned(),
    };
    MessageError::Value {
        place,
        expected,
        reason: error.to_string(),
    }
}

/// Describes the type of a field's value, including lists and maps.
fn whole(field: &FieldDescriptor) -> String {
    let element = one(&element_kind(field));
    if field.is_map() {
        format!("a JSON object whose values are {element}")
    } else if field.is_list() {
        format!("a list of {element}")
    } else {
        element
    }
}

/// Names the type of one value.
fn one(kind: &Kind) -> String {
    match kind {
        Kind::Double => "double".to_owned(),
        Kind::Float => "float".to_owned(),
        Kind::Int32 => "int32".to_owned(),
        Kind::Int64 => "int64".to_owned(),
        Kind::Uint32 => "uint32".to_owned(),
        Kind::Uint64 => "uint64".to_owned(),
        Kind::Sint32 => "sint32".to_owned(),
        Kind::Sint64 => "sint64".to_owned(),
        Kind::Fixed32 => "fixed32".to_owned(),
        Kind::Fixed64 => "fixed64".to_owned(),
        Kind::Sfixed32 => "sfixed32".to_owned(),
        Kind::Sfixed64 => "sfixed64".to_owned(),
        Kind::Bool => "bool".to_owned(),
        Kind::String => "string".to_owned(),
        Kind::Bytes => "bytes in base64".to_owned(),
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(of) => {
            let values: Vec<String> = of.values().map(|value| value.name().to_owned()).collect();
            format!("{}: {}", of.full_name(), values.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Descriptions;

    use super::*;

    fn method() -> Method {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.proto");
        let text = r#"
            syntax = "proto3";
            package shop;
            import "google/protobuf/timestamp.proto";
            enum Color { NONE = 0; RED = 1; }
            message Part { bool is_new = 1; repeated Part parts = 2; }
            message Order {
                string name = 1;
                int32 count = 2;
                Color color = 3;
                Part part = 4;
                repeated int64 ids = 5;
                google.protobuf.Timestamp at = 6;
                map<string, Part> by_name = 7;
                bytes raw = 8;
            }
            message Reply {}
            service Shop { rpc Buy(Order) returns (Reply); }
        "#;
        std::fs::write(&path, text).unwrap();
        let all = Descriptions::from_proto(&path, &[]).unwrap();
        all.method(&"shop.Shop/Buy".parse().unwrap()).unwrap()
    }

    #[test]
    fn encodes_messages_with_their_prefix() {
        let method = method();
        let encode = |json: &str| method.request(json.as_bytes()).unwrap();
        assert_eq!(encode("{}"), b"\0\0\0\0\0");
        assert_eq!(encode(r#"{"name": "x"}"#), b"\0\0\0\0\x03\x0a\x01x");
        // Either name of a field is accepted, and 64-bit numbers may be strings.
        assert_eq!(
            encode(r#"{"part": {"isNew": true}, "ids": ["1", 2]}"#),
            encode(r#"{"part": {"is_new": true}, "ids": [1, 2]}"#)
        );
        assert_eq!(
            encode(r#"{"at": "1970-01-01T00:00:05Z", "color": "RED"}"#),
            b"\0\0\0\0\x06\x18\x01\x32\x02\x08\x05"
        );
    }

    #[test]
    fn explains_what_does_not_fit() {
        let method = method();
        for (json, words) in [
            (r#"{"name": "#, "not valid JSON: EOF"),
            ("name=x", "not valid JSON"),
            ("{} {}", "not valid JSON: trailing characters"),
            (
                "[1]",
                "the message: expected a JSON object with the fields of shop.Order",
            ),
            (r#"{"nme": 1}"#, "shop.Order has no field \"nme\""),
            (r#"{"part": {"new": 1}}"#, "shop.Part has no field \"new\""),
            (
                r#"{"byName": {"a": {"new": 1}}}"#,
                "shop.Part has no field \"new\"",
            ),
            (r#"{"name": 5}"#, "field \"name\": expected string"),
            (r#"{"count": "x"}"#, "field \"count\": expected int32"),
            (
                r#"{"count": 3000000000}"#,
                "field \"count\": expected int32",
            ),
            (
                r#"{"color": "BLUE"}"#,
                "field \"color\": expected shop.Color: NONE, RED",
            ),
            (r#"{"ids": 5}"#, "field \"ids\": expected a list of int64"),
            (r#"{"ids": [1, "z"]}"#, "field \"ids[1]\": expected int64"),
            (r#"{"part": 5}"#, "field \"part\": expected shop.Part"),
            (
                r#"{"part": {"parts": [{}, {"isNew": 3}]}}"#,
                "field \"part.parts[1].isNew\": expected bool",
            ),
            (
                r#"{"byName": {"a": {"isNew": "yes"}}}"#,
                "field \"byName.a.isNew\": expected bool",
            ),
            (
                r#"{"byName": 5}"#,
                "expected a JSON object whose values are shop.Part",
            ),
            (
                r#"{"at": "yesterday"}"#,
                "field \"at\": expected google.protobuf.Timestamp",
            ),
            (r#"{"raw": "?"}"#, "field \"raw\": expected bytes in base64"),
        ] {
            let error = method.request(json.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains(words) && !error.contains('\n'),
                "{json}: {error}"
            );
        }
    }
}
