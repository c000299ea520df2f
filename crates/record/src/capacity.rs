//! The search for a server's capacity: its trials and its result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::events::RunId;
use crate::interval::Interval;
use crate::reason::Worded;
use crate::run::Run;

/// Start of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityBegan {
    /// The server process under load. Its attempt number is always 0.
    pub run: RunId,
    /// Settings of the search.
    pub settings: CapacityPlan,
}

/// Settings of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityPlan {
    /// Objectives that the server must meet, as given.
    pub objectives: Vec<String>,
    /// First rate to try, in requests per second.
    pub start_per_s: f64,
    /// Lowest rate to try, in requests per second.
    pub lowest_per_s: f64,
    /// Highest rate to try, in requests per second.
    pub highest_per_s: f64,
    /// Half-width of the interval at which the search ends, as a share of the capacity.
    pub precision: f64,
    /// Maximum length of the search in seconds.
    pub budget_s: f64,
    /// Rate that the server answered in the closed model; null in records from older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<AnsweredRate>,
}

/// A rate of responses, measured in a period of at least 1 s.
///
/// A request counts as answered if it got an ok response. Unless an objective limits the share of
/// requests that are not ok, unexpected responses count, too. If an objective does, the rate is
/// divided by the share that must be ok, so that it can be compared with offered rates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnsweredRate {
    /// Answered requests per second.
    pub per_s: f64,
    /// Standard error of the rate, in requests per second.
    pub error_per_s: f64,
    /// Length of the period in seconds.
    pub seconds: f64,
}

/// How the requests in flight changed during the evaluated period of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialFlow {
    /// Rate that the server answered.
    pub answered: AnsweredRate,
    /// Growth of the number of requests in flight, in requests per second. Requests that wait for a
    /// connection are in flight.
    pub growth_per_s: f64,
    /// Standard error of the growth, in requests per second.
    pub growth_error_per_s: f64,
}

/// The share of requests that are slow or failed, compared with the share that an objective allows.
///
/// If the objective limits a time, requests are slow if they exceed the middle between the response
/// time without a queue and the limit. If waiting times are exponential, the share beyond the middle
/// is the square root of the share beyond the limit, so it can be measured in less time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TailShare {
    /// Share of requests, from 0 to 1.
    pub share: f64,
    /// Standard error of the share, which allows for the correlation between requests.
    pub error: f64,
    /// Share that corresponds to the limit of the objective.
    pub allowed: f64,
}

/// Search for the capacity of each server process of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityGoal {
    /// Objectives that the servers must meet, as given.
    pub objectives: Vec<String>,
    /// Maximum length of each search in seconds.
    pub budget_s: f64,
}

/// What a trial showed about the objectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// All objectives were met, and the server kept up with the requests.
    Pass,
    /// An objective was missed, or the server did not keep up.
    Miss,
    /// The client could not send the requests on time, so the trial says nothing about the server.
    Void,
}

/// Why a trial has its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialPurpose {
    /// To find a rate that passes and one that misses.
    Bracket,
    /// To narrow the interval.
    Narrow,
    /// To check a bound of the interval.
    Confirm,
    /// To find the highest rate at which the client can send on time.
    ClientLimit,
    /// To prove that the server sustains a rate for longer than the other trials.
    Prove,
}

/// State of the server when a trial starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialStart {
    /// No request is in flight.
    Idle,
    /// The rate falls from an overload to the rate of the trial, without a pause.
    Overload,
}

/// One trial of a search: an offered rate, and whether the server met the objectives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityTrial {
    /// Offered rate in requests per second.
    pub rate_per_s: f64,
    /// Why the trial has this rate.
    pub purpose: TrialPurpose,
    /// State of the server at the start.
    pub start: TrialStart,
    /// Start of the trial in seconds since the start of the search.
    pub at_s: f64,
    /// Length of the period at the start whose requests are not evaluated, in seconds.
    pub transient_s: f64,
    /// Length of the period whose requests are evaluated, in seconds.
    pub judged_s: f64,
    /// Evaluated length that the precision of the percentile requires, in seconds, if it is longer
    /// than the budget allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_s: Option<f64>,
    /// Result of the trial.
    pub outcome: TrialOutcome,
    /// Whether the server kept up; null in records from older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<TrialFlow>,
    /// Shares of requests that are slow or failed according to the strictest objective: beyond the
    /// middle, and beyond the limit. Empty unless the trial tries to prove its rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<TailShare>,
    /// Why the trial is void; null otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Worded>,
    /// Figure of each objective, in order.
    pub figures: Vec<ObjectiveFigure>,
    /// Ok responses per second.
    pub throughput_per_s: Option<f64>,
    /// Share of requests that were due but not ok.
    pub error_share: Option<f64>,
    /// Median response time in microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of the response time in microseconds; null if it falls among timeouts.
    pub p99_us: Option<f64>,
    /// Number of requests that carry as much information as one independent request; null if
    /// unknown.
    pub design_effect: Option<f64>,
    /// CPUs that the server used; null if unknown.
    pub server_cpus: Option<f64>,
    /// Share of the time in which the server's CPUs were at least 10 % slower than usual; null if
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_cpu_share: Option<f64>,
}

