//! Figures as text with their units and precision. An unmeasured figure is "–", never zero.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use floodmark_record::interval::Interval;
use floodmark_record::plan::Plan;
use floodmark_record::times::Times;
use floodmark_record::units::{show_count, show_duration, show_ns, show_rate};

/// Placeholder for an unmeasured figure.
pub(crate) const NOT_MEASURED: &str = "–";

/// Returns the text of a figure, or "–" if it was not measured.
pub(crate) fn optional(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| NOT_MEASURED.to_owned(), show)
}

/// Formats `us`, a statistic of `times` given in microseconds. A percentile that falls among
/// requests without a response is shown as a lower bound: `> 5 s`.
pub(crate) fn time(us: Option<f64>, times: &Times, plan: &Plan) -> String {
    match (us, times.censored_above(plan.timeout)) {
        (Some(0.0), _) => "0".to_owned(),
        (None, Some(above_us)) => format!("> {}", seconds(above_us / 1e6)),
        (us, _) => optional(us, microseconds),
    }
}

/// Formats a time in microseconds: `4.40 µs`.
pub(crate) fn microseconds(us: f64) -> String {
    show_ns(us * 1e3)
}

/// Formats CPU time per request in microseconds. `None` means that the run was too short for the
/// kernel's CPU clock.
pub(crate) fn cpu_per_request(us: Option<f64>) -> Option<String> {
    us.filter(|us| *us > 0.0).map(microseconds)
}

/// Formats a number of CPUs: `1.15`.
pub(crate) fn cpus(cpus: f64) -> String {
    format!("{cpus:.2}")
}

/// Formats seconds as a duration, or "–" if negative or not finite.
#[must_use]
pub fn seconds(s: f64) -> String {
    match Duration::try_from_secs_f64(s) {
        Ok(Duration::ZERO) => "0 s".to_owned(),
        Ok(duration) => show_duration(duration),
        Err(_) => NOT_MEASURED.to_owned(),
    }
}

/// Formats a duration with no-break spaces.
pub(crate) fn duration(s: f64) -> String {
    glue(&seconds(s))
}

/// Formats a rate with the unit "/s".
#[must_use]
pub fn rate(per_s: f64) -> String {
    format!("{}/s", per_second(per_s))
}

/// Formats a rate without the unit, for a column whose heading contains "/s".
pub(crate) fn per_second(per_s: f64) -> String {
    match per_s {
        0.0 => "0".to_owned(),
        per_s => show_rate(per_s),
    }
}

/// Formats a share in percent, or "–" if the whole is 0. Never rounds up to 100 % or down to 0 %.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole as f64;
    let text = match percent {
        _ if whole == 0 => NOT_MEASURED.to_owned(),
        p if part > 0 && p < 0.01 => "< 0.01 %".to_owned(),
        p if part < whole && p >= 99.95 => "> 99.9 %".to_owned(),
        p if p < 10.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    };
    glue(&text)
}

/// Formats a percentage without decimals. Positive values below 0.5 become `< 1 %`.
pub(crate) fn percent(percent: f64) -> String {
    match percent {
        p if p > 0.0 && p < 0.5 => glue("< 1 %"),
        p => glue(&format!("{p:.0} %")),
    }
}

/// Formats the interval of a rate: `± 1.2 %` if symmetric, otherwise `[700 to 1,010/s]`.
pub(crate) fn interval(value: f64, interval: &Interval) -> String {
    interval_with(value, interval, |low, high| {
        format!("[{} to {}]", per_second(low), rate(high))
    })
}

/// Formats the interval of a rate, or returns an empty text if the rate has none.
pub(crate) fn interval_or_none(value: Option<f64>, range: Option<&Interval>) -> String {
    let known = value.zip(range);
    known.map_or_else(String::new, |(value, range)| interval(value, range))
}

/// Returns the lower and the upper end of an interval.
pub(crate) fn ends(range: Option<&Interval>) -> (Option<f64>, Option<f64>) {
    range.map(|range| (range.low, range.high)).unzip()
}

