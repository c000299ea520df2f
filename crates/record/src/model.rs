//! The load model of a run: when requests are sent, and what ends the sending window.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::profile::{Ramp, RateSegment, RateStep, Replay, expected_by};

/// Load model: when requests are sent, and what ends the sending window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ModelForm", into = "ModelForm")]
pub enum Model {
    /// Each connection sends its next request after it has received a response.
    Closed {
        /// Condition that ends the sending window.
        length: Length,
    },
    /// Requests are sent on a schedule that does not depend on the server's responses.
    Open {
        /// Times at which requests are sent.
        schedule: Schedule,
        /// Whether all connections are opened before the sending window, kept open and used in
        /// turn.
        hold: bool,
    },
}

impl Model {
    /// Returns a closed model that runs for a number of seconds.
    ///
    /// # Panics
    /// Panics if `seconds` is negative, not finite or too large.
    #[must_use]
    pub fn closed(seconds: f64) -> Self {
        let length = Length::seconds(seconds);
        Model::Closed { length }
    }
}

/// Schedule of the open model.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// A constant rate.
    Constant {
        /// Total requests per second.
        rate: Rate,
        /// Spacing of the requests.
        spacing: Spacing,
        /// Condition that ends the sending window.
        length: Length,
    },
    /// A rate that changes linearly.
    Ramp {
        /// The rates and the length of the sending window.
        ramp: Ramp,
        /// Spacing of the requests.
        spacing: Spacing,
    },
    /// A sequence of constant rates.
    Steps {
        /// The rates, each with its duration.
        steps: Vec<RateStep>,
        /// Spacing of the requests.
        spacing: Spacing,
    },
    /// A number of requests at equal intervals.
    Burst {
        /// Number of requests.
        requests: u64,
        /// Total requests per second.
        rate: Rate,
    },
    /// The times in a file.
    Replay {
        /// The file and its arrivals.
        replay: Replay,
        /// Number of requests.
        requests: u64,
    },
}

