//! How far two clocks are apart, by what happened on both: the work of one side that shows in the other.

use crate::autocorrelation::inefficiency;

/// Least correlation that is taken for the same work, however many values it is of.
const STRONG: f64 = 0.7;

/// Standard errors by which the best place must be above what the best of as many places without any relation would be: about
/// √(2 ln n) of them for n places.
const ABOVE_CHANCE: f64 = 2.0;

/// How much longer steps are tried where the work is not found in those of the series: on crowded CPUs the two sides work in turn, which
/// only shows as one in longer steps.
const LONGER: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

/// Places whose correlation is less than that many standard errors below the best may be the right one as well.
const AS_GOOD: f64 = 3.0;

/// Largest error that is still an alignment, ms: beyond, several places are as good.
const MOST_ERROR_MS: f64 = 1_000.0;

/// Nothing is done on one side before and after its series, for at least that long and that many steps: where work begins and ends
/// tells most of its place.
const AROUND_MS: f64 = 500.0;
const AROUND_STEPS: f64 = 5.0;

/// Fewest steps of a series that can be found again.
const FEWEST: usize = 10;

/// How much was done in each step.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Begin of the first step on its own clock, ms.
    pub start_ms: f64,
    /// Length of each step, ms.
    pub step_ms: f64,
    /// What was done in each.
    pub values: Vec<f64>,
}

impl Work {
    /// The same in longer steps; what was done in a step that lies in two is divided by time. A last step that is not whole is left out.
    fn coarser(&self, step_ms: f64) -> Self {
        if step_ms <= self.step_ms {
            return self.clone();
        }
        let ratio = self.step_ms / step_ms;
        let steps = (self.values.len() as f64 * ratio + 1e-9).floor() as usize;
        let mut values = vec![0.0; steps];
        for (i, value) in self.values.iter().enumerate() {
            let (begin, end) = (i as f64 * ratio, (i + 1) as f64 * ratio);
            let first = begin as usize;
            let inner = (first as f64 + 1.0).min(end);
            let mut add = |at: usize, part: f64| {
                if let Some(into) = values.get_mut(at) {
                    *into += value * part;
                }
            };
            add(first, (inner - begin) / ratio);
            add(first + 1, (end - inner) / ratio);
        }
        Self {
            start_ms: self.start_ms,
            step_ms,
            values,
        }
    }
}

/// Where the work of one side was found in that of the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// What is added to a time of the other side to have it on this side's clock, ms.
    pub offset_ms: f64,
    /// By how much that may be wrong, ms.
    pub error_ms: f64,
    /// Pearson's correlation at that place.
    pub correlation: f64,
}

/// Why it was not found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NotFound {
    /// There is too little of one of them, or none of the other around it.
    TooShort,
    /// Nothing resembles it enough; the best correlation.
    Weak(f64),
    /// Places that are this far apart are as good, ms.
    Ambiguous(f64),
}

/// Finds the work of this side in that of the other: the place where both correlate best.
///
/// `here` is taken as surrounded by idleness. Offsets between `expected_ms` − `within_ms` and `expected_ms` + `within_ms` are tried, in
/// steps of the coarser series, and where that finds nothing in steps of two, four and eight of them. The best is taken where
/// its correlation is at least 0.7, is more than chance gives among so many places, and all places that are as good lie close to it:
/// those whose correlation, by Fisher's z with the number of values lessened by the residuals' autocorrelation, is within three
/// standard errors. The error reaches to the farthest of them, and a step beyond.
///
/// # Errors
/// Why there is no such place.
pub fn find(
    here: &Work,
    there: &Work,
    expected_ms: f64,
    within_ms: f64,
) -> Result<Found, NotFound> {
    let step_ms = here.step_ms.max(there.step_ms);
    let mut first = None;
    for longer in LONGER {
        match find_in_steps(here, there, step_ms * longer, expected_ms, within_ms) {
            Ok(found) => return Ok(found),
            Err(why) => first = first.or(Some(why)),
        }
    }
    Err(first.unwrap_or(NotFound::TooShort))
}

