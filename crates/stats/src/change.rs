//! Where the level of a noisy series changes.
//!
//! Binary segmentation (Scott & Knott 1974, Biometrics 30(3)): split where the two means differ most, or cut out the
//! stretch that differs most from the rest (Olshen et al. 2004, "Circular binary segmentation", Biostatistics 5(4)),
//! go on within the parts, then merge what does not stand against its neighbours, as Hunter does
//! (Fleming et al. 2023, "Hunter: Using Change Point Detection to Hunt for Performance Regressions", ICPE'23). A split
//! is significant by a Student-t test whose variance is that *around both means* and whose degrees of freedom are those of
//! the *effective* number of values, times the number of places it was chosen from (Bonferroni). So neither
//! a stall that comes again and again nor a slow drift of neighbouring values passes for a change. No value is
//! dropped or clipped.

use crate::autocorrelation::inefficiency;
use crate::estimate::mean;
use crate::student::two_sided_p;

/// A change must be this unlikely by chance, chosen place included.
pub(crate) const SIGNIFICANCE: f64 = 0.001;

/// Splits are tried up to ten times this probability and must meet the strict one after the merge: some are weak until
/// the other changes are known.
const RELAXED: f64 = 10.0 * SIGNIFICANCE;

/// Least change that matters, as a share of the higher level: smaller ones are common between runs of one program.
pub(crate) const LEAST_CHANGE: f64 = 0.03;

/// Fewest values on either side of a split: of two, no spread can be told.
const FEWEST: usize = 3;

/// Fewest values of a stretch between two equal levels: a shorter one is a stall or a lucky moment, no level.
const FEWEST_STRETCH: usize = 5;

/// Most changes looked for; a series with more never settles, and the cost stays bounded.
const MOST_CHANGES: usize = 64;

/// Most places tried for either end of a stretch, so that the pairs of them stay bounded (half a million); in a longer
/// part only every k-th place is tried, and the best found is then put right.
const MOST_ENDS: usize = 1000;

/// How a difference of two levels reads as a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Values in their unit.
    Linear,
    /// Natural logarithms of values.
    Log,
}