/// Minimum share of the time with slow CPUs for which a trial counts as disturbed. At a rate close
/// to the capacity, a few slow milliseconds delay more than 1 % of the requests.
const LEAST_SLOW_SHARE: f64 = 0.02;

impl CapacityTrial {
    /// Returns the evaluated time as a share of the time that the precision requires, at most 1.
    #[must_use]
    pub fn share_of_required(&self) -> f64 {
        let required_s = self.required_s.unwrap_or(self.judged_s);
        (self.judged_s / required_s).min(1.0)
    }

    /// Returns whether slow CPUs may have made the trial miss its objectives. Even CPUs that stop
    /// while they are slow reduce the throughput by at most the slow share. A server that falls
    /// further behind is overloaded.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        let throughput = self.throughput_per_s.unwrap_or(0.0);
        let behind = 1.0 - throughput / self.rate_per_s;
        self.slow_cpu_share
            .is_some_and(|share| share >= LEAST_SLOW_SHARE && behind <= share)
    }

    /// Returns the figures of the objectives that were missed.
    pub fn missed(&self) -> impl Iterator<Item = &ObjectiveFigure> {
        self.figures.iter().filter(|figure| !figure.is_met)
    }
}

/// A figure of a trial and its objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectiveFigure {
    /// Objective as given.
    pub objective: String,
    /// Measured figure with its unit.
    pub figure: String,
    /// Measured figure in the unit of the objective: microseconds, or a share from 0 to 1. Null if
    /// it was not measured or falls among timeouts.
    pub value: Option<f64>,
    /// Limit in microseconds for an objective on a time; absent otherwise, and in records of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_us: Option<f64>,
    /// Whether the objective was met.
    pub is_met: bool,
}

/// End of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityEnded {
    /// Length of the search in seconds, including earlier parts of a resumed search.
    pub elapsed_s: f64,
    /// Why the search ended.
    pub reason: CapacityEnd,
    /// Remarks about the search.
    pub notes: Vec<String>,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapacityEnd {
    /// The result is as precise as requested.
    Settled,
    /// The budget was used up.
    Budget,
    /// The maximum number of trials was reached.
    Trials,
    /// The search was interrupted. It can be resumed.
    Interrupted,
    /// A trial failed, or the server exited.
    Failed,
}

/// Result of a search for the capacity: the highest rate at which the server meets every objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityResult {
    /// Name of the trial of the experiment; null outside experiments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// Number of the server process, starting at 1.
    pub process: u32,
    /// Settings of the search.
    pub settings: CapacityPlan,
    /// What the trials show.
    pub finding: CapacityKind,
    /// Capacity in requests per second; null if unknown. With a `bound`, the capacity is at least or
    /// at most this rate.
    pub rate_per_s: Option<f64>,
    /// Lower bound of the interval, in requests per second; null without an interval.
    pub low: Option<f64>,
    /// Upper bound of the interval, in requests per second; null without an interval.
    pub high: Option<f64>,
    /// Confidence level of the interval, such as 0.95.
    pub level: f64,
    /// Whether `rate_per_s` is only a bound of the capacity; null if it is an estimate.
    pub bound: Option<CapacityBound>,
    /// Highest rate that the server answered during the search, in requests per second. Among the
    /// rates of the result, only `high` may exceed it, by its counting error. Null in records from
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_per_s: Option<f64>,
    /// Highest rate that a long trial proved, in requests per second, if the other trials were
    /// shorter than the percentile requires. Rates between it and `high` are extrapolated. Null if
    /// all trials were long enough, or if no rate was proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proved_per_s: Option<f64>,
    /// Capacity after an overload, if it is lower than `rate_per_s`; null otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub falling: Option<FallingCapacity>,
    /// Capacity at the last trial in requests per second, if it changed during the search.
    /// `rate_per_s` is then the capacity at the first trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_per_s: Option<f64>,
    /// Standard deviation of the capacity from trial to trial, as a share of the capacity; null if
    /// unknown.
    pub scatter: Option<f64>,
    /// Whether fresh trials at both bounds of the interval agreed with the interval.
    pub is_confirmed: bool,
    /// How the search ended; null if floodmark died.
    pub end: Option<CapacityEnded>,
    /// The trials, in order.
    pub trials: Vec<CapacityTrial>,
    /// The loads after the search, at rates around the capacity, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<CapacityLevel>,
}

/// A load after a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityLevel {
    /// Number of the attempt.
    pub attempt: u32,
    /// Offered rate in requests per second.
    pub rate_per_s: f64,
    /// What the load showed about the objectives.
    pub outcome: TrialOutcome,
}

