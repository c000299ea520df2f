//! Random choices that depend only on a seed and an index, so that scenarios are reproducible.

/// Returns a random number in [0, 1), at position `index` of the sequence that the seed defines.
///
/// The generator is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// OOPSLA 2014).
pub fn uniform(seed: u64, index: u64) -> f64 {
    let mut z = seed
        .wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xd134_2543_de82_ef95);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns an exponentially distributed time with the given mean, in ns.
pub fn exponential_ns(seed: u64, index: u64, mean_ns: f64) -> u64 {
    (-mean_ns * (1.0 - uniform(seed, index)).ln()).round() as u64
}

/// Returns a standard normal value (Box and Muller, "A Note on the Generation of Random Normal
/// Deviates", Annals of Mathematical Statistics 29, 1958).
pub fn normal(seed: u64, index: u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(seed, 2 * index)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(seed, 2 * index + 1)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_fills_every_tenth_evenly() {
        let mut tenths = [0u32; 10];
        for i in 0..100_000 {
            tenths[(uniform(7, i) * 10.0) as usize] += 1;
        }
        // Each count has a standard deviation of 95.
        assert!(
            tenths.iter().all(|n| n.abs_diff(10_000) < 400),
            "{tenths:?}"
        );
        assert_eq!(uniform(7, 42).to_bits(), uniform(7, 42).to_bits());
        assert_ne!(uniform(7, 42).to_bits(), uniform(8, 42).to_bits());
    }

    #[test]
    fn exponential_has_its_mean_and_tail() {
        let n = 100_000;
        let times: Vec<u64> = (0..n).map(|i| exponential_ns(3, i, 1e6)).collect();
        let mean = times.iter().sum::<u64>() as f64 / n as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.015, "{mean}");
        let beyond = times.iter().filter(|t| **t > 1_000_000).count() as f64 / n as f64;
        assert!((beyond - (-1.0f64).exp()).abs() < 0.006, "{beyond}");
    }
}
