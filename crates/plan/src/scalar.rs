//! Types for individual manifest values, each with a parser and a JSON Schema.

use std::fmt;
use std::time::Duration;

use floodmark_record::units::{Rate, parse_count, parse_duration, parse_rate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::spec::Warmup;
use crate::toml_file::nearest;
use crate::values;

/// Maximum length of a name in characters, to keep tables narrow.
pub const MAX_NAME: usize = 40;

/// Largest count. An `f64` represents all whole numbers up to this value exactly.
pub const MAX_COUNT: u64 = 1 << 53;

/// A string, number or boolean.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn text(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Scalar::Integer(n) => Some(*n as f64),
            Scalar::Float(n) => Some(*n).filter(|n| n.is_finite()),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => write!(f, "\"{text}\""),
            Scalar::Integer(n) => n.fmt(f),
            Scalar::Float(n) => n.fmt(f),
            Scalar::Boolean(truth) => truth.fmt(f),
        }
    }
}

/// Parses a manifest value. `parse` returns `None` for a value that does not have the `expected`
/// form. `words` are the values to suggest for a misspelled word.
fn read<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    expected: &str,
    words: &[&'static str],
    parse: fn(&Scalar) -> Option<T>,
) -> Result<T, D::Error> {
    let scalar = Scalar::deserialize(deserializer)
        .map_err(|_| D::Error::custom(format!("expected {expected}")))?;
    let suggest = |text| nearest(text, words.iter().copied());
    parse(&scalar).ok_or_else(|| match scalar.text().and_then(suggest) {
        Some(word) => D::Error::custom(format!("unknown value {scalar}; did you mean \"{word}\"?")),
        None => D::Error::custom(format!("expected {expected}, not {scalar}")),
    })
}

