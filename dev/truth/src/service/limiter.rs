//! A limit on the rate of accepted requests.

use serde::{Deserialize, Serialize};

/// A token bucket. A request without a token is rejected immediately with status 503.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limiter {
    /// Tokens per second.
    pub rate_per_s: f64,
    /// Maximum number of tokens. The bucket starts full and is refilled continuously.
    pub burst: u32,
    /// Time until the response to an accepted request, in microseconds.
    #[serde(default)]
    pub delay_us: u64,
}

/// The state of a token bucket, as the generic cell rate algorithm (ITU-T I.371): the time when the
/// bucket would be full.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    limiter: Limiter,
    full_ns: u64,
}

impl TokenBucket {
    pub fn new(limiter: Limiter) -> TokenBucket {
        TokenBucket {
            limiter,
            full_ns: 0,
        }
    }

    /// Takes a token, and returns the due time of the response, or `None` if there was no token.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let token_ns = 1e9 / self.limiter.rate_per_s;
        let full_ns = self.full_ns.max(now_ns);
        let burst = f64::from(self.limiter.burst);
        let is_available = (full_ns - now_ns) as f64 <= token_ns * (burst - 1.0);
        if is_available {
            self.full_ns = full_ns + token_ns as u64;
        }
        is_available.then(|| now_ns + self.limiter.delay_us * 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_burst_and_then_the_rate() {
        let mut bucket = TokenBucket::new(Limiter {
            rate_per_s: 1_000.0,
            burst: 5,
            delay_us: 7,
        });
        let ms = 1_000_000;
        let mut taken = |at: u64, n: usize| {
            let dues: Vec<u64> = (0..n).filter_map(|_| bucket.take(at)).collect();
            assert!(dues.iter().all(|due| *due == at + 7_000));
            dues.len()
        };
        assert_eq!(taken(10 * ms, 7), 5);
        assert_eq!(taken(11 * ms - 1, 1), 0);
        assert_eq!(taken(11 * ms, 2), 1);
        assert_eq!(taken(100 * ms, 9), 5);
    }
}
