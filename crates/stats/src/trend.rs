//! Lasting levels of a figure over successive results (docs/decisions/0042-trend.md).

use crate::change::{self, Scale, Succession, changes};
use crate::comparison::{Ratio, geometric_mean};

/// Minimum number of figures in which a change of level can be found.
pub const FEWEST_FIGURES: usize = 2 * change::FEWEST;

/// Successive figures at the same level.
#[derive(Debug, Clone, PartialEq)]
pub struct LastingLevel {
    /// Index of the first figure.
    pub first: usize,
    /// Geometric mean of the figures.
    pub figure: f64,
    /// This level divided by the previous one; `None` for the first level.
    ///
    /// The ratio's interval does not account for the uncertainty of the change point's position.
    pub change: Option<Ratio>,
}

/// Divides positive figures into levels. Returns a single level if no change is significant, and no
/// level if there are no figures or if a figure is not positive.
#[must_use]
pub fn levels(figures: &[f64]) -> Vec<LastingLevel> {
    if figures.iter().any(|v| !(v.is_finite() && *v > 0.0)) {
        return Vec::new();
    }
    let logs: Vec<f64> = figures.iter().map(|v| v.ln()).collect();
    let mut ends = changes(&logs, Scale::Log, Succession::Independent);
    ends.push(figures.len());
    let mut levels = Vec::new();
    let mut before: &[f64] = &[];
    for end in ends {
        let first = levels.last().map_or(0, |last: &LastingLevel| last.first) + before.len();
        let part = &figures[first..end];
        levels.extend(geometric_mean(part).map(|figure| LastingLevel {
            first,
            figure,
            change: Ratio::of(part, before),
        }));
        before = part;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Normal;

    /// Returns figures with a standard deviation of `noise`, as a share of their level.
    fn figures(parts: &[(usize, f64)], noise: f64, seed: u64) -> Vec<f64> {
        let mut normal = Normal::new(seed);
        let levels = parts
            .iter()
            .flat_map(|(n, level)| std::iter::repeat_n(*level, *n));
        levels
            .map(|level| level * (noise * normal.next()).exp())
            .collect()
    }

    #[test]
    fn finds_a_slowdown_with_its_size() {
        let series = figures(&[(12, 40_000.0), (8, 36_000.0)], 0.02, 7);
        let found = levels(&series);
        assert_eq!(
            found.iter().map(|level| level.first).collect::<Vec<_>>(),
            [0, 12]
        );
        assert!(found[0].change.is_none());
        let ratio = found[1].change.as_ref().unwrap();
        let interval = ratio.interval().unwrap();
        assert!(interval.low < 0.9 && 0.9 < interval.high, "{interval:?}");
        assert!((found[1].figure / found[0].figure - ratio.value()).abs() < 1e-9);
    }

    #[test]
    fn the_first_figure_of_each_level_follows_the_previous_level() {
        let series = figures(&[(10, 100.0), (10, 50.0), (10, 100.0)], 0.01, 3);
        let firsts: Vec<usize> = levels(&series).iter().map(|level| level.first).collect();
        assert_eq!(firsts, [0, 10, 20]);
    }

    #[test]
    fn finds_a_decline_and_a_later_rise_to_another_level() {
        for seed in 0..50 {
            let series = figures(&[(12, 100.0), (10, 88.0), (8, 106.0)], 0.02, seed);
            let found = levels(&series);
            let firsts: Vec<usize> = found.iter().map(|level| level.first).collect();
            let [0, second, third] = firsts[..] else {
                panic!("{firsts:?}, seed {seed}")
            };
            assert!(
                second.abs_diff(12) <= 1 && third.abs_diff(22) <= 1,
                "{firsts:?}"
            );
        }
    }

    #[test]
    fn usually_finds_a_slowdown_after_five_results() {
        let is_found = |seed| {
            let found = levels(&figures(&[(10, 100.0), (5, 90.0)], 0.02, seed));
            found.len() == 2 && found[1].first.abs_diff(10) <= 1
        };
        let found = (0..500).filter(|seed| is_found(*seed)).count();
        assert!(found >= 490, "{found} of 500");
    }

    #[test]
    fn rarely_reports_a_change_of_a_constant_figure() {
        let alarms = |n, noise| {
            let changed = |seed| levels(&figures(&[(n, 100.0)], noise, seed)).len() > 1;
            (0..1_000).filter(|seed| changed(*seed)).count()
        };
        for n in [6, 10, 20, 60] {
            let found = [0.02, 0.10].map(|noise| alarms(n, noise));
            assert!(
                found.iter().all(|count| *count <= 5),
                "{n} results: {found:?}"
            );
        }
    }

    #[test]
    fn too_few_or_undefined_figures_have_no_change() {
        assert_eq!(levels(&[]), []);
        assert_eq!(levels(&[1.0, 0.0]), []);
        assert_eq!(levels(&[100.0, 100.0, 10.0, 10.0]).len(), 1);
        assert_eq!(
            levels(&[100.0; 3].into_iter().chain([10.0; 3]).collect::<Vec<_>>()).len(),
            2
        );
    }
}
