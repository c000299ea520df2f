//! Proportions of correct verdicts, with confidence intervals.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::verdict::Confidence;

use super::judging::JudgedCase;
use crate::proportion::Proportion;

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
        let row = if case.is_right() {
            case.judged
        } else {
            case.expected[0]
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
}
