//! The loads after a search, at rates around the capacity: their rates, and what they show.

use floodmark_record::capacity::{
    CapacityBound, CapacityKind, CapacityLevel, CapacityResult, CapacityTrial, TrialOutcome,
    TrialStart,
};

/// Rates of the loads after the search, as shares of the capacity.
pub const LEVELS: [f64; 5] = [0.5, 0.8, 0.95, 1.0, 1.05];

/// Maximum number of loads with the same outcome at one rate.
const MAX_SAME_OUTCOME: usize = 2;

/// Plans the loads after a search. They show the response times at each rate, and what fails first
/// as the rate increases. Does no I/O, so that simulations can use it.
pub struct LevelPlanner {
    /// The capacity, or its lower bound, in requests per second.
    capacity_per_s: f64,
    /// Highest rate at which a load is repeated after a miss, in requests per second.
    repeated_per_s: f64,
    rates: Vec<f64>,
}

impl LevelPlanner {
    /// Plans the loads that follow a search with this result.
    pub fn new(result: &CapacityResult) -> Self {
        let per_s = result.rate_per_s.unwrap_or(0.0);
        let levels = match result.bound {
            _ if result.rate_per_s.is_none() => &[],
            None => &LEVELS[..],
            // The capacity is at least this rate. The client may be unable to send faster.
            Some(CapacityBound::Lower) => &LEVELS[..4],
            // The trials missed the objectives at every rate.
            Some(CapacityBound::Upper) => &[],
        };
        // The last load shows what limits the server, so it must be above the capacity. If only a
        // lower rate is proved, the capacity can be anywhere in the interval.
        let highest = result.proved_per_s.and(result.high).unwrap_or(per_s);
        let rate = |level: &f64| level * if *level > 1.0 { highest } else { per_s };
        let repeated_per_s = match result.finding {
            // The capacity can have fallen since, so a miss is not necessarily due to chance.
            CapacityKind::NotStationary => 0.0,
            _ => per_s,
        };
        LevelPlanner {
            capacity_per_s: per_s,
            repeated_per_s,
            rates: levels.iter().map(rate).collect(),
        }
    }

    /// Returns the capacity of the plan in requests per second.
    pub fn capacity_per_s(&self) -> f64 {
        self.capacity_per_s
    }

    /// Returns the rate of the next load in requests per second, or `None` if all loads have been
    /// sent. Repeats a void load once. Also repeats a load once if it misses an objective at a rate
    /// up to the capacity, because a single miss can be due to chance. If the capacity changed
    /// during the search, misses are not repeated.
    pub fn next(&self, sent: &[CapacityLevel]) -> Option<f64> {
        let is_due = |rate_per_s: &f64| {
            let same = sent.iter().filter(|level| level.rate_per_s == *rate_per_s);
            let count = |outcome| {
                same.clone()
                    .filter(|level| level.outcome == outcome)
                    .count()
            };
            let most_misses = if *rate_per_s <= self.repeated_per_s {
                MAX_SAME_OUTCOME
            } else {
                1
            };
            count(TrialOutcome::Pass) == 0
                && count(TrialOutcome::Miss) < most_misses
                && count(TrialOutcome::Void) < MAX_SAME_OUTCOME
        };
        self.rates.iter().copied().find(is_due)
    }
}

/// Limits a result to what the loads after the search showed.
///
/// The lowest rate at which two loads missed an objective counts if it is below the estimate, or at
/// or below a lower bound. A lower bound at or above this rate is replaced by the highest lower
/// rate that passed. If there is no such rate, the rate that missed becomes an upper bound, and the
/// interval is dropped. The estimate becomes the geometric mean of the lower bound and the rate
/// that missed. Two misses at the estimate itself change nothing, because loads at the capacity
/// often miss by chance. Results for a capacity that changed during the search are left unchanged.
pub fn respect_levels(result: &mut CapacityResult) {
    let Some(missed_per_s) = result.missed_level_per_s() else {
        return;
    };
    match (result.bound, result.rate_per_s, result.low) {
        (None, Some(per_s), Some(low)) if missed_per_s < per_s || missed_per_s <= low => {
            let lower = if low < missed_per_s {
                Some(low)
            } else {
                result.proved_per_s = None;
                highest_below(result, missed_per_s)
            };
            match lower {
                Some(low) => lower_estimate(result, low, missed_per_s),
                None => bound_above(result, missed_per_s),
            }
        }
        (Some(CapacityBound::Lower), Some(per_s), _) if missed_per_s <= per_s => {
            match highest_below(result, missed_per_s) {
                // The reason why the search stopped no longer explains this bound.
                Some(lower) => {
                    result.finding = CapacityKind::Unfinished;
                    result.rate_per_s = Some(lower);
                }
                None => bound_above(result, missed_per_s),
            }
        }
        _ => {}
    }
}

