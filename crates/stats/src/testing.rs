//! Seeded series for tests.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A generator of standard normal values.
pub(crate) struct Normal(Xoshiro256PlusPlus);

impl Normal {
    pub(crate) fn new(seed: u64) -> Self {
        Normal(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns a uniform random value in (0, 1].
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Returns a standard normal random value (Box & Muller 1958).
    pub(crate) fn next(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
    }
}

/// A stationary first-order autoregressive series with mean 0 and variance 1.
pub(crate) fn ar1(phi: f64, n: usize, seed: u64) -> Vec<f64> {
    let mut normal = Normal::new(seed);
    let mut x = normal.next();
    (0..n)
        .map(|_| {
            let now = x;
            x = phi * x + (1.0 - phi * phi).sqrt() * normal.next();
            now
        })
        .collect()
}
