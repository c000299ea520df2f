//! A gate decides whether a candidate is worse than a baseline, based on pairs of server processes.
//! The two servers of a pair may be loaded alternately.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison::ComparedMetric;
use crate::events::EndReason;
use crate::interval::Interval;
use crate::outcome::Counts;
use crate::times::Times;

crate::names::named! {
    /// Decision of a gate.
    GateDecision {
        /// The interval excludes a degradation by the margin, and the measured degradation is less
        /// than half of the margin.
        Passed = "passed",
        /// The interval excludes 1, and the degradation is at least half of the margin.
        Failed = "failed",
        /// Two-sided: the interval excludes any difference by the margin, and the measured
        /// difference is less than half of the margin.
        Equivalent = "equivalent",
        /// Two-sided: the interval excludes 1, and the difference is at least half of the margin.
        Different = "different",
        /// The interval is too wide or missing.
        Inconclusive = "inconclusive",
    }

    /// How a gate ended.
    GateEnd {
        /// The interval led to a decision. With an alternating load, a caveat can make the decision
        /// inconclusive.
        Decided = "decided",
        /// The budget, or the maximum number of pairs, was used up.
        OutOfTime = "out-of-time",
        /// The gate was interrupted, or a server or worker failed.
        Interrupted = "interrupted",
    }
}

/// The rules of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRules {
    /// Name of the baseline trial.
    pub baseline: String,
    /// Name of the candidate trial.
    pub candidate: String,
    /// Metric to compare.
    pub metric: ComparedMetric,
    /// Smallest degradation (two-sided: difference in either direction) that the gate must detect,
    /// as a share of the baseline's figure.
    pub margin: f64,
    /// Time limit in seconds, excluding builds.
    pub budget_s: f64,
    /// Whether both servers of a pair run at the same time and are loaded alternately. Otherwise,
    /// they are measured one after the other.
    #[serde(default)]
    pub is_alternating: bool,
    /// Whether the gate also looks for improvements (`floodmark compare --baseline`). Otherwise,
    /// it looks only for degradations.
    #[serde(default)]
    pub is_two_sided: bool,
}

impl GateRules {
    /// Returns the ratio of the candidate's figure to the baseline's at which the candidate is
    /// worse by `degradation`, a share of the baseline's figure.
    #[must_use]
    pub fn ratio_at(&self, degradation: f64) -> f64 {
        if self.metric.figure().more_is_better() {
            1.0 - degradation
        } else {
            1.0 + degradation
        }
    }

    /// Returns the decision that follows from a ratio and its interval.
    ///
    /// The gate fails if the interval excludes 1, and passes if the interval excludes a degradation
    /// by the margin. If both apply, the gate fails if the degradation is at least half of the
    /// margin. A wrong pass and a wrong failure therefore each have at most half of the interval's
    /// error probability.
    ///
    /// A two-sided comparison applies the same rules to a difference in either direction.
    #[must_use]
    pub fn decide(&self, ratio: f64, interval: &Interval) -> GateDecision {
        if self.is_two_sided {
            return self.decide_two_sided(ratio, interval);
        }
        // Degradations are positive, whatever the direction of the metric.
        let sign = if self.metric.figure().more_is_better() {
            -1.0
        } else {
            1.0
        };
        let degradation = |ratio: f64| sign * (ratio - 1.0);
        let ends = [degradation(interval.low), degradation(interval.high)];
        let (least, most) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let is_large = degradation(ratio) >= self.margin / 2.0;
        if is_large && least > 0.0 {
            GateDecision::Failed
        } else if !is_large && most < self.margin {
            GateDecision::Passed
        } else {
            GateDecision::Inconclusive
        }
    }

    fn decide_two_sided(&self, ratio: f64, interval: &Interval) -> GateDecision {
        let is_large = (ratio - 1.0).abs() >= self.margin / 2.0;
        let excludes_one = interval.low > 1.0 || interval.high < 1.0;
        let is_within = interval.low > 1.0 - self.margin && interval.high < 1.0 + self.margin;
        if is_large && excludes_one {
            GateDecision::Different
        } else if !is_large && is_within {
            GateDecision::Equivalent
        } else {
            GateDecision::Inconclusive
        }
    }
}

/// Figures of a pair whose servers were loaded alternately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateTurns {
    /// Number of the server process, which is the same for both servers.
    pub process: u32,
    /// Mean planned length of a turn in seconds.
    pub turn_s: f64,
    /// Figures of the baseline.
    pub baseline: SideFigures,
    /// Figures of the candidate.
    pub candidate: SideFigures,
}

/// One server process of the baseline and one of the candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatePair {
    /// Number of the server process, which is the same for both servers.
    pub process: u32,
    /// Figure of the baseline in the metric's unit.
    pub baseline: f64,
    /// Figure of the candidate in the metric's unit.
    pub candidate: f64,
    /// Mean planned length of a turn in seconds; absent without an alternating load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_s: Option<f64>,
    /// Interval for the ratio after this pair; null for the first four pairs.
    pub interval: Option<Interval>,
}

