//! Comparisons and claims in sentences that need no statistics to be read, for the terminal and the page.

use floodmark_record::comparison::{Agreement, Claim, Comparison, Conclusion, Holds, Metric};
use floodmark_record::units::{show_count, show_ns};

use crate::figures::{NOT_MEASURED, rate};
use crate::summary::level;

/// Ratios within this and its inverse are said in percent; beyond it "2.3 times" is easier to see.
const SAID_IN_PERCENT: f64 = 2.0;

/// What a comparison came to.
#[must_use]
pub fn of_comparison(comparison: &Comparison) -> String {
    let (a, b) = (&comparison.a, &comparison.b);
    let of = in_words(comparison.metric);
    let Some(ratio) = comparison.ratio else {
        return format!("{of} of {a} and {b} cannot be compared");
    };
    let differ = format!("{of} of {a} is {} that of {b}", than(ratio));
    let Some((low, high)) = comparison.low.zip(comparison.high) else {
        return format!(
            "{differ}, which may be chance: fresh processes were not measured often enough to tell"
        );
    };
    let interval = format!(
        "{} interval: {}",
        level(comparison.confidence),
        range(low, high)
    );
    match comparison.conclusion {
        Conclusion::Different => format!("{differ} ({interval})"),
        Conclusion::Equivalent => {
            format!("{of} of {a} and {b} is the same within 2 % ({interval})")
        }
        Conclusion::Undecided => {
            let asked = comparison
                .repetitions_needed
                .map_or_else(String::new, |n| format!("; {}", deciding(n)));
            format!("whether {of} of {a} and {b} differs is undecided ({interval}){asked}")
        }
    }
}

/// More processes of each than this are hardly ever measured: with 10 s each that is half an hour.
const SELDOM_MEASURED: u32 = 100;

/// How many fresh measurements would settle it, and what to do instead where they are too many.
pub(crate) fn deciding(processes: u32) -> String {
    let of_each = repetitions(processes);
    if processes <= SELDOM_MEASURED {
        format!("measuring anew with {of_each} processes of each would probably decide it")
    } else {
        format!(
            "deciding it would probably take {of_each} processes of each, measured anew: they differ that much among themselves, and on a quieter machine fewer would do"
        )
    }
}

/// A number of processes; where it is not worked out any further, from which on it lies.
pub(crate) fn repetitions(processes: u32) -> String {
    match processes {
        10_000.. => "10,000 or more".to_owned(),
        n => show_count(n.into()),
    }
}

/// What became of a claim, in one word.
#[must_use]
pub fn holds(holds: Holds) -> &'static str {
    match holds {
        Holds::Yes => "yes",
        Holds::No => "no",
        Holds::Undecided => "undecided",
    }
}

/// What a claim is about: its figure, and of which trials.
#[must_use]
pub fn about(claim: &Claim) -> String {
    let of = match claim.of.as_slice() {
        [a, b] => format!("{a} ÷ {b}"),
        of => of.join(", "),
    };
    match (claim.metric, of.is_empty()) {
        (Some(metric), false) => format!("{metric}, {of}"),
        (Some(metric), true) => metric.to_string(),
        (None, _) => of,
    }
}

/// Figure and interval of a claim, in the unit of what was published.
#[must_use]
pub fn measured(claim: &Claim) -> String {
    let show = |value| claimed(claim, value);
    match (claim.measured, claim.low.zip(claim.high)) {
        (None, _) => NOT_MEASURED.to_owned(),
        (Some(figure), None) => show(figure),
        (Some(figure), Some((low, high))) => {
            format!("{} ({} – {})", show(figure), show(low), show(high))
        }
    }
}

/// The published figure, and what would agree with it.
#[must_use]
pub fn published(claim: &Claim) -> String {
    let Some(figure) = claim.published else {
        return NOT_MEASURED.to_owned();
    };
    let shown = claimed(claim, figure);
    match claim.agreement {
        Some(Agreement::Within(share)) => {
            format!("{shown}, within {} %", trimmed(share * 100.0))
        }
        Some(Agreement::AtLeast) => format!("at least {shown}"),
        Some(Agreement::AtMost) => format!("at most {shown}"),
        None => shown,
    }
}

