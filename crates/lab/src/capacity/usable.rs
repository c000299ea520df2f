//! Selection and evaluation of a trial's usable parts.

use std::ops::Range;

use floodmark_record::capacity::{LEAST_USABLE_S, TrialFlow, TrialOutcome};
use floodmark_stats::capacity::{PartLoss, PartState};

/// The parts of a load, with their states.
#[derive(Debug, Clone)]
pub struct UsableParts {
    states: Vec<PartState>,
    /// Parts whose requests are judged.
    judged: Range<usize>,
    /// Length of the judged parts in seconds.
    judged_s: f64,
    /// Length of the usable judged parts in seconds.
    usable_s: f64,
    /// Lost time in the judged parts, in seconds.
    lost_s: f64,
}

impl UsableParts {
    /// Returns the parts of a load, from its start to the end of its drain. `judged` contains the
    /// indices of the judged parts.
    pub fn new(parts: &[PartLoss], states: Vec<PartState>, judged: Range<usize>) -> Self {
        let seconds = |is_counted: &dyn Fn(PartState) -> bool| -> f64 {
            let all = parts
                .iter()
                .zip(&states)
                .take(judged.end)
                .skip(judged.start);
            let counted = all.filter(|(_, state)| is_counted(**state));
            counted.fold(0.0, |sum, (part, _)| sum + part.seconds)
        };
        let judged_s = seconds(&|_| true);
        let usable_s = seconds(&|state| state == PartState::Usable);
        let of_judged = parts.iter().take(judged.end).skip(judged.start);
        let lost_s = of_judged.map(|part| part.lost_s.unwrap_or(part.seconds));
        let lost_s = lost_s.sum();
        UsableParts {
            states,
            judged,
            judged_s,
            usable_s,
            lost_s,
        }
    }

    /// Returns the flow of all parts of a trial at a rate in requests per second, without what the
    /// lost time explains: requests that were not answered while the server had no CPU time. An
    /// overload remains an overload.
    pub fn without_losses(&self, rate_per_s: f64, flow: TrialFlow) -> TrialFlow {
        let lost_per_s = rate_per_s * self.lost_s / self.judged_s.max(f64::MIN_POSITIVE);
        let mut flow = flow;
        flow.answered.per_s += lost_per_s;
        flow.growth_per_s -= lost_per_s;
        flow
    }

    /// Returns whether the responses in a part count. Parts of the drain can count, too.
    pub fn is_usable(&self, part: usize) -> bool {
        part >= self.judged.start && self.states.get(part) == Some(&PartState::Usable)
    }

    /// Returns whether a judged part shows how fast the server answers.
    pub fn shows_flow(&self, part: usize) -> bool {
        self.judged.contains(&part)
            && self
                .states
                .get(part)
                .is_some_and(|state| *state != PartState::Disturbed)
    }

    /// Returns the usable time as a share of the judged time.
    pub fn share(&self) -> f64 {
        if self.judged_s > 0.0 {
            self.usable_s / self.judged_s
        } else {
            0.0
        }
    }

    /// Returns whether all parts count, including those of the drain.
    pub fn is_whole(&self) -> bool {
        let mut judged = self.states.iter().skip(self.judged.start);
        judged.all(|state| *state == PartState::Usable)
    }

    /// Returns whether enough time is usable to judge the objectives.
    pub fn is_enough(&self) -> bool {
        self.usable_s >= LEAST_USABLE_S
    }
}

/// Returns the outcome of a trial. `is_enough` says whether enough time was usable to judge the
/// objectives. A server that does not keep up misses even if little time was usable, because its
/// backlog also grows in the undisturbed parts.
pub fn trial_outcome(is_sustained: bool, is_met: bool, is_enough: bool) -> TrialOutcome {
    match (is_sustained, is_met, is_enough) {
        (false, ..) | (true, false, true) => TrialOutcome::Miss,
        (true, _, false) => TrialOutcome::Void,
        (true, true, true) => TrialOutcome::Pass,
    }
}

#[cfg(test)]
mod tests {
    use PartState::{Aftermath, Disturbed, Usable};
    use floodmark_record::capacity::AnsweredRate;

    use super::*;

    /// Returns parts of 100 ms with these states. All but the first and the last are judged.
    fn parts(states: &[PartState]) -> UsableParts {
        let part = PartLoss {
            seconds: 0.1,
            lost_s: Some(0.0),
        };
        let last = states.len() - 1;
        UsableParts::new(&vec![part; states.len()], states.to_vec(), 1..last)
    }

    #[test]
    fn only_usable_parts_count() {
        let parts = parts(&[Usable, Usable, Disturbed, Aftermath, Usable, Usable]);
        let usable: Vec<bool> = (0..7).map(|part| parts.is_usable(part)).collect();
        // The transient never counts, and the drain does if it is usable.
        assert_eq!(usable, [false, true, false, false, true, true, false]);
        let flow: Vec<bool> = (0..7).map(|part| parts.shows_flow(part)).collect();
        assert_eq!(flow, [false, true, false, true, true, false, false]);
        assert!((parts.share() - 0.5).abs() < 1e-9);
        assert!(!parts.is_whole() && !parts.is_enough());
    }

    #[test]
    fn a_drain_after_a_disturbance_does_not_count() {
        let parts = parts(&[Usable, Usable, Usable, Disturbed, Aftermath]);
        assert!(parts.is_usable(2) && !parts.is_usable(4));
        assert!(!parts.is_whole(), "the drain is not usable");
    }

    #[test]
    fn lost_time_does_not_explain_an_overload() {
        let part = PartLoss {
            seconds: 0.1,
            lost_s: Some(0.05),
        };
        let parts = UsableParts::new(&[part; 10], vec![Disturbed; 10], 0..10);
        // The server could answer 500/s in half of the time.
        let flow = |answered_per_s, growth_per_s| TrialFlow {
            answered: AnsweredRate {
                per_s: answered_per_s,
                error_per_s: 5.0,
                seconds: 1.0,
            },
            growth_per_s,
            growth_error_per_s: 5.0,
        };
        let explained = parts.without_losses(400.0, flow(250.0, 150.0));
        assert!(explained.answered.per_s >= 400.0 && explained.growth_per_s <= 0.0);
        let overload = parts.without_losses(1_000.0, flow(250.0, 750.0));
        assert_eq!(
            (overload.answered.per_s, overload.growth_per_s),
            (750.0, 250.0)
        );
    }

    #[test]
    fn an_overloaded_server_misses_even_if_nothing_is_usable() {
        for is_met in [false, true] {
            assert_eq!(trial_outcome(false, is_met, false), TrialOutcome::Miss);
            assert_eq!(trial_outcome(false, is_met, true), TrialOutcome::Miss);
            assert_eq!(trial_outcome(true, is_met, false), TrialOutcome::Void);
        }
        assert_eq!(trial_outcome(true, true, true), TrialOutcome::Pass);
        assert_eq!(trial_outcome(true, false, true), TrialOutcome::Miss);
    }
}
