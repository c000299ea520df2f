//! The loads after a search, at rates around the capacity.

use floodmark_record::capacity::{
    CapacityBound, CapacityKind, CapacityResult, CapacityTrial, TrialOutcome, TrialStart,
};

/// If a load at or below the lower bound of a result missed an objective, lowers the bound to the
/// highest rate that passed and is below the lowest rate that missed. If there is no such rate, the
/// lowest rate that missed becomes an upper bound, and the interval is dropped.
pub fn respect_levels(result: &mut CapacityResult) {
    let bound_per_s = match result.bound {
        None => result.low,
        Some(CapacityBound::Lower) => result.rate_per_s,
        Some(CapacityBound::Upper) => None,
    };
    let levels = |outcome| {
        let levels = result.levels.iter();
        let levels = levels.filter(move |level| level.outcome == outcome);
        levels.map(|level| level.rate_per_s)
    };
    let missed_per_s = levels(TrialOutcome::Miss).reduce(f64::min);
    let Some((bound_per_s, missed_per_s)) = bound_per_s.zip(missed_per_s) else {
        return;
    };
    if missed_per_s > bound_per_s {
        return;
    }
    let is_pass = |trial: &&CapacityTrial| {
        trial.outcome == TrialOutcome::Pass && trial.start == TrialStart::Idle
    };
    let passed = result.trials.iter().filter(is_pass);
    let rates = passed
        .map(|trial| trial.rate_per_s)
        .chain(levels(TrialOutcome::Pass));
    let lower = rates.filter(|rate| *rate < missed_per_s).reduce(f64::max);
    result.proved_per_s = None;
    match (result.bound, lower) {
        (None, Some(lower)) => result.low = Some(lower),
        (Some(_), Some(lower)) => result.rate_per_s = Some(lower),
        (_, None) => {
            result.finding = CapacityKind::Unfinished;
            result.rate_per_s = Some(missed_per_s);
            result.bound = Some(CapacityBound::Upper);
            (result.low, result.high) = (None, None);
            (result.scatter, result.falling) = (None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use TrialOutcome::{Miss, Pass, Void};
    use floodmark_record::capacity::{CapacityBegan, CapacityLevel, CapacityPlan};
    use floodmark_record::events::RunId;

    use super::*;
    use crate::capacity::CapacityEvents;

    /// Returns a result without trials: 390/s, from 380/s to 400/s.
    fn result() -> CapacityResult {
        let began = CapacityBegan {
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
        };
        CapacityResult {
            finding: CapacityKind::Capacity,
            rate_per_s: Some(390.0),
            low: Some(380.0),
            high: Some(400.0),
            proved_per_s: Some(380.0),
            ..CapacityEvents::new(began).result()
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
    fn a_level_below_the_lower_bound_that_misses_lowers_it() {
        let levels = [(195.0, Pass), (312.0, Pass), (370.0, Miss), (390.0, Miss)];
        let found = lowered(result(), &levels);
        assert_eq!((found.rate_per_s, found.low), (Some(390.0), Some(312.0)));
        assert_eq!(found.proved_per_s, None);
        for levels in [
            [(370.0, Pass), (390.0, Miss)],
            [(370.0, Void), (390.0, Void)],
        ] {
            let found = lowered(result(), &levels);
            assert_eq!((found.low, found.proved_per_s), (Some(380.0), Some(380.0)));
        }
    }

    #[test]
    fn a_level_at_a_lower_bound_that_misses_lowers_the_bound() {
        let mut bound = result();
        bound.finding = CapacityKind::ClientLimit;
        bound.bound = Some(CapacityBound::Lower);
        (bound.low, bound.high) = (None, None);
        let found = lowered(bound, &[(370.0, Pass), (390.0, Miss)]);
        assert_eq!(found.rate_per_s, Some(370.0));
        assert_eq!(found.bound, Some(CapacityBound::Lower));
    }

    #[test]
    fn without_a_rate_that_met_the_objectives_there_is_no_lower_bound() {
        let scattered = CapacityResult {
            scatter: Some(0.02),
            ..result()
        };
        let found = lowered(scattered, &[(195.0, Miss)]);
        assert_eq!(found.scatter, None);
        assert_eq!(found.bound, Some(CapacityBound::Upper));
        assert_eq!((found.rate_per_s, found.low), (Some(195.0), None));
        assert_eq!(found.finding, CapacityKind::Unfinished);
    }
}