/// A figure of a claim: a ratio where it is of two trials.
fn claimed(claim: &Claim, value: f64) -> String {
    match (claim.metric, claim.of.len()) {
        (Some(metric), 1) => figure(metric, Some(value)),
        _ => ratio(value),
    }
}

/// A figure of a metric with its unit.
pub(crate) fn figure(metric: Metric, value: Option<f64>) -> String {
    match value {
        None => NOT_MEASURED.to_owned(),
        Some(value) => match metric {
            Metric::Throughput | Metric::Goodput => rate(value),
            _ => show_ns(value * 1e3),
        },
    }
}

/// A ratio with three digits after the point; a large one with three digits in all.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        v if v < 0.001 => "< 0.001".to_owned(),
        v if v < 10.0 => format!("{v:.3}"),
        v if v < 100.0 => format!("{v:.1}"),
        v if v < 100_000.0 => show_count(v.round() as u64),
        v => format!("{v:.1e}"),
    }
}

/// Both ends of a comparison's interval.
pub(crate) fn interval(comparison: &Comparison) -> String {
    match (comparison.low, comparison.high) {
        (Some(low), Some(high)) => format!("{} – {}", ratio(low), ratio(high)),
        _ => NOT_MEASURED.to_owned(),
    }
}

fn in_words(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "throughput",
        Metric::Goodput => "goodput",
        Metric::P50 => "the median response time",
        Metric::P99 => "the p99 of response time",
        Metric::ServiceP50 => "the median service time",
        Metric::ServiceP99 => "the p99 of service time",
        Metric::CpuPerRequest => "the load generator's CPU time per request",
        Metric::ServerCpuPerRequest => "the server's CPU time per request",
    }
}

fn in_percent(ratio: f64) -> bool {
    (1.0 / SAID_IN_PERCENT..SAID_IN_PERCENT).contains(&ratio)
}

/// Whether it would be shown as `0.0 % higher`, which is no difference to a reader.
fn same_to_three_digits(ratio: f64) -> bool {
    (ratio - 1.0).abs() < 0.0005
}

/// `5.3 % lower than`, `2.31 times`, `to three digits the same as`.
fn than(value: f64) -> String {
    match in_percent(value) {
        true if same_to_three_digits(value) => "to three digits the same as".to_owned(),
        true => format!("{} than", percent(value)),
        false => format!("{} times", ratio(value)),
    }
}

fn percent(ratio: f64) -> String {
    if same_to_three_digits(ratio) {
        return "the same".to_owned();
    }
    let word = if ratio < 1.0 { "lower" } else { "higher" };
    format!("{:.1} % {word}", (ratio - 1.0).abs() * 100.0)
}

/// `4.1 % to 6.4 % lower`, `0.3 % lower to 1.2 % higher`, `the same to 1.2 % higher`, `2.10 to 2.54 times`.
fn range(low: f64, high: f64) -> String {
    if !in_percent(low) || !in_percent(high) {
        return format!("{} to {} times", ratio(low), ratio(high));
    }
    match (same_to_three_digits(low), same_to_three_digits(high)) {
        (true, true) => return "the same to three digits".to_owned(),
        (false, false) => {}
        _ => return format!("{} to {}", percent(low), percent(high)),
    }
    let share = |ratio: f64| (ratio - 1.0).abs() * 100.0;
    match (low < 1.0, high < 1.0) {
        (true, true) => format!("{:.1} % to {:.1} % lower", share(high), share(low)),
        (false, false) => format!("{:.1} % to {:.1} % higher", share(low), share(high)),
        _ => format!("{} to {}", percent(low), percent(high)),
    }
}

