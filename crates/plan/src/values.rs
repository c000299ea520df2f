//! Parses values as users write them in flags and manifests.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use floodmark_record::plan::Sources;
use floodmark_record::units::{
    Rate, parse_count, parse_duration, parse_rate, parse_size, show_count, show_size,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::spec::{HttpVersion, RateSteps, Warmup};
use crate::toml_file::nearest;

/// Maximum number of steps in one run.
const MAX_STEPS: usize = 1000;

/// Maximum number of source addresses.
const MAX_SOURCES: u128 = 1 << 20;

/// Maximum number of attempts on one server process.
pub const MAX_ATTEMPTS: u64 = 10_000;

/// Parses an integer, which may be 0.
///
/// # Errors
/// Every function in this module returns an error message that explains how to fix the value.
pub fn count(text: &str) -> Result<u64, String> {
    let n = unless_negative(text)?;
    n.ok_or_else(|| "must be at least 0".to_owned())
}

/// Parses an integer of at least 1.
pub fn count_from_one(text: &str) -> Result<u64, String> {
    let n = unless_negative(text)?.filter(|n| *n > 0);
    n.ok_or_else(|| "must be at least 1".to_owned())
}

/// Parses an integer in `range`.
pub fn count_within(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let n = unless_negative(text)?.filter(|n| range.contains(n));
    n.ok_or_else(|| {
        let (low, high) = (show_count(*range.start()), show_count(*range.end()));
        format!("must be from {low} to {high}")
    })
}

/// Parses a size in `range`, in bytes.
pub fn size_within(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if range.contains(&bytes) => Ok(bytes),
        _ => {
            let (low, high) = (show_size(*range.start()), show_size(*range.end()));
            Err(format!("must be from {low} to {high}"))
        }
    }
}

/// Parses a count. Returns `None` for a negative number.
fn unless_negative(text: &str) -> Result<Option<u64>, String> {
    if is_negative(text) {
        Ok(None)
    } else {
        parse_count(text).map(Some)
    }
}

fn is_negative(text: &str) -> bool {
    let digits = text.trim().strip_prefix('-');
    digits.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
}

/// Parses a number of attempts.
pub fn attempts(text: &str) -> Result<u32, String> {
    count_within(text, 1..=MAX_ATTEMPTS).map(|n| n as u32)
}

/// Parses the seed of a random number generator.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let max = show_count(u64::MAX);
        format!("must be an integer from 0 to {max}")
    })
}

/// Parses a rate per second above 0.
pub fn rate(text: &str) -> Result<Rate, String> {
    if is_negative(text) || is_zero(text) {
        Err("must be above 0".to_owned())
    } else {
        parse_rate(text)
    }
}

fn is_zero(text: &str) -> bool {
    text.trim().parse() == Ok(0.0)
}

/// Parses a duration above 0.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be longer than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses `auto` or a duration.
pub fn warmup(text: &str) -> Result<Warmup, String> {
    if text == "auto" {
        return Ok(Warmup::Auto);
    }
    parse_duration(text)
        .map(Warmup::Before)
        .map_err(|e| format!("{e}; or auto"))
}

/// Parses `127.0.0.2-127.0.0.200`, or one address.
pub fn sources(text: &str) -> Result<Sources, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let address = |part: &str| {
        part.trim().parse().map_err(|_| {
            format!("\"{part}\" is not an IP address; write a range such as 127.0.0.2-127.0.0.200")
        })
    };
    let sources = Sources {
        first: address(first)?,
        last: address(last)?,
    };
    match sources.count() {
        0 => Err(format!(
            "\"{text}\" is not a range; write two addresses of the same family, the lower address first"
        )),
        n if n > MAX_SOURCES => Err(format!(
            "\"{text}\" has more than 1,048,576 addresses; use a smaller range"
        )),
        _ => Ok(sources),
    }
}

/// Parses a rate per second, which may be 0.
fn rate_or_zero(text: &str) -> Result<f64, String> {
    if is_negative(text) {
        let text = text.trim();
        return Err(format!("\"{text}\" is negative; use a rate of at least 0"));
    }
    if is_zero(text) {
        return Ok(0.0);
    }
    parse_rate(text).map(Rate::per_s)
}

/// Parses a ramp such as `100-5000`: the first and the last rate per second.
pub fn ramp(text: &str) -> Result<(f64, f64), String> {
    let rates = text.split_once('-');
    let rates = rates.filter(|(from, to)| !from.is_empty() && !to.is_empty());
    let (from, to) = rates.ok_or_else(|| {
        format!("\"{text}\" is not a ramp; write the first and the last rate, such as 100-5000")
    })?;
    let (from, to) = (rate_or_zero(from)?, rate_or_zero(to)?);
    if from.max(to) > 0.0 {
        Ok((from, to))
    } else {
        Err("a ramp from 0 to 0 sends no requests".to_owned())
    }
}

