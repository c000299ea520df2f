//! The keys that a manifest may have: one table for reading it strictly and for its JSON Schema.

use std::time::Duration;

use floodmark_record::units::{parse_count, parse_duration, parse_rate};
use serde_json::{Value as Json, json};
use toml::de::DeValue;

/// A key.
#[derive(Debug)]
pub struct Field {
    /// As it is written.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Whether it must be there.
    pub needed: bool,
    /// For the schema: what it means, with its unit and what holds without it.
    pub about: &'static str,
}

/// What a value is.
#[derive(Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// A name: letters, digits, `-`, `_` and `.`, for it becomes part of file names.
    Name,
    /// One of some words.
    OneOf(&'static [&'static str]),
    /// true or false.
    Flag,
    /// A length of time with its unit, longer than nothing.
    Duration,
    /// A length of time with its unit, which may be 0s.
    Delay,
    /// `auto`, or a length of time that may be 0s.
    Warmup,
    /// A whole number within bounds, as a number or as a text like `100k`.
    Count(u64, u64),
    /// A number of events per second above 0, as a number or as a text like `2.5k`.
    Rate,
    /// Any finite number.
    Number,
    /// A list of texts.
    Texts,
    /// A text, a whole number or true or false.
    Scalar,
    /// A list of such.
    Scalars,
    /// A table with any keys and such values.
    AnyScalars,
    /// A table with any keys, each with a list of such.
    AnyLists,
    /// `[name]`, with these keys.
    Table(&'static [Field]),
    /// `[[name]]`, each with these keys.
    Tables(&'static [Field]),
    /// `[name]`, with any keys, each a table with these.
    Named(&'static [Field]),
}

/// Shorthand for the tables of keys.
pub const fn field(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        kind,
        needed: false,
        about,
    }
}

/// The same for a key that must be there.
pub const fn needed(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        needed: true,
        ..field(name, kind, about)
    }
}

/// Longest name of a system or trial, so that tables keep their shape.
pub const LONGEST_NAME: usize = 40;

