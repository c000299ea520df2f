//! Parses and formats durations, counts, rates and sizes.
//!
//! A duration needs a unit (`ns`, `us`, `ms`, `s`, `m`, `h`). A count may end in `k` or `M`. A size
//! may end in `KiB`, `MiB` or `GiB`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Parses a duration such as `10s`, `250ms`, `1.5m`.
///
/// # Errors
/// Fails if the unit is missing or unknown, or the number is invalid, negative or too large.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with('-') && text[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "\"{text}\" is negative; use a duration such as \"10s\" or \"250ms\""
        ));
    }
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let value: f64 = number.parse().map_err(|_| {
        format!("\"{text}\" is not a number with a unit, such as \"10s\" or \"250ms\"")
    })?;
    let seconds = match unit.trim() {
        "" if value == 0.0 => 0.0,
        "" => {
            return Err(format!(
                "\"{text}\" has no unit; add ns, us, ms, s, m or h, as in \"{text}s\" or \"{text}ms\""
            ));
        }
        "ns" => value * 1e-9,
        "us" | "µs" => value * 1e-6,
        "ms" => value * 1e-3,
        "s" => value,
        "m" | "min" => value * 60.0,
        "h" => value * 3600.0,
        other => {
            return Err(format!(
                "unknown unit \"{other}\" in \"{text}\"; a duration ends in ns, us, ms, s, m or h"
            ));
        }
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| too_large(text))
}

/// Parses a count such as `5000`, `200k`, `2M`.
///
/// # Errors
/// Returns an error if the text is not an integer, or if the number is above 2^53.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let value = scaled(text)
        .filter(|value| value.fract() == 0.0)
        .ok_or_else(|| {
            format!("\"{text}\" is not an integer; use a number such as \"5000\", \"5k\" or \"2M\"")
        })?;
    // Counts such as `-n` must be exact, but an `f64` cannot represent every integer above 2^53.
    if value > MAX_COUNT as f64 {
        let what = too_large(text);
        return Err(format!("{what}; the maximum is {}", show_count(MAX_COUNT)));
    }
    Ok(value as u64)
}

/// Maximum count: 2^53.
const MAX_COUNT: u64 = 1 << 53;

fn too_large(text: &str) -> String {
    format!("\"{text}\" is too large")
}

/// Size units, largest first, each with its number of bytes.
const SIZE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Parses a size such as `65535`, `64KiB`, `1MiB`. Returns bytes.
///
/// # Errors
/// Returns an error if the number is not an integer, the unit is unknown, or the size is above
/// 2^64 - 1 bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim_start();
    let factor = match SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => Some(*factor),
        None => unit.is_empty().then_some(1),
    };
    let factor = factor.filter(|_| !number.is_empty()).ok_or_else(|| {
        format!(
            "\"{text}\" is not a size; use bytes, KiB, MiB or GiB, such as \"65535\" or \"64KiB\""
        )
    })?;
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| too_large(text))
}

/// Formats a size exactly, in the form that [`parse_size`] reads: `65535`, `64KiB`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let (number, unit) = in_largest_unit(bytes);
    format!("{number}{}", unit.unwrap_or_default())
}

/// Formats a size exactly, for people: `65,535 B`, `64 KiB`.
#[must_use]
pub fn show_exact_bytes(bytes: u64) -> String {
    let (number, unit) = in_largest_unit(bytes);
    format!("{} {}", show_count(number), unit.unwrap_or("B"))
}

/// Returns a size as a number of the largest unit that divides it, and this unit. The unit of bytes
/// is `None`.
fn in_largest_unit(bytes: u64) -> (u64, Option<&'static str>) {
    let divides = |(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*factor);
    match SIZE_UNITS.iter().find(divides) {
        Some((unit, factor)) => (bytes / factor, Some(unit)),
        None => (bytes, None),
    }
}

/// Parses a rate per second, such as `1000`, `2.5k`.
///
/// # Errors
/// Returns an error if the text is not a positive finite number.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    scaled(text).and_then(Rate::new).ok_or_else(|| {
        format!(
            "\"{text}\" is not a rate; use requests per second, such as \"1000\", \"2.5k\" or \"1M\""
        )
    })
}

fn scaled(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    // Round to a thousandth, so that 0.1k becomes 100 and 1.234M becomes 1,234,000.
    let value = number.parse::<f64>().ok()? * factor;
    // At 10^12 and above, `value * 1e3` may exceed 2^53, and rounding could change an integer.
    Some(if value < 1e12 {
        (value * 1e3).round() / 1e3
    } else {
        value
    })
}

