//! The searches for the two capacities of a server: one for a load that rises from idle, and one
//! for a load that falls from an overload. The second search runs only if a test shows that the
//! server does not recover from an overload.

use floodmark_record::capacity::{
    CapacityBound, CapacityKind, CapacityPlan, CapacityResult, CapacityTrial, FallingCapacity,
    TrialFlow, TrialOutcome, TrialPurpose, TrialStart,
};
use floodmark_stats::capacity::{
    CapacityEstimate, CapacityFinding, CapacityLimit, CapacitySearch, CapacitySettings,
    CapacityStep, Ceiling, ProofPower, ProofTrial, Proofs,
};

/// Maximum number of trials in one search.
pub const MOST_TRIALS: usize = 200;

/// Rate of the first trial after an overload, as a share of the capacity. A healthy server with a
/// queue recovers slowly at rates close to its capacity.
pub const RECOVERY_SHARE: f64 = 0.9;

/// Rate that the client is known to sustain, as a share of the first rate. In the closed model, the
/// client has already sent at a higher rate.
const CERTAIN_SHARE: f64 = 0.25;

/// Rate of the overload that measures the ceiling, as a multiple of the highest answered rate so
/// far.
const SHORT_OVERLOAD: f64 = 1.5;

/// Ratio of the bounds of an interval above which short trials continue although a proof is needed.
const ROUGH: f64 = 1.1;

/// The state of both searches.
pub struct CapacitySearches {
    settings: CapacityPlan,
    /// All trials, in order, with the outcomes that follow from the current ceiling.
    trials: Vec<CapacityTrial>,
    ceiling: Ceiling,
    state: SearchState,
    /// Whether to run trials after an overload.
    tries_overload: bool,
}

/// Whether a long trial has to prove a lower bound, because the other trials are too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofState {
    /// All trials are long enough.
    Unneeded,
    /// A proof is needed, but has not been tried.
    Needed {
        /// Whether the interval of the short trials is still wide.
        is_rough: bool,
    },
    /// A proof is needed and has been tried.
    Tried {
        /// Whether a trial proved its rate.
        is_proved: bool,
    },
}

/// The part of the state that follows from the outcomes of the trials.
struct SearchState {
    rising: CapacitySearch,
    recovery: RecoveryTest,
    /// The second search, if the server does not recover.
    falling: Option<CapacitySearch>,
    proofs: Proofs,
    /// Whether a proof trial has run.
    proves: bool,
    /// Whether a trial that started from idle and has a measured flow was shorter than required.
    has_short_trials: bool,
    /// Longest judged time of such a trial, in seconds. Proof trials do not count.
    longest_s: f64,
    /// Smallest ratio of judged time to required time among the other trials: those after an
    /// overload, and those without a measured flow (such as trials from older versions).
    shortest_share: f64,
}

/// The next trial of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextTrial {
    /// State of the server at the start.
    pub start: TrialStart,
    /// Offered rate in requests per second.
    pub rate_per_s: f64,
    /// Why the trial has this rate.
    pub purpose: TrialPurpose,
}

impl CapacitySearches {
    /// Starts the searches. `tries_overload` is false if no overload can be sent.
    pub fn new(settings: &CapacityPlan, tries_overload: bool) -> Self {
        let mut ceiling = Ceiling::default();
        settings
            .closed
            .into_iter()
            .for_each(|closed| ceiling.add_answered(closed));
        CapacitySearches {
            trials: Vec::new(),
            ceiling,
            state: SearchState::new(settings),
            settings: settings.clone(),
            tries_overload,
        }
    }

    /// Returns whether the server sustains a trial that has not been recorded yet.
    pub fn sustains(&self, rate_per_s: f64, flow: &TrialFlow) -> bool {
        let mut ceiling = self.ceiling.clone();
        ceiling.add_trial(rate_per_s, flow);
        ceiling.sustains(rate_per_s, flow)
    }