impl Scale {
    /// How much higher `b` is than `a`, as a share of the higher one; negative where it is lower.
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

/// The first index after each change, increasing; empty for a series with one level.
pub(crate) fn changes(values: &[f64], scale: Scale) -> Vec<usize> {
    let mut cuts = split(values);
    place(values, &mut cuts);
    merge(values, scale, &mut cuts);
    cuts
}

/// Splits as long as a part has a place, or a stretch, that stands by the relaxed probability.
fn split(values: &[f64]) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut parts = vec![(0, values.len())];
    while let Some((from, to)) = parts.pop() {
        if cuts.len() >= MOST_CHANGES {
            break;
        }
        let part = &values[from..to];
        let Some(at) = widest(part) else { continue };
        let ends = if chance(part, at, part.len()) < RELAXED {
            (at, part.len())
        } else {
            match stretch(part) {
                Some((a, b)) if chance(part, a, b) < RELAXED => (a, b),
                _ => continue,
            }
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

/// Puts each cut where it divides best between its neighbours, which were not known when it was chosen.
fn place(values: &[f64], cuts: &mut [usize]) {
    for i in 0..cuts.len() {
        let (from, to) = around(cuts, i, values.len());
        if let Some(at) = widest(&values[from..to]) {
            cuts[i] = from + at;
        }
    }
}

/// Takes away the weakest cut until every one stands between its neighbours.
fn merge(values: &[f64], scale: Scale, cuts: &mut Vec<usize>) {
    let chance_of = |cuts: &[usize], i: usize| {
        let (from, to) = around(cuts, i, values.len());
        let part = &values[from..to];
        let (left, right) = part.split_at(cuts[i] - from);
        if least_rise(left, right, scale) < LEAST_CHANGE {
            1.0
        } else {
            chance(part, left.len(), part.len())
        }
    };
    let mut chances: Vec<f64> = (0..cuts.len()).map(|i| chance_of(cuts, i)).collect();
    while let Some(weakest) = (0..cuts.len()).max_by(|a, b| chances[*a].total_cmp(&chances[*b])) {
        if chances[weakest] < SIGNIFICANCE {
            return;
        }
        cuts.remove(weakest);
        chances.remove(weakest);
        // Both cuts beside the one that went have a new neighbour.
        for i in [weakest.checked_sub(1), Some(weakest)]
            .into_iter()
            .flatten()
        {
            if let Some(chance) = chances.get_mut(i) {
                *chance = chance_of(cuts, i);
            }
        }
    }
}

/// Size of the change between two parts, as a share, without the one value on each side that speaks most for it: no
/// change rests on one second. 0 where its direction turns.
fn least_rise(left: &[f64], right: &[f64], scale: Scale) -> f64 {
    let up = mean(right) > mean(left);
    let without = |part: &[f64], lowest: bool| {
        let pick = if lowest { f64::min } else { f64::max };
        let extreme = part.iter().copied().reduce(pick).unwrap_or_default();
        (part.iter().sum::<f64>() - extreme) / (part.len().max(2) - 1) as f64
    };
    let rise = scale.rise(without(left, up), without(right, !up));
    if up { rise.max(0.0) } else { (-rise).max(0.0) }
}

/// The bounds of the two parts that cut `i` divides.
fn around(cuts: &[usize], i: usize, end: usize) -> (usize, usize) {
    let from = if i == 0 { 0 } else { cuts[i - 1] };
    (from, cuts.get(i + 1).copied().unwrap_or(end))
}

/// The place that leaves the least variance around the two means; none in a part too short to be split.
fn widest(part: &[f64]) -> Option<usize> {
    let n = part.len();
    let total: f64 = part.iter().sum();
    let mut left: f64 = 0.0;
    let mut best = None;
    for (i, value) in part.iter().enumerate() {
        if i >= FEWEST && n - i >= FEWEST {
            let (k, rest) = (i as f64, (n - i) as f64);
            let apart = (left / k - (total - left) / rest).powi(2) * k * rest;
            if best.is_none_or(|(_, most)| apart > most) {
                best = Some((i, apart));
            }
        }
        left += value;
    }
    best.map(|(i, _)| i)
}

/// The stretch within the part, without its ends, that differs most from the rest; none in a part too short for one.
fn stretch(part: &[f64]) -> Option<(usize, usize)> {
    let n = part.len();
    let mut sums = Vec::with_capacity(n + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for value in part {
        sum += value;
        sums.push(sum);
    }
    let step = n.div_ceil(MOST_ENDS);
    let mut best = None;
    for a in (FEWEST..n).step_by(step) {
        for b in (a + FEWEST_STRETCH..=n.saturating_sub(FEWEST)).step_by(step) {
            let (inside, outside) = ((b - a) as f64, (n - (b - a)) as f64);
            let within = sums[b] - sums[a];
            let apart = (within / inside - (sum - within) / outside).powi(2) * inside * outside;
            if best.is_none_or(|(_, _, most)| apart > most) {
                best = Some((a, b, apart));
            }
        }
    }
    best.map(|(a, b, _)| (a, b))
}

/// Probability, at most, that a part with one level shows one as different as that of `from..to` from the rest, at some
/// place: a split where `to` is the part's end, else a stretch, for which there are more places to choose from.
fn chance(part: &[f64], from: usize, to: usize) -> f64 {
    let all = part.len();
    let n = all as f64;
    let (inside, outside) = ((to - from) as f64, (all - (to - from)) as f64);
    let within: f64 = part[from..to].iter().sum();
    let rest: f64 = part[..from].iter().chain(&part[to..]).sum();
    let (a, b) = (within / inside, rest / outside);
    let level = |i: usize| if (from..to).contains(&i) { a } else { b };
    let residuals: Vec<f64> = part.iter().enumerate().map(|(i, v)| v - level(i)).collect();
    let tau = inefficiency(&residuals, 2);
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    let variance = squares / (n - 2.0 * tau).max(1.0);
    let spread = (variance * tau * (1.0 / inside + 1.0 / outside)).sqrt();
    let ends = (all + 1).saturating_sub(2 * FEWEST).max(1) as f64;
    let places = if to == all { ends } else { ends * ends / 2.0 };
    two_sided_p(ratio((b - a).abs(), spread), (n / tau - 2.0).max(1.0)) * places
}

/// The end of a slow start too short for its spread to be known: as many first values as lie, each by itself,
/// significantly below the level of all that follow, and below every one of these. A stall that comes again is
/// among what follows, so it is never taken for a start. At most a third of the values.
pub(crate) fn ramp(values: &[f64], scale: Scale) -> Option<usize> {
    let most = values.len() / 3;
    (1..=most).rev().find(|&k| {
        let (start, rest) = values.split_at(k);
        let n = rest.len() as f64;
        let level = mean(rest);
        let residuals: Vec<f64> = rest.iter().map(|v| v - level).collect();
        let tau = inefficiency(&residuals, 1);
        let squares: f64 = residuals.iter().map(|r| r * r).sum();
        let variance = squares / (n - tau).max(1.0);
        let spread = (variance * (1.0 + tau / n)).sqrt();
        let lowest = rest.iter().copied().fold(f64::INFINITY, f64::min);
        start.iter().all(|v| {
            let chance = two_sided_p(ratio(level - v, spread), (n / tau - 1.0).max(1.0));
            *v < lowest
                && scale.rise(*v, level) >= LEAST_CHANGE
                && chance * (most as f64) < SIGNIFICANCE
        })
    })
}

/// `a / b` where a difference without any spread is infinitely many spreads.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 {
        a / b
    } else if a > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Normal;

    fn levels(parts: &[(usize, f64)], noise: f64, seed: u64) -> Vec<f64> {
        let mut normal = Normal::new(seed);
        parts
            .iter()
            .flat_map(|(n, level)| std::iter::repeat_n(*level, *n))
            .map(|level| level * (1.0 + noise * normal.next()))
            .collect()
    }

    #[test]
    fn a_step_up_and_down_again_has_two_ends() {
        for seed in 0..20 {
            let series = levels(&[(40, 100.0), (12, 130.0), (40, 100.0)], 0.05, seed);
            let cuts = changes(&series, Scale::Linear);
            assert_eq!(cuts.len(), 2, "{cuts:?}");
            assert!(
                cuts[0].abs_diff(40) <= 1 && cuts[1].abs_diff(52) <= 1,
                "{cuts:?}"
            );
        }
    }

    #[test]
    fn a_short_slow_start_is_found() {
        let mut series = vec![40.0, 80.0];
        series.extend(levels(&[(8, 100.0)], 0.01, 3));
        assert_eq!(ramp(&series, Scale::Linear), Some(2));
        let mut logs: Vec<f64> = series.iter().map(|v| v.ln()).collect();
        assert_eq!(ramp(&logs, Scale::Log), Some(2));
        logs.reverse();
        assert_eq!(ramp(&logs, Scale::Log), None, "a slow end is no start");
    }

    #[test]
    fn a_small_change_does_not_matter_however_sure() {
        let series = levels(&[(300, 100.0), (300, 102.0)], 0.005, 5);
        assert_eq!(changes(&series, Scale::Linear), [0; 0]);
        let series = levels(&[(300, 100.0), (300, 104.0)], 0.005, 5);
        assert_eq!(changes(&series, Scale::Linear).len(), 1);
    }

    #[test]
    fn no_change_rests_on_one_value() {
        for at in [0, 2, 30, 59] {
            let mut series = levels(&[(60, 100.0)], 0.001, 2);
            series[at] = 10.0;
            assert_eq!(changes(&series, Scale::Linear), [0; 0], "at {at}");
        }
    }

    #[test]
    fn without_noise_and_without_anything_it_is_defined() {
        assert_eq!(changes(&[], Scale::Linear), [0; 0]);
        assert_eq!(changes(&[0.0; 30], Scale::Linear), [0; 0]);
        let step = levels(&[(10, 0.0), (10, 50.0)], 0.0, 1);
        assert_eq!(changes(&step, Scale::Linear), [10]);
    }

    #[test]
    fn a_restless_day_is_judged_in_bounded_time() {
        let series: Vec<f64> = (0..20_000)
            .map(|i| 100.0 + 50.0 * (f64::from(i) / 40.0).sin())
            .collect();
        assert!(changes(&series, Scale::Linear).len() <= MOST_CHANGES + 1);
    }
}
