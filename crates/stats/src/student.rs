//! Student's t distribution: tail probabilities and quantiles, for any positive degrees of freedom.
//!
//! The tail is the regularised incomplete beta function (DLMF 8.17 and 26.5.27 of Abramowitz & Stegun, 1964),
//! evaluated by its continued fraction (DLMF 8.17.22) with Lentz's method; the quantile is found by bisection,
//! which cannot diverge. Both are good to about ten digits, far more than an interval needs.

/// Probability that |T| exceeds `t` with `degrees` of freedom: 1 for `t` = 0, 0 for infinite `t`.
#[must_use]
pub fn two_sided_p(t: f64, degrees: f64) -> f64 {
    let t = t.abs();
    if t.is_infinite() {
        return 0.0;
    }
    if !(t > 0.0 && degrees > 0.0) {
        return 1.0;
    }
    incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// The `t` that |T| exceeds with probability 1 − `confidence`: 1.96 for 0.95 and many degrees of freedom.
///
/// Infinite where no finite one exists (confidence 1, no degrees of freedom), 0 for a confidence of 0 or less.
#[must_use]
pub fn two_sided_quantile(confidence: f64, degrees: f64) -> f64 {
    let p = 1.0 - confidence;
    if p >= 1.0 {
        return 0.0;
    }
    if !(p > 0.0 && degrees > 0.0) {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided_p(high, degrees) > p {
        if high > 1e12 {
            return f64::INFINITY;
        }
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if two_sided_p(middle, degrees) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Regularised incomplete beta function I_x(a, b) for 0 ≤ x ≤ 1.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast only on this side of its mean; the other side is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let off_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / off_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    // It takes about sqrt(max(a, b)) terms; 10,000 covers a million degrees of freedom.
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / off_zero(1.0 + term * d);
            c = off_zero(1.0 + term / c);
            value *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// Logarithm of the gamma function for positive `x`: Stirling's series (DLMF 5.11.1), shifted to where
/// four terms give twelve digits.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut x = x;
    while x < 15.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        // NIST/SEMATECH e-Handbook 1.3.6.7.2, three digits after the point.
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
            let got = two_sided_quantile(confidence, degrees);
            assert!((got - t).abs() < 6e-4, "{got} for {t}");
        }
        let normal = two_sided_quantile(0.95, 1e6);
        assert!((normal - 1.959_966).abs() < 1e-5, "{normal}");
    }

    #[test]
    fn the_tail_has_its_closed_forms() {
        for t in [0.1_f64, 1.0, 3.7, 40.0, 1e4] {
            let cauchy = 1.0 - 2.0 * t.atan() / std::f64::consts::PI;
            assert!((two_sided_p(t, 1.0) - cauchy).abs() < 1e-10, "{t}");
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((two_sided_p(t, 2.0) - two).abs() < 1e-10, "{t}");
        }
    }

    #[test]
    fn the_ends_are_defined() {
        assert_eq!(two_sided_p(f64::INFINITY, 3.0), 0.0);
        assert_eq!(two_sided_p(0.0, 3.0), 1.0);
        assert_eq!(two_sided_p(2.0, 0.0), 1.0);
        assert_eq!(two_sided_quantile(0.95, 0.0), f64::INFINITY);
        assert_eq!(two_sided_quantile(1.0, 5.0), f64::INFINITY);
        assert_eq!(two_sided_quantile(0.0, 5.0), 0.0);
    }
}