/// Formats an interval around `value`: `± 1.2 %` if symmetric, otherwise both bounds, formatted by
/// `show`.
pub(crate) fn interval_with(
    value: f64,
    interval: &Interval,
    show: impl Fn(f64, f64) -> String,
) -> String {
    let half = (interval.high - interval.low) / 2.0;
    let off_center = (f64::midpoint(interval.high, interval.low) - value).abs();
    let text = if value > 0.0 && off_center <= half * 0.1 {
        match 100.0 * half / value {
            p if p < 0.05 => "± < 0.1 %".to_owned(),
            p if p < 9.95 => format!("± {p:.1} %"),
            p => format!("± {p:.0} %"),
        }
    } else {
        show(interval.low, interval.high)
    };
    glue(&text)
}

/// Formats a confidence level: `95 %`.
pub(crate) fn level(confidence: f64) -> String {
    let percent = (confidence * 1e4).round() / 1e2;
    glue(&format!("{percent} %"))
}

/// Formats a count with its noun: `1 thread`, `2 threads`.
#[must_use]
pub fn count_of(n: u64, noun: &str) -> String {
    let plural = match (n, noun) {
        (1, _) => "",
        (_, noun) if noun.ends_with('s') => "es",
        _ => "s",
    };
    glue(&format!("{} {noun}{plural}", show_count(n)))
}

/// Returns the smallest and the largest value, or `None` if there are no values.
pub(crate) fn extremes(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, largest))
}

/// Returns the median of the figures that were measured.
pub(crate) fn median(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let figures: Vec<f64> = figures.flatten().collect();
    (!figures.is_empty()).then(|| floodmark_stats::attempts::median(&figures))
}

/// Formats settings: `a = 1, b = 2`.
pub(crate) fn settings<'a, V: Display>(
    settings: impl IntoIterator<Item = (&'a String, V)>,
) -> String {
    let each = settings.into_iter();
    joined(each.map(|(name, value)| format!("{name} = {value}")), ", ")
}

/// Formats settings for programs: `a=1;b=2`.
pub(crate) fn setting_pairs<V: Display>(settings: &BTreeMap<String, V>) -> String {
    let each = settings.iter();
    joined(each.map(|(name, value)| format!("{name}={value}")), ";")
}

/// Joins texts with a separator.
pub(crate) fn joined(texts: impl IntoIterator<Item = String>, separator: &str) -> String {
    texts.into_iter().collect::<Vec<_>>().join(separator)
}

/// Replaces spaces with no-break spaces, so that `text` is never wrapped.
pub(crate) fn glue(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_round_to_all_or_none() {
        assert_eq!(share(1, 1_000_000), glue("< 0.01 %"));
        assert_eq!(share(999_999, 1_000_000), glue("> 99.9 %"));
        assert_eq!(share(3, 3), glue("100.0 %"));
        assert_eq!(share(0, 3), glue("0.00 %"));
        assert_eq!(share(0, 0), NOT_MEASURED);
    }

    #[test]
    fn asymmetric_intervals_show_both_ends() {
        let mut i = Interval {
            low: 990.0,
            high: 1010.0,
            confidence: 0.95,
            method: String::new(),
        };
        assert_eq!(interval(1000.0, &i), glue("± 1.0 %"));
        i.low = 700.0;
        assert_eq!(interval(1000.0, &i), glue("[700 to 1,010/s]"));
    }

    #[test]
    fn a_censored_time_exceeds_the_timeout_and_a_missing_one_is_a_dash() {
        let censored = Times {
            count: 2,
            censored: 2,
            ..Times::default()
        };
        let plan = crate::fixture::closed().plan;
        assert_eq!(time(None, &censored, &plan), "> 5 s");
        assert_eq!(time(None, &Times::default(), &plan), "–");
        assert_eq!(time(Some(251.0), &Times::default(), &plan), "251 µs");
    }

    #[test]
    fn cpu_time_below_the_clock_is_not_measured() {
        assert_eq!(cpu_per_request(Some(0.0)), None);
        assert_eq!(cpu_per_request(Some(4.4)).unwrap(), "4.40 µs");
    }

    #[test]
    fn computes_medians() {
        let of = |figures: &[Option<f64>]| median(figures.iter().copied());
        assert_eq!(of(&[Some(3.0), None, Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(of(&[Some(3.0), Some(1.0)]), Some(2.0));
        assert_eq!(of(&[None]), None);
    }
}