    /// Records a trial. A trial can change the outcome of earlier trials, because it can show that
    /// the server does not sustain their rates.
    pub fn record(&mut self, trial: &CapacityTrial) {
        // In a void trial, the client may have limited the answered rate.
        let is_void = trial.outcome == TrialOutcome::Void;
        if let Some(flow) = trial.flow.as_ref().filter(|_| !is_void) {
            self.ceiling.add_trial(trial.rate_per_s, flow);
        }
        self.trials.push(trial.clone());
        let ceiling = &self.ceiling;
        let mut is_changed = false;
        for trial in &mut self.trials {
            let outcome = outcome(trial, ceiling);
            is_changed |= outcome != trial.outcome;
            trial.outcome = outcome;
        }
        if is_changed {
            self.state = SearchState::new(&self.settings);
            for trial in &self.trials {
                self.state.record(trial, &self.settings);
            }
        } else {
            self.state.record(trial, &self.settings);
        }
    }

    /// Returns the next trial of the search with a load that rises from idle, or `None` if this
    /// search has ended.
    pub fn next_rising(&self) -> Option<NextTrial> {
        next_trial(TrialStart::Idle, self.state.rising.next())
    }

    /// Returns whether a long trial has to prove a lower bound.
    pub fn proofs(&self) -> ProofState {
        let state = &self.state;
        if state.proves {
            let is_proved = state.proofs.proved_per_s(&self.ceiling).is_some();
            return ProofState::Tried { is_proved };
        }
        if !self.needs_proof() {
            return ProofState::Unneeded;
        }
        let is_rough = |of: CapacityEstimate| of.interval.high > ROUGH * of.interval.low;
        ProofState::Needed {
            is_rough: self.estimate().is_none_or(is_rough),
        }
    }

    /// Returns whether the trials are too short: for the precision of the objective, or for the
    /// queue to reach its steady state. Stays true after a proof trial.
    fn needs_proof(&self) -> bool {
        let state = &self.state;
        if state.proves || state.has_short_trials {
            return true;
        }
        let is_near_ceiling = |of: CapacityEstimate| {
            let gap = self.ceiling.gap_per_s(state.longest_s);
            let most = self.ceiling.answered_per_s().zip(gap);
            most.is_some_and(|(most, gap)| of.rate_per_s > most - gap)
        };
        state.longest_s > 0.0 && self.estimate().is_some_and(is_near_ceiling)
    }

    /// Returns an overload that measures the ceiling, if a proof needs it, the server kept up with
    /// every trial, and no trial had such a rate.
    pub fn next_overload(&self) -> Option<NextTrial> {
        let most = self.ceiling.answered_per_s()?;
        let rate_per_s = SHORT_OVERLOAD * most;
        let is_tried = |trial: &CapacityTrial| trial.rate_per_s >= 0.99 * rate_per_s;
        let is_needed = self.ceiling.reached_per_s().is_none()
            && self.needs_proof()
            && !self.trials.iter().any(is_tried);
        is_needed.then_some(NextTrial {
            start: TrialStart::Idle,
            rate_per_s,
            purpose: TrialPurpose::Bracket,
        })
    }

    /// Returns the next proof trial, if one is needed and possible.
    pub fn next_proof(&self, power: ProofPower) -> Option<NextTrial> {
        let proofs = &self.state.proofs;
        let finding = self.ceiling.limit(self.state.rising.finding());
        let rate_per_s = proofs.next(&finding, &self.ceiling, power);
        let rate_per_s = rate_per_s.filter(|_| self.needs_proof())?;
        Some(NextTrial {
            start: TrialStart::Idle,
            rate_per_s: rate_per_s.max(self.settings.lowest_per_s),
            purpose: TrialPurpose::Prove,
        })
    }

    /// Returns the next trial that follows an overload, or `None` if no more are needed.
    pub fn next_after_overload(&self) -> Option<NextTrial> {
        if let Some(falling) = &self.state.falling {
            return next_trial(TrialStart::Overload, falling.next());
        }
        let CapacityFinding::Capacity(found) = self.finding() else {
            return None;
        };
        let is_undecided = self.state.recovery.decision() == RecoveryDecision::Undecided;
        (self.tries_overload && is_undecided).then_some(NextTrial {
            start: TrialStart::Overload,
            rate_per_s: RECOVERY_SHARE * found.interval.low,
            purpose: TrialPurpose::Confirm,
        })
    }

