//! Finds numbers at a location in a JSON text without building the document in memory.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A location in a JSON text (JSON Pointer, RFC 6901). The empty pointer refers to the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct JsonPointer {
    text: String,
    segments: Vec<String>,
}

/// The text is not a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a JSON pointer; start with a slash, such as \"/data/value\"")]
pub struct PointerError(String);

/// The text is not a path to a single value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a path: {what}; write $.name, $.items[0].id or $[\"a name\"]")]
pub struct JsonPathError {
    text: String,
    what: &'static str,
}

impl TryFrom<String> for JsonPointer {
    type Error = PointerError;

    fn try_from(text: String) -> Result<Self, PointerError> {
        let Some(rest) = text.strip_prefix('/') else {
            return if text.is_empty() {
                Ok(JsonPointer::default())
            } else {
                Err(PointerError(text))
            };
        };
        let unescape = |segment: &str| segment.replace("~1", "/").replace("~0", "~");
        let segments = rest.split('/').map(unescape).collect();
        Ok(JsonPointer { text, segments })
    }
}

impl From<JsonPointer> for String {
    fn from(pointer: JsonPointer) -> String {
        pointer.text
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The content of a location in a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointedValue {
    /// A non-negative integer, as a number or as a string of digits.
    Number(u64),
    /// JSON null.
    Null,
    /// Any other value, or no value.
    Other,
}

impl JsonPointer {
    /// Returns the value at this location. An empty body has a null value.
    ///
    /// Allocates memory only if skipped values are nested, or a string contains an escape.
    #[must_use]
    pub fn number(&self, body: &[u8]) -> PointedValue {
        if body.trim_ascii().is_empty() {
            return PointedValue::Null;
        }
        let at = At {
            rest: &self.segments,
            leaf: NumberLeaf,
        };
        let mut json = serde_json::Deserializer::from_slice(body);
        match at.deserialize(&mut json) {
            Ok(Some(value)) if json.end().is_ok() => value,
            _ => PointedValue::Other,
        }
    }

    /// Returns whether the value at this location equals `expected`; `None` expects no value at this
    /// location. A body that is not JSON never fits.
    ///
    /// Allocates memory only if skipped values are nested, a string contains an escape, or the value
    /// is an array or an object.
    #[must_use]
    pub fn fits(&self, body: &[u8], expected: Option<&Value>) -> bool {
        let at = At {
            rest: &self.segments,
            leaf: ValueLeaf(expected),
        };
        let mut json = serde_json::Deserializer::from_slice(body);
        match at.deserialize(&mut json) {
            Ok(found) => found.unwrap_or(expected.is_none()) && json.end().is_ok(),
            Err(_) => false,
        }
    }

    /// Reads a location in the form of a JSONPath, such as `$.items[0].id` or `$["a b"]`, from the
    /// start of `text`. Returns the rest of the text too.
    ///
    /// # Errors
    /// The text does not start with a path, or the path selects several values.
    pub fn of_json_path(text: &str) -> Result<(Self, &str), JsonPathError> {
        let invalid = |what| JsonPathError {
            text: text.to_owned(),
            what,
        };
        let mut rest = text.strip_prefix('$').ok_or(invalid("it has no \"$\""))?;
        let mut pointer = JsonPointer::default();
        loop {
            let segment;
            if let Some(name) = rest.strip_prefix('.') {
                (segment, rest) = name.split_at(name.find(['.', '[', '=']).unwrap_or(name.len()));
                if segment.trim() != segment {
                    return Err(invalid("a name without quotes starts or ends with a space"));
                }
            } else if let Some(inner) = rest.strip_prefix('[') {
                let quote = inner.chars().next().filter(|c| "\"'".contains(*c));
                let split = match quote {
                    Some(quote) => inner[1..].split_once(&format!("{quote}]")),
                    None => inner.split_once(']'),
                };
                (segment, rest) = split.ok_or(invalid("a bracket is not closed"))?;
                let index = segment.parse().map(|n: usize| n.to_string());
                if quote.is_none() && index.as_deref() != Ok(segment) {
                    return Err(invalid(
                        "a bracket contains neither an index nor a quoted name",
                    ));
                }
            } else {
                return Ok((pointer, rest));
            }
            if matches!(segment, "" | "*") {
                return Err(invalid("a name is missing, or selects several values"));
            }
            pointer.text += &format!("/{}", segment.replace('~', "~0").replace('/', "~1"));
            pointer.segments.push(segment.to_owned());
        }
    }

    /// Calls `each` with the number at `value` in each element of the array at this location.
    ///
    /// # Errors
    /// The text is not JSON, or there is no array at this location.
    pub fn each_number(
        &self,
        body: &[u8],
        value: &JsonPointer,
        each: &mut dyn FnMut(PointedValue),
    ) -> Result<(), String> {
        let at = At {
            rest: &self.segments,
            leaf: ArrayLeaf {
                value: &value.segments,
                each,
            },
        };
        let mut json = serde_json::Deserializer::from_slice(body);
        let found = at.deserialize(&mut json).map_err(|e| e.to_string())?;
        json.end().map_err(|e| e.to_string())?;
        found.ok_or_else(|| {
            if self.segments.is_empty() {
                "the response is not an array".to_owned()
            } else {
                format!("the response has no array at \"{self}\"")
            }
        })
    }
}

/// Deserializes the value at a location with `leaf`. The result is `None` if the location does not
/// exist.
struct At<'p, L> {
    rest: &'p [String],
    leaf: L,
}

impl<'de, L: DeserializeSeed<'de>> DeserializeSeed<'de> for At<'_, L> {
    type Value = Option<L::Value>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        match self.rest.split_first() {
            None => self.leaf.deserialize(json).map(Some),
            Some((segment, rest)) => json.deserialize_any(Within {
                segment,
                rest,
                leaf: self.leaf,
            }),
        }
    }
}

