//! What came of it, beside the bars.

use std::fmt;

use floodmark_record::Run;

use crate::error::Error;
use crate::measuring::statistics::{Estimate, estimate};

/// Where the interval of the ratio must lie.
const RATIO: (f64, f64) = (0.97, 1.03);

/// CPU of the watcher in one run.
#[derive(Debug)]
pub struct Cost {
    connections: u32,
    /// Share of one CPU that it may take.
    bar: f64,
    cpu_s: f64,
    wall_s: f64,
}

impl Cost {
    /// Of a run, by the watcher's own clock in its record.
    pub fn of(connections: u32, bar: f64, run: &Run) -> Result<Self, Error> {
        let watcher = run.watcher.ok_or_else(|| {
            Error::Found(vec![format!(
                "nothing was watched: {}",
                run.missing.join("; ")
            )])
        })?;
        if run.server.is_none() {
            return Err(Error::Found(vec![format!(
                "the server was not watched: {}",
                run.missing.join("; ")
            )]));
        }
        Ok(Self {
            connections,
            bar,
            cpu_s: watcher.cpu_s,
            wall_s: watcher.wall_s,
        })
    }

    fn share(&self) -> f64 {
        self.cpu_s / self.wall_s
    }

    fn met(&self) -> bool {
        self.share() <= self.bar
    }
}

/// All figures.
#[derive(Debug)]
pub struct Figures {
    pub costs: Vec<Cost>,
    /// Throughput with watching over that without, for each pair of runs.
    pub ratios: Vec<f64>,
}

impl Figures {
    /// Whether every bar was met.
    pub fn met(&self) -> bool {
        self.costs.iter().all(Cost::met) && self.ratio().is_some_and(|ratio| within(&ratio))
    }

    fn ratio(&self) -> Option<Estimate> {
        estimate(self.ratios.clone())
    }
}

/// Whether the whole interval lies where it must.
fn within(ratio: &Estimate) -> bool {
    ratio
        .interval
        .is_some_and(|interval| interval.low >= RATIO.0 && interval.high <= RATIO.1)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |met| if met { "met" } else { "missed" };
        for cost in &self.costs {
            writeln!(
                f,
                "{:>6} connections: the watcher took {:.2} % of one CPU ({:.3} s of {:.1} s, its thread's clock, what it does \
                 before the load included); at most {:.0} %: {}",
                cost.connections,
                100.0 * cost.share(),
                cost.cpu_s,
                cost.wall_s,
                100.0 * cost.bar,
                word(cost.met())
            )?;
        }
        let Some(ratio) = self.ratio() else {
            return writeln!(f, "throughput: no pair of runs");
        };
        write!(
            f,
            "throughput with watching over without: median {:.4} of {} pairs, {:.4} to {:.4}",
            ratio.median, ratio.count, ratio.least, ratio.most
        )?;
        if let Some(interval) = ratio.interval {
            write!(
                f,
                "; {:.1} % interval of the median {:.4} to {:.4}, must lie within {:.2} to {:.2}: {}",
                100.0 * interval.coverage,
                interval.low,
                interval.high,
                RATIO.0,
                RATIO.1,
                word(within(&ratio))
            )?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(shares: [f64; 2], ratios: &[f64]) -> Figures {
        let cost = |(connections, bar, share): (u32, f64, f64)| Cost {
            connections,
            bar,
            cpu_s: share * 20.0,
            wall_s: 20.0,
        };
        let costs = [(100, 0.01, shares[0]), (10_000, 0.03, shares[1])];
        Figures {
            costs: costs.into_iter().map(cost).collect(),
            ratios: ratios.to_vec(),
        }
    }

    #[test]
    fn each_bar_can_be_missed() {
        let even = [0.99, 1.0, 1.01, 1.0, 0.995, 1.005];
        assert!(figures([0.009, 0.029], &even).met());
        assert!(!figures([0.011, 0.029], &even).met());
        assert!(!figures([0.009, 0.031], &even).met());
        assert!(!figures([0.009, 0.029], &[0.9; 6]).met());
        // As slow as fast in the mean, but nothing is known of it.
        assert!(!figures([0.009, 0.029], &[0.9, 1.1, 0.9, 1.1, 1.0, 1.0]).met());
        assert!(!figures([0.009, 0.029], &[]).met());
        let said = figures([0.011, 0.029], &even).to_string();
        assert!(said.contains("1.10 % of one CPU"), "{said}");
        assert!(said.contains("at most 1 %: missed"), "{said}");
    }
}