    /// Returns the current estimate of the capacity, in requests per second, if at least one trial
    /// has met the objectives and at least one has missed them.
    pub fn estimate(&self) -> Option<CapacityEstimate> {
        match self.ceiling.limit(self.state.rising.finding()) {
            CapacityFinding::Capacity(found) => Some(found),
            CapacityFinding::Hysteresis { rising, .. } => Some(rising),
            _ => None,
        }
    }

    /// Returns the finding for a load that rises from idle, limited by the ceiling. If the trials
    /// are too short, the lower bound of a capacity is a proved rate.
    fn finding(&self) -> CapacityFinding {
        let state = &self.state;
        let finding = self.ceiling.limit(state.rising.finding());
        let finding = finding.with_short_trials(state.shortest_share);
        if self.needs_proof() {
            // Without a proof, the upper end of the interval becomes the rate, which must not
            // exceed the ceiling.
            self.ceiling
                .limit(state.proofs.limit(finding, &self.ceiling))
        } else {
            finding
        }
    }

    /// Returns the trials, with the outcomes that follow from all of them.
    pub fn trials(&self) -> &[CapacityTrial] {
        &self.trials
    }

    /// Adds the finding from the trials so far to a result that has no finding yet.
    pub fn add_finding(&self, result: &mut CapacityResult) {
        result.answered_per_s = self.ceiling.answered_per_s();
        result.finding = add_rising(self.finding(), result);
        let proved_per_s = self.state.proofs.proved_per_s(&self.ceiling);
        result.proved_per_s = proved_per_s.and(result.low).filter(|_| self.needs_proof());
        if let Some(falling) = &self.state.falling {
            result.finding = CapacityKind::Hysteresis;
            let lowest_per_s = self.settings.lowest_per_s;
            let finding = self.ceiling.limit(falling.finding());
            let finding = finding.with_short_trials(self.state.shortest_share);
            result.falling = Some(falling_capacity(finding, lowest_per_s));
        }
    }
}

impl SearchState {
    fn new(settings: &CapacityPlan) -> Self {
        SearchState {
            rising: CapacitySearch::new(
                settings.start_per_s,
                search_settings(settings, settings.highest_per_s),
            ),
            recovery: RecoveryTest::new(),
            falling: None,
            proofs: Proofs::default(),
            proves: false,
            has_short_trials: false,
            longest_s: 0.0,
            shortest_share: 1.0,
        }
    }

    /// Records a trial.
    fn record(&mut self, trial: &CapacityTrial, settings: &CapacityPlan) {
        let (rate_per_s, is_disturbed) = (trial.rate_per_s, trial.is_disturbed());
        let share = trial.share_of_required();
        if trial.purpose == TrialPurpose::Prove {
            self.proves = true;
            let is_pass = trial.outcome == TrialOutcome::Pass;
            // A void trial or a disturbed miss is no evidence against its rate.
            if is_pass || trial.outcome == TrialOutcome::Miss && !is_disturbed {
                self.proofs.record(ProofTrial {
                    rate_per_s,
                    judged_s: trial.judged_s,
                    is_pass,
                    tail: trial.tail.clone(),
                });
            }
        } else if trial.flow.is_some() && trial.start == TrialStart::Idle {
            self.has_short_trials |= share < 1.0;
            self.longest_s = self.longest_s.max(trial.judged_s);
        } else {
            self.shortest_share = self.shortest_share.min(share);
        }
        match (trial.start, &mut self.falling) {
            (TrialStart::Idle, _) => self.rising.record(rate_per_s, trial.outcome, is_disturbed),
            (TrialStart::Overload, Some(falling)) => {
                falling.record(rate_per_s, trial.outcome, is_disturbed);
            }
            (TrialStart::Overload, None) => {
                self.recovery.record(trial.outcome, is_disturbed);
                if self.recovery.decision() == RecoveryDecision::Failed {
                    let settings = search_settings(settings, rate_per_s);
                    self.falling = Some(CapacitySearch::new(0.8 * rate_per_s, settings));
                }
            }
        }
    }
}

