//! Durations, counts and rates as people write them, and as floodmark prints them.
//!
//! A duration always carries its unit (`ns`, `us`, `ms`, `s`, `m`, `h`); a count may carry `k` or `M`.

use std::time::Duration;

/// Why a quantity could not be read; the text names the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// A duration without a unit.
    #[error("\"{0}\" has no unit; write it like \"{0}s\" or \"{0}ms\" (ns, us, ms, s, m, h)")]
    NoUnit(String),
    /// A unit that is not known.
    #[error("unknown unit \"{unit}\" in \"{text}\"; a duration ends in ns, us, ms, s, m or h")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// What stood after the number.
        unit: String,
    },
    /// Not a number at all.
    #[error("\"{0}\" is not a number with a unit, such as \"10s\" or \"250ms\"")]
    NotADuration(String),
    /// A count that is not a whole number.
    #[error("\"{0}\" is not a whole number; write it like \"5000\", \"5k\" or \"2M\"")]
    NotACount(String),
    /// A rate that is not a positive number.
    #[error(
        "\"{0}\" is not a rate; write requests per second in all, like \"1000\", \"2.5k\" or \"1M\""
    )]
    NotARate(String),
    /// Larger than floodmark can carry.
    #[error("\"{0}\" is too large")]
    TooLarge(String),
}

/// Reads a duration such as `10s`, `250ms`, `1.5m`.
///
/// # Errors
/// A missing or unknown unit, a text that is no number, a negative or overlong value.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let value: f64 = number
        .parse()
        .map_err(|_| UnitError::NotADuration(text.to_owned()))?;
    let seconds = match unit.trim() {
        "" if value == 0.0 => 0.0,
        "" => return Err(UnitError::NoUnit(text.to_owned())),
        "ns" => value * 1e-9,
        "us" | "µs" => value * 1e-6,
        "ms" => value * 1e-3,
        "s" => value,
        "m" | "min" => value * 60.0,
        "h" => value * 3600.0,
        other => {
            return Err(UnitError::UnknownUnit {
                text: text.to_owned(),
                unit: other.to_owned(),
            });
        }
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| UnitError::TooLarge(text.to_owned()))
}

/// Reads a whole count such as `5000`, `200k`, `2M`.
///
/// # Errors
/// Anything that is not a whole number that fits 64 bits.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    let value = scaled(text).ok_or_else(|| UnitError::NotACount(text.to_owned()))?;
    if value.fract() != 0.0 {
        return Err(UnitError::NotACount(text.to_owned()));
    }
    // Above 2^53 a double no longer holds every whole number, and `-n` is exact.
    if value > 9_007_199_254_740_992.0 {
        return Err(UnitError::TooLarge(text.to_owned()));
    }
    Ok(value as u64)
}

/// Reads a rate in events per second, such as `1000`, `2.5k`.
///
/// # Errors
/// Anything that is not a positive finite number.
pub fn parse_rate(text: &str) -> Result<f64, UnitError> {
    match scaled(text) {
        Some(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(UnitError::NotARate(text.to_owned())),
    }
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
    // Rounded to a thousandth: 0.1k must be 100 and 1.234M must be 1,234,000, not a neighbour in binary.
    let value = number.parse::<f64>().ok()? * factor;
    Some((value * 1e3).round() / 1e3)
}

/// Prints nanoseconds with three significant digits and the unit that fits: `853 ns`, `1.25 ms`, `2.00 s`.
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

/// Prints a duration like [`show_ns`], without trailing zeros: `5 s`, `250 ms`.
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

/// Prints a whole number with thousands separators: `1,234,567`.
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

/// Prints a rate per second (without "/s"): whole and separated from 100 on, three digits below.
#[must_use]
pub fn show_rate(per_s: f64) -> String {
    if per_s >= 99.95 {
        show_count(per_s.round() as u64)
    } else {
        three_digits(per_s)
    }
}

/// Prints bytes in decimal units: `12.3 MB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", three_digits(bytes as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", three_digits(bytes as f64 / 1e6)),
        _ => format!("{} GB", three_digits(bytes as f64 / 1e9)),
    }
}

fn three_digits(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("10"), Err(UnitError::NoUnit("10".into())));
        assert!(matches!(
            parse_duration("10 parsecs"),
            Err(UnitError::UnknownUnit { .. })
        ));
        for bad in ["", "s", "-1s", "1..2s", "NaNs"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_and_rates() {
        assert_eq!(parse_count("200k"), Ok(200_000));
        assert_eq!(parse_count("1.2M"), Ok(1_200_000));
        assert_eq!(parse_rate("2.5k"), Ok(2500.0));
        for bad in ["", "k", "1.5", "-3", "1e9", "inf", "0x10"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "inf", "NaN", ""] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shown_with_units() {
        assert_eq!(show_ns(853.0), "853 ns");
        assert_eq!(show_ns(1_250_000.0), "1.25 ms");
        assert_eq!(show_ns(999_600.0), "1.00 ms");
        assert_eq!(show_duration(Duration::from_secs(5)), "5 s");
        assert_eq!(show_duration(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
        assert_eq!(show_rate(45.25), "45.2");
        assert_eq!(show_bytes(5_594_000), "5.59 MB");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC{0,12}") {
            let _ = parse_duration(&text);
            let _ = parse_count(&text);
            let _ = parse_rate(&text);
        }

        #[test]
        fn whole_counts_are_exact(n in 0u64..9_007_199_254) {
            prop_assert_eq!(parse_count(&n.to_string()), Ok(n));
        }
    }
}
