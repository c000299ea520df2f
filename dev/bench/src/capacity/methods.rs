//! floodmark's search and the searches with which it is compared.

use floodmark_record::interval::Interval;
use floodmark_stats::capacity::{
    CapacityEstimate, CapacityFinding, CapacitySearch, CapacitySettings, CapacityStep, TrialOutcome,
};

use super::mlrsearch::mlrsearch;
use super::servers::SimulatedServer;

/// Half-width of the interval at which a search ends, as a share of the capacity.
pub const PRECISION: f64 = 0.02;

/// Lowest rate that a search tries, in requests per second.
pub const LOWEST_PER_S: f64 = 1.0;

/// A way to find the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchMethod {
    /// `floodmark_stats::capacity`.
    Floodmark,
    /// Bisection until the bounds are within ±2 % of their midpoint.
    Binary,
    /// Bisection until the bounds differ by 0.06 %. MLPerf LoadGen even narrows them to 0.1/s.
    FineBinary,
    /// RFC 9971.
    MlrSearch,
}

/// What a search found, and its cost.
#[derive(Debug, Clone)]
pub struct SearchRun {
    pub finding: CapacityFinding,
    pub trials: usize,
}

impl SearchMethod {
    pub const ALL: [SearchMethod; 4] = [
        SearchMethod::Floodmark,
        SearchMethod::Binary,
        SearchMethod::FineBinary,
        SearchMethod::MlrSearch,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SearchMethod::Floodmark => "floodmark",
            SearchMethod::Binary => "binary, ± 2 %",
            SearchMethod::FineBinary => "binary, 0.06 %",
            SearchMethod::MlrSearch => "MLRsearch",
        }
    }

    /// Searches for the capacity of a server. `start_per_s` is the first rate.
    pub fn search(self, server: &mut SimulatedServer, start_per_s: f64) -> SearchRun {
        match self {
            SearchMethod::Floodmark => floodmark(server, start_per_s),
            SearchMethod::Binary => binary(server, start_per_s, 2.0 * PRECISION),
            SearchMethod::FineBinary => binary(server, start_per_s, 0.0006),
            SearchMethod::MlrSearch => mlrsearch(server, start_per_s),
        }
    }
}

fn floodmark(server: &mut SimulatedServer, start_per_s: f64) -> SearchRun {
    let settings = CapacitySettings {
        lowest_per_s: LOWEST_PER_S,
        precision: PRECISION,
        ..CapacitySettings::default()
    };
    let mut search = CapacitySearch::new(start_per_s, settings);
    let mut trials = 0;
    loop {
        match search.next() {
            CapacityStep::Trial { rate_per_s, .. } => {
                let outcome = server.trial(rate_per_s);
                search.record(rate_per_s, outcome, server.is_disturbed);
                trials += 1;
            }
            CapacityStep::Done(finding) => {
                return SearchRun {
                    finding: finding.with_short_trials(server.shortest_share),
                    trials,
                };
            }
        }
    }
}

/// Doubles or halves the rate until one trial has passed and another has missed, then bisects.
fn binary(server: &mut SimulatedServer, start_per_s: f64, width: f64) -> SearchRun {
    let (mut low, mut high) = (None, None);
    let mut rate = start_per_s;
    let mut trials = 0;
    loop {
        trials += 1;
        match server.trial(rate) {
            TrialOutcome::Pass => low = Some(rate),
            TrialOutcome::Miss | TrialOutcome::Void => high = Some(rate),
        }
        rate = match (low, high) {
            (Some(low), Some(high)) if (high - low) / high <= width => {
                return SearchRun {
                    finding: bracket(low, high),
                    trials,
                };
            }
            (Some(low), Some(high)) => 0.5 * (low + high),
            (Some(low), None) => 2.0 * low,
            (None, _) if rate <= LOWEST_PER_S => {
                return SearchRun {
                    finding: never(rate),
                    trials,
                };
            }
            (None, _) => (0.5 * rate).max(LOWEST_PER_S),
        };
    }
}

/// Returns the result of a search that states two bounds.
pub fn bracket(low: f64, high: f64) -> CapacityFinding {
    CapacityFinding::Capacity(CapacityEstimate {
        rate_per_s: 0.5 * (low + high),
        interval: Interval {
            low,
            high,
            confidence: 0.95,
            method: "the bounds of the search".to_owned(),
        },
        scatter: 0.0,
        is_confirmed: false,
    })
}

/// Returns the result of a search whose lowest rate missed.
pub fn never(rate_per_s: f64) -> CapacityFinding {
    CapacityFinding::Below {
        rate_per_s,
        is_lowest: true,
    }
}