/// Returns the highest rate below `rate_per_s` that met all objectives in a trial from idle or in a
/// load after the search.
fn highest_below(result: &CapacityResult, rate_per_s: f64) -> Option<f64> {
    let is_pass = |trial: &&CapacityTrial| {
        trial.outcome == TrialOutcome::Pass && trial.start == TrialStart::Idle
    };
    let trials = result.trials.iter().filter(is_pass);
    let levels = result.levels.iter();
    let levels = levels.filter(|level| level.outcome == TrialOutcome::Pass);
    let rates = trials
        .map(|trial| trial.rate_per_s)
        .chain(levels.map(|level| level.rate_per_s));
    rates.filter(|rate| *rate < rate_per_s).reduce(f64::max)
}

/// Lowers the estimate to the geometric mean of `low` and `missed_per_s`. The upper end of the
/// interval stays, because a short load can miss twice by chance.
fn lower_estimate(result: &mut CapacityResult, low: f64, missed_per_s: f64) {
    let middle = (low * missed_per_s).sqrt();
    (result.low, result.rate_per_s) = (Some(low), Some(middle));
    result.is_confirmed = false;
    // A capacity after an overload is only reported if it is lower.
    let falling = &mut result.falling;
    if falling.take_if(|of| of.rate_per_s >= middle).is_some() {
        result.finding = CapacityKind::Capacity;
    }
}

/// Replaces a result by an upper bound.
fn bound_above(result: &mut CapacityResult, most_per_s: f64) {
    result.finding = CapacityKind::Unfinished;
    result.rate_per_s = Some(most_per_s);
    result.bound = Some(CapacityBound::Upper);
    (result.low, result.high, result.proved_per_s) = (None, None, None);
    (result.scatter, result.falling) = (None, None);
    result.is_confirmed = false;
}

#[cfg(test)]
mod tests {
    use TrialOutcome::{Miss, Pass, Void};
    use floodmark_record::capacity::{CapacityBegan, CapacityLevel, CapacityPlan, FallingCapacity};
    use floodmark_record::events::RunId;

    use super::*;
    use crate::capacity::CapacityEvents;

    /// Returns a result without trials: 390/s, from 380/s to 400/s.
    fn result() -> CapacityResult {
        CapacityResult {
            finding: CapacityKind::Capacity,
            rate_per_s: Some(390.0),
            low: Some(380.0),
            high: Some(400.0),
            proved_per_s: Some(380.0),
            ..CapacityEvents::new(began()).result()
        }
    }

    fn began() -> CapacityBegan {
        CapacityBegan {
            run: RunId {
                system: "127.0.0.1:80".to_owned(),
                workload: "/".to_owned(),
                trial: None,
                setting: Default::default(),
                process: 1,
                attempt: 0,
            },
            settings: CapacityPlan {
                objectives: vec!["p99 < 200ms".to_owned()],
                start_per_s: 360.0,
                lowest_per_s: 4.0,
                highest_per_s: 4e5,
                precision: 0.02,
                budget_s: 60.0,
                closed: None,
            },
        }
    }

    /// Returns the result after loads at these rates, each with its outcome.
    fn lowered(mut result: CapacityResult, levels: &[(f64, TrialOutcome)]) -> CapacityResult {
        let level = |(attempt, (rate_per_s, outcome)): (u32, &(f64, TrialOutcome))| CapacityLevel {
            attempt,
            rate_per_s: *rate_per_s,
            outcome: *outcome,
        };
        result.levels = (1..).zip(levels).map(level).collect();
        respect_levels(&mut result);
        result
    }

    #[test]
    fn a_level_below_the_lower_bound_that_misses_twice_lowers_it() {
        let levels = [(195.0, Pass), (312.0, Pass), (370.0, Miss), (370.0, Miss)];
        let found = lowered(result(), &levels);
        assert_eq!((found.low, found.high), (Some(312.0), Some(400.0)));
        let middle = (312.0f64 * 370.0).sqrt();
        assert_eq!(found.rate_per_s, Some(middle));
        assert_eq!(found.proved_per_s, None);
        for levels in [
            [(370.0, Miss), (370.0, Pass), (390.0, Miss)],
            [(370.0, Pass), (390.0, Miss), (390.0, Miss)],
            [(370.0, Void), (370.0, Void), (390.0, Void)],
            [(370.0, Miss), (370.0, Void), (370.0, Void)],
        ] {
            let found = lowered(result(), &levels);
            assert_eq!((found.low, found.proved_per_s), (Some(380.0), Some(380.0)));
            assert_eq!((found.rate_per_s, found.high), (Some(390.0), Some(400.0)));
        }
    }

