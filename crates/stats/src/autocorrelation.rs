//! How much less a series says about its mean because neighbouring values resemble each other.

/// Statistical inefficiency τ of a series whose mean (or means) were already taken off: the variance of its mean
/// is τ times that of independent values, so `n` values are worth `n`/τ.
///
/// Autocorrelations are summed in pairs of lags while the pairs are positive and no longer than they fall: the
/// initial monotone sequence of Geyer (1992), "Practical Markov Chain Monte Carlo", Statistical Science 7(4).
/// Taking the mean off makes every estimated autocovariance too small by about the variance of the mean
/// (Anderson 1971, "The Statistical Analysis of Time Series"), which matters for the 10 to 60 values of a run: that is put back in a
/// few rounds. `means` is how many means were taken off.
///
/// At least 1 (alternation is not taken as extra evidence: a periodic stall must not narrow an interval), at most
/// half the number of values.
pub(crate) fn inefficiency(residuals: &[f64], means: usize) -> f64 {
    let n = residuals.len();
    if n < 4 {
        return 1.0;
    }
    let lags = (n / 2).min(MOST_LAGS);
    // Filled as far as it is needed, which is seldom far.
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
    let most = n as f64 / 2.0;
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

/// Longest lag looked at, so that the cost of a day-long run stays linear; nothing of interest in a run of seconds is
/// related over more than some minutes.
const MOST_LAGS: usize = 512;

/// Rounds of putting back what taking the mean off cost; the third changes τ by a few per cent only.
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
    fn it_is_near_the_closed_form_of_ar1() {
        // τ = (1 + φ)/(1 − φ): 1, 3 and 9.
        for (phi, tau) in [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)] {
            let got = of(&ar1(phi, 20_000, 7));
            assert!((got / tau - 1.0).abs() < 0.2, "{got} for {tau}");
        }
    }

    #[test]
    fn alternation_and_equal_values_are_worth_no_more_than_independent_ones() {
        let dips: Vec<f64> = (0..40)
            .map(|i| if i % 4 == 3 { 0.0 } else { 1.0 })
            .collect();
        assert!(of(&dips) < 1.5, "{}", of(&dips));
        assert_eq!(of(&[3.0; 20]), 1.0);
    }
}
