//! Lines that describe a search for a capacity while it runs.

use floodmark_record::capacity::{
    CapacityBound, CapacityResult, CapacityTrial, TrialOutcome, TrialStart,
};

use super::figures::{interval, rate, seconds};
use floodmark_record::worded::Worded;

/// Describes a trial in one line: `trial 12: 20,104/s missed p99 < 5ms (7.31 ms); capacity 19,842/s
/// ± 3.1 %`.
#[must_use]
pub fn capacity_trial_line(trial: &CapacityTrial, result: &CapacityResult) -> String {
    let outcome = match trial.outcome {
        TrialOutcome::Pass => "met the objectives".to_owned(),
        TrialOutcome::Void => {
            // The rest of the fault is advice for a single load.
            let fault = trial.fault.as_ref().map(Worded::problem);
            let fault = fault.unwrap_or_else(|| "the client was late".to_owned());
            format!("void: {fault}")
        }
        TrialOutcome::Miss => {
            let missed = trial.missed();
            let missed = missed.map(|of| format!("{} ({})", of.objective, of.figure));
            let missed = format!("missed {}", missed.collect::<Vec<_>>().join(", "));
            match trial.slow_cpu_share.filter(|_| trial.is_disturbed()) {
                Some(share) => {
                    format!("{missed}; CPUs slow for {:.0} % of the time", 100.0 * share)
                }
                None => missed,
            }
        }
    };
    let start = match trial.start {
        TrialStart::Idle => "",
        TrialStart::Overload => " after an overload",
    };
    format!(
        "trial {}: {}{start} {outcome}{}",
        result.trials.len(),
        rate(trial.rate_per_s),
        so_far(result)
    )
    .replace('\u{a0}', " ")
}

/// Describes the search so far in one line, with the time that remained after the last trial.
#[must_use]
pub fn capacity_progress_line(result: &CapacityResult) -> String {
    let used_s = result
        .trials
        .last()
        .map_or(0.0, |last| last.at_s + last.transient_s + last.judged_s);
    let left_s = (result.settings.budget_s - used_s).max(0.0);
    let last = result.trials.last().map_or_else(String::new, |trial| {
        let outcome = match trial.outcome {
            TrialOutcome::Pass => "met",
            TrialOutcome::Miss => "missed",
            TrialOutcome::Void => "void",
        };
        format!(" · {} {outcome}", rate(trial.rate_per_s))
    });
    format!(
        "trial {}{last}{} · at most {} left",
        result.trials.len(),
        so_far(result),
        seconds(left_s.floor())
    )
    .replace('\u{a0}', " ")
}

/// Returns the estimate so far.
fn so_far(result: &CapacityResult) -> String {
    match (result.interval(), result.rate_per_s, result.bound) {
        (Some(range), Some(per_s), _) => {
            format!("; capacity {} {}", rate(per_s), interval(per_s, &range))
        }
        (None, Some(per_s), Some(CapacityBound::Lower)) => {
            format!("; capacity at least {}", rate(per_s))
        }
        (None, Some(per_s), Some(CapacityBound::Upper)) => {
            format!("; capacity below {}", rate(per_s))
        }
        _ => String::new(),
    }
}
