//! Remarks on the throughput of repeated attempts: a slow first one, and outliers.

use floodmark_record::units::show_rate;

/// An attempt this many times the median absolute deviation from the median is an outlier: ten standard deviations of
/// a normal distribution (1.4826 × 10). Modified z-scores are of Iglewicz & Hoaglin (1993), "How to Detect and Handle
/// Outliers", ASQC; the bound is hyperfine's, far above their 3.5, for only a remark that is surely right is worth reading.
pub const OUTLIER_Z: f64 = 14.826;

/// Smallest difference from the others that is worth a remark, as a share: equal runs of a program commonly differ
/// by less.
pub const LEAST_DIFFERENCE: f64 = 0.03;

/// Fewest attempts in which an outlier can be told: among three or four, two that agree by luck make the
/// others look far off.
pub const FEWEST_FOR_OUTLIERS: usize = 5;

/// Remarks on a series of attempts, one line each, in the order they were made; `per_s` is the throughput of each. None for
/// fewer than three.
#[must_use]
pub fn notes(per_s: &[f64]) -> Vec<String> {
    let mut notes = Vec::new();
    let [first, others @ ..] = per_s else {
        return notes;
    };
    if others.len() < 2 || per_s.iter().any(|v| !v.is_finite()) {
        return notes;
    }
    let slow_first = slow_first(per_s);
    if let Some(below) = slow_first {
        notes.push(format!(
            "the first attempt was the slowest ({}/s, {:.0} % below the mean of the others): the server was warming up; \
             load it before with --warmup 5s",
            show_rate(*first),
            below * 100.0
        ));
    }
    for (i, z) in outliers(per_s) {
        if i == 0 && slow_first.is_some() {
            continue;
        }
        notes.push(format!(
            "attempt {} is far from the others ({}/s against a median of {}/s, {}): something else happened in it; look for \
             other work on the machine (floodmark doctor) and measure again",
            i + 1,
            show_rate(per_s[i]),
            show_rate(median(per_s)),
            if z.is_finite() {
                format!("{:.0} times their usual distance from it", z.abs())
            } else {
                "while most are equal".to_owned()
            }
        ));
    }
    notes
}

/// By which share the first attempt is below the mean of the others, where it is the slowest of at least three and that share is
/// worth a remark.
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

/// Index and modified z-score of the outliers, by the rule of [`OUTLIER_Z`]; none among fewer than [`FEWEST_FOR_OUTLIERS`].
#[must_use]
pub fn outliers(per_s: &[f64]) -> Vec<(usize, f64)> {
    if per_s.len() < FEWEST_FOR_OUTLIERS {
        return Vec::new();
    }
    let middle = median(per_s);
    let distances: Vec<f64> = per_s.iter().map(|v| (v - middle).abs()).collect();
    let mad = median(&distances);
    per_s
        .iter()
        .map(|v| (v - middle) / mad)
        .enumerate()
        .filter(|(i, z)| z.abs() > OUTLIER_Z && distances[*i] > LEAST_DIFFERENCE * middle)
        .collect()
}

/// Median; of an even number the mean of the two in the middle.
///
/// # Panics
/// Of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    0.5 * (sorted[(n - 1) / 2] + sorted[n / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_attempts_need_no_remark() {
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
    fn a_slow_first_attempt_is_named_once() {
        let notes = notes(&[8_000.0, 10_000.0, 10_010.0, 9_990.0, 10_000.0, 10_005.0]);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].starts_with("the first attempt was the slowest (8,000/s, 20 % below"),
            "{notes:?}"
        );
    }

    #[test]
    fn an_outlier_is_named_with_its_place() {
        let notes = notes(&[10_000.0, 10_020.0, 6_000.0, 9_990.0, 10_010.0, 10_005.0]);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].starts_with("attempt 3 is far from the others (6,000/s"),
            "{notes:?}"
        );
    }

    #[test]
    fn an_outlier_among_equals_has_no_infinite_figure() {
        let notes = notes(&[100.0, 100.0, 100.0, 100.0, 50.0]);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("while most are equal"), "{notes:?}");
    }

    #[test]
    fn a_hair_apart_is_no_outlier() {
        assert_eq!(
            notes(&[100.0, 100.0, 100.0, 100.0, 101.0, 100.0]),
            Vec::<String>::new()
        );
    }
}
