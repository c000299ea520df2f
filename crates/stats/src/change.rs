//! Change points: times at which the level of a noisy series changes.
//!
//! Binary segmentation (Scott & Knott 1974, Biometrics 30(3)) splits a series where the two means
//! differ most. Circular binary segmentation (Olshen et al. 2004, Biostatistics 5(4)) cuts out the
//! segment that differs most from the rest. Both are repeated within the parts. Insignificant
//! neighbors are then merged, as in Hunter (Fleming et al. 2023, "Hunter: Using Change Point
//! Detection to Hunt for Performance Regressions", ICPE'23).
//!
//! A split must be significant by Student's t, with the variance around both means and the
//! effective number of values. The test is corrected for the number of candidate places
//! (Bonferroni). Periodic stalls and slow drift therefore do not count as changes. No value is
//! dropped or clipped.
//!
//! [`levels`] finds the lasting levels of a figure in successive results
//! (docs/decisions/0042-trend.md).

use crate::comparison::{Ratio, geometric_mean};
use crate::distributions::t_two_sided_p;
use crate::estimate::{mean, variance};

/// Maximum probability that a change is due to chance, across all candidate places.
pub(crate) const SIGNIFICANCE: f64 = 0.001;

/// Maximum probability that a split is due to chance, before merging.
/// Some splits become significant only after other splits are known.
const RELAXED: f64 = 10.0 * SIGNIFICANCE;

/// Minimum change as a share of the higher level. Runs of the same program differ by less.
pub(crate) const LEAST_CHANGE: f64 = 0.03;

/// Minimum number of values on each side of a split.
pub(crate) const FEWEST: usize = 3;

/// Minimum number of values in a segment between two equal levels. Shorter segments are stalls.
const FEWEST_SEGMENT: usize = 5;

/// Maximum number of changes, which bounds the cost.
const MOST_CHANGES: usize = 64;

/// Maximum number of candidate places for each end of a segment.
/// This bounds the number of pairs to half a million. In longer parts only every k-th place is
/// tried, and the result is refined.
const MOST_ENDS: usize = 1000;

/// Scale of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Values in their unit.
    Linear,
    /// Natural logarithms of values.
    Log,
}

impl Scale {
    /// Returns the rise from `a` to `b` as a share of the higher value; negative if `b` is lower.
    pub(crate) fn rise(self, a: f64, b: f64) -> f64 {
        match self {
            Scale::Linear => {
                let high = a.max(b);
                if high > 0.0 { (b - a) / high } else { 0.0 }
            }
            Scale::Log => {
                let share = 1.0 - (-(b - a).abs()).exp();
                share.copysign(b - a)
            }
        }
    }
}

/// Whether successive values at the same level are correlated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Succession {
    /// Values are correlated, as in a per-second series.
    Correlated,
    /// Values are independent, as in results from different days.
    Independent,
}

/// Returns the first index after each change, in ascending order.
pub(crate) fn changes(values: &[f64], scale: Scale, succession: Succession) -> Vec<usize> {
    let mut cuts = split(values, succession);
    refine(values, &mut cuts);
    merge(values, (scale, succession), &mut cuts);
    cuts
}

/// Splits the values at each step or segment that is unlikely to be due to chance (p <
/// [`RELAXED`]).
fn split(values: &[f64], succession: Succession) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut parts = vec![(0, values.len())];
    while let Some((from, to)) = parts.pop() {
        if cuts.len() >= MOST_CHANGES {
            break;
        }
        let part = &values[from..to];
        let is_change = |ends: &(usize, usize)| chance(part, *ends, succession) < RELAXED;
        let step = widest(part).map(|at| (at, part.len())).filter(is_change);
        let Some(ends) = step.or_else(|| segment(part).filter(is_change)) else {
            continue;
        };
        let mut begin = from;
        for cut in [from + ends.0, from + ends.1] {
            if cut > begin && cut < to {
                cuts.push(cut);
                parts.push((begin, cut));
                begin = cut;
            }
        }
        parts.push((begin, to));
    }
    cuts.sort_unstable();
    cuts
}

/// Moves each cut to the best place between its neighbors.
fn refine(values: &[f64], cuts: &mut [usize]) {
    for i in 0..cuts.len() {
        let (from, to) = around(cuts, i, values.len());
        if let Some(at) = widest(&values[from..to]) {
            cuts[i] = from + at;
        }
    }
}