fn find_in_steps(
    here: &Work,
    there: &Work,
    step_ms: f64,
    expected_ms: f64,
    within_ms: f64,
) -> Result<Found, NotFound> {
    let (here, there) = (here.coarser(step_ms), there.coarser(step_ms));
    let around = (AROUND_MS / step_ms).ceil().max(AROUND_STEPS) as usize;
    let idle = std::iter::repeat_n(0.0, around);
    let ours: Vec<f64> = idle
        .clone()
        .chain(here.values.clone())
        .chain(idle)
        .collect();
    if here.values.len() < FEWEST || there.values.len() < ours.len() {
        return Err(NotFound::TooShort);
    }
    let ours = Centred::of(&ours);
    let first_ms = here.start_ms - around as f64 * step_ms - there.start_ms;
    let offset_ms = |place: usize| first_ms - place as f64 * step_ms;
    let places = there.values.windows(ours.values.len()).enumerate();
    let tried: Vec<(usize, f64)> = places
        .filter(|(place, _)| (offset_ms(*place) - expected_ms).abs() <= within_ms)
        .map(|(place, theirs)| (place, ours.correlation(theirs)))
        .collect();
    let best = tried.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let (best, correlation) = best.ok_or(NotFound::TooShort)?;
    if correlation < STRONG {
        return Err(NotFound::Weak(correlation));
    }
    let theirs = &there.values[best..best + ours.values.len()];
    let worth = ours.values.len() as f64 / inefficiency(&ours.residuals(theirs), 1);
    let standard_error = 1.0 / (worth - 3.0).max(1.0).sqrt();
    let chance = (2.0 * (tried.len() as f64).ln()).sqrt() + ABOVE_CHANCE;
    if correlation.atanh() < chance * standard_error {
        return Err(NotFound::Weak(correlation));
    }
    let least = correlation.atanh() - AS_GOOD * standard_error;
    let farthest = tried
        .iter()
        .filter(|(_, correlation)| correlation.atanh() >= least)
        .map(|(place, _)| place.abs_diff(best))
        .max();
    let error_ms = (farthest.unwrap_or(0) + 1) as f64 * step_ms;
    if error_ms > MOST_ERROR_MS.max(2.0 * step_ms) {
        return Err(NotFound::Ambiguous(error_ms));
    }
    Ok(Found {
        offset_ms: offset_ms(best),
        error_ms,
        correlation,
    })
}

/// Values less their mean.
struct Centred {
    values: Vec<f64>,
    squares: f64,
}

impl Centred {
    fn of(values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let values: Vec<f64> = values.iter().map(|value| value - mean).collect();
        let squares = values.iter().map(|value| value * value).sum();
        Self { values, squares }
    }

    /// Pearson's correlation with other values; 0 where one of the two is constant.
    fn correlation(&self, others: &[f64]) -> f64 {
        let n = others.len() as f64;
        let (mut sum, mut squares, mut products) = (0.0, 0.0, 0.0);
        for (ours, theirs) in self.values.iter().zip(others) {
            sum += theirs;
            squares += theirs * theirs;
            products += ours * theirs;
        }
        let scale = (self.squares * (squares - sum * sum / n)).sqrt();
        // What is left of a constant by rounding is none.
        match scale > 1e-12 {
            true => (products / scale).clamp(-1.0, 1.0),
            false => 0.0,
        }
    }

    /// What is left of other values after the best straight line through both.
    fn residuals(&self, others: &[f64]) -> Vec<f64> {
        let others = Self::of(others);
        let products = self.values.iter().zip(&others.values);
        let slope = products.map(|(a, b)| a * b).sum::<f64>() / self.squares.max(f64::MIN_POSITIVE);
        let pairs = self.values.iter().zip(&others.values);
        pairs.map(|(ours, theirs)| theirs - slope * ours).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Normal, ar1};
    use proptest::prelude::*;

    /// Resolution of what happens in these tests, ms.
    const TICK_MS: f64 = 10.0;

    /// Sums of ticks from one on, as a series that begins there on a clock which says `zero_ms` at the first tick.
    fn read(ticks: &[f64], from: usize, step: usize, zero_ms: f64) -> Work {
        Work {
            start_ms: zero_ms + from as f64 * TICK_MS,
            step_ms: step as f64 * TICK_MS,
            values: ticks[from..]
                .chunks_exact(step)
                .map(|chunk| chunk.iter().sum())
                .collect(),
        }
    }

    /// A load of `length` ticks after `idle` ones: what the client does, and what the server does of it with noise of its own.
    fn load(idle: usize, length: usize, after: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let shared = ar1(0.9, length, seed);
        let mut own = Normal::new(seed ^ 0xabcd);
        let total = idle + length + after;
        let of = |tick: usize| match tick.checked_sub(idle) {
            Some(i) if i < length => (0.5 + 0.1 * shared[i]).max(0.0),
            _ => 0.0,
        };
        let client = (0..total).map(of).collect();
        let mut noisy = |tick| (1.7 * of(tick) + 0.05 * own.next() + 0.02).max(0.0);
        let server = (0..total).map(&mut noisy).collect();
        (client, server)
    }

