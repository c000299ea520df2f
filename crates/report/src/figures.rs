//! Figures of a record as words. What was not measured is "–", never a zero.

use std::time::Duration;

use floodmark_record::run::Interval;
use floodmark_record::times::Times;
use floodmark_record::units::{show_count, show_duration, show_ns, show_rate};

use crate::page::glue;

/// What stands for a figure that was not measured.
pub(crate) const NOT_MEASURED: &str = "–";

/// A time of `times` in microseconds. One that falls among requests that timed out is only known to be
/// longer than the timeout.
pub(crate) fn time(us: Option<f64>, times: &Times, timeout_s: f64) -> String {
    match us {
        Some(0.0) => "0".to_owned(),
        Some(us) => show_ns(us * 1e3),
        None if times.censored > 0 => format!("> {}", seconds(timeout_s)),
        None => NOT_MEASURED.to_owned(),
    }
}

/// A length in seconds as a duration; "–" where it is none.
pub(crate) fn seconds(s: f64) -> String {
    Duration::try_from_secs_f64(s).map_or_else(|_| NOT_MEASURED.to_owned(), show_duration)
}

/// A rate with its "/s".
pub(crate) fn rate(per_s: f64) -> String {
    format!("{}/s", per_second(per_s))
}

/// A rate below a heading that says "/s".
pub(crate) fn per_second(per_s: f64) -> String {
    if per_s == 0.0 {
        "0".to_owned()
    } else {
        show_rate(per_s)
    }
}

/// A part of a whole in percent. Not all is never shown as 100 %, not none never as 0 %.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole as f64;
    let text = match percent {
        p if part > 0 && p < 0.01 => "< 0.01 %".to_owned(),
        p if part < whole && p >= 99.95 => "> 99.9 %".to_owned(),
        p if p < 10.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    };
    glue(&text)
}

/// An interval around `value`: `± 1.2 %` where it lies evenly, else both ends.
pub(crate) fn interval(value: f64, interval: &Interval) -> String {
    let half = (interval.high - interval.low) / 2.0;
    let off_centre = (f64::midpoint(interval.high, interval.low) - value).abs();
    let text = if value > 0.0 && off_centre <= half * 0.1 {
        match 100.0 * half / value {
            p if p < 0.05 => "± < 0.1 %".to_owned(),
            p if p < 9.95 => format!("± {p:.1} %"),
            p => format!("± {p:.0} %"),
        }
    } else {
        format!("{} to {}", per_second(interval.low), rate(interval.high))
    };
    glue(&text)
}

/// `1 thread`, `2 threads`.
pub(crate) fn count_of(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    glue(&format!("{} {noun}{plural}", show_count(n)))
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
    }

    #[test]
    fn lopsided_intervals_show_both_ends() {
        let mut i = Interval {
            low: 990.0,
            high: 1010.0,
            confidence: 0.95,
            method: String::new(),
        };
        assert_eq!(interval(1000.0, &i), glue("± 1.0 %"));
        i.low = 700.0;
        assert_eq!(interval(1000.0, &i), glue("700 to 1,010/s"));
    }

    #[test]
    fn a_censored_time_is_above_the_timeout_and_an_absent_one_a_dash() {
        let censored = Times {
            count: 2,
            censored: 2,
            ..Times::default()
        };
        assert_eq!(time(None, &censored, 5.0), "> 5 s");
        assert_eq!(time(None, &Times::default(), 5.0), "–");
        assert_eq!(time(Some(251.0), &Times::default(), 5.0), "251 µs");
    }
}