/// Visits an object or array, and continues at one of its elements.
struct Within<'p, L> {
    segment: &'p str,
    rest: &'p [String],
    leaf: L,
}

/// Visits a scalar, which has no elements.
macro_rules! no_elements {
    ($($visit:ident($($kind:ty)?))*) => { $(
        fn $visit<E>(self $(, _: $kind)?) -> Result<Self::Value, E> {
            Ok(None)
        }
    )* };
}

impl<'de, L: DeserializeSeed<'de>> Visitor<'de> for Within<'_, L> {
    type Value = Option<L::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    no_elements!(visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) visit_unit());

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut leaf = Some(self.leaf);
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(KeyIs(self.segment))? {
            match leaf.take() {
                Some(leaf) if is_it => {
                    let rest = self.rest;
                    found = map.next_value_seed(At { rest, leaf })?;
                }
                unused => {
                    leaf = unused;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut before = self.segment.parse::<usize>().ok();
        while let Some(n) = before
            && n > 0
            && seq.next_element::<IgnoredAny>()?.is_some()
        {
            before = Some(n - 1);
        }
        if before == Some(0) {
            let at = At {
                rest: self.rest,
                leaf: self.leaf,
            };
            found = seq.next_element_seed(at)?.flatten();
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

/// Compares a key.
struct KeyIs<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for KeyIs<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIs<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

/// Reads a number.
struct NumberLeaf;

impl<'de> DeserializeSeed<'de> for NumberLeaf {
    type Value = PointedValue;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<PointedValue, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NumberLeaf {
    type Value = PointedValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<PointedValue, E> {
        Ok(PointedValue::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<PointedValue, E> {
        Ok(PointedValue::Number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<PointedValue, E> {
        Ok(u64::try_from(number).map_or(PointedValue::Other, PointedValue::Number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<PointedValue, E> {
        /// Below this limit, an `f64` represents every integer exactly.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let is_whole = (0.0..EXACT).contains(&number) && number.fract() == 0.0;
        Ok(if is_whole {
            PointedValue::Number(number as u64)
        } else {
            PointedValue::Other
        })
    }

    fn visit_str<E>(self, text: &str) -> Result<PointedValue, E> {
        let plain = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| plain);
        Ok(number.map_or(PointedValue::Other, PointedValue::Number))
    }

    fn visit_unit<E>(self) -> Result<PointedValue, E> {
        Ok(PointedValue::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PointedValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(PointedValue::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PointedValue, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(PointedValue::Other)
    }
}

/// Compares a value. `None` differs from every value.
struct ValueLeaf<'p>(Option<&'p Value>);

impl ValueLeaf<'_> {
    fn is_number(&self, number: f64) -> bool {
        self.0.and_then(Value::as_f64) == Some(number)
    }
}

impl<'de> DeserializeSeed<'de> for ValueLeaf<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueLeaf<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(self.0.and_then(Value::as_bool) == Some(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<bool, E> {
        Ok(match self.0.and_then(Value::as_u64) {
            Some(expected) => expected == number,
            None => self.is_number(number as f64),
        })
    }

    fn visit_i64<E>(self, number: i64) -> Result<bool, E> {
        Ok(match self.0.and_then(Value::as_i64) {
            Some(expected) => expected == number,
            None => self.is_number(number as f64),
        })
    }

    fn visit_f64<E>(self, number: f64) -> Result<bool, E> {
        Ok(self.is_number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(self.0.and_then(Value::as_str) == Some(text))
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(self.0.is_some_and(Value::is_null))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<bool, A::Error> {
        let value = Value::deserialize(MapAccessDeserializer::new(map))?;
        Ok(self.0 == Some(&value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<bool, A::Error> {
        let value = Value::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(self.0 == Some(&value))
    }
}

/// Reads a number from each element of an array.
struct ArrayLeaf<'p> {
    value: &'p [String],
    each: &'p mut dyn FnMut(PointedValue),
}

impl<'de> DeserializeSeed<'de> for ArrayLeaf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ArrayLeaf<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let at = || At {
            rest: self.value,
            leaf: NumberLeaf,
        };
        while let Some(value) = seq.next_element_seed(at())? {
            (self.each)(value.unwrap_or(PointedValue::Other));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PointedValue::{Null, Number, Other};
    use proptest::prelude::*;

    fn pointer(text: &str) -> JsonPointer {
        JsonPointer::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn reads_a_number_at_a_place() {
        for (place, body, expected) in [
            ("", "17", Number(17)),
            ("", " \"17\"\n", Number(17)),
            ("", "", Null),
            ("", "null", Null),
            ("", "17 18", Other),
            ("", "-1", Other),
            ("", "1.5", Other),
            ("", "17.0", Number(17)),
            ("", "18446744073709551615", Number(u64::MAX)),
            ("", "seventeen", Other),
            ("/a", r#"{"b":{"a":1},"a":2}"#, Number(2)),
            ("/b/a", r#"{"b":{"a":1},"a":2}"#, Number(1)),
            ("/a", r#"{"a":null}"#, Null),
            ("/a", r#"{"b":1}"#, Other),
            ("/a/b", r#"{"a":null}"#, Other),
            ("/1/v", r#"[{"v":5},{"v":6},{"v":7}]"#, Number(6)),
            ("/3/v", r#"[{"v":5}]"#, Other),
            ("/a~1b/m~0n", r#"{"a/b":{"m~n":3}}"#, Number(3)),
            ("/a", r#"{"\u0061":4}"#, Number(4)),
            ("/a", r#"{"a":{"b":1}}"#, Other),
            ("/a", r#"{"a":[1]}"#, Other),
            ("/a", r#"{"a":1"#, Other),
            ("/a", r#"{"a":1,"a":2}"#, Number(1)),
        ] {
            assert_eq!(
                pointer(place).number(body.as_bytes()),
                expected,
                "{place} in {body}"
            );
        }
    }

    #[test]
    fn reads_the_numbers_in_an_array() {
        let read = |items: &str, value: &str, body: &str| {
            let mut all = Vec::new();
            let each = &mut |value| all.push(value);
            let result = pointer(items).each_number(body.as_bytes(), &pointer(value), each);
            result.map(|()| all)
        };
        let body = r#"{"data":[{"n":"1"},{"n":2},{"x":3},{"n":null}]}"#;
        assert_eq!(
            read("/data", "/n", body),
            Ok(vec![Number(1), Number(2), Other, Null])
        );
        assert_eq!(read("", "", "[3, 4]"), Ok(vec![Number(3), Number(4)]));
        assert_eq!(read("", "", "[]"), Ok(vec![]));
        let error = read("/items", "/n", body).unwrap_err();
        assert_eq!(error, "the response has no array at \"/items\"");
        assert!(
            read("", "", "{}")
                .unwrap_err()
                .contains("expected an array")
        );
        assert!(read("", "", "[1").is_err());
    }

    #[test]
    fn reads_json_paths() {
        for (path, expected) in [
            ("$=1", ("", "=1")),
            ("$.a.b=x=y", ("/a/b", "=x=y")),
            ("$.items[12].id=absent", ("/items/12/id", "=absent")),
            ("$[\"a=[1]/~\"]['.']=1", ("/a=[1]~1~0/.", "=1")),
            ("$.a", ("/a", "")),
        ] {
            let (pointer, rest) = JsonPointer::of_json_path(path).unwrap();
            assert_eq!((pointer.text.as_str(), rest), expected, "{path}");
            assert_eq!(JsonPointer::try_from(pointer.text.clone()), Ok(pointer));
        }
        for path in [
            "",
            "a.b",
            "$.",
            "$..a",
            "$.a[*]",
            "$.*",
            "$[a]",
            "$[1",
            "$['a]",
            "$[]",
            "$.a =1",
            "$[01]",
            "$[99999999999999999999]",
        ] {
            let error = JsonPointer::of_json_path(path).unwrap_err().to_string();
            assert!(error.contains("$.name"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn fits_only_the_value_of_a_parsed_document(
            place in "(/[ab01]){0,3}",
            body in r#"(\{"a":(1|-1|1\.0|"2"|true|null|\[3,\{"b":4\}\])(,"b":6)?\}|\[7,8\]|9)"#,
            expected in r#"(1|-1|"2"|true|null|\[3,\{"b":4\}\]|\{"b":4\}|6|8|9)"#,
        ) {
            let [document, expected] = [&body, &expected].map(|text| serde_json::from_str::<Value>(text).unwrap());
            let found = document.pointer(&place);
            let is_equal = found.is_some_and(|found| *found == expected || found.as_f64().is_some_and(|n| expected.as_f64() == Some(n)));
            let fits = |expected| pointer(&place).fits(body.as_bytes(), expected);
            prop_assert_eq!(fits(Some(&expected)), is_equal, "{} in {}", place, body);
            prop_assert_eq!(fits(None), found.is_none(), "{} in {}", place, body);
            let cut = body.len() - 1;
            prop_assert!(!pointer(&place).fits(&body.as_bytes()[..cut], Some(&expected)));
        }
    }

    #[test]
    fn refuses_a_pointer_without_a_slash() {
        let error = JsonPointer::try_from("value".to_owned()).unwrap_err();
        assert!(error.to_string().contains("start with a slash"), "{error}");
    }

    proptest! {
        #[test]
        fn agrees_with_a_parsed_document(
            place in "(/[ab01]){0,3}", body in r#"(\{"a":(1|"2"|null|\[3,\{"b":4\}\]|\{"0":5\})(,"b":6)?\}|\[7,8\]|9)"#,
        ) {
            let document: serde_json::Value = serde_json::from_str(&body).unwrap();
            let expected = match document.pointer(&place) {
                Some(serde_json::Value::Null) => Null,
                Some(value) => {
                    let text = value.as_str().map_or(value.to_string(), str::to_owned);
                    text.parse().map_or(Other, Number)
                }
                None => Other,
            };
            prop_assert_eq!(pointer(&place).number(body.as_bytes()), expected, "{} in {}", place, body);
        }
    }
}