/// Repeatedly removes the weakest cut until all remaining cuts are significant.
fn merge(values: &[f64], (scale, succession): (Scale, Succession), cuts: &mut Vec<usize>) {
    let chance_of = |cuts: &[usize], i: usize| {
        let (from, to) = around(cuts, i, values.len());
        let part = &values[from..to];
        let (left, right) = part.split_at(cuts[i] - from);
        if least_rise(left, right, scale) < LEAST_CHANGE {
            1.0
        } else {
            chance(part, (left.len(), part.len()), succession)
        }
    };
    let mut chances: Vec<f64> = (0..cuts.len()).map(|i| chance_of(cuts, i)).collect();
    while let Some(weakest) = (0..cuts.len()).max_by(|a, b| chances[*a].total_cmp(&chances[*b])) {
        if chances[weakest] < SIGNIFICANCE {
            return;
        }
        cuts.remove(weakest);
        chances.remove(weakest);
        // Both adjacent cuts have a new neighbor.
        for i in weakest.saturating_sub(1)..=weakest {
            if let Some(chance) = chances.get_mut(i) {
                *chance = chance_of(cuts, i);
            }
        }
    }
}

/// Returns the change between two parts as a share, or 0 if its direction is uncertain.
///
/// On each side, the value that supports the change most is left out, so that no change depends on
/// a single second. The direction is uncertain if leaving out these values reverses the change.
fn least_rise(left: &[f64], right: &[f64], scale: Scale) -> f64 {
    let up = mean(right) > mean(left);
    let without = |part: &[f64], lowest: bool| {
        let pick = if lowest { f64::min } else { f64::max };
        let extreme = part.iter().copied().reduce(pick).unwrap_or_default();
        (part.iter().sum::<f64>() - extreme) / (part.len().max(2) - 1) as f64
    };
    let rise = scale.rise(without(left, up), without(right, !up));
    (if up { rise } else { -rise }).max(0.0)
}

/// Returns the bounds of the two parts around cut `i`.
fn around(cuts: &[usize], i: usize, end: usize) -> (usize, usize) {
    let from = if i == 0 { 0 } else { cuts[i - 1] };
    (from, cuts.get(i + 1).copied().unwrap_or(end))
}

/// Returns a function that compares a segment, given by its ends, with the rest of the part.
/// The function returns the variance between the segment and the rest, up to a constant factor.
fn difference(part: &[f64]) -> impl Fn(usize, usize) -> f64 {
    let mut sums = vec![0.0];
    for (i, value) in part.iter().enumerate() {
        sums.push(sums[i] + value);
    }
    move |from, to| {
        let all = sums.len() - 1;
        let (inside, outside) = ((to - from) as f64, (all - (to - from)) as f64);
        let within = sums[to] - sums[from];
        (within / inside - (sums[all] - within) / outside).powi(2) * inside * outside
    }
}

/// Returns the split with the least variance around the two means; `None` if the part is too short.
fn widest(part: &[f64]) -> Option<usize> {
    let n = part.len();
    let difference = difference(part);
    let splits = FEWEST..=n.saturating_sub(FEWEST);
    splits.max_by(|a, b| difference(*a, n).total_cmp(&difference(*b, n)))
}

/// Returns the inner segment that differs most from the rest; `None` if the part is too short.
fn segment(part: &[f64]) -> Option<(usize, usize)> {
    let n = part.len();
    let difference = &difference(part);
    let step = n.div_ceil(MOST_ENDS).max(1);
    let ends = |a| (a + FEWEST_SEGMENT..=n.saturating_sub(FEWEST)).step_by(step);
    let starts = (FEWEST..n).step_by(step);
    let segments = starts.flat_map(|a| ends(a).map(move |b| (difference(a, b), a, b)));
    let (_, a, b) = segments.max_by(|x, y| x.0.total_cmp(&y.0))?;
    Some((a, b))
}

/// Returns an upper bound on the probability that a segment differs from the rest by chance.
///
/// The segment is `from..to` in a part with one level. A segment that ends with the part is a
/// split, which has fewer candidate places.
fn chance(part: &[f64], (from, to): (usize, usize), succession: Succession) -> f64 {
    let all = part.len();
    let n = all as f64;
    let (inside, outside) = ((to - from) as f64, (all - (to - from)) as f64);
    let within: f64 = part[from..to].iter().sum();
    let rest: f64 = part[..from].iter().chain(&part[to..]).sum();
    let (a, b) = (within / inside, rest / outside);
    let level = |i: usize| if (from..to).contains(&i) { a } else { b };
    let residuals: Vec<f64> = part.iter().enumerate().map(|(i, v)| v - level(i)).collect();
    let (variance, tau) = variance(&residuals, 2);
    let tau = match succession {
        Succession::Correlated => tau,
        Succession::Independent => 1.0,
    };
    let spread = (variance * tau * (1.0 / inside + 1.0 / outside)).sqrt();
    let ends = (all + 1).saturating_sub(2 * FEWEST).max(1) as f64;
    let places = if to == all { ends } else { ends * ends / 2.0 };
    t_two_sided_p((b - a) / spread, (n / tau - 2.0).max(1.0)) * places
}

