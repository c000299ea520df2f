//! The loads of a search.

use std::time::Duration;

use floodmark_plan::Planned;
use floodmark_record::capacity::TrialStart;
use floodmark_record::plan::{FiguresOf, Length, Model, Plan, Schedule, Spacing};
use floodmark_record::profile::RateStep;
use floodmark_record::units::Rate;
use floodmark_stats::capacity::TrialLength;

/// Length of the load over a single connection, which shows the server's times without queues.
const IDLE: Duration = Duration::from_secs(1);

/// Length of the closed-model load, which shows about which rate the server can sustain.
const CLOSED: Duration = Duration::from_secs(2);

/// Number of requests that show whether the server has recovered from an overload.
const PROBE_REQUESTS: u64 = 5;

/// Length of an overload in seconds.
pub const OVERLOAD_S: f64 = 0.5;

/// Rate of an overload, as a multiple of the capacity.
pub const OVERLOAD_FACTOR: f64 = 1.5;

/// Time within which a connection is used again, if requests have no time limit.
const DEFAULT_REUSE: Duration = Duration::from_millis(100);

/// Minimum number of connections of the open model.
const FEWEST_CONNECTIONS: f64 = 100.0;

/// The loads of a search, derived from a closed-model plan and an open-model plan.
pub struct CapacityLoads<'a> {
    /// Plan of the closed model.
    pub closed: &'a Plan,
    /// Plan of the open model. Its rate and length are replaced.
    pub open: &'a Plan,
}

impl CapacityLoads<'_> {
    /// Returns the load over a single connection.
    pub fn idle(&self) -> Plan {
        Plan {
            model: Model::Closed {
                length: Length::Duration(IDLE),
            },
            connections: 1,
            threads: 1,
            warmup: Duration::ZERO,
            figures_of: FiguresOf::Whole,
            ..self.closed.clone()
        }
    }

    /// Returns the closed-model load over all connections. Its warm-up is the one of the plan.
    pub fn closed(&self) -> Plan {
        closed_load(self.closed)
    }

    /// Returns the load that shows whether the server has recovered from an overload.
    pub fn probe(&self) -> Plan {
        Plan {
            model: Model::Closed {
                length: Length::Requests(PROBE_REQUESTS),
            },
            ..self.idle()
        }
    }

    /// Returns the load of a trial. Its last step is judged. The `deadline` splits its responses
    /// into fast and slow ones.
    pub fn trial(
        &self,
        rate_per_s: f64,
        start: TrialStart,
        length: TrialLength,
        capacity_per_s: f64,
        deadline: Option<Duration>,
    ) -> Plan {
        let step = |rate_per_s, duration_s| RateStep {
            rate_per_s,
            duration_s,
        };
        let overload = match start {
            TrialStart::Idle => None,
            TrialStart::Overload => Some(step(OVERLOAD_FACTOR * capacity_per_s, OVERLOAD_S)),
        };
        let steady = [length.transient_s, length.judged_s].map(|s| step(rate_per_s, s));
        Plan {
            model: Model::Open {
                schedule: Schedule::Steps {
                    steps: overload.into_iter().chain(steady).collect(),
                    spacing: self.spacing(),
                },
                hold: self.open.hold(),
            },
            warmup: Duration::ZERO,
            figures_of: FiguresOf::Whole,
            deadline: deadline.unwrap_or(self.open.deadline),
            ..self.open.clone()
        }
    }

    /// Returns a load at a constant rate, or `None` if the rate is 0.
    pub fn at_rate(&self, rate_per_s: f64, length: TrialLength) -> Option<Plan> {
        let schedule = Schedule::Constant {
            rate: Rate::new(rate_per_s)?,
            spacing: self.spacing(),
            length: Length::seconds(length.transient_s + length.judged_s),
        };
        Some(Plan {
            model: Model::Open {
                schedule,
                hold: self.open.hold(),
            },
            warmup: Duration::ZERO,
            figures_of: FiguresOf::Whole,
            ..self.open.clone()
        })
    }

    fn spacing(&self) -> Spacing {
        match self.open.schedule() {
            Some(Schedule::Constant { spacing, .. }) => *spacing,
            _ => Spacing::Poisson,
        }
    }
}

/// Returns the first load of a search, for a plan of the closed model.
pub fn closed_load(plan: &Plan) -> Plan {
    Plan {
        model: Model::Closed {
            length: Length::Duration(CLOSED),
        },
        ..plan.clone()
    }
}

/// Returns the default number of connections of a search: enough for the requests of ten time
/// limits, or of 100 ms, whichever is longer, and at most as many as the plan allows.
pub fn default_connections(start_per_s: f64, limit_s: Option<f64>, most: u32) -> u32 {
    let reuse_s = limit_s
        .map_or(0.0, |limit_s| 10.0 * limit_s)
        .max(DEFAULT_REUSE.as_secs_f64());
    let connections = (start_per_s * reuse_s).max(FEWEST_CONNECTIONS).ceil();
    (connections as u32).min(most)
}

/// Returns a plan with the certificate authorities of `planned`.
pub fn with_anchors(plan: Plan, planned: &Planned) -> Planned {
    Planned {
        plan,
        anchors: planned.anchors.clone(),
        remarks: Vec::new(),
        notices: Vec::new(),
    }
}
