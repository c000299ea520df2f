//! Intervals that are computed repeatedly while values arrive, until one of them decides.
//!
//! Computing an ordinary interval after each value finds differences that do not exist. The
//! intervals of a [`LookPlan`] share one error probability: with probability [`CONFIDENCE`], all of
//! them contain the true mean (repeated confidence intervals, Jennison & Turnbull, JRSS B 51,
//! 1989). They may therefore be computed after every value, and the first decisive one may be used.
//!
//! The error is spent in proportion to the square of the share of values measured so far (Lan &
//! DeMets, Biometrika 70, 1983; Kim & DeMets, Biometrika 74, 1987). The boundaries follow from the
//! recursion of Armitage, McPherson & Rowe (JRSS A 132, 1969) for a known variance. Their
//! significance levels are then used with Student's t (Jennison & Turnbull, "Group Sequential
//! Methods", 2000, section 4.4).
//!
//! Other programs on the host disturb some values much more than others. The mean is therefore
//! trimmed by [`TRIMMED_SHARE`] at each end, and its standard error follows from the winsorized
//! variance (Tukey & McLaughlin, Sankhyā A 25, 1963).

use floodmark_record::interval::Interval;
use statrs::function::erf::erfc;

use crate::distributions::t_margin;
use crate::estimate::{CONFIDENCE, Estimate, mean};

/// Number of values at the first look. The variance of fewer values is too uncertain.
pub const FIRST_LOOK: usize = 5;

/// Share of the values that is ignored at each end.
const TRIMMED_SHARE: f64 = 0.25;

/// Total error probability of all looks. It is less than 1 − [`CONFIDENCE`], because trimmed means
/// change more from look to look than the recursion assumes. At this value, the simulated coverage
/// of all looks is at least 94 % (docs/decisions/0041-gate.md).
const SPENT_ERROR: f64 = 0.03;

/// Exponent of the spending function. Higher exponents save more of the error for later looks.
const SPENDING_EXPONENT: i32 = 2;

/// Number of points at which a density is integrated by Simpson's rule; odd.
const GRID: usize = 161;

/// Plan of looks, with the confidence level of each.
#[derive(Debug, Clone, PartialEq)]
pub struct LookPlan {
    /// Confidence level of the interval at each look, starting with [`FIRST_LOOK`] values.
    levels: Vec<f64>,
}

impl LookPlan {
    /// Plans a look after each value, from [`FIRST_LOOK`] to `max_values` values.
    #[must_use]
    pub fn new(max_values: usize) -> Self {
        LookPlan {
            levels: confidence_levels(max_values),
        }
    }

    /// Returns the interval for the trimmed geometric mean of ratios. Returns `None` before the
    /// first look, after the last one, or if a ratio is not positive.
    #[must_use]
    pub fn interval(&self, ratios: &[f64]) -> Option<Interval> {
        let look = ratios.len().checked_sub(FIRST_LOOK)?;
        let level = *self.levels.get(look)?;
        let estimate = trimmed_mean(ratios)?;
        let half = t_margin(level, estimate.std_err, estimate.effective_n - 1.0);
        Some(Interval {
            low: (estimate.value - half).exp(),
            high: (estimate.value + half).exp(),
            confidence: CONFIDENCE,
            method: format!(
                "{}, for up to {} looks (Lan & DeMets 1983)",
                estimate.method,
                self.levels.len()
            ),
        })
    }
}

/// Returns how many of `n` ratios the trimmed mean omits at each end.
#[must_use]
pub fn trimmed_per_end(n: usize) -> usize {
    (TRIMMED_SHARE * n as f64) as usize
}

/// Returns the trimmed geometric mean of ratios, or `None` without ratios.
#[must_use]
pub fn trimmed_ratio(ratios: &[f64]) -> Option<f64> {
    match ratios {
        [] => None,
        [only] => Some(*only),
        _ => Some(trimmed_mean(ratios)?.value.exp()),
    }
}