/// Returns the number of values in a short slow start, if there is one.
///
/// A slow start takes up at most a third of the series. Each of its values is below every later
/// value, and significantly below the mean of the later values. Periodic stalls also occur later,
/// so they are never mistaken for a slow start.
pub(crate) fn ramp(values: &[f64], scale: Scale) -> Option<usize> {
    let most = values.len() / 3;
    (1..=most).rev().find(|&k| {
        let (start, rest) = values.split_at(k);
        let n = rest.len() as f64;
        let level = mean(rest);
        let residuals: Vec<f64> = rest.iter().map(|v| v - level).collect();
        let (variance, tau) = variance(&residuals, 1);
        let spread = (variance * (1.0 + tau / n)).sqrt();
        let lowest = rest.iter().copied().fold(f64::INFINITY, f64::min);
        start.iter().all(|v| {
            let chance = t_two_sided_p((level - v) / spread, (n / tau - 1.0).max(1.0));
            *v < lowest
                && scale.rise(*v, level) >= LEAST_CHANGE
                && chance * (most as f64) < SIGNIFICANCE
        })
    })
}

/// Minimum number of figures in which a change of level can be found.
pub const FEWEST_FIGURES: usize = 2 * FEWEST;

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

    fn series_of(parts: &[(usize, f64)], noise: f64, seed: u64) -> Vec<f64> {
        let mut normal = Normal::new(seed);
        parts
            .iter()
            .flat_map(|(n, level)| std::iter::repeat_n(*level, *n))
            .map(|level| level * (1.0 + noise * normal.next()))
            .collect()
    }

    #[test]
    fn finds_both_ends_of_a_segment() {
        for seed in 0..20 {
            let series = series_of(&[(40, 100.0), (12, 130.0), (40, 100.0)], 0.05, seed);
            let cuts = changes(&series, Scale::Linear, Succession::Correlated);
            assert_eq!(cuts.len(), 2, "{cuts:?}");
            assert!(
                cuts[0].abs_diff(40) <= 1 && cuts[1].abs_diff(52) <= 1,
                "{cuts:?}"
            );
        }
    }

    #[test]
    fn finds_a_short_slow_start() {
        let mut series = vec![40.0, 80.0];
        series.extend(series_of(&[(8, 100.0)], 0.01, 3));
        assert_eq!(ramp(&series, Scale::Linear), Some(2));
        let mut logs: Vec<f64> = series.iter().map(|v| v.ln()).collect();
        assert_eq!(ramp(&logs, Scale::Log), Some(2));
        logs.reverse();
        assert_eq!(ramp(&logs, Scale::Log), None, "a slow end is not a start");
    }

    #[test]
    fn ignores_small_significant_changes() {
        let series = series_of(&[(300, 100.0), (300, 102.0)], 0.005, 5);
        assert_eq!(
            changes(&series, Scale::Linear, Succession::Correlated),
            [0; 0]
        );
        let series = series_of(&[(300, 100.0), (300, 104.0)], 0.005, 5);
        assert_eq!(
            changes(&series, Scale::Linear, Succession::Correlated).len(),
            1
        );
    }

    #[test]
    fn no_change_rests_on_one_value() {
        for at in [0, 2, 30, 59] {
            let mut series = series_of(&[(60, 100.0)], 0.001, 2);
            series[at] = 10.0;
            assert_eq!(
                changes(&series, Scale::Linear, Succession::Correlated),
                [0; 0],
                "at {at}"
            );
        }
    }

    #[test]
    fn handles_empty_and_noiseless_series() {
        assert_eq!(changes(&[], Scale::Linear, Succession::Correlated), [0; 0]);
        assert_eq!(
            changes(&[0.0; 30], Scale::Linear, Succession::Correlated),
            [0; 0]
        );
        let step = series_of(&[(10, 0.0), (10, 50.0)], 0.0, 1);
        assert_eq!(changes(&step, Scale::Linear, Succession::Correlated), [10]);
    }

    #[test]
    fn long_unsteady_series_take_bounded_time() {
        let series: Vec<f64> = (0..20_000)
            .map(|i| 100.0 + 50.0 * (f64::from(i) / 40.0).sin())
            .collect();
        assert!(changes(&series, Scale::Linear, Succession::Correlated).len() <= MOST_CHANGES + 1);
    }

    /// Returns figures whose standard deviation is `noise`, as a share of their level.
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