/// Formats nanoseconds with three significant digits: `853 ns`, `1.25 ms`, `2.00 s`.
#[must_use]
pub fn show_ns(ns: f64) -> String {
    let (value, unit) = match ns {
        x if x < 1e3 => (x, "ns"),
        x if x < 999.5e3 => (x / 1e3, "µs"),
        x if x < 999.5e6 => (x / 1e6, "ms"),
        x => (x / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats a duration like [`show_ns`], without trailing zeros: `5 s`, `250 ms`.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let text = show_ns(duration.as_secs_f64() * 1e9);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// Formats a long duration, rounded to minutes, hours or days: `3 min`. Durations below two minutes
/// are rounded up to seconds: `90 s`.
#[must_use]
pub fn show_rough_duration(duration: Duration) -> String {
    let s = duration.as_secs_f64();
    match s {
        s if s < 120.0 => format!("{} s", s.ceil()),
        s if s < 7_200.0 => format!("{} min", (s / 60.0).round()),
        s if s < 172_800.0 => format!("{} h", (s / 3_600.0).round()),
        s => format!("{} days", (s / 86_400.0).round()),
    }
}

/// Formats an integer with thousands separators: `1,234,567`.
#[must_use]
pub fn show_count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a rate without "/s": as an integer if the rate is at least 100, otherwise with three
/// significant digits.
#[must_use]
pub fn show_rate(per_s: f64) -> String {
    if per_s >= 99.95 {
        show_count(per_s.round() as u64)
    } else {
        three_digits(per_s)
    }
}

/// Formats bytes in decimal units: `12.3 MB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", three_digits(bytes as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", three_digits(bytes as f64 / 1e6)),
        _ => format!("{} GB", three_digits(bytes as f64 / 1e9)),
    }
}

/// Formats a ratio with three decimal places below 10, with one below 100, as an integer below
/// 100,000, and otherwise in scientific notation. A ratio below 0.001 becomes `< 0.001`.
#[must_use]
pub fn show_ratio(value: f64) -> String {
    match value {
        v if v < 0.001 => "< 0.001".to_owned(),
        v if v < 10.0 => format!("{v:.3}"),
        v if v < 100.0 => format!("{v:.1}"),
        v if v < 100_000.0 => show_count(v.round() as u64),
        v => format!("{v:.1e}"),
    }
}

fn three_digits(value: f64) -> String {
    let places = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

/// Formats a time that is given in seconds: `1.25 ms`.
#[must_use]
pub fn show_s(seconds: f64) -> String {
    show_ns(seconds * 1e9)
}

/// Formats a share: `12 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a count with its noun: `1 request`, `2,000 requests`.
#[must_use]
pub fn plural(n: u64, noun: &str) -> String {
    let ending = match n {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", show_count(n))
}

/// A rate in requests per second: finite and above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// Returns a rate if the number is finite and above 0, otherwise `None`.
    #[must_use]
    pub fn new(per_s: f64) -> Option<Self> {
        (per_s > 0.0 && per_s.is_finite()).then_some(Rate(per_s))
    }

    /// Returns the requests per second.
    #[must_use]
    pub fn per_s(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounds_long_durations() {
        for (s, text) in [
            (0.4, "1 s"),
            (90.0, "90 s"),
            (7_000.0, "117 min"),
            (7_260.0, "2 h"),
            (200_000.0, "2 days"),
        ] {
            assert_eq!(show_rough_duration(Duration::from_secs_f64(s)), text);
        }
    }

    #[test]
    fn requires_a_unit_for_durations() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(parse_duration("10").unwrap_err().contains("\"10s\""));
        assert!(
            parse_duration("10 parsecs")
                .unwrap_err()
                .contains("\"parsecs\"")
        );
        for bad in ["", "s", "-1s", "1..2s", "NaNs"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parses_counts_and_rates() {
        assert_eq!(parse_count("200k"), Ok(200_000));
        assert_eq!(parse_count("1.2M"), Ok(1_200_000));
        assert_eq!(parse_count("99999999999999"), Ok(99_999_999_999_999));
        let error = parse_count("9007199254740994").unwrap_err();
        assert!(
            error.ends_with("the maximum is 9,007,199,254,740,992"),
            "{error}"
        );
        assert_eq!(parse_rate("2.5k").map(Rate::per_s), Ok(2500.0));
        for bad in ["", "k", "1.5", "-3", "1e9", "inf", "0x10"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "inf", "NaN", ""] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parses_sizes() {
        assert_eq!(parse_size("65535"), Ok(65_535));
        assert_eq!(parse_size("64 KiB"), Ok(65_536));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        for bad in ["", "KiB", "64k", "64KB", "1.5MiB", "-1", "1MiB5"] {
            let message = parse_size(bad).unwrap_err();
            assert!(message.contains("is not a size"), "{bad}: {message}");
        }
        for large in ["18446744073709551616", "17179869184GiB"] {
            let message = parse_size(large).unwrap_err();
            assert!(message.contains("is too large"), "{large}: {message}");
        }
    }

    #[test]
    fn formats_quantities_with_units() {
        assert_eq!(show_ns(853.0), "853 ns");
        assert_eq!(show_ns(1_250_000.0), "1.25 ms");
        assert_eq!(show_ns(999_600.0), "1.00 ms");
        assert_eq!(show_duration(Duration::from_secs(5)), "5 s");
        assert_eq!(show_duration(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
        assert_eq!(show_rate(45.25), "45.2");
        assert_eq!(show_bytes(5_594_000), "5.59 MB");
        let exact = [0, 65_535, 65_536, 16 << 20].map(show_exact_bytes);
        assert_eq!(exact, ["0 B", "65,535 B", "64 KiB", "16 MiB"]);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC{0,12}") {
            let _ = parse_duration(&text);
            let _ = parse_count(&text);
            let _ = parse_rate(&text);
            let _ = parse_size(&text);
        }

        #[test]
        fn parses_counts_exactly(n in 0u64..9_007_199_254) {
            prop_assert_eq!(parse_count(&n.to_string()), Ok(n));
        }

        #[test]
        fn shown_sizes_parse_again(n in 0u64..4096, shift in 0u32..40) {
            let bytes = n << shift;
            prop_assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }
    }
}
