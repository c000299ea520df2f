//! Proportions of correct verdicts, with confidence intervals.

use std::collections::BTreeMap;
use std::fmt;

use floodmark_record::cause::Cause;
use floodmark_record::verdict::Confidence;

use super::judging::JudgedCase;

/// A proportion of cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Proportion {
    /// Number of matching cases.
    pub count: usize,
    /// Total number of cases.
    pub total: usize,
}

impl Proportion {
    /// Returns the proportion of `true` values.
    pub fn of(items: impl IntoIterator<Item = bool>) -> Self {
        let mut proportion = Proportion::default();
        for holds in items {
            proportion.total += 1;
            proportion.count += usize::from(holds);
        }
        proportion
    }

    fn value(self) -> f64 {
        self.count as f64 / self.total.max(1) as f64
    }

    /// Returns the 95 % Wilson score interval: E. B. Wilson, "Probable Inference, the Law of
    /// Succession, and Statistical Inference", Journal of the American Statistical Association 22
    /// (1927).
    fn interval(self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        if self.total == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (self.total as f64, self.value());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let whole = 1.0 + Z * Z / n;
        // Rounding errors may move a bound below 0 or above 1.
        let (low, high) = ((middle - half) / whole, (middle + half) / whole);
        (low.max(0.0), high.min(1.0))
    }
}

impl fmt::Display for Proportion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval();
        let [value, low, high] = [self.value(), low, high].map(|share| share * 100.0);
        let Proportion { count, total } = self;
        write!(
            f,
            "{count} of {total}: {value:.1} % ({low:.1} – {high:.1} %)"
        )
    }
}

/// Accuracy of a set of verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accuracy {
    /// Verdicts that name an expected cause.
    pub right: Proportion,
    /// Confident verdicts that name a wrong cause.
    pub wrong: Proportion,
    /// Verdicts that name no cause.
    pub abstains: Proportion,
}

impl Accuracy {
    /// Computes the accuracy of floodmark's verdicts.
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a JudgedCase>) -> Self {
        Self::by(cases, |case| (case.judged, case.confidence))
    }

    /// Computes the accuracy of other verdicts on the same cases.
    pub fn by<'a>(
        cases: impl IntoIterator<Item = &'a JudgedCase>,
        verdict: impl Fn(&JudgedCase) -> (Cause, Confidence),
    ) -> Self {
        let (mut total, mut right, mut wrong, mut abstains) = (0, 0, 0, 0);
        for case in cases {
            total += 1;
            match verdict(case) {
                (cause, _) if case.expected.contains(&cause) => right += 1,
                (Cause::Unknown, _) => abstains += 1,
                (_, confidence) => wrong += usize::from(confidence != Confidence::Unknown),
            }
        }
        let of = |count| Proportion { count, total };
        Accuracy {
            right: of(right),
            wrong: of(wrong),
            abstains: of(abstains),
        }
    }
}

/// Counts how often each cause was named for each expected cause.
pub fn matrix<'a>(
    cases: impl IntoIterator<Item = &'a JudgedCase>,
) -> BTreeMap<Cause, BTreeMap<Cause, usize>> {
    let mut matrix: BTreeMap<Cause, BTreeMap<Cause, usize>> = BTreeMap::new();
    for case in cases {
        let row = match case.is_right() {
            true => case.judged,
            false => case.expected[0],
        };
        let row = matrix.entry(row).or_default();
        *row.entry(case.judged).or_default() += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(expected: Cause, judged: Cause, confidence: Confidence) -> JudgedCase {
        JudgedCase {
            confidence,
            ..JudgedCase::example("c", expected, judged)
        }
    }

    #[test]
    fn right_wrong_and_abstaining_add_up() {
        let outcomes = [
            outcome(Cause::Gc, Cause::Gc, Confidence::Likely),
            outcome(Cause::Gc, Cause::ServerCpu, Confidence::Likely),
            outcome(Cause::ServerCpu, Cause::Unknown, Confidence::Unknown),
            outcome(Cause::Unknown, Cause::Unknown, Confidence::Unknown),
        ];
        let accuracy = Accuracy::of(&outcomes);
        let pair = |proportion: Proportion| (proportion.count, proportion.total);
        assert_eq!(pair(accuracy.right), (2, 4));
        assert_eq!(pair(accuracy.wrong), (1, 4));
        assert_eq!(pair(accuracy.abstains), (1, 4));
        let always = Accuracy::by(&outcomes, |_| (Cause::ServerCpu, Confidence::Likely));
        assert_eq!((pair(always.right), pair(always.wrong)), ((1, 4), (3, 4)));
        let matrix = matrix(&outcomes);
        assert_eq!(matrix[&Cause::Gc][&Cause::ServerCpu], 1);
        assert_eq!(matrix[&Cause::Unknown][&Cause::Unknown], 1);
    }

    #[test]
    fn matches_published_intervals() {
        // Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
        // Medicine 17 (1998), table I, method 3.
        let near = |a: f64, b: f64| (a - b).abs() < 5e-5;
        for (count, total, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (l, h) = Proportion { count, total }.interval();
            assert!(near(l, low) && near(h, high), "{count}/{total}: {l} {h}");
        }
        let interval = |count, total| Proportion { count, total }.interval();
        assert_eq!(interval(0, 0), (0.0, 1.0));
        assert_eq!(interval(5, 5).1, 1.0);
    }
}