impl Schedule {
    /// Returns the spacing of arrivals.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        match self {
            Schedule::Constant { spacing, .. }
            | Schedule::Ramp { spacing, .. }
            | Schedule::Steps { spacing, .. } => match spacing {
                Spacing::Constant => Arrivals::Constant,
                Spacing::Poisson => Arrivals::Poisson,
            },
            Schedule::Burst { .. } => Arrivals::Burst,
            Schedule::Replay { .. } => Arrivals::Replay,
        }
    }

    /// Returns whether the rate changes during the run.
    #[must_use]
    pub fn rate_changes(&self) -> bool {
        !matches!(self, Schedule::Constant { .. } | Schedule::Burst { .. })
    }

    /// Returns the condition that ends the sending window.
    #[must_use]
    pub fn length(&self) -> Length {
        match self {
            Schedule::Constant { length, .. } => *length,
            Schedule::Burst { requests, .. } | Schedule::Replay { requests, .. } => {
                Length::Requests(*requests)
            }
            Schedule::Ramp { .. } | Schedule::Steps { .. } => Length::seconds(self.window_s()),
        }
    }

    /// Returns the length of the sending window in seconds.
    /// For a fixed number of Poisson arrivals, this is the expected length.
    #[must_use]
    pub fn window_s(&self) -> f64 {
        match self {
            Schedule::Constant { length, rate, .. } => match length {
                Length::Duration(duration) => duration.as_secs_f64(),
                Length::Requests(n) => *n as f64 / rate.per_s(),
            },
            Schedule::Ramp { ramp, .. } => ramp.duration_s,
            Schedule::Steps { steps, .. } => steps.iter().map(|step| step.duration_s).sum(),
            Schedule::Burst { requests, rate } => *requests as f64 / rate.per_s(),
            Schedule::Replay { replay, .. } => replay.window_s,
        }
    }

    /// Returns the mean number of arrivals per second.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        match self {
            Schedule::Constant { rate, .. } | Schedule::Burst { rate, .. } => rate.per_s(),
            Schedule::Replay { replay, requests } => *requests as f64 / replay.window_s,
            Schedule::Ramp { .. } | Schedule::Steps { .. } => {
                let window_s = self.window_s();
                self.expected_by(window_s).unwrap_or(0.0) / window_s
            }
        }
    }

    /// Returns the maximum number of arrivals per second.
    #[must_use]
    pub fn peak_per_s(&self) -> f64 {
        match self {
            Schedule::Constant { rate, .. } | Schedule::Burst { rate, .. } => rate.per_s(),
            Schedule::Ramp { ramp, .. } => ramp.from_per_s.max(ramp.to_per_s),
            Schedule::Steps { steps, .. } => {
                steps.iter().map(|step| step.rate_per_s).fold(0.0, f64::max)
            }
            Schedule::Replay { replay, .. } => replay.peak_per_s as f64,
        }
    }

    /// Returns the rate segments in chronological order, without gaps; empty for a replay.
    #[must_use]
    pub fn segments(&self) -> Vec<RateSegment> {
        let parts: Vec<(f64, f64, f64)> = match self {
            Schedule::Constant { rate, .. } | Schedule::Burst { rate, .. } => {
                vec![(rate.per_s(), 0.0, self.window_s())]
            }
            Schedule::Ramp { ramp, .. } => vec![(
                ramp.from_per_s,
                (ramp.to_per_s - ramp.from_per_s) / ramp.duration_s,
                ramp.duration_s,
            )],
            Schedule::Steps { steps, .. } => steps
                .iter()
                .map(|s| (s.rate_per_s, 0.0, s.duration_s))
                .collect(),
            Schedule::Replay { .. } => Vec::new(),
        };
        let (mut from_s, mut before) = (0.0, 0.0);
        parts
            .into_iter()
            .map(|(rate_per_s, slope, length_s)| {
                let segment = RateSegment {
                    from_s,
                    length_s,
                    rate_per_s,
                    slope,
                    before,
                };
                from_s += length_s;
                before += segment.within(length_s);
                segment
            })
            .collect()
    }

    /// Returns the initial rate in arrivals per second; `None` for a replay.
    #[must_use]
    pub fn first_per_s(&self) -> Option<f64> {
        self.segments().first().map(|segment| segment.rate_per_s)
    }

    /// Returns the expected number of arrivals in the first `at_s` seconds: the integral of the
    /// rate.
    /// `None` for a replay.
    #[must_use]
    pub fn expected_by(&self, at_s: f64) -> Option<f64> {
        expected_by(&self.segments(), at_s)
    }
}

/// A rate in requests per second: finite and above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// Returns a rate, or `None` unless the number is finite and above 0.
    #[must_use]
    pub fn new(per_s: f64) -> Option<Self> {
        (per_s > 0.0 && per_s.is_finite()).then_some(Rate(per_s))
    }

    /// Returns the requests per second.
    #[must_use]
    pub fn per_s(self) -> f64 {
        self.0
    }
}

/// Spacing of requests at a given mean rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Equal intervals.
    #[default]
    Constant,
    /// Exponentially distributed intervals with the same mean.
    Poisson,
}

/// Condition that ends the sending window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// A duration.
    Duration(Duration),
    /// A number of requests.
    Requests(u64),
}

impl Length {
    /// Returns a length in seconds.
    ///
    /// # Panics
    /// Panics if `seconds` is negative, not finite or too large.
    #[must_use]
    pub fn seconds(seconds: f64) -> Self {
        Length::Duration(Duration::from_secs_f64(seconds))
    }

    /// Returns the duration in seconds, or `None` if the length is a number of requests.
    #[must_use]
    pub fn duration_s(self) -> Option<f64> {
        match self {
            Length::Duration(duration) => Some(duration.as_secs_f64()),
            Length::Requests(_) => None,
        }
    }

    /// Returns the number of requests, or `None` if the length is a duration.
    #[must_use]
    pub fn requests(self) -> Option<u64> {
        match self {
            Length::Duration(_) => None,
            Length::Requests(n) => Some(n),
        }
    }
}