    #[test]
    fn a_level_below_the_estimate_that_misses_twice_lowers_it() {
        let hysteresis = |falling_per_s| CapacityResult {
            finding: CapacityKind::Hysteresis,
            falling: Some(FallingCapacity {
                rate_per_s: falling_per_s,
                low: Some(falling_per_s - 1.0),
                high: Some(falling_per_s + 1.0),
            }),
            ..result()
        };
        let levels = [(312.0, Pass), (386.0, Miss), (386.0, Miss), (390.0, Pass)];
        let found = lowered(hysteresis(388.0), &levels);
        let middle = (380.0f64 * 386.0).sqrt();
        assert_eq!((found.rate_per_s, found.low), (Some(middle), Some(380.0)));
        assert_eq!(found.proved_per_s, Some(380.0));
        assert_eq!(
            (found.finding, found.falling),
            (CapacityKind::Capacity, None)
        );
        let lower = hysteresis(320.0);
        let found = lowered(lower.clone(), &levels);
        assert_eq!(
            (found.finding, found.rate_per_s),
            (lower.finding, Some(middle))
        );
        assert_eq!(found.falling, lower.falling);
    }

    #[test]
    fn a_level_at_a_lower_bound_that_misses_twice_lowers_the_bound() {
        let mut bound = result();
        bound.finding = CapacityKind::ClientLimit;
        bound.bound = Some(CapacityBound::Lower);
        (bound.low, bound.high) = (None, None);
        let found = lowered(bound, &[(370.0, Pass), (390.0, Miss), (390.0, Miss)]);
        assert_eq!(found.rate_per_s, Some(370.0));
        assert_eq!(found.bound, Some(CapacityBound::Lower));
        assert_eq!(found.finding, CapacityKind::Unfinished);
    }

    #[test]
    fn without_a_rate_that_met_the_objectives_there_is_no_lower_bound() {
        let scattered = CapacityResult {
            scatter: Some(0.02),
            ..result()
        };
        let found = lowered(scattered, &[(195.0, Miss), (195.0, Miss)]);
        assert_eq!(found.scatter, None);
        assert_eq!(found.bound, Some(CapacityBound::Upper));
        assert_eq!((found.rate_per_s, found.low), (Some(195.0), None));
        assert_eq!(found.finding, CapacityKind::Unfinished);
    }

    #[test]
    fn loads_that_are_repeated_when_a_search_resumes_are_left_out() {
        let mut search = CapacityEvents::new(began());
        search.levels = [5, 6, 7]
            .map(|attempt| CapacityLevel {
                attempt,
                rate_per_s: 370.0,
                outcome: Miss,
            })
            .into();
        let run = |attempt| RunId {
            attempt,
            ..began().run
        };
        let other = RunId {
            process: 2,
            ..run(5)
        };
        search.remove_repeated(&[run(6), run(7), other]);
        let attempts: Vec<u32> = search.levels.iter().map(|level| level.attempt).collect();
        assert_eq!(attempts, [5]);
    }

    /// Returns the rates of the loads, as percentages of the capacity, if the loads have these
    /// outcomes.
    fn sent(result: &CapacityResult, outcomes: &[TrialOutcome]) -> Vec<f64> {
        let planner = LevelPlanner::new(result);
        let mut levels: Vec<CapacityLevel> = Vec::new();
        let mut outcomes = outcomes.iter();
        while let Some(rate_per_s) = planner.next(&levels) {
            levels.push(CapacityLevel {
                attempt: 0,
                rate_per_s,
                outcome: *outcomes.next().unwrap_or(&Pass),
            });
        }
        let share = |level: &CapacityLevel| (100.0 * level.rate_per_s / 390.0).round();
        levels.iter().map(share).collect()
    }

    #[test]
    fn misses_below_the_capacity_and_void_loads_are_repeated_once() {
        let unproved = CapacityResult {
            proved_per_s: None,
            ..result()
        };
        let all = [50.0, 80.0, 95.0, 100.0, 105.0];
        assert_eq!(sent(&unproved, &[]), all);
        let twice = [50.0, 80.0, 80.0, 95.0, 95.0, 100.0, 100.0, 105.0];
        let outcomes = [Pass, Miss, Pass, Void, Void, Miss, Miss, Miss];
        assert_eq!(sent(&unproved, &outcomes), twice);
        assert_eq!(sent(&result(), &[])[4], 108.0, "above the upper end");
        let changed = CapacityResult {
            finding: CapacityKind::NotStationary,
            ..unproved.clone()
        };
        assert_eq!(sent(&changed, &[Pass, Miss]), all);
        let lower = CapacityResult {
            bound: Some(CapacityBound::Lower),
            ..unproved.clone()
        };
        assert_eq!(sent(&lower, &[]), all[..4]);
        let upper = CapacityResult {
            bound: Some(CapacityBound::Upper),
            ..unproved
        };
        assert_eq!(sent(&upper, &[]), [0.0; 0]);
    }
}