impl GatePair {
    /// Returns the candidate's figure divided by the baseline's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.candidate / self.baseline
    }
}

/// Result of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateResult {
    /// The rules.
    pub rules: GateRules,
    /// The decision.
    pub decision: GateDecision,
    /// The candidate's figure divided by the baseline's: geometric mean over the pairs, trimmed by
    /// up to 25 % at each end; null without pairs.
    pub ratio: Option<f64>,
    /// Interval for the ratio, corrected for its repeated evaluation; null for fewer than five
    /// pairs.
    pub interval: Option<Interval>,
    /// The pairs in order.
    pub pairs: Vec<GatePair>,
    /// Maximum number of pairs within the budget, estimated from an early pair; null until then.
    pub max_pairs: Option<u32>,
    /// Complete pairs without a ratio, and the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Why the gate did not pass although its interval allows it, or why there are too few pairs;
    /// null otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
    /// How the gate ended.
    pub ended: GateEnd,
}

impl GateResult {
    /// Returns the number of complete pairs, with and without a ratio.
    #[must_use]
    pub fn complete_pairs(&self) -> u32 {
        (self.pairs.len() + self.excluded.len()) as u32
    }

    /// Returns whether the gate ended normally and has at least one pair with a ratio. Invalid runs
    /// then do not make the command fail.
    #[must_use]
    pub fn tolerates_invalid_runs(&self) -> bool {
        self.ended != GateEnd::Interrupted && !self.pairs.is_empty()
    }
}

/// Figures of one server, measured during its turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideFigures {
    /// Total length of the server's turns in seconds. A turn ends when all of its requests have an
    /// outcome.
    pub loaded_s: f64,
    /// Counts of requests.
    pub requests: Counts,
    /// Ok responses that met their deadline.
    pub good: u64,
    /// Response times.
    pub response_us: Times,
    /// Service times.
    pub service_us: Times,
}

impl SideFigures {
    /// Returns the metric's figure in its unit if the figure was measured and is positive and
    /// finite, otherwise `None`.
    #[must_use]
    pub fn figure(&self, metric: ComparedMetric) -> Option<f64> {
        let figure = metric.figure().of(self);
        figure.filter(|figure| figure.is_finite() && *figure > 0.0)
    }
}

/// Result of loading two servers alternately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlternatingEnd {
    /// Reason why the load ended.
    pub reason: EndReason,
    /// Mean planned length of a turn in seconds.
    pub turn_s: f64,
    /// Figures of the first server.
    pub first: SideFigures,
    /// Figures of the second server.
    pub second: SideFigures,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(metric: ComparedMetric) -> GateRules {
        GateRules {
            baseline: "a".to_owned(),
            candidate: "b".to_owned(),
            metric,
            margin: 0.05,
            budget_s: 90.0,
            is_alternating: false,
            is_two_sided: false,
        }
    }

    fn interval(low: f64, high: f64) -> Interval {
        Interval {
            low,
            high,
            confidence: 0.95,
            method: String::new(),
        }
    }

    #[test]
    fn a_two_sided_comparison_finds_differences_in_both_directions() {
        use GateDecision::{Different, Equivalent, Inconclusive};
        let rules = GateRules {
            is_two_sided: true,
            ..rules(ComparedMetric::P99)
        };
        for (ratio, low, high, decision) in [
            (1.0, 0.96, 1.04, Equivalent),
            (0.95, 0.91, 0.99, Different),
            (1.05, 1.01, 1.09, Different),
            // The interval excludes 1, but the difference is less than half of the margin.
            (0.98, 0.97, 0.99, Equivalent),
            (0.99, 0.94, 1.04, Inconclusive),
            (1.01, 0.96, 1.06, Inconclusive),
            (1.03, 0.99, 1.07, Inconclusive),
        ] {
            let decided = rules.decide(ratio, &interval(low, high));
            assert_eq!(decided, decision, "{ratio} {low}");
        }
    }

    #[test]
    fn decides_in_the_direction_of_the_metric() {
        let decide = |metric, ratio, low, high| rules(metric).decide(ratio, &interval(low, high));
        use GateDecision::{Failed, Inconclusive, Passed};
        for (ratio, low, high, rate, time) in [
            (1.0, 0.96, 1.04, Passed, Passed),
            (0.95, 0.91, 0.99, Failed, Passed),
            (1.05, 1.01, 1.09, Passed, Failed),
            // Certainly slower, but by less than half of the margin.
            (0.98, 0.97, 0.99, Passed, Passed),
            (0.97, 0.96, 0.98, Failed, Passed),
            (0.97, 0.93, 1.01, Inconclusive, Passed),
            (0.99, 0.94, 1.04, Inconclusive, Passed),
            (1.01, 0.96, 1.06, Passed, Inconclusive),
            (1.0, 0.90, 1.10, Inconclusive, Inconclusive),
        ] {
            let of = |metric| decide(metric, ratio, low, high);
            assert_eq!(of(ComparedMetric::Throughput), rate, "{ratio} {low}");
            assert_eq!(of(ComparedMetric::P99), time, "{ratio} {low}");
        }
    }
}
