//! Response times that grow with the rate of arrivals.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Exponential response times with the mean `mean_us · (rate / at_per_s)^power`. The rate is the
/// number of earlier arrivals in a window, divided by the window's length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// Mean response time at `at_per_s`, in microseconds.
    pub mean_us: f64,
    /// Rate in requests per second.
    pub at_per_s: f64,
    /// Exponent of the rate.
    pub power: f64,
    /// Length of the window, in milliseconds.
    pub window_ms: u32,
}

impl Crossing {
    /// Returns the mean response time after a number of arrivals in the window, in microseconds.
    #[must_use]
    pub fn mean_us_after(&self, arrivals: f64) -> f64 {
        let rate_per_s = arrivals / (f64::from(self.window_ms) / 1e3);
        self.mean_us * (rate_per_s / self.at_per_s).powf(self.power)
    }
}

/// The arrivals in the window. Their number is limited by the client's rate.
#[derive(Debug, Clone)]
pub struct ArrivalWindow {
    length_ns: u64,
    arrivals_ns: VecDeque<u64>,
}

impl ArrivalWindow {
    pub fn new(length_ms: u32) -> ArrivalWindow {
        ArrivalWindow {
            length_ns: u64::from(length_ms) * 1_000_000,
            arrivals_ns: VecDeque::new(),
        }
    }

    /// Returns the number of earlier arrivals in the window, and adds an arrival.
    pub fn count(&mut self, now_ns: u64) -> usize {
        let begin_ns = now_ns.saturating_sub(self.length_ns);
        while self.arrivals_ns.front().is_some_and(|at| *at < begin_ns) {
            self.arrivals_ns.pop_front();
        }
        let count = self.arrivals_ns.len();
        self.arrivals_ns.push_back(now_ns);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_window_and_scales_the_mean() {
        let mut window = ArrivalWindow::new(100);
        let ms = 1_000_000;
        let counts: Vec<usize> = (0..300).map(|i| window.count(i * ms)).collect();
        assert_eq!((counts[0], counts[99], counts[299]), (0, 99, 100));
        let crossing = Crossing {
            mean_us: 4_000.0,
            at_per_s: 2_000.0,
            power: 2.0,
            window_ms: 100,
        };
        assert!((crossing.mean_us_after(100.0) - 1_000.0).abs() < 1e-9);
    }
}
