//! Plain-language descriptions of ratios, comparisons and claims, without statistical terms.

use floodmark_record::comparison::{
    Agreement, ClaimResult, ComparedMetric, Comparison, Conclusion, Holds,
};
use floodmark_record::units::{show_count, show_ratio};

use super::figures::{NOT_MEASURED, glue, level, optional};
use super::text::{Emphasis, Span};

/// Maximum number of server processes per system for which repeating a comparison is usually
/// worthwhile.
const MANY_PROCESSES: u32 = 100;

/// Describes the result of a comparison in a sentence.
pub(crate) fn result(comparison: &Comparison) -> String {
    let (a, b) = (&comparison.a, &comparison.b);
    let of = comparison.metric.figure().title();
    let Some(ratio) = comparison.ratio else {
        return format!("{of} of {a} and {b} cannot be compared");
    };
    let differ = format!("{of} of {a}: {} times that of {b}", show_ratio(ratio));
    if comparison.low.is_none() {
        return format!("{differ}; inconclusive: not enough server processes for an interval");
    }
    let level = level(comparison.confidence);
    let interval = glue(&interval(comparison));
    let needed = comparison.repetitions_needed.map(processes_needed);
    let conclusion = match (comparison.conclusion, needed) {
        (Conclusion::Different, _) => String::new(),
        (Conclusion::Equivalent, _) => "; equivalent within 2 %".to_owned(),
        (Conclusion::Undecided, None) => "; inconclusive".to_owned(),
        (Conclusion::Undecided, Some(needed)) => format!("; inconclusive: {needed}"),
    };
    format!("{differ} ({level} interval: {interval}){conclusion}")
}

/// Describes how many server processes a conclusive comparison probably needs.
pub(crate) fn processes_needed(processes: u32) -> String {
    let needed = match processes {
        10_000.. => "10,000 or more".to_owned(),
        n => show_count(n.into()),
    };
    let advice = if processes > MANY_PROCESSES {
        "; fewer on a quieter host"
    } else {
        ""
    };
    format!("probably needs {needed} server processes per side{advice}")
}

/// Returns one word that states whether a claim holds.
pub(crate) fn holds(holds: Holds) -> Span {
    match holds {
        Holds::Yes => Emphasis::Good.span("yes"),
        Holds::No => Emphasis::Bad.span("no"),
        Holds::Undecided => Emphasis::Warn.span("inconclusive"),
    }
}

/// Returns the metric and the trials of a claim: `p50, a ÷ b`.
pub(crate) fn subject(claim: &ClaimResult) -> String {
    let trials = match claim.of.as_slice() {
        [a, b] => format!("{a} ÷ {b}"),
        of => of.join(", "),
    };
    let metric = claim.metric.map(|metric| metric.to_string());
    let parts = metric
        .into_iter()
        .chain([trials])
        .filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns the measured figure and interval for a claim, in the unit of the published figure.
#[must_use]
pub fn measured(claim: &ClaimResult) -> String {
    let show = |value| claimed(claim, value);
    match (claim.measured, claim.low.zip(claim.high)) {
        (None, _) => NOT_MEASURED.to_owned(),
        (Some(figure), None) => show(figure),
        (Some(figure), Some((low, high))) => {
            format!("{} ({} – {})", show(figure), show(low), show(high))
        }
    }
}

/// Returns the published figure of a claim and its tolerance.
#[must_use]
pub fn published(claim: &ClaimResult) -> String {
    let shown = optional(claim.published, |figure| claimed(claim, figure));
    match claim.agreement.filter(|_| claim.published.is_some()) {
        Some(Agreement::Within(share)) => {
            format!("{shown}, tolerance {} %", (share * 1e3).round() / 10.0)
        }
        Some(Agreement::AtLeast) => format!("at least {shown}"),
        Some(Agreement::AtMost) => format!("at most {shown}"),
        None => shown,
    }
}

/// Formats a claim's figure, which is a ratio or the figure of one trial.
fn claimed(claim: &ClaimResult, value: f64) -> String {
    match (claim.metric, claim.of.len()) {
        (Some(metric), 1) => figure(metric, Some(value)),
        _ => show_ratio(value),
    }
}

/// Formats a metric's figure with its unit.
pub(crate) fn figure(metric: ComparedMetric, value: Option<f64>) -> String {
    optional(value, |value| metric.figure().unit().show(value))
}

/// Formats both ends of a comparison's confidence interval.
pub(crate) fn interval(comparison: &Comparison) -> String {
    let ends = comparison.low.zip(comparison.high);
    ends.map_or_else(|| NOT_MEASURED.to_owned(), |(low, high)| range(low, high))
}

/// Formats a range of ratios: `0.921 – 0.966`.
pub(crate) fn range(low: f64, high: f64) -> String {
    format!("{} – {}", show_ratio(low), show_ratio(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparison::tests::comparison;

    #[test]
    fn states_each_conclusion_in_a_sentence() {
        let shown = |compared: &Comparison| result(compared).replace('\u{a0}', " ");
        let mut compared = comparison(ComparedMetric::Throughput, Conclusion::Different);
        assert_eq!(
            shown(&compared),
            "throughput of old: 0.943 times that of new (95 % interval: 0.921 – 0.966)"
        );
        (compared.ratio, compared.low, compared.high) = (Some(2.31), Some(2.1), Some(2.54));
        assert_eq!(
            shown(&compared),
            "throughput of old: 2.310 times that of new (95 % interval: 2.100 – 2.540)"
        );
        (compared.ratio, compared.low, compared.high) = (Some(1.001), Some(0.99), Some(1.012));
        compared.conclusion = Conclusion::Equivalent;
        assert_eq!(
            shown(&compared),
            "throughput of old: 1.001 times that of new (95 % interval: 0.990 – 1.012); equivalent within 2 %"
        );
        let mut compared = comparison(ComparedMetric::P99, Conclusion::Undecided);
        assert_eq!(
            shown(&compared),
            "response time p99 of old: 0.943 times that of new (95 % interval: 0.921 – 1.013); \
             inconclusive: probably needs 14 server processes per side"
        );
        compared.repetitions_needed = Some(466);
        assert!(
            result(&compared)
                .ends_with("probably needs 466 server processes per side; fewer on a quieter host")
        );
        (compared.low, compared.high, compared.repetitions_needed) = (None, None, None);
        assert!(result(&compared).contains("0.943 times that of new; inconclusive: not enough"));
        compared.ratio = None;
        assert!(result(&compared).ends_with("cannot be compared"));
    }

    #[test]
    fn shows_a_claim_in_the_unit_of_the_published_figure() {
        let mut claim = ClaimResult {
            text: "no difference".to_owned(),
            source: None,
            metric: Some(ComparedMetric::P50),
            of: vec!["a".to_owned(), "b".to_owned()],
            published: Some(0.98),
            agreement: Some(Agreement::Within(0.1)),
            measured: Some(1.01),
            low: Some(0.99),
            high: Some(1.03),
            holds: Holds::Yes,
            notes: Vec::new(),
        };
        assert_eq!(subject(&claim), "p50, a ÷ b");
        assert_eq!(published(&claim), "0.980, tolerance 10 %");
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
        let shown = [0.000_4, 0.998_7, 1.0, 9.876_5, 12.34, 1234.6, 1e9].map(show_ratio);
        assert_eq!(
            shown,
            [
                "< 0.001", "0.999", "1.000", "9.877", "12.3", "1,235", "1.0e9"
            ]
        );
    }
}