/// Returns the outcome of a trial, given the highest rate that the server answered in any load.
fn outcome(trial: &CapacityTrial, ceiling: &Ceiling) -> TrialOutcome {
    match &trial.flow {
        Some(flow) if trial.outcome != TrialOutcome::Void => {
            let is_met = trial.missed().next().is_none();
            if is_met && ceiling.sustains(trial.rate_per_s, flow) {
                TrialOutcome::Pass
            } else {
                TrialOutcome::Miss
            }
        }
        _ => trial.outcome,
    }
}

fn next_trial(start: TrialStart, step: CapacityStep) -> Option<NextTrial> {
    match step {
        CapacityStep::Trial {
            rate_per_s,
            purpose,
        } => Some(NextTrial {
            start,
            rate_per_s,
            purpose,
        }),
        CapacityStep::Done(_) => None,
    }
}

fn search_settings(settings: &CapacityPlan, highest_per_s: f64) -> CapacitySettings {
    CapacitySettings {
        lowest_per_s: settings.lowest_per_s,
        highest_per_s,
        certain_per_s: CERTAIN_SHARE * settings.start_per_s,
        precision: settings.precision,
        most_trials: MOST_TRIALS,
    }
}

/// Adds to `result` the figures of the search that starts from idle. Returns the kind of the
/// finding.
fn add_rising(finding: CapacityFinding, result: &mut CapacityResult) -> CapacityKind {
    let mut add_estimate = |found: &CapacityEstimate| {
        result.rate_per_s = Some(found.rate_per_s);
        result.low = Some(found.interval.low);
        result.high = Some(found.interval.high);
        result.scatter = Some(found.scatter);
        result.is_confirmed = found.is_confirmed;
    };
    match finding {
        CapacityFinding::Capacity(found) => {
            add_estimate(&found);
            CapacityKind::Capacity
        }
        CapacityFinding::Hysteresis { rising, falling } => {
            add_estimate(&rising);
            let falling = CapacityFinding::Capacity(falling);
            result.falling = Some(falling_capacity(falling, 0.0));
            CapacityKind::Hysteresis
        }
        CapacityFinding::NotStationary {
            first_per_s,
            last_per_s,
        } => {
            result.rate_per_s = Some(first_per_s);
            result.last_per_s = Some(last_per_s);
            CapacityKind::NotStationary
        }
        CapacityFinding::AtLeast { rate_per_s, limit } => {
            result.rate_per_s = Some(rate_per_s);
            result.bound = Some(CapacityBound::Lower);
            match limit {
                CapacityLimit::Client => CapacityKind::ClientLimit,
                CapacityLimit::Settings => CapacityKind::AboveHighest,
                CapacityLimit::Unfinished => CapacityKind::Unfinished,
            }
        }
        CapacityFinding::Below {
            rate_per_s,
            is_lowest,
        } => {
            result.rate_per_s = Some(rate_per_s);
            result.bound = Some(CapacityBound::Upper);
            if is_lowest {
                CapacityKind::Never
            } else {
                CapacityKind::Unfinished
            }
        }
        CapacityFinding::Unknown => CapacityKind::Unfinished,
    }
}

/// Returns the capacity that the search after an overload found. `lowest_per_s` is the lowest rate
/// that the search may try.
fn falling_capacity(finding: CapacityFinding, lowest_per_s: f64) -> FallingCapacity {
    let (rate_per_s, low, high) = match finding {
        CapacityFinding::Capacity(found) | CapacityFinding::Hysteresis { rising: found, .. } => {
            let interval = found.interval;
            (found.rate_per_s, Some(interval.low), Some(interval.high))
        }
        CapacityFinding::NotStationary { first_per_s, .. } => (first_per_s, None, None),
        CapacityFinding::AtLeast { rate_per_s, .. } => (rate_per_s, Some(rate_per_s), None),
        // The objectives were missed even at the lowest rate, or too few trials were possible.
        CapacityFinding::Below { rate_per_s, .. } => (rate_per_s, None, Some(rate_per_s)),
        CapacityFinding::Unknown => (lowest_per_s, None, None),
    };
    FallingCapacity {
        rate_per_s,
        low,
        high,
    }
}