/// JSON form of a [`Model`] within a plan. The JSON fields can contradict each other.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ModelForm {
    /// The load model: closed or open.
    model: ModelKind,
    /// Total arrivals per second in the open model; with a `profile`, the mean rate.
    rate_per_s: Option<f64>,
    /// How the rate changes over the sending window; null for a constant rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
    /// Spacing of arrivals; null in the closed model.
    arrivals: Option<Arrivals>,
    /// Whether all connections are opened before the sending window, kept open and used in turn.
    #[serde(default)]
    hold: bool,
    /// Length of the sending window in seconds; null if `requests` is given instead.
    duration_s: Option<f64>,
    /// Total number of requests; null if `duration_s` is given instead.
    requests: Option<u64>,
}

/// Whether a connection waits for a response before it sends the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Model")]
enum ModelKind {
    /// Each connection sends its next request after it has received a response.
    Closed,
    /// Requests are sent on a schedule that does not depend on the server's responses.
    Open,
}

/// How the rate changes over the sending window.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Profile {
    /// Linear change from one rate to another.
    Ramp(Ramp),
    /// A sequence of constant rates.
    Steps(Vec<RateStep>),
    /// Arrivals from a file of timestamps.
    Replay(Replay),
}

/// Spacing of arrivals in the open model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Equal intervals.
    Constant,
    /// Exponentially distributed intervals with a given mean.
    Poisson,
    /// A number of requests at equal intervals within a given time.
    Burst,
    /// The times in a file.
    Replay,
}

/// Error for a recorded plan whose fields contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("invalid plan: {0}")]
struct ContradictoryPlan(&'static str);

impl TryFrom<ModelForm> for Model {
    type Error = ContradictoryPlan;

    fn try_from(form: ModelForm) -> Result<Self, ContradictoryPlan> {
        let duration = |s| {
            Duration::try_from_secs_f64(s)
                .map_err(|_| ContradictoryPlan("a duration is negative or too long"))
        };
        let length = match (form.duration_s, form.requests) {
            (Some(s), None) => Length::Duration(duration(s)?),
            (None, Some(n)) => Length::Requests(n),
            _ => return Err(ContradictoryPlan("set either duration_s or requests")),
        };
        if form.model == ModelKind::Closed {
            return Ok(Model::Closed { length });
        }
        let rate = form.rate_per_s.and_then(Rate::new);
        let spacing = match form.arrivals {
            Some(Arrivals::Poisson) => Spacing::Poisson,
            _ => Spacing::Constant,
        };
        let schedule = match (form.profile, form.arrivals, length, rate) {
            (Some(Profile::Ramp(ramp)), ..) => Schedule::Ramp { ramp, spacing },
            (Some(Profile::Steps(steps)), ..) => Schedule::Steps { steps, spacing },
            (Some(Profile::Replay(replay)), _, Length::Requests(requests), _) => {
                Schedule::Replay { replay, requests }
            }
            (None, Some(Arrivals::Burst), Length::Requests(requests), Some(rate)) => {
                Schedule::Burst { requests, rate }
            }
            (None, Some(Arrivals::Constant | Arrivals::Poisson), length, Some(rate)) => {
                Schedule::Constant {
                    rate,
                    spacing,
                    length,
                }
            }
            _ => return Err(ContradictoryPlan("the open model has no valid schedule")),
        };
        duration(schedule.window_s())?;
        Ok(Model::Open {
            schedule,
            hold: form.hold,
        })
    }
}

impl From<Model> for ModelForm {
    fn from(model: Model) -> Self {
        let (model, schedule, length, hold) = match model {
            Model::Closed { length } => (ModelKind::Closed, None, length, false),
            Model::Open { schedule, hold } => {
                let length = schedule.length();
                (ModelKind::Open, Some(schedule), length, hold)
            }
        };
        ModelForm {
            model,
            rate_per_s: schedule.as_ref().map(Schedule::rate_per_s),
            arrivals: schedule.as_ref().map(Schedule::arrivals),
            profile: match schedule {
                Some(Schedule::Ramp { ramp, .. }) => Some(Profile::Ramp(ramp)),
                Some(Schedule::Steps { steps, .. }) => Some(Profile::Steps(steps)),
                Some(Schedule::Replay { replay, .. }) => Some(Profile::Replay(replay)),
                Some(Schedule::Constant { .. } | Schedule::Burst { .. }) | None => None,
            },
            hold,
            duration_s: length.duration_s(),
            requests: length.requests(),
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
