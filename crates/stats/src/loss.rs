//! Upper bound on the probability of a loss, from rounds that either lost data or did not.

use crate::distributions::beta_upper_quantile;

/// Confidence of the upper bound.
pub const CONFIDENCE: f64 = 0.95;

/// Returns the one-sided 95 % upper bound on the probability that a round loses data. Returns `None`
/// without rounds.
///
/// Without a loss in `n` rounds, the bound is 3/n, the "rule of three" (Hanley & Lippman-Hand 1983,
/// "If nothing goes wrong, is everything all right?", JAMA 249(13)). It is slightly higher than the
/// exact bound, 1 − 0.05^(1/n). With losses, the bound is exact (Clopper & Pearson 1934, "The use of
/// confidence or fiducial limits", Biometrika 26(4)).
#[must_use]
pub fn upper_bound(lost: u64, rounds: u64) -> Option<f64> {
    let n = rounds as f64;
    match lost {
        _ if rounds == 0 => None,
        0 => Some((3.0 / n).min(1.0)),
        lost if lost >= rounds => Some(1.0),
        lost => {
            let k = lost as f64;
            Some(beta_upper_quantile(1.0 - CONFIDENCE, k + 1.0, n - k))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_known_bounds() {
        assert_eq!(upper_bound(0, 0), None);
        assert_eq!(upper_bound(0, 300), Some(0.01));
        assert_eq!(upper_bound(0, 2), Some(1.0));
        assert_eq!(upper_bound(7, 7), Some(1.0));
        // With 1 loss in 2 rounds, P(at most 1 loss) = 1 − p² = 0.05.
        let one_of_two = upper_bound(1, 2).unwrap();
        assert!((one_of_two - 0.95_f64.sqrt()).abs() < 1e-9, "{one_of_two}");
        // With all but one round lost, P(at most n − 1 losses) = 1 − pⁿ = 0.05.
        let most = upper_bound(9, 10).unwrap();
        assert!((most - 0.95_f64.powf(0.1)).abs() < 1e-9, "{most}");
    }

    /// Returns the probability of at most `k` losses in `n` rounds.
    fn at_most(k: u64, n: u64, p: f64) -> f64 {
        // Logarithms, because (1 − p)ⁿ can be too small for an f64.
        let mut term = n as f64 * (-p).ln_1p();
        let mut sum = term.exp();
        for i in 1..=k {
            term += ((n - i + 1) as f64 / i as f64 * p / (1.0 - p)).ln();
            sum += term.exp();
        }
        sum
    }

    proptest! {
        #[test]
        fn as_few_losses_are_improbable_at_the_bound(n in 1u64..400, share in 0.0f64..1.0) {
            let lost = (share * n as f64) as u64;
            let bound = upper_bound(lost, n).unwrap();
            prop_assert!(bound > lost as f64 / n as f64 && bound <= 1.0);
            // The rule of three gives 1 for up to 3 rounds, which no exact bound exceeds.
            prop_assert!(n < 4 || bound <= upper_bound(lost + 1, n).unwrap());
            if bound < 1.0 {
                let p = at_most(lost, n, bound);
                match lost {
                    0 => prop_assert!(p <= 0.05 && p > 0.0, "{p}"),
                    _ => prop_assert!((p - 0.05).abs() < 1e-6, "{p}"),
                }
            }
        }
    }
}
