//! Evaluation of crash rounds: the recovery of a server after a restart, derived from the times of
//! its ok responses, and an upper bound on the probability of a loss.

use crate::distributions::beta_upper_quantile;
use crate::estimate::CONFIDENCE;

/// Length of a window in which the rate is compared with the earlier rate, in ns.
const WINDOW_NS: u64 = 100_000_000;

/// Maximum time before the failure over which the earlier rate is measured, in ns.
pub const BEFORE_NS: u64 = 1_000_000_000;

/// Share of the earlier rate that counts as full speed.
pub const FULL: f64 = 0.9;

/// Recovery times. Times are in ns since the restart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Recovery {
    /// Ok responses per second in the last second before the failure. `None` if the load had run
    /// for less than 100 ms, or without an ok response.
    pub rate_before_per_s: Option<f64>,
    /// Time of the first ok response after the restart.
    pub first_ok_ns: Option<u64>,
    /// Start of the first 100 ms with at least 90 % of the earlier rate. `None` if there is no such
    /// time, or if the earlier rate is unknown.
    pub full_speed_ns: Option<u64>,
}

/// Computes the recovery from the times of all ok responses, which this function sorts. The load
/// started at `began`, the process failed at `failed`, and started again at `restarted`. All times
/// are in ns on the same clock.
#[must_use]
pub fn recovery(done_ns: &mut [u64], began: u64, failed: u64, restarted: u64) -> Recovery {
    done_ns.sort_unstable();
    let from = began.max(failed.saturating_sub(BEFORE_NS));
    let length = failed.saturating_sub(from);
    let position = |at| done_ns.partition_point(|done| *done < at);
    let before = (position(failed) - position(from).min(position(failed))) as f64;
    let rate = (length >= WINDOW_NS && before > 0.0).then(|| before / length as f64);
    let after = &done_ns[position(restarted)..];
    let needed = rate.map(|rate| (rate * WINDOW_NS as f64 * FULL).ceil() as usize);
    let reached = needed.and_then(|needed| {
        let mut windows = after.windows(needed.max(1));
        windows.find(|window| window[window.len() - 1] - window[0] < WINDOW_NS)
    });
    Recovery {
        rate_before_per_s: rate.map(|rate| rate * 1e9),
        first_ok_ns: after.first().map(|done| done - restarted),
        full_speed_ns: reached.map(|window| window[0] - restarted),
    }
}