/// Maximum number of trials after an overload that are run to decide whether the server recovers.
const MOST_RECOVERY_TRIALS: usize = 10;

/// Probability that a trial after an overload misses the objectives although the server recovers.
const MISS: f64 = 0.05;

/// The same probability for a disturbed trial. A disturbance also delays the recovery.
const DISTURBED_MISS: f64 = 0.5;

/// Minimum likelihood ratio at which the server is judged not to recover.
const DECISIVE: f64 = 100.0;

/// Outcome of the trials after an overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryDecision {
    /// More trials are necessary.
    Undecided,
    /// The server met the objectives in a trial after an overload.
    Recovered,
    /// The server does not recover at the request rate of the trials.
    Failed,
    /// Too many trials were void or disturbed.
    Unknown,
}

/// The trials after an overload that decide whether a second search is necessary.
#[derive(Debug)]
pub struct RecoveryTest {
    trials: usize,
    /// Probability of the misses if the server does not recover, divided by their probability if it
    /// recovers.
    ratio: f64,
    has_recovered: bool,
}

impl RecoveryTest {
    /// Returns a test that contains no trials yet.
    pub fn new() -> Self {
        RecoveryTest {
            trials: 0,
            ratio: 1.0,
            has_recovered: false,
        }
    }

    /// Records a trial.
    pub fn record(&mut self, outcome: TrialOutcome, is_disturbed: bool) {
        self.trials += 1;
        match outcome {
            TrialOutcome::Pass => self.has_recovered = true,
            TrialOutcome::Miss if is_disturbed => self.ratio /= DISTURBED_MISS,
            TrialOutcome::Miss => self.ratio /= MISS,
            TrialOutcome::Void => {}
        }
    }

