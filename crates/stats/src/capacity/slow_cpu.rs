//! Detects loads during which the server's CPUs were slow.

use std::collections::BTreeMap;

use statrs::statistics::{Data, OrderStatistics};

/// Work that takes longer than usual by this factor shows a slow CPU.
const SLOW_FACTOR: f64 = 1.1;

/// Quantile that defines the usual time: first over the samples of each load, then over the loads.
/// It is below the median, because CPUs may be slow for more than half of a search.
const USUAL_QUANTILE: f64 = 0.25;

/// The usual speed of each CPU, measured as the time of a fixed piece of work.
#[derive(Debug, Clone, Default)]
pub struct UsualCpuSpeed {
    /// Usual time of the work in each load (its [`USUAL_QUANTILE`]), by CPU.
    loads: BTreeMap<u32, Vec<f64>>,
}

impl UsualCpuSpeed {
    /// Adds the samples of a load: pairs of a CPU and the time of the work on it, in any unit.
    /// Returns the share of samples that are at least 10 % slower than usual, averaged over CPUs.
    /// Returns `None` if there are no samples.
    pub fn add(&mut self, times: impl IntoIterator<Item = (u32, f64)>) -> Option<f64> {
        let mut by_cpu: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (cpu, time) in times {
            by_cpu.entry(cpu).or_default().push(time);
        }
        let mut sum = 0.0;
        for (cpu, times) in &by_cpu {
            let loads = self.loads.entry(*cpu).or_default();
            loads.push(usual_of(times));
            let usual = usual_of(loads);
            let slow = times.iter().filter(|time| **time > SLOW_FACTOR * usual);
            sum += slow.count() as f64 / times.len() as f64;
        }
        (!by_cpu.is_empty()).then(|| sum / by_cpu.len() as f64)
    }
}

fn usual_of(values: &[f64]) -> f64 {
    Data::new(values.to_vec()).quantile(USUAL_QUANTILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of 100 samples on one CPU, of which `slow` are slower by `factor`.
    fn load(slow: usize, factor: f64) -> impl Iterator<Item = (u32, f64)> {
        (0..100).map(move |i| (3, if i < slow { 2_000.0 * factor } else { 2_000.0 }))
    }

    #[test]
    fn the_share_of_slow_times_is_counted() {
        let mut usual = UsualCpuSpeed::default();
        assert_eq!(usual.add(load(0, 1.0)), Some(0.0));
        assert_eq!(usual.add(load(30, 1.2)), Some(0.3));
        assert_eq!(usual.add(load(30, 1.05)), Some(0.0));
        assert_eq!(usual.add([]), None);
    }

    #[test]
    fn a_load_can_be_slow_as_a_whole() {
        let mut usual = UsualCpuSpeed::default();
        assert_eq!(usual.add(load(100, 1.5)), Some(0.0));
        usual.add(load(0, 1.0));
        usual.add(load(0, 1.0));
        for _ in 0..4 {
            assert_eq!(usual.add(load(100, 1.5)), Some(1.0));
        }
    }

    #[test]
    fn each_cpu_has_its_own_usual_speed() {
        let mut usual = UsualCpuSpeed::default();
        let both = |second: f64| load(0, 1.0).chain((0..50).map(move |_| (4, second)));
        assert_eq!(usual.add(both(3_000.0)), Some(0.0));
        assert_eq!(usual.add(both(3_000.0)), Some(0.0));
        assert_eq!(usual.add(both(4_000.0)), Some(0.5));
    }
}