/// Declares a newtype for a manifest value, with its inner type, expected form, parser, schema and
/// suggested words.
macro_rules! kind {
    ($(#[$doc:meta])* $name:ident $(<$(const $param:ident: u64),+>)?, $value:ty, $expected:expr, $parse:expr, $schema:expr $(, $word:expr)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name $(<$(const $param: u64),+>)? (pub $value);

        impl<'de $(, $(const $param: u64),+)?> Deserialize<'de> for $name $(<$($param),+>)? {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                read(deserializer, &$expected.to_string(), &[$($word),*], $parse).map(Self)
            }
        }

        impl $(<$(const $param: u64),+>)? JsonSchema for $name $(<$($param),+>)? {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

/// Regular expression for a duration.
const DURATION: &str = r"^[0-9.]+\s*(ns|us|µs|ms|s|m|min|h)$";

fn duration(scalar: &Scalar) -> Option<Duration> {
    parse_duration(scalar.text()?).ok()
}

kind!(
    /// A duration above 0, such as `"10s"`.
    PositiveDuration,
    Duration,
    "a duration above 0 with a unit, such as \"10s\"",
    |scalar| duration(scalar).filter(|length| !length.is_zero()),
    json_schema!({ "type": "string", "pattern": DURATION })
);

kind!(
    /// A duration of 0 or more, such as `"0s"`.
    Delay,
    Duration,
    "a duration with a unit, such as \"20ms\" or \"0s\"",
    duration,
    json_schema!({ "type": "string", "pattern": format!("{DURATION}|^0$") })
);

/// Longest time before a crash.
const LONGEST_CRASH_TIME: Duration = Duration::from_secs(60);

kind!(
    /// `"random"` (`None`), a duration, or a range of durations, such as `"200ms-1s"`.
    CrashTime,
    Option<(Duration, Duration)>,
    "\"random\", a duration up to 60s such as \"1s\", or a range such as \"200ms-1s\"",
    |scalar| match scalar.text()?.trim() {
        "random" => Some(None),
        text => {
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            let (from, to) = (parse_duration(from.trim()).ok()?, parse_duration(to.trim()).ok()?);
            (from <= to && to <= LONGEST_CRASH_TIME).then_some(Some((from, to)))
        }
    },
    json_schema!({ "type": "string", "pattern": "^random$|^[0-9.]+\\s*(ns|us|µs|ms|s|m|min)(\\s*-\\s*[0-9.]+\\s*(ns|us|µs|ms|s|m|min))?$" }),
    "random"
);

kind!(
    /// `"auto"` or a duration.
    WarmupText,
    Warmup,
    "\"auto\" or a duration with a unit, such as \"5s\"",
    |scalar| values::warmup(scalar.text()?).ok(),
    json_schema!({ "type": "string", "pattern": format!("^auto$|{DURATION}|^0$") }),
    "auto"
);

kind!(
    /// A whole number from `LOW` to `HIGH`, such as `1000` or `"1k"`.
    Count<const LOW: u64, const HIGH: u64>,
    u64,
    format!("a whole number from {LOW} to {HIGH}, such as {LOW} or \"1k\""),
    |scalar| {
        let n = match scalar {
            Scalar::Integer(n) => u64::try_from(*n).ok()?,
            _ => parse_count(scalar.text()?).ok()?,
        };
        (LOW..=HIGH).contains(&n).then_some(n)
    },
    json_schema!({ "anyOf": [
        { "type": "integer", "minimum": LOW, "maximum": HIGH },
        { "type": "string", "pattern": "^[0-9.]+[kKM]?$" },
    ]})
);

kind!(
    /// A rate per second, such as `2500` or `"2.5k"`.
    RatePerSecond,
    Rate,
    "a number per second above 0, such as 1000 or \"2.5k\"",
    |scalar| match scalar {
        Scalar::Text(text) => parse_rate(text).ok(),
        _ => scalar.number().and_then(Rate::new),
    },
    json_schema!({ "anyOf": [
        { "type": "number", "exclusiveMinimum": 0 },
        { "type": "string", "pattern": "^[0-9.]+[kKM]?$" },
    ]})
);

kind!(
    /// A finite number.
    Number,
    f64,
    "a number, such as 0.98",
    |scalar| scalar.number(),
    json_schema!({ "type": "number" })
);

kind!(
    /// A percentage above 0 % and below 100 %, as a share.
    Percentage,
    f64,
    "a percentage above 0% and below 100%, such as \"5%\"",
    |scalar| {
        let number = scalar.text()?.strip_suffix('%')?.trim_end();
        let percent: f64 = number.parse().ok()?;
        (percent > 0.0 && percent < 100.0).then_some(percent / 100.0)
    },
    json_schema!({ "type": "string", "pattern": "^[0-9.]+\\s*%$" })
);

kind!(
    /// A name, which also becomes part of file names.
    Name,
    String,
    format!("a name of up to {MAX_NAME} letters, digits, \"-\", \"_\" or \".\", such as \"my-server\""),
    |scalar| scalar.text().filter(|text| is_name(text)).map(str::to_owned),
    json_schema!({ "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{MAX_NAME}}}$") })
);

kind!(
    /// A string, whole number or boolean, stored as text.
    ScalarText,
    String,
    "a string, a whole number, true or false",
    |scalar| match scalar {
        Scalar::Text(text) => Some(text.clone()),
        Scalar::Integer(n) => Some(n.to_string()),
        Scalar::Boolean(truth) => Some(truth.to_string()),
        Scalar::Float(_) => None,
    },
    json_schema!({ "type": ["string", "integer", "boolean"] })
);

/// Returns whether `text` is a valid name in a manifest.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // A name that consists only of dots, such as `..`, would refer to an existing folder.
    (1..=MAX_NAME).contains(&text.len())
        && text.chars().all(plain)
        && text.chars().any(|c| c != '.')
}

/// Functions for `deserialize_with` that return the inner values of these types.
pub(crate) mod content {
    use super::*;

    macro_rules! content {
        ($($function:ident $(<$(const $param:ident: u64),+>)?: $kind:ty => $value:ty;)*) => { $(
            pub fn $function<'de, D: Deserializer<'de> $(, $(const $param: u64),+)?>(
                deserializer: D,
            ) -> Result<Option<$value>, D::Error> {
                Ok(Some(<$kind>::deserialize(deserializer)?.0))
            }
        )* };
    }

    content! {
        count<const LOW: u64, const HIGH: u64>: Count<LOW, HIGH> => u64;
        duration: PositiveDuration => Duration;
        rate: RatePerSecond => Rate;
        warmup: WarmupText => Warmup;
    }
}