    #[test]
    fn the_same_series_is_found_to_the_step() {
        let values: Vec<f64> = (0..40).map(|i| f64::from((i * i) % 7)).collect();
        let here = Work {
            start_ms: 300.0,
            step_ms: 50.0,
            values: values.clone(),
        };
        let mut there = vec![0.0; 100];
        there.extend(values);
        there.extend([0.0; 60]);
        let there = Work {
            start_ms: 7_000.0,
            step_ms: 50.0,
            values: there,
        };
        let found = find(&here, &there, 0.0, 60_000.0).unwrap();
        // 300 here is 7,000 + 100 × 50 there.
        assert_eq!(found.offset_ms, 300.0 - 12_000.0);
        assert_eq!(found.error_ms, 50.0);
        assert!(found.correlation > 1.0 - 1e-9, "{found:?}");
        // Out of the window there is nothing like it.
        let far = find(&here, &there, 0.0, 1_000.0);
        assert!(matches!(far, Err(NotFound::TooShort)), "{far:?}");
    }

    #[test]
    fn what_happened_twice_may_have_been_either() {
        let (client, mut server) = load(300, 300, 300, 1);
        server.extend_from_within(..);
        let here = read(&client[300..600], 0, 5, 0.0);
        let there = read(&server, 0, 5, 0.0);
        let twice = find(&here, &there, 0.0, 60_000.0);
        assert!(
            matches!(twice, Err(NotFound::Ambiguous(ms)) if ms > 8_000.0),
            "{twice:?}"
        );
    }

    #[test]
    fn nothing_and_too_little_are_not_found() {
        let idle = Work {
            start_ms: 0.0,
            step_ms: 50.0,
            values: vec![0.0; 2_000],
        };
        let (client, server) = load(100, 100, 100, 2);
        let here = read(&client[100..200], 0, 5, 0.0);
        assert_eq!(find(&here, &idle, 0.0, 1e6), Err(NotFound::Weak(0.0)));
        let there = read(&server, 0, 5, 0.0);
        let short = Work {
            values: here.values[..9].to_vec(),
            ..here.clone()
        };
        assert_eq!(find(&short, &there, 0.0, 1e6), Err(NotFound::TooShort));
        let short = Work {
            values: there.values[..20].to_vec(),
            ..there
        };
        assert_eq!(find(&here, &short, 0.0, 1e6), Err(NotFound::TooShort));
    }

    proptest! {
        #[test]
        fn an_offset_that_was_put_in_is_found_within_its_error(
            seed in any::<u64>(),
            idle in 150_usize..800,
            length in 400_usize..1_000,
            after in 120_usize..400,
            phase in 0_usize..10,
            there_step in prop::sample::select(vec![5_usize, 10, 20]),
            truth_ms in -500_000.0_f64..500_000.0,
            wrong_ms in -400_000.0_f64..400_000.0,
        ) {
            let (client, server) = load(idle, length, after, seed);
            let here = read(&client[..idle + length], idle, 5, 0.0);
            let there = read(&server, phase, there_step, -truth_ms);
            let found = find(&here, &there, truth_ms + wrong_ms, 600_000.0);
            let found = found.map_err(|why| TestCaseError::fail(format!("{why:?}")))?;
            prop_assert!((found.offset_ms - truth_ms).abs() <= found.error_ms, "{found:?} {truth_ms}");
            prop_assert!(found.error_ms <= MOST_ERROR_MS);
        }

        #[test]
        fn unrelated_work_is_refused(
            seed in any::<u64>(),
            length in 150_usize..1_000,
            phi in 0.0_f64..0.9,
        ) {
            let (client, _) = load(10, length, 10, seed);
            let here = read(&client[..10 + length], 10, 5, 0.0);
            // A server that others keep busy all the time.
            let busy = ar1(phi, 20_000, !seed);
            let busy: Vec<f64> = busy.iter().map(|noise| (1.0 + 0.3 * noise).max(0.0)).collect();
            let there = read(&busy, 0, 5, 0.0);
            let found = find(&here, &there, 0.0, 600_000.0);
            prop_assert!(found.is_err(), "{found:?}");
        }
    }
}
