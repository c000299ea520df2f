//! The loads after a search, at rates around the capacity.

use floodmark_diagnose::conditions::Objective;
use floodmark_record::capacity::{
    CapacityBound, CapacityKind, CapacityResult, CapacityTrial, TrialOutcome, TrialStart,
};
use floodmark_record::run::{Run, Status};

/// A load after the search.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    /// Offered rate in requests per second.
    rate_per_s: f64,
    /// Whether it met all objectives.
    is_met: bool,
}

/// Lowers the lower bound of a result below the rate of every load after its search that missed an
/// objective. Results from older versions are unchanged.
pub(crate) fn respect_levels(result: &mut CapacityResult, runs: &[Run]) {
    let objectives: Vec<Objective> = result
        .settings
        .objectives
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let level = |run: &Run| {
        let mut objectives = objectives.iter();
        Some(Level {
            rate_per_s: run.plan.rate_per_s()?,
            is_met: objectives.all(|of| of.judge(run, run.plan.deadline).is_met),
        })
    };
    let own = runs.iter().filter(|run| {
        let is_own = run.trial == result.trial && run.process == result.process;
        is_own && run.validity.status != Status::Invalid
    });
    let levels: Vec<Level> = own.filter_map(level).collect();
    if result.answered_per_s.is_some() {
        lower(result, &levels);
    }
}

/// If a load at or below the lower bound of a result missed, lowers the bound to the highest rate
/// that passed and is below the lowest rate that missed. If there is no such rate, the lowest rate
/// that missed becomes an upper bound, and the interval is dropped.
fn lower(result: &mut CapacityResult, levels: &[Level]) {
    let bound_per_s = match result.bound {
        None => result.low,
        Some(CapacityBound::Lower) => result.rate_per_s,
        Some(CapacityBound::Upper) => None,
    };
    let missed = levels.iter().filter(|level| !level.is_met);
    let missed_per_s = missed.map(|level| level.rate_per_s).reduce(f64::min);
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
    let met = levels.iter().filter(|level| level.is_met);
    let rates = passed
        .map(|trial| trial.rate_per_s)
        .chain(met.map(|level| level.rate_per_s));
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
    use floodmark_record::capacity::{CapacityBegan, CapacityPlan};
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

    fn lowered(mut result: CapacityResult, levels: &[(f64, bool)]) -> CapacityResult {
        let level = |(rate_per_s, is_met): &(f64, bool)| Level {
            rate_per_s: *rate_per_s,
            is_met: *is_met,
        };
        let levels: Vec<Level> = levels.iter().map(level).collect();
        lower(&mut result, &levels);
        result
    }

    #[test]
    fn a_level_below_the_lower_bound_that_misses_lowers_it() {
        let levels = [(195.0, true), (312.0, true), (370.0, false), (390.0, false)];
        let found = lowered(result(), &levels);
        assert_eq!((found.rate_per_s, found.low), (Some(390.0), Some(312.0)));
        assert_eq!(found.proved_per_s, None);
        let unchanged = lowered(result(), &[(370.0, true), (390.0, false)]);
        assert_eq!(unchanged, result());
    }

    #[test]
    fn a_level_at_a_lower_bound_that_misses_lowers_the_bound() {
        let mut bound = result();
        bound.finding = CapacityKind::ClientLimit;
        bound.bound = Some(CapacityBound::Lower);
        (bound.low, bound.high) = (None, None);
        let found = lowered(bound, &[(370.0, true), (390.0, false)]);
        assert_eq!(found.rate_per_s, Some(370.0));
        assert_eq!(found.bound, Some(CapacityBound::Lower));
    }

    #[test]
    fn without_a_rate_that_met_the_objectives_there_is_no_lower_bound() {
        let scattered = CapacityResult {
            scatter: Some(0.02),
            ..result()
        };
        let found = lowered(scattered, &[(195.0, false)]);
        assert_eq!(found.scatter, None);
        assert_eq!(found.bound, Some(CapacityBound::Upper));
        assert_eq!((found.rate_per_s, found.low), (Some(195.0), None));
        assert_eq!(found.finding, CapacityKind::Unfinished);
    }
}
