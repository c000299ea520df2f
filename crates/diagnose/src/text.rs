//! Formatted figures for messages.

use floodmark_record::units::{show_count, show_ns, show_rate};

/// Formats a count with its noun: `1 request`, `2,000 requests`.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    let ending = match noun.ends_with('s') {
        _ if n == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{} {noun}{ending}", show_count(n))
}

/// Formats a share: `12 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a rate: `1,000/s`.
pub(crate) fn per_s(rate: f64) -> String {
    format!("{}/s", show_rate(rate))
}

/// Formats a time that is given in seconds: `1.25 ms`.
pub(crate) fn show_s(seconds: f64) -> String {
    show_ns(seconds * 1e9)
}
