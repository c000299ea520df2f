//! Converts the flags of `floodmark load` to plan settings.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use floodmark_load::replay::TimestampUnit;
use floodmark_plan::spec::{RateSteps, ReplaySpec};
use floodmark_plan::target::ResolveError;
use floodmark_plan::{LoadSpec, PlanSpec, values};

use super::args::LoadArgs;
use crate::exit::Ending;

/// Flags for changing rates and for replays.
#[derive(Debug, Clone, Args)]
pub struct ChangingArgs {
    /// Open model: change the rate linearly from A to B requests per second over --duration:
    /// 0-1000, 5k-500 [default: none]
    #[arg(long, value_name = "A-B", value_parser = values::ramp, conflicts_with = "requests", help_heading = "Load")]
    pub ramp: Option<(f64, f64)>,

    /// Open model: send at each of these rates (requests/s) in turn: 1000,2000,5k for equal parts of
    /// --duration, or 1000:10s,0:5s,5k:30s for the given durations [default: none]
    #[arg(long, value_name = "LIST", value_parser = values::steps, conflicts_with = "requests", help_heading = "Load")]
    pub steps: Option<RateSteps>,

    /// Open model: send requests at the timestamps in a file, relative to the first timestamp; one
    /// per line, such as 1763741296.123, 2026-11-21T16:08:16.123Z or an access log line with
    /// [21/Nov/2026:16:08:16 +0000]; at most 10 million timestamps [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["requests", "duration", "arrivals"], help_heading = "Load")]
    pub replay: Option<PathBuf>,

    /// Replay speed relative to the timestamps in the file: 2x, 0.5x [default: 1x]
    #[arg(long, value_name = "FACTOR", value_parser = values::speed, requires = "replay", help_heading = "Load")]
    pub replay_speed: Option<f64>,

    /// Unit of plain numbers in the --replay file
    #[arg(long, value_enum, value_name = "UNIT", default_value_t = ReplayUnit::S, requires = "replay", help_heading = "Load")]
    pub replay_unit: ReplayUnit,
}

/// Unit of plain numbers in a replay file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayUnit {
    /// Seconds
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

impl ChangingArgs {
    /// Returns whether one of these flags determines the duration of the run.
    pub fn have_length(&self) -> bool {
        self.replay.is_some() || matches!(self.steps, Some(RateSteps::Timed(_)))
    }
}

impl LoadArgs {
    /// Converts the flags to plan settings.
    pub fn spec(&self) -> PlanSpec {
        let changing = &self.changing;
        let has_rate = self.rate.is_some() || changing.ramp.is_some() || changing.steps.is_some();
        let shared = self.shared.spec();
        PlanSpec {
            load: LoadSpec {
                connections: self.connections,
                duration: self.duration,
                requests: self.requests,
                rate: self.rate,
                burst: self.burst,
                within: self.within,
                arrivals: has_rate.then_some(self.arrivals.into()),
                warmup: Some(self.warmup),
                attempts: Some(self.attempts.into()),
                check: self.check.clone(),
                ..shared.load
            },
            ramp: changing.ramp,
            steps: changing.steps.clone(),
            replay: changing.replay.clone().map(|path| ReplaySpec {
                path,
                speed: changing.replay_speed.unwrap_or(1.0),
                unit: match changing.replay_unit {
                    ReplayUnit::S => TimestampUnit::Seconds,
                    ReplayUnit::Ms => TimestampUnit::Milliseconds,
                    ReplayUnit::Us => TimestampUnit::Microseconds,
                    ReplayUnit::Ns => TimestampUnit::Nanoseconds,
                },
            }),
            hold: self.hold,
            no_drain: self.no_drain,
            ..shared
        }
    }
}

impl From<ResolveError> for Ending {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Invalid(message) => Ending::usage(message),
            ResolveError::Unreachable(message) => Ending::server(message),
        }
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