/// Without digits that say nothing.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::comparison;

    #[test]
    fn conclusions_are_said_so_that_a_newcomer_understands() {
        let mut said = comparison(Metric::Throughput, Conclusion::Different);
        assert_eq!(
            of_comparison(&said),
            "throughput of old is 5.7 % lower than that of new (95\u{a0}% interval: 3.4 % to 7.9 % lower)"
        );
        (said.ratio, said.low, said.high) = (Some(2.31), Some(2.1), Some(2.54));
        assert_eq!(
            of_comparison(&said),
            "throughput of old is 2.310 times that of new (95\u{a0}% interval: 2.100 to 2.540 times)"
        );
        (said.ratio, said.low, said.high) = (Some(1.001), Some(0.99), Some(1.012));
        said.conclusion = Conclusion::Equivalent;
        assert_eq!(
            of_comparison(&said),
            "throughput of old and new is the same within 2 % (95\u{a0}% interval: 1.0 % lower to 1.2 % higher)"
        );
        let mut said = comparison(Metric::P99, Conclusion::Undecided);
        assert_eq!(
            of_comparison(&said),
            "whether the p99 of response time of old and new differs is undecided (95\u{a0}% interval: 7.9 % lower to 1.3 % higher); \
             measuring anew with 14 processes of each would probably decide it"
        );
        said.repetitions_needed = Some(466);
        assert!(
            of_comparison(&said).ends_with(
                "deciding it would probably take 466 processes of each, measured anew: they differ that much among themselves, \
                 and on a quieter machine fewer would do"
            )
        );
        (said.low, said.high, said.repetitions_needed) = (None, None, None);
        assert!(of_comparison(&said).contains("5.7 % lower than that of new, which may be chance"));
        said.ratio = None;
        assert!(of_comparison(&said).ends_with("cannot be compared"));
    }

    #[test]
    fn a_ratio_of_one_is_not_0_percent_higher() {
        let mut said = comparison(Metric::Throughput, Conclusion::Undecided);
        (said.ratio, said.low, said.high) = (Some(1.000_1), None, None);
        said.repetitions_needed = None;
        assert_eq!(
            of_comparison(&said),
            "throughput of old is to three digits the same as that of new, which may be chance: fresh processes were not measured \
             often enough to tell"
        );
        said.conclusion = Conclusion::Equivalent;
        for (low, high, interval) in [
            (0.99, 1.012, "1.0 % lower to 1.2 % higher"),
            (1.000_2, 1.012, "the same to 1.2 % higher"),
            (0.99, 0.999_8, "1.0 % lower to the same"),
            (0.999_9, 1.000_3, "the same to three digits"),
        ] {
            (said.low, said.high) = (Some(low), Some(high));
            assert_eq!(
                of_comparison(&said),
                format!(
                    "throughput of old and new is the same within 2 % (95\u{a0}% interval: {interval})"
                )
            );
        }
    }

    #[test]
    fn a_claim_is_shown_in_the_unit_of_what_was_published() {
        let mut claim = Claim {
            text: "no difference".to_owned(),
            source: None,
            metric: Some(Metric::P50),
            of: vec!["a".to_owned(), "b".to_owned()],
            published: Some(0.98),
            agreement: Some(Agreement::Within(0.1)),
            measured: Some(1.01),
            low: Some(0.99),
            high: Some(1.03),
            holds: Holds::Yes,
            notes: Vec::new(),
        };
        assert_eq!(about(&claim), "p50, a ÷ b");
        assert_eq!(published(&claim), "0.980, within 10 %");
        assert_eq!(measured(&claim), "1.010 (0.990 – 1.030)");
        (claim.of, claim.agreement) = (vec!["a".to_owned()], Some(Agreement::AtMost));
        (claim.published, claim.measured) = (Some(102_700.0), Some(900.0));
        (claim.low, claim.high) = (None, None);
        assert_eq!(published(&claim), "at most 103 ms");
        assert_eq!(measured(&claim), "900 µs");
        (claim.published, claim.measured) = (None, None);
        assert_eq!([published(&claim), measured(&claim)], ["–", "–"]);
    }

    #[test]
    fn ratios_of_any_size_fit() {
        let shown = [0.000_4, 0.998_7, 1.0, 9.876_5, 12.34, 1234.6, 1e9].map(ratio);
        assert_eq!(
            shown,
            [
                "< 0.001", "0.999", "1.000", "9.877", "12.3", "1,235", "1.0e9"
            ]
        );
    }
}