    /// Returns the decision that the trials so far support.
    pub fn decision(&self) -> RecoveryDecision {
        match self {
            _ if self.has_recovered => RecoveryDecision::Recovered,
            _ if self.ratio >= DECISIVE => RecoveryDecision::Failed,
            _ if self.trials >= MOST_RECOVERY_TRIALS => RecoveryDecision::Unknown,
            _ => RecoveryDecision::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use TrialOutcome::{Miss, Pass, Void};
    use floodmark_record::capacity::AnsweredRate;

    use super::*;

    fn settings() -> CapacityPlan {
        CapacityPlan {
            objectives: vec!["p99 < 200ms".to_owned()],
            start_per_s: 360.0,
            lowest_per_s: 4.0,
            highest_per_s: 4e5,
            precision: 0.02,
            budget_s: 60.0,
            closed: Some(answered(400.0)),
        }
    }

    fn answered(per_s: f64) -> AnsweredRate {
        AnsweredRate {
            per_s,
            error_per_s: 1.0,
            seconds: 1.5,
        }
    }

    /// Returns a passed trial on a server that answers at most 400/s. At higher rates, the queue
    /// grows, but the trial ends before a request is slow.
    fn short_trial(rate_per_s: f64, growth_error_per_s: f64) -> CapacityTrial {
        let per_s = rate_per_s.min(400.0);
        CapacityTrial {
            rate_per_s,
            purpose: TrialPurpose::Narrow,
            start: TrialStart::Idle,
            at_s: 5.0,
            transient_s: 0.2,
            judged_s: 1.5,
            required_s: Some(68.0),
            outcome: Pass,
            flow: Some(TrialFlow {
                answered: AnsweredRate {
                    error_per_s: growth_error_per_s,
                    ..answered(per_s)
                },
                growth_per_s: rate_per_s - per_s,
                growth_error_per_s,
            }),
            tail: Vec::new(),
            fault: None,
            figures: Vec::new(),
            throughput_per_s: Some(per_s),
            error_share: None,
            p50_us: None,
            p99_us: None,
            design_effect: None,
            server_cpus: None,
            slow_cpu_share: None,
        }
    }

    #[test]
    fn an_overload_changes_the_outcome_of_earlier_trials() {
        let mut searches = CapacitySearches::new(&settings(), false);
        searches.record(&short_trial(360.0, 10.0));
        searches.record(&short_trial(424.0, 10.0));
        let outcomes = |searches: &CapacitySearches| {
            let trials = searches.trials().iter();
            trials.map(|trial| trial.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(&searches), [Pass, Pass]);
        searches.record(&short_trial(600.0, 2.0));
        assert_eq!(outcomes(&searches), [Pass, Miss, Miss]);
        assert!(searches.estimate().unwrap().rate_per_s <= 400.0);
    }

    #[test]
    fn a_void_trial_does_not_lower_the_ceiling() {
        let mut searches = CapacitySearches::new(&settings(), false);
        searches.record(&short_trial(360.0, 2.0));
        let mut late = short_trial(600.0, 2.0);
        late.outcome = Void;
        let flow = late.flow.as_mut().unwrap();
        (flow.answered.per_s, flow.growth_per_s) = (200.0, 400.0);
        searches.record(&late);
        let outcomes: Vec<_> = searches.trials().iter().map(|of| of.outcome).collect();
        assert_eq!(outcomes, [Pass, Void]);
    }

    #[test]
    fn short_trials_prove_nothing() {
        let mut searches = CapacitySearches::new(&settings(), false);
        for rate in [360.0, 424.0, 600.0, 390.0, 405.0, 395.0] {
            searches.record(&short_trial(rate, 2.0));
        }
        let CapacityFinding::Below { rate_per_s, .. } = searches.finding() else {
            panic!("{:?}", searches.finding());
        };
        assert!((390.0..=408.0).contains(&rate_per_s), "{rate_per_s}");
        let proof = CapacityTrial {
            purpose: TrialPurpose::Prove,
            judged_s: 11.0,
            required_s: None,
            ..short_trial(375.0, 2.0)
        };
        searches.record(&proof);
        let CapacityFinding::Capacity(found) = searches.finding() else {
            panic!("{:?}", searches.finding());
        };
        assert_eq!(found.interval.low, 375.0);
        assert!(found.rate_per_s <= 400.0, "{found:?}");
    }

    #[test]
    fn a_void_trial_refutes_no_rate() {
        let mut searches = CapacitySearches::new(&settings(), false);
        for rate in [360.0, 424.0, 600.0] {
            searches.record(&short_trial(rate, 2.0));
        }
        let power = ProofPower {
            allowed: 0.1,
            independent: 500.0,
            judged_s: 10.0,
        };
        let before = searches.next_proof(power).unwrap();
        let void = CapacityTrial {
            purpose: TrialPurpose::Prove,
            outcome: Void,
            flow: None,
            ..short_trial(before.rate_per_s, 2.0)
        };
        searches.record(&void);
        assert_eq!(searches.next_proof(power), Some(before));
    }

    /// Returns the decision and the number of trials before it.
    fn decided(outcomes: impl Iterator<Item = (TrialOutcome, bool)>) -> (RecoveryDecision, usize) {
        let mut test = RecoveryTest::new();
        for (outcome, is_disturbed) in outcomes {
            if test.decision() != RecoveryDecision::Undecided {
                break;
            }
            test.record(outcome, is_disturbed);
        }
        (test.decision(), test.trials)
    }

    #[test]
    fn two_clear_misses_decide() {
        let misses = std::iter::repeat((Miss, false));
        assert_eq!(decided(misses), (RecoveryDecision::Failed, 2));
    }

    #[test]
    fn a_server_on_a_disturbed_host_fails_after_more_misses() {
        let misses = std::iter::repeat((Miss, true));
        assert_eq!(decided(misses), (RecoveryDecision::Failed, 7));
        let last_passes = [(Miss, true); 6].into_iter().chain([(Pass, true)]);
        assert_eq!(decided(last_passes), (RecoveryDecision::Recovered, 7));
    }

    #[test]
    fn void_trials_decide_nothing() {
        let voids = std::iter::repeat((Void, false));
        assert_eq!(
            decided(voids),
            (RecoveryDecision::Unknown, MOST_RECOVERY_TRIALS)
        );
    }
}