/// Returns the one-sided 95 % upper bound on the probability that a round loses data. Returns
/// `None` without rounds.
///
/// Without a loss in `n` rounds, the bound is 3/n, the "rule of three" (Hanley & Lippman-Hand 1983,
/// "If nothing goes wrong, is everything all right?", JAMA 249(13)). It is slightly higher than the
/// exact bound, 1 − 0.05^(1/n). With losses, the bound is exact (Clopper & Pearson 1934, "The use
/// of confidence or fiducial limits", Biometrika 26(4)).
#[must_use]
pub fn upper_bound(lost: u64, rounds: u64) -> Option<f64> {
    let n = rounds as f64;
    match lost {
        _ if rounds == 0 => None,
        0 => Some((3.0 / n).min(1.0)),
        lost if lost >= rounds => Some(1.0),
        lost => {
            let k = lost as f64;
            Some(beta_upper_quantile(1.0 - CONFIDENCE, k + 1.0, n - k))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Returns times at equal gaps from `from_ms` to `to_ms`.
    fn every(gap_ms: u64, from_ms: u64, to_ms: u64) -> impl Iterator<Item = u64> {
        (from_ms..to_ms).step_by(gap_ms as usize).map(|ms| ms * MS)
    }

    #[test]
    fn measures_a_slow_start() {
        // 1,000/s until 700 ms, restart at 750 ms, 100/s from 800 ms, 1,000/s from 1,000 ms.
        let times = every(1, 0, 700).chain(every(10, 800, 1000));
        let mut times: Vec<u64> = times.chain(every(1, 1000, 1500)).collect();
        times.reverse();
        let recovery = recovery(&mut times, 0, 700 * MS, 750 * MS);
        assert_eq!(recovery.rate_before_per_s, Some(1000.0));
        assert_eq!(recovery.first_ok_ns, Some(50 * MS));
        // 90 responses within 100 ms: the window may start one slow response earlier.
        let full = recovery.full_speed_ns.unwrap() / MS;
        assert!((240..=250).contains(&full), "{full}");
    }

    #[test]
    fn leaves_out_what_was_not_measured() {
        let mut none = Vec::new();
        assert_eq!(recovery(&mut none, 0, 5, 6), Recovery::default());
        let mut short: Vec<u64> = every(1, 0, 50).chain(every(1, 60, 300)).collect();
        let recovered = recovery(&mut short, 0, 50 * MS, 55 * MS);
        assert_eq!(recovered.rate_before_per_s, None);
        assert_eq!(recovered.full_speed_ns, None);
        assert_eq!(recovered.first_ok_ns, Some(5 * MS));
        let mut slower: Vec<u64> = every(1, 0, 500).chain(every(2, 600, 3000)).collect();
        let recovered = recovery(&mut slower, 0, 500 * MS, 550 * MS);
        assert_eq!(recovered.full_speed_ns, None);
    }

    proptest! {
        #[test]
        fn times_are_in_order(
            mut done in proptest::collection::vec(0u64..3000 * MS, 0..500), failed in 0u64..1500, down in 0u64..500,
        ) {
            let recovered = recovery(&mut done, 0, failed * MS, (failed + down) * MS);
            if let Some(full) = recovered.full_speed_ns {
                prop_assert!(recovered.first_ok_ns.unwrap() <= full);
                let at = (failed + down) * MS + full;
                let count = done.iter().filter(|done| (at..at + WINDOW_NS).contains(*done)).count() as f64;
                prop_assert!(count * 10.0 >= recovered.rate_before_per_s.unwrap() * FULL - 1e-6);
            }
        }
    }

    #[test]
    fn agrees_with_known_bounds() {
        assert_eq!(upper_bound(0, 0), None);
        assert_eq!(upper_bound(0, 300), Some(0.01));
        assert_eq!(upper_bound(0, 2), Some(1.0));
        assert_eq!(upper_bound(7, 7), Some(1.0));
        // With 1 loss in 2 rounds, P(at most 1 loss) = 1 − p² = 0.05.
        let one_of_two = upper_bound(1, 2).unwrap();
        assert!((one_of_two - 0.95_f64.sqrt()).abs() < 1e-9, "{one_of_two}");
        // With losses in all rounds but one, P(at most n − 1 losses) = 1 − pⁿ = 0.05.
        let most = upper_bound(9, 10).unwrap();
        assert!((most - 0.95_f64.powf(0.1)).abs() < 1e-9, "{most}");
    }

    /// Returns the probability of at most `k` losses in `n` rounds.
    fn at_most(k: u64, n: u64, p: f64) -> f64 {
        // Use logarithms, because (1 − p)ⁿ can be too small for an f64.
        let mut term = n as f64 * (-p).ln_1p();
        let mut sum = term.exp();
        for i in 1..=k {
            term += ((n - i + 1) as f64 / i as f64 * p / (1.0 - p)).ln();
            sum += term.exp();
        }
        sum
    }

    proptest! {
        #[test]
        fn as_few_losses_are_improbable_at_the_bound(n in 1u64..400, share in 0.0f64..1.0) {
            let lost = (share * n as f64) as u64;
            let bound = upper_bound(lost, n).unwrap();
            prop_assert!(bound > lost as f64 / n as f64 && bound <= 1.0);
            // For up to 3 rounds, the rule of three gives 1, so the exact bound for one more loss
            // can be lower.
            prop_assert!(n < 4 || bound <= upper_bound(lost + 1, n).unwrap());
            if bound < 1.0 {
                let p = at_most(lost, n, bound);
                match lost {
                    0 => prop_assert!(p <= 0.05 && p > 0.0, "{p}"),
                    _ => prop_assert!((p - 0.05).abs() < 1e-6, "{p}"),
                }
            }
        }
    }
}
