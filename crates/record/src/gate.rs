//! A gate: decides whether a candidate is worse than a baseline, from pairs of server processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison::ComparedMetric;
use crate::run::Interval;

crate::names::named! {
    /// Decision of a gate.
    GateDecision {
        /// The candidate is not worse than the limit: the whole interval is better.
        Passed = "passed",
        /// The candidate is worse than the limit: the whole interval is worse.
        Failed = "failed",
        /// The interval contains the limit, or there is no interval.
        Inconclusive = "inconclusive",
    }

    /// How a gate ended.
    GateEnd {
        /// The interval decided.
        Decided = "decided",
        /// The budget was used up.
        OutOfTime = "out-of-time",
        /// The gate was interrupted, or a server or worker failed.
        Interrupted = "interrupted",
    }
}

/// The rules of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRules {
    /// Trial with the baseline.
    pub baseline: String,
    /// Trial with the candidate.
    pub candidate: String,
    /// Metric to compare.
    pub metric: ComparedMetric,
    /// Accepted degradation, as a share of the baseline's figure.
    pub tolerance: f64,
    /// Time limit in seconds, without the time for builds.
    pub budget_s: f64,
}

impl GateRules {
    /// Returns the ratio of candidate to baseline at which the candidate is neither better nor
    /// worse than accepted.
    #[must_use]
    pub fn limit(&self) -> f64 {
        match self.metric.more_is_better() {
            true => 1.0 - self.tolerance,
            false => 1.0 + self.tolerance,
        }
    }

    /// Returns the decision that follows from an interval for the ratio.
    #[must_use]
    pub fn decide(&self, interval: &Interval) -> GateDecision {
        let (limit, more_is_better) = (self.limit(), self.metric.more_is_better());
        match (interval.low > limit, interval.high < limit) {
            (true, _) if more_is_better => GateDecision::Passed,
            (_, true) if !more_is_better => GateDecision::Passed,
            (false, false) => GateDecision::Inconclusive,
            _ => GateDecision::Failed,
        }
    }
}

/// One server process of the baseline and one of the candidate, measured one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatePair {
    /// Number of the two server processes.
    pub process: u32,
    /// Figure of the baseline in the metric's unit.
    pub baseline: f64,
    /// Figure of the candidate in the metric's unit.
    pub candidate: f64,
    /// Interval for the ratio after this pair; null for the first pairs.
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
    /// 25 % at each end; null without pairs.
    pub ratio: Option<f64>,
    /// Interval for the ratio. It allows for the repeated looks; null for fewer than five pairs.
    pub interval: Option<Interval>,
    /// Ratio at which the decision changes.
    pub limit: f64,
    /// The pairs in order.
    pub pairs: Vec<GatePair>,
    /// Maximum number of pairs within the budget, estimated from the first pair; null before the
    /// first pair.
    pub max_pairs: Option<u32>,
    /// Pairs without a ratio, and the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Why the decision is inconclusive although the interval excludes the limit, or why there are
    /// too few pairs; null otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
    /// How the gate ended.
    pub ended: GateEnd,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(metric: ComparedMetric) -> GateRules {
        GateRules {
            baseline: "a".to_owned(),
            candidate: "b".to_owned(),
            metric,
            tolerance: 0.025,
            budget_s: 90.0,
        }
    }

    #[test]
    fn decides_in_the_direction_of_the_metric() {
        let decide = |metric, low, high| {
            rules(metric).decide(&Interval {
                low,
                high,
                confidence: 0.95,
                method: String::new(),
            })
        };
        use GateDecision::{Failed, Inconclusive, Passed};
        for (low, high, rate, time) in [
            (0.98, 1.01, Passed, Passed),
            (0.93, 0.97, Failed, Passed),
            (1.03, 1.07, Passed, Failed),
            (0.97, 0.99, Inconclusive, Passed),
            (1.01, 1.04, Passed, Inconclusive),
            (0.90, 1.10, Inconclusive, Inconclusive),
        ] {
            assert_eq!(decide(ComparedMetric::Throughput, low, high), rate, "{low}");
            assert_eq!(decide(ComparedMetric::P99, low, high), time, "{low}");
        }
    }
}
