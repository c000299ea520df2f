//! Quantiles and tails of Student's t and chi-square distributions, for any positive degrees of
//! freedom, and quantiles of the beta distribution.
//!
//! The quantiles are found by bisection, which always converges. The quantiles of `statrs` are less
//! precise.

use statrs::function::beta::beta_reg;
use statrs::function::gamma::gamma_lr;

/// Returns the probability that |T| exceeds |`t`|. The result is 1 for `t` = 0 or an undefined `t`
/// (0 ÷ 0), and 0 for infinite `t`.
pub(crate) fn t_two_sided_p(t: f64, degrees: f64) -> f64 {
    let t = t.abs();
    if !(t > 0.0 && degrees > 0.0) {
        return 1.0;
    }
    beta_reg(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// Returns the `t` that |T| exceeds with probability 1 − `confidence`.
///
/// The result is about 1.96 for confidence 0.95 and many degrees of freedom. The result is infinite
/// if the confidence is 1 or there are no degrees of freedom. The result is 0 if the confidence is
/// 0 or less.
pub(crate) fn t_two_sided_quantile(confidence: f64, degrees: f64) -> f64 {
    let p = 1.0 - confidence;
    if p >= 1.0 {
        return 0.0;
    }
    if !(p > 0.0 && degrees > 0.0) {
        return f64::INFINITY;
    }
    bisect(LARGEST_T, |t| t_two_sided_p(t, degrees) > p)
}

/// Upper bound on the quantiles of t. No practical interval reaches this value.
const LARGEST_T: f64 = 1e12;

/// Returns the half width of a two-sided Student-t interval; 0 without variance.
pub(crate) fn t_margin(confidence: f64, std_err: f64, degrees: f64) -> f64 {
    if std_err > 0.0 {
        t_two_sided_quantile(confidence, degrees) * std_err
    } else {
        0.0
    }
}

/// Returns the value that χ² stays below with probability `p` ≤ 0.5.
/// Returns 0 if `p` or `degrees` is not positive.
pub(crate) fn chi_square_lower_quantile(p: f64, degrees: f64) -> f64 {
    debug_assert!(p <= 0.5, "{p}");
    if !(p > 0.0 && degrees > 0.0) {
        return 0.0;
    }
    // The median is below the mean, which is `degrees`.
    bisect(degrees, |x| gamma_lr(degrees / 2.0, x / 2.0) < p)
}

/// Returns the value that a beta distribution with the parameters `a` and `b` exceeds with
/// probability `p`. All arguments must be positive.
pub(crate) fn beta_upper_quantile(p: f64, a: f64, b: f64) -> f64 {
    debug_assert!(p > 0.0 && a > 0.0 && b > 0.0, "{p} {a} {b}");
    bisect(1.0, |x| beta_reg(a, b, x) < 1.0 - p)
}

/// Returns the largest value between 0 and `high` for which `is_below` holds.
fn bisect(high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, high);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantiles_agree_with_printed_tables() {
        // Values from the NIST/SEMATECH e-Handbook, section 1.3.6.7.2, with three decimals.
        let table = [
            (0.95, 1.0, 12.706),
            (0.95, 2.0, 4.303),
            (0.95, 4.0, 2.776),
            (0.95, 9.0, 2.262),
            (0.95, 29.0, 2.045),
            (0.95, 100.0, 1.984),
            (0.99, 5.0, 4.032),
            (0.90, 10.0, 1.812),
            (0.998, 7.0, 4.785),
            (0.998, 60.0, 3.232),
        ];
        for (confidence, degrees, t) in table {
            let got = t_two_sided_quantile(confidence, degrees);
            assert!((got - t).abs() < 6e-4, "{got} for {t}");
        }
        let normal = t_two_sided_quantile(0.95, 1e6);
        assert!((normal - 1.959_966).abs() < 1e-5, "{normal}");
    }

    #[test]
    fn t_tail_agrees_with_closed_forms() {
        for t in [0.1_f64, 1.0, 3.7, 40.0, 1e4] {
            let cauchy = 1.0 - 2.0 * t.atan() / std::f64::consts::PI;
            assert!((t_two_sided_p(t, 1.0) - cauchy).abs() < 1e-10, "{t}");
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((t_two_sided_p(t, 2.0) - two).abs() < 1e-10, "{t}");
        }
    }

    #[test]
    fn t_limits_are_defined() {
        assert_eq!(t_two_sided_p(f64::INFINITY, 3.0), 0.0);
        assert_eq!(t_two_sided_p(0.0, 3.0), 1.0);
        assert_eq!(t_two_sided_p(2.0, 0.0), 1.0);
        assert_eq!(t_two_sided_quantile(0.95, 0.0), f64::INFINITY);
        assert_eq!(t_two_sided_quantile(1.0, 5.0), f64::INFINITY);
        assert_eq!(t_two_sided_quantile(0.0, 5.0), 0.0);
    }

    #[test]
    fn chi_square_quantiles_agree_with_mpmath() {
        // Values computed with Python's mpmath at 30 digits, by bisection of mpmath's incomplete
        // gamma function.
        let table = [
            (0.2, 0.5, 0.002_161_771_461_326),
            (0.2, 1.0, 0.064_184_754_667_3),
            (0.2, 2.5, 0.711_599_469_348_5),
            (0.2, 4.0, 1.648_776_618_066),
            (0.2, 8.0, 4.593_573_612_056),
            (0.05, 8.0, 2.732_636_793_5),
            (0.5, 3.0, 2.365_973_884_375),
            (0.2, 100.0, 87.945_335_922_75),
            (0.2, 10_000.0, 9_880.786_499_624),
        ];
        for (p, degrees, wanted) in table {
            let got = chi_square_lower_quantile(p, degrees);
            assert!(
                (got / wanted - 1.0).abs() < 1e-9,
                "{got} instead of {wanted} (p {p}, degrees of freedom {degrees})"
            );
        }
    }

    #[test]
    fn chi_square_limits_are_defined() {
        assert_eq!(chi_square_lower_quantile(0.0, 3.0), 0.0);
        assert_eq!(chi_square_lower_quantile(0.2, 0.0), 0.0);
        assert_eq!(chi_square_lower_quantile(0.2, f64::NAN), 0.0);
    }
}
