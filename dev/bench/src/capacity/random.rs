//! Seeded random values.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A generator of random values.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns a uniform value in (0, 1].
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniform value between two bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns an exponential value with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Returns a standard normal value (Box & Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let angle = 2.0 * std::f64::consts::PI * self.uniform();
        (2.0 * self.exponential()).sqrt() * angle.cos()
    }

    /// Returns a Poisson count.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        let mut count = 0;
        let mut time = self.exponential();
        while time <= mean {
            count += 1;
            time += self.exponential();
        }
        count
    }
}