/// Parses rates such as `1000,2k` or `1000:10s,2k:30s`.
pub fn steps(text: &str) -> Result<RateSteps, String> {
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > MAX_STEPS {
        return Err(format!("{} steps; use at most {MAX_STEPS}", parts.len()));
    }
    if let Some(empty) = parts.iter().position(|part| part.trim().is_empty()) {
        return Err(match parts.len() {
            1 => "no steps; write a list of rates, such as 1000,2000".to_owned(),
            _ => format!("step {} is empty; remove the extra comma", empty + 1),
        });
    }
    let timed = parts.iter().filter(|part| part.contains(':')).count();
    let steps = if timed == 0 {
        let rates: Result<_, _> = parts.iter().map(|part| rate_or_zero(part)).collect();
        RateSteps::Equal(rates?)
    } else if timed == parts.len() {
        let steps: Result<_, _> = parts.iter().map(|part| timed_step(part)).collect();
        RateSteps::Timed(steps?)
    } else {
        return Err(
            "give a duration to each step (1000:10s,2000:5s) or to none (1000,2000)".to_owned(),
        );
    };
    let idle = match &steps {
        RateSteps::Equal(rates) => rates.iter().all(|rate| *rate <= 0.0),
        RateSteps::Timed(steps) => steps.iter().all(|(rate, _)| *rate <= 0.0),
    };
    if idle {
        Err("steps that all have rate 0 send no requests".to_owned())
    } else {
        Ok(steps)
    }
}

fn timed_step(text: &str) -> Result<(f64, Duration), String> {
    let (rate, time) = text.split_once(':').unwrap_or((text, ""));
    let time = parse_duration(time)?;
    if time.is_zero() {
        return Err(format!("\"{text}\": the duration must be longer than 0"));
    }
    Ok((rate_or_zero(rate)?, time))
}

/// Parses a speed factor such as `2x` or `0.5x`.
pub fn speed(text: &str) -> Result<f64, String> {
    text.strip_suffix(['x', 'X'])
        .unwrap_or(text)
        .parse()
        .ok()
        .filter(|speed: &f64| (1e-6..=1e6).contains(speed))
        .ok_or_else(|| {
            format!("\"{text}\" is not a speed; write 2x for twice as fast, 0.5x for half")
        })
}

/// Maximum length of a name, in characters. The limit keeps tables narrow.
pub const MAX_NAME: usize = 40;

/// Maximum count. An `f64` represents all integers up to this value exactly.
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

/// Description of a valid percentage, for error messages.
const PERCENTAGE: &str = "a percentage above 0% and below 100%, such as \"5%\"";

/// Parses a percentage above 0 % and below 100 %. Returns it as a share.
///
/// # Errors
/// The text is not such a percentage.
pub fn percentage(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').map(str::trim_end);
    let percent: Option<f64> = percent.and_then(|number| number.parse().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err(format!("expected {PERCENTAGE}")),
    }
}

/// Parses a manifest value. `parse` returns `None` if the value does not have the `expected` form.
/// If the value is a misspelling of one of the valid `words`, the error suggests that word.
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

/// Declares a newtype for a manifest value. The arguments are its name, inner type, expected form,
/// parser, schema, and the words that error messages can suggest.
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

/// Maximum time before a crash.
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
    |scalar| warmup(scalar.text()?).ok(),
    json_schema!({ "type": "string", "pattern": format!("^auto$|{DURATION}|^0$") }),
    "auto"
);

kind!(
    /// An integer from `LOW` to `HIGH`, such as `1000` or `"1k"`.
    Count<const LOW: u64, const HIGH: u64>,
    u64,
    format!("an integer from {LOW} to {HIGH}, such as {LOW} or \"1k\""),
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
    /// A size from `LOW` to `HIGH` bytes, such as `65535` or `"64KiB"`.
    Size<const LOW: u64, const HIGH: u64>,
    u64,
    format!("a size from {0} to {1}, such as \"{1}\"", show_size(LOW), show_size(HIGH)),
    |scalar| {
        let n = match scalar {
            Scalar::Integer(n) => u64::try_from(*n).ok()?,
            _ => parse_size(scalar.text()?).ok()?,
        };
        (LOW..=HIGH).contains(&n).then_some(n)
    },
    json_schema!({ "anyOf": [
        { "type": "integer", "minimum": LOW, "maximum": HIGH },
        { "type": "string", "pattern": r"^[0-9]+\s*([KMG]iB)?$" },
    ]})
);

kind!(
    /// `"1.1"`, `"2"` or `"auto"`, or the version as a number.
    HttpVersionText,
    HttpVersion,
    "\"1.1\", \"2\" or \"auto\"",
    |scalar| {
        let text = match scalar {
            Scalar::Text(text) => text.clone(),
            number => number.to_string(),
        };
        HttpVersion::ALL.into_iter().find(|version| version.name() == text)
    },
    json_schema!({ "enum": ["1.1", "2", "auto", 1.1, 2] })
);