/// Returns the trimmed mean of the logarithms. Its effective sample size is the number of values
/// that are not trimmed. Returns `None` for fewer than two values, or if a ratio is not positive.
fn trimmed_mean(ratios: &[f64]) -> Option<Estimate> {
    if !ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0) {
        return None;
    }
    let mut logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    logs.sort_by(f64::total_cmp);
    let n = logs.len();
    let trimmed = trimmed_per_end(n);
    let kept = logs.get(trimmed..n - trimmed)?;
    let (value, first, last) = (mean(kept), *kept.first()?, *kept.last()?);
    logs[..trimmed].fill(first);
    logs[n - trimmed..].fill(last);
    let method =
        format!("Student's t on the logarithms of {n} ratios, trimmed by up to 25 % at each end");
    let winsorized = Estimate::of_independent(&logs, method)?;
    let share = (n - 2 * trimmed) as f64 / n as f64;
    Some(Estimate {
        value,
        std_err: winsorized.std_err / share,
        effective_n: (n - 2 * trimmed) as f64,
        method: winsorized.method,
    })
}

/// Returns the confidence level at each look.
fn confidence_levels(max_values: usize) -> Vec<f64> {
    let share = |n: usize| n as f64 / max_values as f64;
    let spent = |n: usize| SPENT_ERROR * share(n).powi(SPENDING_EXPONENT);
    let mut levels = Vec::new();
    let mut before: Option<ContinuationDensity> = None;
    for n in FIRST_LOOK..=max_values {
        let to_spend = spent(n) - before.as_ref().map_or(0.0, |_| spent(n - 1));
        let step = match before {
            None => share(n),
            Some(_) => share(1),
        };
        let density = before.unwrap_or_else(ContinuationDensity::start);
        let bound = density.bound(step.sqrt(), to_spend);
        levels.push(1.0 - two_sided_p(bound / share(n).sqrt()));
        before = Some(density.advance(step.sqrt(), bound));
    }
    levels
}

/// Density of a Brownian motion that has not crossed a boundary, at points of a symmetric grid.
struct ContinuationDensity {
    /// Points with the density multiplied by the weight of the point in Simpson's rule.
    weighted: Vec<(f64, f64)>,
}

impl ContinuationDensity {
    /// Returns the density at time 0, a point mass at 0.
    fn start() -> Self {
        ContinuationDensity {
            weighted: vec![(0.0, 1.0)],
        }
    }

