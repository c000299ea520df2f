//! Lower quantiles of the chi-square distribution, for any positive degrees of freedom.
//!
//! The probability is the regularised lower incomplete gamma function by its power series (DLMF 8.7.1), which has only positive
//! terms and below the median needs few of them; the quantile is found by bisection, as Student's is.

use crate::student::ln_gamma;

/// The value that χ² with `degrees` of freedom stays below with probability `p`, for `p` up to one half; 0 where there is none.
#[must_use]
pub(crate) fn lower_quantile(p: f64, degrees: f64) -> f64 {
    debug_assert!(p <= 0.5, "{p}");
    if !(p > 0.0 && degrees > 0.0) {
        return 0.0;
    }
    // The median is below the mean, which is the degrees of freedom.
    let (mut low, mut high) = (0.0, degrees);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if probability_below(middle, degrees) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

fn probability_below(x: f64, degrees: f64) -> f64 {
    let (a, x) = (degrees / 2.0, x / 2.0);
    if x <= 0.0 {
        return 0.0;
    }
    let (mut term, mut sum) = (1.0, 1.0);
    let mut next = a;
    // Each term is smaller than the one before, for x is at most a.
    while term > 1e-16 * sum {
        next += 1.0;
        term *= x / next;
        sum += term;
    }
    (a * x.ln() - x - ln_gamma(a + 1.0)).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_worked_out_elsewhere() {
        // With Python's mpmath at 30 digits, by bisection of its incomplete gamma function.
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
            let got = lower_quantile(p, degrees);
            assert!(
                (got / wanted - 1.0).abs() < 1e-9,
                "{got} for {wanted} ({p}, {degrees})"
            );
        }
    }

    #[test]
    fn the_ends_are_defined() {
        assert_eq!(lower_quantile(0.0, 3.0), 0.0);
        assert_eq!(lower_quantile(0.2, 0.0), 0.0);
        assert_eq!(lower_quantile(0.2, f64::NAN), 0.0);
    }
}
