//! Determines a server's capacity, mostly by sending long loads.

use std::time::Duration;

use floodmark_diagnose::conditions::Objective;
use floodmark_record::Run;
use floodmark_record::reason::joined;
use floodmark_record::run::Status;
use floodmark_truth::capacity::KnownObjective;

use super::super::budgeted::{ok_share, pool_capacity_per_s};
use super::super::score::{KnownCapacity, RateRange};
use super::server::{CapacitySource, Program, ProgramServer, RunningServer};
use crate::bench::{Bench, Failure};

/// Length of the closed-model load that measures a server's limit, in seconds.
const LIMIT_S: u32 = 30;

/// Length of the load over a single connection, in seconds.
const IDLE_S: u32 = 5;

/// Length of each load that determines whether a rate meets the objective, in seconds.
const RATE_S: u32 = 60;

/// Maximum ratio of the two ends of a range that needs no further narrowing.
const NARROW: f64 = 1.03;

/// First rate to try, as a share of the limit.
const FIRST_SHARE: f64 = 0.8;

/// Error of the pool model, as a share of the capacity: times vary slightly, and importance
/// sampling has an error.
const MODEL_ERROR: f64 = 0.005;

impl ProgramServer {
    /// Determines the server's capacity from its [`CapacitySource`].
    pub fn measure(&self, bench: &Bench) -> Result<KnownCapacity, Failure> {
        let server = self.start(bench)?;
        let objective = self.objective;
        let known = match &self.source {
            CapacitySource::Bucket(bucket) => KnownCapacity {
                rising: RateRange::exactly(bucket.capacity_per_s(objective)),
                falling: None,
                limit_per_s: Some(bucket.limit_per_s() / ok_share(objective)),
            },
            CapacitySource::Pool { permits } => self.measure_pool(bench, &server, *permits)?,
            CapacitySource::Hysteresis { permits, falling } => {
                let pool = Program::Go("pool");
                pool.build(bench)?;
                let slow = RunningServer::start(bench, pool, falling, None)?;
                let falling = self.measure_pool(bench, &slow, *permits)?.rising;
                slow.stop()?;
                KnownCapacity {
                    falling: Some(falling),
                    ..self.measure_pool(bench, &server, *permits)?
                }
            }
            CapacitySource::Loads => {
                let limit = limit(bench, &server.url, 1)?;
                let is_met = |rate_per_s, seed| self.meets(bench, &server.url, rate_per_s, seed);
                KnownCapacity {
                    rising: narrow(limit.high, is_met)?,
                    falling: None,
                    limit_per_s: Some(limit.high),
                }
            }
        };
        server.stop()?;
        Ok(known)
    }

    /// Measures a pool's limit and its response time without a queue.
    fn measure_pool(
        &self,
        bench: &Bench,
        server: &RunningServer,
        permits: usize,
    ) -> Result<KnownCapacity, Failure> {
        let limit = limit(bench, &server.url, permits)?;
        let words = format!(
            "{} --connections 1 --duration {IDLE_S}s --quiet",
            server.url
        );
        let idle = bench.load(&words, IDLE_S)?;
        let idle_us = idle.response_time_us.p50.ok_or("no response")?;
        Ok(KnownCapacity {
            rising: pool_capacity(permits, limit, idle_us / 1e6, self.objective),
            falling: None,
            limit_per_s: Some(limit.high),
        })
    }

    /// Returns whether a load at a fixed rate meets the objective.
    fn meets(&self, bench: &Bench, url: &str, rate_per_s: f64, seed: u64) -> Result<bool, Failure> {
        let connections = (2.0 * rate_per_s).clamp(50.0, 2_000.0).round();
        let words = format!(
            "{url} --rate {rate_per_s:.3} --arrivals poisson --connections {connections} \
             --duration {RATE_S}s --seed {seed} --quiet"
        );
        let run = bench.load(&words, RATE_S)?;
        let objective: Objective = self.objective.to_string().parse()?;
        let is_met = objective.judge(&run, Duration::MAX).is_met;
        // Response times include delays of the client, so an invalid load can show only that a rate
        // meets the objective.
        if !is_met && run.validity.status == Status::Invalid {
            let reasons = joined(&run.validity.reasons);
            return Err(format!("{rate_per_s:.0}/s: {reasons}; measure on an idle host").into());
        }
        Ok(is_met)
    }
}