impl CapacityResult {
    /// Returns the load after the search that a run belongs to, or `None` if the run is not such a
    /// load.
    #[must_use]
    pub fn level_of(&self, run: &Run) -> Option<&CapacityLevel> {
        let is_own = self.trial == run.trial && self.process == run.process;
        let mut levels = self.levels.iter().filter(|_| is_own);
        levels.find(|level| level.attempt == run.attempt)
    }

    /// Returns whether a load after the search missed an objective, but another load at the same
    /// rate met all of them.
    #[must_use]
    pub fn is_refuted(&self, level: &CapacityLevel) -> bool {
        let refutes = |other: &CapacityLevel| {
            other.outcome == TrialOutcome::Pass && other.rate_per_s == level.rate_per_s
        };
        level.outcome == TrialOutcome::Miss && self.levels.iter().any(refutes)
    }

    /// Returns the lowest rate, in requests per second, at which two loads after the search missed
    /// an objective. One miss can be chance.
    #[must_use]
    pub fn missed_level_per_s(&self) -> Option<f64> {
        let misses = self.levels.iter();
        let misses = misses.filter(|level| level.outcome == TrialOutcome::Miss);
        let rates = misses.map(|level| level.rate_per_s);
        let is_repeated = |per_s: &f64| rates.clone().filter(|other| other == per_s).count() > 1;
        rates.clone().filter(is_repeated).reduce(f64::min)
    }

    /// Returns the interval of the capacity, if there is one.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        self.interval_of(self.low, self.high)
    }

    /// Returns the capacity that remains after an overload, with its interval if there is one.
    /// Returns `None` if the capacity is unknown, changed during the search, or is only a bound.
    #[must_use]
    pub fn sustained(&self) -> Option<(f64, Option<Interval>)> {
        match (self.finding, &self.falling) {
            (CapacityKind::Capacity, _) => Some((self.rate_per_s?, self.interval())),
            (CapacityKind::Hysteresis, Some(of)) => {
                Some((of.rate_per_s, self.interval_of(of.low, of.high)))
            }
            _ => None,
        }
    }

    fn interval_of(&self, low: Option<f64>, high: Option<f64>) -> Option<Interval> {
        Some(Interval {
            low: low?,
            high: high?,
            confidence: self.level,
            method: "posterior of the capacity".to_owned(),
        })
    }
}

/// Capacity of a server that does not recover from an overload at its usual capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FallingCapacity {
    /// Highest rate at which the server recovers, in requests per second.
    pub rate_per_s: f64,
    /// Lower bound of the interval, in requests per second; null without an interval.
    pub low: Option<f64>,
    /// Upper bound of the interval, in requests per second; null without an interval.
    pub high: Option<f64>,
}

/// Capacity of an experiment's trial, computed from its server processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialCapacity {
    /// Name of the trial.
    pub trial: String,
    /// Geometric mean over server processes, in requests per second; null if no process has a
    /// capacity. With hysteresis, the capacity after an overload counts.
    pub rate_per_s: Option<f64>,
    /// Interval over server processes, or over the trials of a single process; null if unknown.
    pub interval: Option<Interval>,
    /// Number of server processes with a capacity.
    pub processes: u32,
    /// Number of server processes whose capacity changed or is known only as a bound.
    pub bounded: u32,
}

/// What the trials of a search show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapacityKind {
    /// One capacity.
    Capacity,
    /// A lower capacity after an overload.
    Hysteresis,
    /// The capacity changed during the search.
    NotStationary,
    /// The client cannot send requests on time at a higher rate.
    ClientLimit,
    /// The server met every objective at the highest rate of the settings.
    AboveHighest,
    /// The server missed an objective even at the lowest rate.
    Never,
    /// The search ended before it had found both a lower and an upper bound.
    Unfinished,
}

/// Direction of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapacityBound {
    /// The capacity is at least the rate.
    Lower,
    /// The capacity is below the rate.
    Upper,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(throughput_per_s: f64, slow_cpu_share: Option<f64>) -> CapacityTrial {
        CapacityTrial {
            rate_per_s: 1_000.0,
            purpose: TrialPurpose::Narrow,
            start: TrialStart::Idle,
            at_s: 10.0,
            transient_s: 0.2,
            judged_s: 1.0,
            required_s: None,
            outcome: TrialOutcome::Miss,
            flow: None,
            tail: Vec::new(),
            fault: None,
            figures: Vec::new(),
            throughput_per_s: Some(throughput_per_s),
            error_share: None,
            p50_us: None,
            p99_us: None,
            design_effect: None,
            server_cpus: None,
            slow_cpu_share,
        }
    }

    #[test]
    fn slow_cpus_explain_a_small_backlog() {
        assert!(trial(960.0, Some(0.05)).is_disturbed());
        assert!(!trial(940.0, Some(0.05)).is_disturbed());
        assert!(!trial(1_000.0, Some(0.01)).is_disturbed());
        assert!(!trial(1_000.0, None).is_disturbed());
    }
}