kind!(
    /// A rate per second, such as `2500` or `"2.5k"`.
    RatePerSecond,
    Rate,
    "a rate per second above 0, such as 1000 or \"2.5k\"",
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
    /// A percentage above 0 % and below 100 %, stored as a share.
    Percentage,
    f64,
    PERCENTAGE,
    |scalar| percentage(scalar.text()?).ok(),
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
    /// A string, integer or boolean, stored as text.
    ScalarText,
    String,
    "a string, an integer, true or false",
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
    // A name such as `..` would refer to an existing directory.
    (1..=MAX_NAME).contains(&text.len())
        && text.chars().all(plain)
        && text.chars().any(|c| c != '.')
}

/// Functions for `deserialize_with` that return the inner values of the types above.
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
        size<const LOW: u64, const HIGH: u64>: Size<LOW, HIGH> => u64;
        http: HttpVersionText => HttpVersion;
        duration: PositiveDuration => Duration;
        rate: RatePerSecond => Rate;
        warmup: WarmupText => Warmup;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_the_range_of_a_number() {
        assert_eq!((count("0"), count_from_one("2k")), (Ok(0), Ok(2000)));
        assert_eq!(
            (count_within("5", 1..=5), seed("18446744073709551615")),
            (Ok(5), Ok(u64::MAX))
        );
        assert_eq!(rate("0.5").map(Rate::per_s), Ok(0.5));
        for text in ["-1", "-1k", "-1.5", "0"] {
            assert_eq!(count_from_one(text).unwrap_err(), "must be at least 1");
            assert_eq!(attempts(text).unwrap_err(), "must be from 1 to 10,000");
            assert_eq!(rate(text).unwrap_err(), "must be above 0");
        }
        assert_eq!(count("-1").unwrap_err(), "must be at least 0");
        assert_eq!(attempts("10001").unwrap_err(), "must be from 1 to 10,000");
        assert!(
            seed("-1")
                .unwrap_err()
                .contains("from 0 to 18,446,744,073,709,551,615")
        );
        assert!(count("many").unwrap_err().contains("not an integer"));
    }

    #[test]
    fn parses_ramps() {
        assert_eq!(ramp("0-1000"), Ok((0.0, 1000.0)));
        assert_eq!(ramp("5k-500"), Ok((5000.0, 500.0)));
        for bad in ["0-0", "1-2-3", "a-b", "1e3-5", "inf-1"] {
            assert!(ramp(bad).is_err(), "{bad}");
        }
        for bad in ["", "5", "-5", "5-", "-1-5"] {
            let message = ramp(bad).unwrap_err();
            assert!(message.contains("such as 100-5000"), "{bad}: {message}");
        }
        assert!(ramp("1--5").unwrap_err().contains("\"-5\" is negative"));
    }

    #[test]
    fn parses_steps() {
        assert_eq!(
            steps("1000,2k, 0"),
            Ok(RateSteps::Equal(vec![1000.0, 2000.0, 0.0]))
        );
        let seconds = Duration::from_secs;
        assert_eq!(
            steps("1000:10s,5k:1m"),
            Ok(RateSteps::Timed(vec![
                (1000.0, seconds(10)),
                (5000.0, seconds(60))
            ]))
        );
        for (bad, word) in [
            ("", "no steps"),
            ("5,", "step 2 is empty; remove the extra comma"),
            ("5:1s,,6:1s", "step 2 is empty"),
            ("0,0", "no requests"),
            ("5,6:1s", "to each step"),
            ("5:6", "unit"),
            ("5:0s", "longer than 0"),
            ("-5", "negative"),
            ("5;6", "rate"),
        ] {
            let message = steps(bad).unwrap_err();
            assert!(message.contains(word), "{bad}: {message}");
        }
        let message = steps(&"1,".repeat(1000)).unwrap_err();
        assert!(message.contains("1001 steps"), "{message}");
    }

    #[test]
    fn parses_speeds() {
        assert_eq!((speed("2x"), speed("0.5")), (Ok(2.0), Ok(0.5)));
        for bad in ["", "x", "0x", "-1x", "fast", "NaN", "inf", "1e9x"] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parses_source_ranges() {
        assert_eq!(sources("127.0.0.2-127.0.0.9").map(|s| s.count()), Ok(8));
        assert_eq!(sources("::1").map(|s| s.count()), Ok(1));
        for bad in [
            "",
            "a-b",
            "127.0.0.9-127.0.0.2",
            "127.0.0.1-::1",
            "10.0.0.0-11.0.0.0",
        ] {
            assert!(sources(bad).is_err(), "{bad}");
        }
    }
}