    /// Returns the boundary that the motion crosses with probability `p` after a step with standard
    /// deviation `sd`.
    fn bound(&self, sd: f64, p: f64) -> f64 {
        let crossing = |bound: f64| -> f64 {
            let at = |(x, weight): &(f64, f64)| {
                weight * (upper_tail((bound - x) / sd) + upper_tail((bound + x) / sd))
            };
            self.weighted.iter().map(at).sum()
        };
        let (mut low, mut high) = (0.0, 10.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if crossing(middle) > p {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// Returns the density after a step with standard deviation `sd`, within the boundary.
    fn advance(&self, sd: f64, bound: f64) -> Self {
        let width = 2.0 * bound / (GRID - 1) as f64;
        let point = |i: usize| {
            let x = -bound + width * i as f64;
            let simpson = match i {
                0 => 1.0,
                _ if i == GRID - 1 => 1.0,
                _ if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            let terms = self.weighted.iter();
            let density: f64 = terms
                .map(|(from, weight)| weight * normal_density((x - from) / sd) / sd)
                .sum();
            (x, density * simpson * width / 3.0)
        };
        ContinuationDensity {
            weighted: (0..GRID).map(point).collect(),
        }
    }
}

fn normal_density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Returns the probability that a standard normal variable exceeds `z`.
fn upper_tail(z: f64) -> f64 {
    0.5 * erfc(z / std::f64::consts::SQRT_2)
}

fn two_sided_p(z: f64) -> f64 {
    2.0 * upper_tail(z)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ar1;

    #[test]
    fn later_looks_have_narrower_intervals() {
        for most in [5, 6, 12, 40, 200] {
            let levels = confidence_levels(most);
            assert_eq!(levels.len(), most - FIRST_LOOK + 1);
            let last = levels[levels.len() - 1];
            assert!((0.97 - 1e-9..0.99).contains(&last), "{most}: {last}");
            assert!(levels.iter().all(|level| *level >= last), "{levels:?}");
        }
        assert!(confidence_levels(FIRST_LOOK - 1).is_empty());
    }

    #[test]
    fn agrees_with_a_worked_example() {
        // Two looks at 50 % and 100 % of the values, which spend 0.0125 and 0.0375 (Kim & DeMets,
        // ρ = 2). Jennison & Turnbull's bound for the first look is Φ⁻¹(1 − 0.00625).
        let first = ContinuationDensity::start();
        let half = 0.5_f64.sqrt();
        let bound = first.bound(half, 0.0125);
        assert!((bound / half - 2.4977).abs() < 1e-3, "{}", bound / half);
        let second = first.advance(half, bound);
        let total: f64 = second.weighted.iter().map(|(_, weight)| weight).sum();
        assert!((total - 0.9875).abs() < 1e-6, "{total}");
        let last = second.bound(half, 0.0375);
        // Between the bounds of single looks at 0.05 (1.96) and 0.0375 (2.08).
        assert!((1.96..2.08).contains(&last), "{last}");
    }

    #[test]
    fn trims_a_quarter_at_each_end() {
        let ratios = [1.0, 9.0, 2.0, 2.0, 0.1].map(f64::ln).map(f64::exp);
        let mean = trimmed_ratio(&ratios).unwrap();
        assert!((mean - 4.0_f64.cbrt()).abs() < 1e-12, "{mean}");
        // Winsorized: 1, 1, 2, 2, 2. The variance of the logarithms is 0.3 ln² 2.
        let estimate = trimmed_mean(&ratios).unwrap();
        let expected = (0.3_f64 / 5.0).sqrt() * 2.0_f64.ln() / 0.6;
        assert!((estimate.std_err - expected).abs() < 1e-12);
        assert_eq!(estimate.effective_n, 3.0);
    }

    /// Returns the share of series in which every interval contains the true ratio.
    fn coverage(most: usize, values: impl Fn(u64) -> Vec<f64>) -> f64 {
        let plan = LookPlan::new(most);
        let series = 2_000;
        let held = (0..series).filter(|seed| {
            let ratios = values(*seed);
            (FIRST_LOOK..=most).all(|n| {
                let interval = plan.interval(&ratios[..n]).unwrap();
                (interval.low..=interval.high).contains(&1.0)
            })
        });
        held.count() as f64 / series as f64
    }

    #[test]
    fn all_intervals_together_have_the_stated_coverage() {
        for most in [5, 12, 40] {
            let normal = |seed| {
                let logs = ar1(0.0, most, seed).into_iter();
                logs.map(|z| (0.03 * z).exp()).collect()
            };
            let got = coverage(most, normal);
            assert!((0.935..=0.965).contains(&got), "{most}: {got}");
            // One value in ten deviates five times as much.
            let disturbed = |seed| {
                let logs = ar1(0.0, most, seed).into_iter();
                let far = ar1(0.0, most, seed + 1_000_000).into_iter();
                let scale = |of: f64| if of > 1.2816 { 0.15 } else { 0.03 };
                logs.zip(far).map(|(z, of)| (scale(of) * z).exp()).collect()
            };
            let got = coverage(most, disturbed);
            assert!((0.94..=0.995).contains(&got), "disturbed, {most}: {got}");
        }
    }

    #[test]
    fn needs_enough_positive_ratios() {
        let plan = LookPlan::new(6);
        assert_eq!(plan.interval(&[0.95; FIRST_LOOK - 1]), None);
        assert_eq!(plan.interval(&[0.95; 7]), None);
        assert_eq!(plan.interval(&[0.95, 1.0, 0.0, 1.0, 1.0]), None);
        let interval = plan.interval(&[0.95; 5]).unwrap();
        assert!((interval.low - 0.95).abs() < 1e-12 && (interval.high - 0.95).abs() < 1e-12);
        assert_eq!(trimmed_ratio(&[0.5, 2.0]), Some(1.0));
        assert_eq!(trimmed_ratio(&[0.5]), Some(0.5));
        assert_eq!(trimmed_ratio(&[]), None);
    }
}
