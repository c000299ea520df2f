//! Folds crash rounds into a result per trial.

use floodmark_record::Counts;
use floodmark_record::crash::{
    CrashBegan, CrashLoss, CrashResult, CrashRound, CrashSettings, RecoveryTimes,
};
use floodmark_record::plan::Check;
use floodmark_stats::attempts::median;
use floodmark_stats::crash::upper_bound;
use floodmark_stats::estimate::CONFIDENCE;

/// The crash rounds of one trial.
#[derive(Debug)]
pub struct CrashEvents {
    /// Start of the first round. After a resumption, `first_number` is from the last resumption.
    pub began: CrashBegan,
    /// The complete rounds.
    pub rounds: Vec<CrashRound>,
}

impl CrashEvents {
    /// Adds the start of a trial's rounds. A resumed trial starts again.
    pub fn begin(all: &mut Vec<Self>, began: CrashBegan) {
        let mut trials = all.iter_mut();
        match trials.find(|trial| trial.began.trial == began.trial) {
            Some(trial) => trial.began.first_number = began.first_number,
            None => all.push(CrashEvents {
                began,
                rounds: Vec::new(),
            }),
        }
    }

    /// Returns the number of the first request after the last complete round or resumption.
    pub fn first_number(&self) -> u64 {
        let last = self
            .rounds
            .last()
            .map_or(0, |round| round.state.next_number);
        self.began.first_number.max(last)
    }

    /// Adds a round to its trial.
    pub fn add(all: &mut [Self], round: CrashRound) {
        let mut trials = all.iter_mut();
        if let Some(trial) = trials.find(|trial| trial.began.trial == round.trial) {
            trial.rounds.push(round);
        }
    }

    /// Returns the result of the rounds.
    pub fn result(self, settings: &CrashSettings) -> CrashResult {
        let (began, rounds) = (self.began, self.rounds);
        let mut requests = Counts::default();
        rounds
            .iter()
            .for_each(|round| requests.merge(&round.counts));
        let sum = |of: fn(&CrashRound) -> u64| rounds.iter().map(of).sum();
        let inconclusive = rounds.iter().filter(|round| round.found.is_inconclusive());
        let inconclusive = inconclusive.count();
        let conclusive = (rounds.len() - inconclusive) as u64;
        let losses: Vec<CrashLoss> = rounds.iter().filter_map(loss_of).collect();
        CrashResult {
            check: began.plan.check.as_ref().map_or("", Check::name).to_owned(),
            kill: settings.kill,
            signal: settings.signal,
            rounds_requested: settings.rounds,
            rounds: rounds.len() as u32,
            inconclusive: inconclusive as u32,
            lost: losses.len() as u32,
            upper_bound: upper_bound(losses.len() as u64, conclusive),
            confidence: CONFIDENCE,
            first_ok: recovery_times(rounds.iter().map(|round| round.first_ok_ns)),
            full_speed: recovery_times(rounds.iter().map(|round| round.full_speed_ns)),
            requests,
            acknowledged: sum(|round| round.found.acknowledged),
            unknown: sum(|round| round.found.unknown),
            losses,
            trial: began.trial,
            system: began.system,
            workload: began.workload,
            plan: began.plan,
            place: began.place,
        }
    }
}

fn loss_of(round: &CrashRound) -> Option<CrashLoss> {
    let found = &round.found;
    (!found.violations.is_empty()).then(|| CrashLoss {
        round: round.round,
        signaled_s: round.signaled_ns as f64 / 1e9,
        acknowledged: found.acknowledged,
        unknown: found.unknown,
        recovered: found.recovered,
        violations: found.violations.clone(),
        history: found.history.clone(),
        responses: round.responses.clone(),
    })
}

fn recovery_times(ns: impl Iterator<Item = Option<u64>>) -> RecoveryTimes {
    let mut known: Vec<f64> = ns.flatten().map(|ns| ns as f64 / 1e6).collect();
    known.sort_unstable_by(f64::total_cmp);
    RecoveryTimes {
        count: known.len() as u32,
        min_ms: known.first().copied(),
        median_ms: (!known.is_empty()).then(|| median(&known)),
        max_ms: known.last().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summarizes_known_times() {
        assert_eq!(
            recovery_times([None, None].into_iter()),
            RecoveryTimes::default()
        );
        let times = [Some(4_000_000), None, Some(1_000_000), Some(2_000_000)];
        let odd = recovery_times(times.into_iter());
        assert_eq!((odd.count, odd.median_ms), (3, Some(2.0)));
        assert_eq!((odd.min_ms, odd.max_ms), (Some(1.0), Some(4.0)));
        let even = recovery_times([Some(1_000_000), Some(2_000_000)].into_iter());
        assert_eq!(even.median_ms, Some(1.5));
    }
}
