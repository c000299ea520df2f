//! The time of each crash, derived from the seed.

use std::time::Duration;

use floodmark_record::crash::CrashSettings;
use floodmark_record::operation::mix64;

/// Returns the time of a round's crash after the start of the load, uniformly distributed over the
/// range of the settings. `seed` and `round` determine the time.
pub fn crash_time(settings: &CrashSettings, seed: u64, round: u32) -> Duration {
    // 53 bits give every multiple of 2⁻⁵³ in [0, 1).
    let share = (mix(mix(seed) ^ u64::from(round)) >> 11) as f64 / (1_u64 << 53) as f64;
    let (from_s, to_s) = (settings.from_s, settings.to_s);
    Duration::try_from_secs_f64(from_s + share * (to_s - from_s)).unwrap_or_default()
}

/// Returns the first output of a SplitMix64 generator.
fn mix(seed: u64) -> u64 {
    mix64(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::crash::{CrashSignal, CrashTarget};
    use proptest::prelude::*;

    fn settings(from_s: f64, to_s: f64) -> CrashSettings {
        CrashSettings {
            rounds: 1,
            kill: CrashTarget::Server,
            signal: CrashSignal::Kill,
            from_s,
            to_s,
        }
    }

    #[test]
    fn spreads_the_times_evenly() {
        let settings = settings(0.5, 2.5);
        let mut counts = [0; 10];
        for round in 1..=10_000 {
            let time = crash_time(&settings, 7, round).as_secs_f64();
            counts[((time - 0.5) / 0.2) as usize] += 1;
        }
        // Each count has a mean of 1,000 and a standard deviation of 30.
        assert!(
            counts.iter().all(|n| (880..=1120).contains(n)),
            "{counts:?}"
        );
    }

    proptest! {
        #[test]
        fn depends_only_on_seed_and_round(
            from_s in 0.0f64..10.0, more_s in 0.0f64..10.0, seed in any::<u64>(), round in 1u32..1000,
        ) {
            let settings = settings(from_s, from_s + more_s);
            let time = crash_time(&settings, seed, round);
            prop_assert_eq!(time, crash_time(&settings, seed, round));
            let s = time.as_secs_f64();
            prop_assert!(s >= from_s - 1e-9 && s <= from_s + more_s + 1e-9);
            if more_s > 0.001 {
                prop_assert_ne!(time, crash_time(&settings, seed, round + 1));
                prop_assert_ne!(time, crash_time(&settings, seed.wrapping_add(1), round));
            }
        }
    }
}
