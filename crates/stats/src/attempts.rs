//! Notes on the throughput of attempts: a slow first attempt, and outliers.

use floodmark_record::units::show_rate;

/// Minimum modified z-score of an outlier, as in hyperfine.
///
/// This z-score corresponds to ten standard deviations of a normal distribution. The value 3.5,
/// recommended by Iglewicz & Hoaglin (1993), "How to Detect and Handle Outliers", ASQC, gives more
/// false positives.
pub const OUTLIER_Z: f64 = 14.826;

/// Minimum difference between an attempt and the others that is worth a note, as a share.
/// Identical runs commonly differ by less.
pub const LEAST_DIFFERENCE: f64 = 0.03;

/// Minimum number of attempts for detecting outliers.
/// With fewer attempts, two that agree by chance make the others look like outliers.
pub const FEWEST_FOR_OUTLIERS: usize = 5;

/// Returns notes on the attempts, one line each. Returns no notes for fewer than three attempts.
/// `per_s` contains the throughput of each attempt in order.
#[must_use]
pub fn notes(per_s: &[f64]) -> Vec<String> {
    if per_s.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let slow_first = slow_first(per_s);
    let slow = slow_first.map(|below| {
        format!(
            "the first attempt was the slowest ({}/s, {:.0} % below the mean of the others): the server was \
             warming up; add --warmup 5s",
            show_rate(per_s[0]),
            below * 100.0
        )
    });
    let outliers = outliers(per_s).into_iter();
    let others = outliers.filter(|i| *i > 0 || slow_first.is_none());
    let others = others.map(|i| {
        format!(
            "attempt {} is an outlier ({}/s, median {}/s); check this host for other work (floodmark \
             doctor) and repeat",
            i + 1,
            show_rate(per_s[i]),
            show_rate(median(per_s)),
        )
    });
    slow.into_iter().chain(others).collect()
}

/// Returns the share by which the first attempt is below the mean of the others.
///
/// Returns `None` unless there are at least three attempts, the first attempt is the slowest, and
/// the share exceeds [`LEAST_DIFFERENCE`].
#[must_use]
pub fn slow_first(per_s: &[f64]) -> Option<f64> {
    let [first, others @ ..] = per_s else {
        return None;
    };
    let mean = others.iter().sum::<f64>() / others.len() as f64;
    let slow = others.len() >= 2
        && others.iter().all(|v| first < v)
        && *first < (1.0 - LEAST_DIFFERENCE) * mean;
    slow.then(|| 1.0 - first / mean)
}

/// Returns the indexes of the outliers; see [`OUTLIER_Z`].
/// Returns no indexes for fewer than [`FEWEST_FOR_OUTLIERS`] values.
#[must_use]
pub fn outliers(per_s: &[f64]) -> Vec<usize> {
    if per_s.len() < FEWEST_FOR_OUTLIERS {
        return Vec::new();
    }
    let middle = median(per_s);
    let distances: Vec<f64> = per_s.iter().map(|v| (v - middle).abs()).collect();
    let mad = median(&distances);
    let is_outlier =
        |distance: f64| distance / mad > OUTLIER_Z && distance > LEAST_DIFFERENCE * middle;
    (0..per_s.len())
        .filter(|i| is_outlier(distances[*i]))
        .collect()
}

/// Returns the median.
///
/// # Panics
/// Panics if there are no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    0.5 * (sorted[(n - 1) / 2] + sorted[n / 2])
}

/// Returns the median on a logarithmic scale, so that inverting every value inverts the median.
///
/// # Panics
/// Panics if there are no values.
#[must_use]
pub fn geometric_median(values: &[f64]) -> f64 {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    median(&logs).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_attempts_have_no_notes() {
        for quiet in [
            &[][..],
            &[1.0],
            &[50.0, 100.0],
            &[100.0; 8],
            &[99.0, 101.0, 100.0, 98.0, 102.0],
            &[98.0, 100.0, 100.0, 100.0],
        ] {
            assert_eq!(notes(quiet), Vec::<String>::new(), "{quiet:?}");
        }
    }

    #[test]
    fn notes_a_slow_first_attempt_once() {
        let notes = notes(&[8_000.0, 10_000.0, 10_010.0, 9_990.0, 10_000.0, 10_005.0]);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].starts_with("the first attempt was the slowest (8,000/s, 20 % below"),
            "{notes:?}"
        );
    }

    #[test]
    fn notes_an_outlier() {
        let notes = notes(&[10_000.0, 10_020.0, 6_000.0, 9_990.0, 10_010.0, 10_005.0]);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].starts_with("attempt 3 is an outlier (6,000/s"),
            "{notes:?}"
        );
    }

    #[test]
    fn finds_an_outlier_among_equal_values() {
        assert_eq!(outliers(&[100.0, 100.0, 100.0, 100.0, 50.0]), [4]);
    }

    #[test]
    fn small_differences_are_not_outliers() {
        assert_eq!(
            notes(&[100.0, 100.0, 100.0, 100.0, 101.0, 100.0]),
            Vec::<String>::new()
        );
    }
}