impl Kind {
    /// What is expected in words, with an example; of a value that is not that.
    pub fn expected(&self, key: &str) -> String {
        match self {
            Kind::Text => format!("a text, like {key} = \"…\""),
            Kind::Name => format!(
                "a name of up to {LONGEST_NAME} letters, digits, \"-\", \"_\" or \".\", like {key} = \"my-server\""
            ),
            Kind::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                words.join(" or ")
            }
            Kind::Flag => "true or false".to_owned(),
            Kind::Duration => {
                format!("a time with its unit, longer than nothing, like {key} = \"10s\"")
            }
            Kind::Delay => format!("a time with its unit, like {key} = \"20ms\" or \"0s\""),
            Kind::Warmup => format!("\"auto\" or a time with its unit, like {key} = \"5s\""),
            Kind::Count(low, high) => {
                format!("a whole number from {low} to {high}, like {key} = {low} or \"1k\"")
            }
            Kind::Rate => format!("a number per second above 0, like {key} = 1000 or \"2.5k\""),
            Kind::Number => format!("a number, like {key} = 0.98"),
            Kind::Texts => format!("a list of texts, like {key} = [\"…\"]"),
            Kind::Scalar => "a text, a whole number, true or false".to_owned(),
            Kind::Scalars => format!("a list of values, like {key} = [1, 2]"),
            Kind::AnyScalars => format!("a table of values, like {key} = {{ threads = 2 }}"),
            Kind::AnyLists => format!("a table of lists, like {key} = {{ threads = [8, 32] }}"),
            Kind::Table(_) => format!("a table, [{key}] in single brackets"),
            Kind::Tables(_) => format!("tables, each [[{key}]] in double brackets"),
            Kind::Named(_) => format!("a table of tables, like [{key}] and threads = {{ … }}"),
        }
    }

    /// Whether a value is one of these; what is within tables is looked at when they are.
    pub fn holds(&self, value: &DeValue<'_>) -> bool {
        let text = value.as_str();
        let every = |is: fn(&DeValue<'_>) -> bool| {
            value
                .as_array()
                .is_some_and(|all| all.iter().all(|one| is(one.get_ref())))
        };
        match self {
            Kind::Text => text.is_some(),
            Kind::Name => text.is_some_and(is_name),
            Kind::OneOf(words) => text.is_some_and(|text| words.contains(&text)),
            Kind::Flag => value.as_bool().is_some(),
            Kind::Duration => duration(value).is_some_and(|length| !length.is_zero()),
            Kind::Delay => duration(value).is_some(),
            Kind::Warmup => text == Some("auto") || duration(value).is_some(),
            Kind::Count(low, high) => count(value).is_some_and(|n| (*low..=*high).contains(&n)),
            Kind::Rate => rate(value).is_some(),
            Kind::Number => number(value).is_some(),
            Kind::Texts => every(|one| one.as_str().is_some()),
            Kind::Scalar => scalar(value).is_some(),
            Kind::Scalars => every(|one| scalar(one).is_some()),
            Kind::AnyScalars => value
                .as_table()
                .is_some_and(|all| all.values().all(|one| scalar(one.get_ref()).is_some())),
            Kind::AnyLists => value
                .as_table()
                .is_some_and(|all| all.values().all(|one| Kind::Scalars.holds(one.get_ref()))),
            Kind::Table(_) | Kind::Named(_) => value.is_table(),
            Kind::Tables(_) => every(|one| one.is_table()),
        }
    }

    fn schema(&self) -> Json {
        let scalar = json!({ "type": ["string", "integer", "boolean"] });
        match self {
            Kind::Text => json!({ "type": "string" }),
            Kind::Name => {
                json!({ "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}$") })
            }
            Kind::OneOf(words) => json!({ "enum": words }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Duration => json!({ "type": "string", "pattern": DURATION }),
            Kind::Delay => json!({ "type": "string", "pattern": format!("{DURATION}|^0$") }),
            Kind::Warmup => {
                json!({ "type": "string", "pattern": format!("^auto$|{DURATION}|^0$") })
            }
            Kind::Count(low, high) => json!({ "anyOf": [
                { "type": "integer", "minimum": low, "maximum": high },
                { "type": "string", "pattern": "^[0-9.]+[kKM]?$" },
            ]}),
            Kind::Rate => json!({ "anyOf": [
                { "type": "number", "exclusiveMinimum": 0 },
                { "type": "string", "pattern": "^[0-9.]+[kKM]?$" },
            ]}),
            Kind::Number => json!({ "type": "number" }),
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::Scalar => scalar,
            Kind::Scalars => json!({ "type": "array", "items": scalar }),
            Kind::AnyScalars => json!({ "type": "object", "additionalProperties": scalar }),
            Kind::AnyLists => {
                json!({ "type": "object", "additionalProperties": Kind::Scalars.schema() })
            }
            Kind::Table(fields) => table(fields),
            Kind::Tables(fields) => json!({ "type": "array", "items": table(fields) }),
            Kind::Named(fields) => {
                json!({ "type": "object", "additionalProperties": table(fields) })
            }
        }
    }
}

const DURATION: &str = r"^[0-9.]+\s*(ns|us|µs|ms|s|m|min|h)$";

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // A name of dots alone would be a folder that is there already.
    (1..=LONGEST_NAME).contains(&text.len())
        && text.chars().all(plain)
        && text.chars().any(|c| c != '.')
}

/// A length of time.
pub fn duration(value: &DeValue<'_>) -> Option<Duration> {
    parse_duration(value.as_str()?).ok()
}

/// A whole number.
pub fn count(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        DeValue::String(text) => parse_count(text).ok(),
        _ => None,
    }
}

/// Events per second.
pub fn rate(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::String(text) => parse_rate(text).ok(),
        _ => number(value).filter(|rate| *rate > 0.0),
    }
}

/// A finite number.
pub fn number(value: &DeValue<'_>) -> Option<f64> {
    let number: f64 = match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok()?,
        DeValue::Float(number) => number.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// A text, a whole number or a truth, as text.
pub fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The JSON Schema of a whole file.
pub fn schema(title: &str, fields: &'static [Field]) -> Json {
    let mut schema = table(fields);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema
}

fn table(fields: &'static [Field]) -> Json {
    let properties: serde_json::Map<String, Json> = fields
        .iter()
        .map(|field| {
            let mut schema = field.kind.schema();
            schema["description"] = json!(field.about);
            (field.name.to_owned(), schema)
        })
        .collect();
    let needed: Vec<&str> = fields
        .iter()
        .filter(|field| field.needed)
        .map(|field| field.name)
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": false,
    })
}
