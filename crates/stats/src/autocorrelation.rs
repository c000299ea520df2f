//! Statistical inefficiency of a series with correlated neighbors.

/// Returns the statistical inefficiency τ of residuals.
///
/// The variance of the residuals' mean is τ times the variance for independent values. The `n`
/// values are therefore worth `n`/τ independent values.
///
/// Autocorrelations are summed in pairs of lags while the pairs are positive and do not grow. This
/// is the initial monotone sequence of Geyer (1992), "Practical Markov Chain Monte Carlo",
/// Statistical Science 7(4).
///
/// Subtracting the mean makes each autocovariance too small by about the variance of the mean
/// (Anderson 1971, "The Statistical Analysis of Time Series"). This matters for 10 to 60 values, so
/// the variance is added back iteratively. `means` is the number of subtracted means.
///
/// The result is at least 1, so that periodic stalls do not narrow an interval. It is at most half
/// the number of values with the same mean.
pub(crate) fn inefficiency(residuals: &[f64], means: usize) -> f64 {
    let n = residuals.len();
    if n < 4 {
        return 1.0;
    }
    // Values with different means come from different series.
    let series = n / means.max(1);
    let lags = (series / 2).min(MOST_LAGS);
    // Compute products on demand, because few lags are needed, and only once, because all rounds
    // use them.
    let mut products: Vec<f64> = Vec::new();
    let mut product = move |lag: usize| {
        while products.len() <= lag {
            let pairs = residuals[products.len()..].iter().zip(residuals);
            products.push(pairs.map(|(a, b)| a * b).sum());
        }
        products[lag]
    };
    let variance = product(0) / n as f64;
    if variance <= 0.0 {
        return 1.0;
    }
    let most = (series as f64 / 2.0).max(1.0);
    let mut tau: f64 = 1.0;
    for _ in 0..ROUNDS {
        let of_mean = variance * tau * means as f64 / n as f64;
        let mut sum = 0.0;
        let mut last_pair = f64::INFINITY;
        for pair in 0..lags / 2 {
            let mut at = |lag: usize| product(lag) / (n - lag) as f64 + of_mean;
            let both = (at(2 * pair) + at(2 * pair + 1)).min(last_pair);
            if both <= 0.0 {
                break;
            }
            sum += both;
            last_pair = both;
        }
        let own = variance + of_mean;
        tau = (2.0 * sum / own - 1.0).clamp(1.0, most);
    }
    tau
}

/// Returns the variance of autocorrelated values, and τ. Both are computed from the residuals.
/// `means` is the number of subtracted means.
pub(crate) fn variance(residuals: &[f64], means: usize) -> (f64, f64) {
    let tau = inefficiency(residuals, means);
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    // Autocorrelated values spread less around their own mean than around the true mean. The
    // divisor is therefore n − τ instead of n − 1.
    let degrees = residuals.len() as f64 - means as f64 * tau;
    (squares / degrees.max(1.0), tau)
}

/// Maximum lag, which keeps the cost linear for long runs.
const MOST_LAGS: usize = 512;

/// Number of iterations. The third iteration changes τ by only a few percent.
const ROUNDS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::mean;
    use crate::testing::ar1;

    fn of(values: &[f64]) -> f64 {
        let m = mean(values);
        let residuals: Vec<f64> = values.iter().map(|v| v - m).collect();
        inefficiency(&residuals, 1)
    }

    #[test]
    fn agrees_with_the_closed_form_of_ar1() {
        // The expected values of τ = (1 + φ)/(1 − φ) are 1, 3 and 9.
        for (phi, tau) in [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)] {
            let got = of(&ar1(phi, 20_000, 7));
            assert!((got / tau - 1.0).abs() < 0.2, "{got} for {tau}");
        }
    }

    #[test]
    fn alternation_and_equal_values_give_1() {
        let dips: Vec<f64> = (0..40)
            .map(|i| if i % 4 == 3 { 0.0 } else { 1.0 })
            .collect();
        assert!(of(&dips) < 1.5, "{}", of(&dips));
        assert_eq!(of(&[3.0; 20]), 1.0);
    }
}