/// Measures the throughput of a server whose permits are all in use.
fn limit(bench: &Bench, url: &str, permits: usize) -> Result<RateRange, Failure> {
    let connections = (4 * permits).max(16);
    let words =
        format!("{url} --connections {connections} --warmup 3s --duration {LIMIT_S}s --quiet");
    let run: Run = bench.load(&words, LIMIT_S)?;
    let interval = run
        .throughput_interval
        .ok_or("the throughput has no interval; measure on an idle host")?;
    Ok(RateRange {
        low: interval.low,
        high: interval.high,
    })
}

/// Returns the capacity of a pool from its limit, and from its response time without a queue, in
/// seconds. Time in which a request holds no permit reduces the time that it may wait.
fn pool_capacity(
    permits: usize,
    limit: RateRange,
    idle_s: f64,
    objective: KnownObjective,
) -> RateRange {
    let capacity = |limit_per_s: f64| {
        let holds_s = permits as f64 / limit_per_s;
        let objective = match objective {
            KnownObjective::ResponseTime {
                percentile,
                limit_ms,
            } => KnownObjective::ResponseTime {
                percentile,
                limit_ms: limit_ms - 1e3 * (idle_s - holds_s).max(0.0),
            },
            KnownObjective::Errors(_) => objective,
        };
        pool_capacity_per_s(permits, holds_s, objective)
    };
    RateRange {
        low: (1.0 - MODEL_ERROR) * capacity(limit.low),
        high: (1.0 + MODEL_ERROR) * capacity(limit.high),
    }
}

/// Returns a range between a rate that meets the objective and a rate that misses it. Two loads
/// with different seeds test each rate. If they disagree, the rate is too close to the
/// capacity, so the search ends after trying the rates halfway to each end.
fn narrow(
    limit_per_s: f64,
    mut is_met: impl FnMut(f64, u64) -> Result<bool, Failure>,
) -> Result<RateRange, Failure> {
    let mut both = |rate_per_s| Ok::<_, Failure>([is_met(rate_per_s, 1)?, is_met(rate_per_s, 2)?]);
    let mut range = RateRange {
        low: 0.0,
        high: limit_per_s,
    };
    let mut rate_per_s = FIRST_SHARE * limit_per_s;
    while range.high > NARROW * range.low {
        match both(rate_per_s)? {
            [true, true] => range.low = rate_per_s,
            [false, false] => range.high = rate_per_s,
            _ => {
                let low = 0.5 * (range.low + rate_per_s);
                let high = 0.5 * (range.high + rate_per_s);
                if both(low)? == [true, true] {
                    range.low = low;
                }
                if both(high)? == [false, false] {
                    range.high = high;
                }
                break;
            }
        }
        rate_per_s = if range.low > 0.0 {
            0.5 * (range.low + range.high)
        } else {
            FIRST_SHARE * range.high
        };
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_loads_narrow_the_capacity() {
        // Rates within 1 % of the capacity meet the objective with one of the two seeds.
        for capacity in [20.0, 55.0, 79.0, 93.0, 99.5] {
            let is_met = |rate: f64, seed| {
                let error = if seed == 1 { 0.01 } else { -0.01 };
                Ok(rate <= capacity * (1.0 + error))
            };
            let range = narrow(100.0, is_met).unwrap();
            assert!(range.low <= 1.01 * capacity && range.high >= 0.99 * capacity);
            assert!(range.high <= 1.15 * range.low, "{capacity}: {range:?}");
        }
    }

    #[test]
    fn the_capacity_of_a_pool_allows_for_its_errors() {
        let objective = KnownObjective::ResponseTime {
            percentile: 99.0,
            limit_ms: 200.0,
        };
        let limit = RateRange {
            low: 396.0,
            high: 400.0,
        };
        let exact = pool_capacity_per_s(8, 0.02, objective);
        let range = pool_capacity(8, limit, 0.02, objective);
        assert!(range.low < exact && exact < range.high, "{exact} {range:?}");
        assert!(range.high < limit.high, "{range:?}");
        // A response time of 100 ms without a queue leaves half of the limit for waiting.
        let slow = pool_capacity(8, limit, 0.1, objective);
        assert!(slow.high < range.high, "{slow:?}");
    }
}
