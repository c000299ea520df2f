//! What verdicts came to: the matrix, and shares with their intervals.

use std::collections::BTreeMap;
use std::fmt;

use floodmark_record::cause::Cause;
use floodmark_record::verdict::Confidence;

/// What became of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// What it has to be, by the rule of the catalogue; several where two limits are meant to be alike.
    pub expected: Vec<Cause>,
    /// What it was judged to be.
    pub judged: Cause,
    /// How sure that was.
    pub confidence: Confidence,
    /// What the baselines say, in the order of [`super::baseline::NAMES`].
    pub baselines: Vec<Cause>,
    /// Whether it is looked at only when rules are not worked on.
    pub set_aside: bool,
    /// Whether nothing was injected.
    pub clean: bool,
}

impl Outcome {
    fn right(&self, judged: Cause) -> bool {
        self.expected.contains(&judged)
    }

    /// Whether it was judged to be what it has to be.
    pub fn is_right(&self) -> bool {
        self.right(self.judged)
    }
}

/// A share of some cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Those of whom it holds.
    pub those: usize,
    /// All of them.
    pub of: usize,
}

impl Share {
    fn among<'a>(
        outcomes: impl IntoIterator<Item = &'a Outcome>,
        holds: impl Fn(&Outcome) -> bool,
    ) -> Self {
        let (mut those, mut of) = (0, 0);
        for outcome in outcomes {
            of += 1;
            those += usize::from(holds(outcome));
        }
        Share { those, of }
    }

    /// The share; 0 of none.
    pub fn share(self) -> f64 {
        self.those as f64 / self.of.max(1) as f64
    }

    /// Its 95 % interval. E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal of the American
    /// Statistical Association 22 (1927).
    pub fn interval(self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (self.of as f64, self.share());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let whole = 1.0 + Z * Z / n;
        // Rounding must not lead beyond what shares are.
        (
            ((middle - half) / whole).max(0.0),
            ((middle + half) / whole).min(1.0),
        )
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval();
        write!(
            f,
            "{} of {}: {:.1} % ({:.1} – {:.1} %)",
            self.those,
            self.of,
            self.share() * 100.0,
            low * 100.0,
            high * 100.0
        )
    }
}

/// How good verdicts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accuracy {
    /// Verdicts that name the cause.
    pub right: Share,
    /// Verdicts that are sure of another one.
    pub wrong: Share,
    /// Verdicts that abstain.
    pub abstains: Share,
}

impl Accuracy {
    /// Of floodmark's verdicts.
    pub fn of<'a>(outcomes: impl IntoIterator<Item = &'a Outcome> + Clone) -> Self {
        let abstains =
            |outcome: &Outcome| outcome.judged == Cause::Unknown && !outcome.right(Cause::Unknown);
        Accuracy {
            right: Share::among(outcomes.clone(), |o| o.right(o.judged)),
            wrong: Share::among(outcomes.clone(), |o| {
                !o.right(o.judged) && !abstains(o) && o.confidence != Confidence::Unknown
            }),
            abstains: Share::among(outcomes, abstains),
        }
    }

    /// Of a baseline's, which is always sure of what it names.
    pub fn of_baseline<'a>(
        outcomes: impl IntoIterator<Item = &'a Outcome> + Clone,
        baseline: usize,
    ) -> Self {
        let said = |outcome: &Outcome| {
            let said = outcome.baselines.get(baseline);
            said.copied().unwrap_or(Cause::Unknown)
        };
        let abstains = |o: &Outcome| said(o) == Cause::Unknown && !o.right(Cause::Unknown);
        Accuracy {
            right: Share::among(outcomes.clone(), |o| o.right(said(o))),
            wrong: Share::among(outcomes.clone(), |o| !o.right(said(o)) && !abstains(o)),
            abstains: Share::among(outcomes, abstains),
        }
    }
}

/// How often each cause was judged to be which, by the first of the expected ones.
pub fn matrix<'a>(
    outcomes: impl IntoIterator<Item = &'a Outcome>,
) -> BTreeMap<Cause, BTreeMap<Cause, usize>> {
    let mut matrix: BTreeMap<Cause, BTreeMap<Cause, usize>> = BTreeMap::new();
    for outcome in outcomes {
        let row = if outcome.right(outcome.judged) {
            outcome.judged
        } else {
            outcome.expected.first().copied().unwrap_or(Cause::Unknown)
        };
        *matrix
            .entry(row)
            .or_default()
            .entry(outcome.judged)
            .or_default() += 1;
    }
    matrix
}

/// Whether a case is set aside: one in five, drawn by its name, so that nobody chooses.
pub fn is_set_aside(name: &str) -> bool {
    drawn(name).is_multiple_of(5)
}

/// The number of a name, by which cases are drawn (FNV-1a, 64 bits).
pub fn drawn(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(expected: Cause, judged: Cause, confidence: Confidence) -> Outcome {
        Outcome {
            name: "c".to_owned(),
            expected: vec![expected],
            judged,
            confidence,
            baselines: vec![Cause::ServerCpu],
            set_aside: false,
            clean: false,
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
        let those = |share: Share| (share.those, share.of);
        assert_eq!(those(accuracy.right), (2, 4));
        assert_eq!(those(accuracy.wrong), (1, 4));
        assert_eq!(those(accuracy.abstains), (1, 4));
        let always = Accuracy::of_baseline(&outcomes, 0);
        assert_eq!((those(always.right), those(always.wrong)), ((1, 4), (3, 4)));
        let matrix = matrix(&outcomes);
        assert_eq!(matrix[&Cause::Gc][&Cause::ServerCpu], 1);
        assert_eq!(matrix[&Cause::Unknown][&Cause::Unknown], 1);
    }

    #[test]
    fn intervals_are_those_of_the_paper() {
        // Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I, method 3.
        let near = |a: f64, b: f64| (a - b).abs() < 5e-5;
        for (those, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (l, h) = Share { those, of }.interval();
            assert!(near(l, low) && near(h, high), "{those}/{of}: {l} {h}");
        }
        assert_eq!(Share { those: 0, of: 0 }.interval(), (0.0, 1.0));
        assert_eq!(Share { those: 5, of: 5 }.interval().1, 1.0);
    }

    #[test]
    fn about_one_in_five_is_set_aside() {
        let names: Vec<String> = (0..1000).map(|i| format!("case-{i}")).collect();
        let aside = names.iter().filter(|name| is_set_aside(name)).count();
        assert!((150..250).contains(&aside), "{aside}");
    }
}
